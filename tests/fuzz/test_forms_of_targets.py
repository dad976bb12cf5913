"""What the passes and schedules of any target make of a graph computes what the graph does.

No code is made, so that every machine of the tables has its turn, whatever this one is.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from fakes.loop_nests import assert_same
from fuzz import ordinary_networks, typed_graphs
from fuzz.comparison import assert_close, coarsest, copy_of, expected_of
from tilewright.base.dtypes import f32
from tilewright.base.target import Target
from tilewright.compiler import pipeline
from tilewright.compiler.analysis.sizes import steps_in
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.verifier import verify
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.lowering.kernel_uses import find_kernels
from tilewright.compiler.passes import run_passes
from tilewright.compiler.schedule import rules
from tilewright.compiler.schedule.machine_model import MachineModel

TARGETS = tuple(
    Target.parse(text)
    for text in (
        "v1", "v2", "v3", "v4", "x86_64 -mcpu=haswell", "x86_64 -mcpu=alderlake",
        "x86_64 -mcpu=cascadelake", "x86_64 -mcpu=icelake-server", "x86_64 -mcpu=sapphirerapids",
        "x86_64 -mcpu=graniterapids", "x86_64 -mcpu=znver2", "x86_64 -mcpu=znver3", "x86_64 -mcpu=znver4",
        "x86_64 -mcpu=znver5", "aarch64 -mcpu=cortex-a72", "aarch64 -mcpu=neoverse-n1",
        "aarch64 -mcpu=neoverse-v1", "aarch64 -mcpu=apple-m1", "aarch64 -mcpu=apple-m1 -mattr=+bf16,+i8mm",
        "riscv64 -mcpu=generic-rv64v", "c -mcpu=x86-64-v3", "c x86_64 -mcpu=any",
    )
)  # fmt: skip
PRECISIONS = ("f32", "f32", "f32", "bf16", "i8")
MOST_STEPS = 20_000
"""Steps of the loops of a kernel that is evaluated: each takes some microseconds."""
BATCH = 20


def formed(graph: Graph, targets: Sequence[Target], precision: str) -> tuple[Graph, Graph]:
    """The graph as it is for any machine, and as the kernels of the first target want it, which share what they can with the others'."""
    options = pipeline.CompileOptions(targets=tuple(targets), precision=precision)
    neutral = pipeline.neutral_passes((), precision)
    run_passes(graph, neutral, options.pass_context)
    own = copy_of(graph)
    passes = pipeline.formed_passes(pipeline.form_for(targets[0], targets, own))
    held = frozenset[str]().union(*(each.ensures for each in neutral))
    run_passes(own, passes, options.pass_context, held=held)
    verify(own)
    return graph, own


def assert_form_agrees(graph: Graph, targets: Sequence[Target], precision: str) -> Graph:
    """What is rounded otherwise is compared from where it is rounded on; the form."""
    exact = copy_of(graph)
    neutral, own = formed(graph, targets, precision)
    inputs = ordinary_networks.inputs_for(exact, 3, seed=1)
    results = expected_of(own, inputs)
    rounds = any(value.type.dtype.bits < f32.bits for value in neutral.values())
    for before in (neutral, exact)[: 2 if precision == "f32" else 1]:
        expected = expected_of(before, inputs)
        if rounds or precision != "f32":
            assert_near(results, expected, 10 if precision == "i8" else 1)
        else:
            assert_close(results, expected, coarsest(exact))
    return own


def assert_near(
    actual: Sequence[np.ndarray], expected: Sequence[np.ndarray], bound: float
) -> None:
    """Close on the whole, and nowhere far apart: a sum in another order may be rounded to the next number."""
    for got, want in zip(actual, expected, strict=True):
        assert got.shape == want.shape
        assert got.dtype == want.dtype
        apart = np.abs(got.astype(np.float64) - want)
        scale = max(1e-3, float(np.abs(want).max(initial=0)))
        assert float(apart.max(initial=0)) <= min(0.5, 0.05 * bound) * scale
        assert not apart.size or float(apart.mean()) <= 2e-3 * bound * scale


def assert_kernels_agree(own: Graph, target: Target, threads: int) -> int:
    """The kernels that are small compute scheduled what they compute naive; how many there were."""
    machine = MachineModel.of(target)
    small = [use.naive for use in find_kernels(own) if is_small(use.naive)]
    for naive in small:
        done = rules.schedule(naive, machine, threads=threads)
        dims = {symbol.name: max(3, symbol.lower or 0) for symbol in naive.dims}
        assert_same(naive, done, dims, exact=False)
    return len(small)


def is_small(kernel: Kernel) -> bool:
    """Whether all its loops together take few steps."""
    return sum(steps_in((nest,)) for nest in kernel.body) <= MOST_STEPS


def drawn_targets(chance: random.Random) -> list[Target]:
    """One target, or several of one artifact."""
    first = chance.choice(TARGETS)
    alike = [each for each in TARGETS if each.arch == first.arch and each != first]
    return [first, *chance.sample(alike, chance.choice((0, 0, 1, 2)) if alike else 0)]


def check_networks(seeds: range) -> int:
    """Networks of a range of seeds, for some targets each; how many kernels were compared."""
    count = 0
    for seed in seeds:
        chance = random.Random(seed)
        targets, precision = drawn_targets(chance), chance.choice(PRECISIONS)
        try:
            graph = ordinary_networks.make_network(chance)
            own = assert_form_agrees(graph, targets, precision)
            count += assert_kernels_agree(own, targets[0], 1 + seed % 2)
        except Exception as error:
            error.add_note(f"seed {seed} for {', '.join(map(str, targets))}, {precision}")
            raise
    return count


def check_typed_graphs(seeds: range) -> None:
    """Graphs of many ops and types, for some targets each."""
    for seed in seeds:
        chance = random.Random(seed)
        targets = drawn_targets(chance)
        try:
            graph = typed_graphs.make_graph(chance, 14)
            inputs = typed_graphs.inputs_for(graph, {"N": 3, "M": 17}, seed=1)
            expected = expected_of(graph, inputs)
            _, own = formed(graph, targets, "f32")
            assert_close(expected_of(own, inputs), expected, coarsest(own))
        except Exception as error:
            error.add_note(f"seed {seed} for {', '.join(map(str, targets))}")
            raise


def test_networks_agree_in_the_forms_of_some_targets() -> None:
    assert check_networks(range(2)) > 0


@pytest.mark.sampled(41)
@pytest.mark.parametrize("batch", range(30))
def test_networks_agree_in_the_forms_of_targets(batch: int) -> None:
    assert check_networks(range(batch * BATCH, (batch + 1) * BATCH)) > 0


def test_typed_graphs_agree_in_the_forms_of_some_targets() -> None:
    check_typed_graphs(range(10))


@pytest.mark.sampled(10)
@pytest.mark.parametrize("batch", range(30))
def test_typed_graphs_agree_in_the_forms_of_targets(batch: int) -> None:
    first = 2 * batch * BATCH
    check_typed_graphs(range(first, first + 2 * BATCH))
