"""Modules, executors and machines that are given what makes no sense: errors of ours, with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import tilewright as tw
from fakes.graphs_of_tvm import GraphMaker
from fakes.small_models import mlp
from tilewright.runtime import FunctionTable, load_module

LIB = FunctionTable({"copy": lambda x, y: None})


def graph() -> bytes:
    made = GraphMaker()
    return made.file(list(made.call("copy", [made.input("x", [2])], [[2]])))


def executor() -> Any:
    return tw.graph_executor.create(graph(), LIB, tw.cpu(0))


def net() -> Any:
    return tw.graph_executor.GraphModule(executor())


def debug(**options: Any) -> Any:
    return tw.debug_executor.create(graph(), LIB, tw.cpu(0), **options)


def machine() -> Any:
    return tw.VirtualMachine(LIB, tw.cpu(0))


ANY: Any = None
CASES: dict[str, tuple[Callable[[], object], str]] = {
    "a graph": (lambda: tw.graph_executor.create(ANY, LIB), "graph_json is None"),
    "a module": (lambda: tw.graph_executor.create(graph(), ANY), "load_module"),
    "a module of a machine": (lambda: tw.VirtualMachine(ANY, tw.cpu(0)), "load_module"),
    "a function of a module": (
        lambda: LIB[cast("Any", 3)],
        "got int, expected the name of a function",
    ),
    "a function of a machine": (lambda: machine()[3], "got int, expected the name"),
    "a global function": (
        lambda: tw.get_global_func(cast("Any", 5)),
        "name is 5, expected the name",
    ),
    "a new global function": (
        lambda: tw.register_global_func(cast("Any", 5), abs),
        "name is 5, expected the name",
    ),
    "parameters": (lambda: net().load_params(None), "params is None, expected the bytes"),
    "a file of parameters": (lambda: net().load_params("a.params"), "read_bytes"),
    "whose parameters": (lambda: net().share_params(None, b""), "other is None"),
    "a folder": (lambda: debug(dump_root=5), "dump_root is 5, expected the path"),
    "a node": (lambda: debug().debug_get_output(None), "got NoneType, expected the name"),
    "an executor": (
        lambda: tw.debug_executor.first_divergence(debug(), ANY),
        "right is None, expected a debug executor",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_makes_no_sense_is_named_with_what_is_expected(case: str) -> None:
    call, words = CASES[case]
    with pytest.raises(tw.TilewrightError, match=words):
        call()


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "net.vmfb"
    tw.build(mlp()).export_library(path)
    return path


def test_options_that_nobody_knows_or_that_make_no_sense_are_refused_when_a_module_is_loaded(
    archive: Path,
) -> None:
    with pytest.raises(tw.UserError, match="no option 'thread'") as caught:
        cast("Any", load_module)(archive, thread=3)
    assert caught.value.hint == "did you mean 'threads'?"
    for name, value in (("threads", "two"), ("engine", "tvm"), ("untrusted", "no")):
        with pytest.raises(tw.UserError, match=f"{name} is '{value}'"):
            cast("Any", load_module)(archive, **{name: value})


def test_what_is_made_says_what_it_is() -> None:
    assert repr(net()) == "<GraphModule of 1 inputs and parameters, 1 outputs>"
    assert repr(debug()) == "<GraphModuleDebug of 1 inputs and parameters, 1 outputs>"
    assert repr(machine()) == "<VirtualMachine on cpu0, module of kind 'virtual_machine'>"
