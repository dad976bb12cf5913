"""Mutated graphs that are run: values of the JSON are changed, and what is still a graph makes an executor.

What it is: a harness.  The functions of the graphs fill their results; two are kernels of ours, whose
machine code would read past what they are given if nobody checked it.  Input `i` of seed `s` is always the same.
What it is not: about damaged bytes (`format_mutations.py graph`).
Who calls it: developers, before releases::

    nice -n 19 python tests/fuzz/graph_mutations.py --count 1000000 > build/fuzz-graphs.txt
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

import tilewright
from fakes import graphs_of_tvm, small_models
from fuzz.harness import FindingError, Outcome, add_options, report, run_range
from tilewright.api.factory import Factory
from tilewright.base.errors import InternalError, TilewrightError
from tilewright.formats.graph_json import read_graph, write_graph
from tilewright.runtime import native
from tilewright.runtime.debug_executor import GraphModuleDebug
from tilewright.runtime.graph_executor import executor_module
from tilewright.runtime.graph_executor.graph_program import GraphProgram
from tilewright.runtime.packed.function_table import FunctionTable
from tilewright.runtime.packed.kernel_function import RecordableKernel
from tilewright.runtime.packed.module import Module

HEAP_BYTES = 1 << 22
WORDS = (
    "",
    "x",
    "__nop",
    "__copy",
    "null",
    "tvm_op",
    "float64",
    "int8",
    "bool",
    "list_int",
    "0",
    "3",
)
NUMBERS = (-1, 0, 1, 2, 3, 5, 64, 1 << 20, (1 << 31) - 1, 1 << 62, 1 << 70, -(1 << 40))
OTHERS: tuple[Any, ...] = (None, True, 1.5, [], {}, [0], [0, 0, 0], [[1, 2]], "x" * 300)


class Library(FunctionTable):
    """Functions that fill their last tensor, and the kernels of a compiled model."""

    def __init__(self, names: set[str], kernels: Module) -> None:
        super().__init__(dict.fromkeys(names, _fill))
        self.kernels = kernels

    def find_kernel(self, name: str) -> RecordableKernel | None:
        return self.kernels.find_kernel(name)


def _fill(*tensors: Any) -> None:
    if tensors:
        np.from_dlpack(tensors[-1])[...] = 1


@functools.cache
def _factory() -> Factory:
    return tilewright.compile(small_models.mlp(), threads=1).build()


@functools.cache
def seeds() -> tuple[Any, ...]:
    """The graphs that mutations begin with."""
    compiled = json.loads(_factory().graph_json)
    del compiled["metadata"]
    return (*(json.loads(data) for data in graphs_of_tvm.files()), compiled)


@functools.cache
def library() -> Library:
    """What all of them call."""
    return Library(set(names()) - set(_factory().lib.function_names()), _factory().lib)


@functools.cache
def names() -> tuple[str, ...]:
    """The functions of all seeds."""
    found = {
        node.get("attrs", node.get("attr", {})).get("func_name", "")
        for tree in seeds()
        for node in tree["nodes"]
    }
    return tuple(sorted(found - {"", "__nop", "__copy"}))


# --- mutations ----------------------------------------------------------------------------------


def mutated(chooser: random.Random) -> bytes:
    """A graph with some values changed."""
    tree = copy.deepcopy(chooser.choice(seeds()))
    for _ in range(chooser.choice((1, 1, 1, 2, 3, 6))):
        _change(tree, chooser)
    return json.dumps(tree).encode()


def _change(tree: Any, chooser: random.Random) -> None:
    """Walk down to some value, numbers and texts more often than what holds them, and change it."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        if not keys:
            return
        key = chooser.choice(keys)
        below = tree[key]
        if not isinstance(below, dict | list) or not below or chooser.random() < 0.05:
            break
        tree = below
    action = chooser.random()
    if action < 0.06:
        del tree[key]
    elif action < 0.12 and isinstance(tree, list):
        tree.insert(key, copy.deepcopy(chooser.choice(tree)))
    else:
        tree[key] = _value(tree[key], chooser)


def _value(old: Any, chooser: random.Random) -> Any:
    if chooser.random() < 0.05:
        return copy.deepcopy(chooser.choice(OTHERS))
    if isinstance(old, int):
        near = old + chooser.choice((-2, -1, 1, 2))
        return chooser.choice((near, near, chooser.randrange(12), chooser.choice(NUMBERS)))
    if isinstance(old, str):
        return chooser.choice(
            (chooser.choice(WORDS), chooser.choice(names()), str(chooser.randrange(5)))
        )
    return copy.deepcopy(chooser.choice(OTHERS))


# --- running ------------------------------------------------------------------------------------


def run_one(seed: str, number: int) -> str:
    """What became of an input.  Raises: FindingError."""
    data = mutated(random.Random(f"graphs:{seed}:{number}"))
    try:
        return _run(data)
    except InternalError as error:
        raise FindingError(number, f"internal error: {error}") from error
    except TilewrightError:
        return "refused"
    except Exception as error:
        raise FindingError(number, f"{type(error).__name__}: {error}") from error


def _run(data: bytes) -> str:
    graph = read_graph(data)
    assert read_graph(write_graph(graph)) == graph
    heap = native.Heap(HEAP_BYTES)
    try:
        program = GraphProgram(graph, library(), None, heap)
        module = GraphModuleDebug(executor_module(program))
        GraphModuleDebug.__mro__[1].run(module)
        for index in range(module.get_num_outputs()):
            module.get_output(index).numpy()
        module.tensors()
    except TilewrightError:
        return "not run"
    return "run"


def run(seed: str, first: int, count: int) -> Iterator[Outcome]:
    """What became of a range of inputs."""
    return run_range(functools.partial(run_one, seed), first, count)


def main() -> int:
    """Run a range of inputs, print findings and counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_options(parser, "graphs")
    options = parser.parse_args()
    library()
    return report(run(options.seed, options.first, options.count))


if __name__ == "__main__":
    sys.exit(main())
