"""Random typed graphs compute compiled what the evaluator computes, at every level and size.

The default run keeps twelve graphs that hypothesis chooses the same way each time; `slow` more of them, and
graphs from plain random numbers, more and larger ones, for every x86-64 level of this machine;
`make test-nightly` a thousand of them, once more with kernels whose schedules are any points of their spaces.
"""

from __future__ import annotations

import random

import hypothesis
import pytest
from hypothesis import strategies as st

from fakes.native_kernel import needs_x86, targets_apart, targets_here
from fuzz.comparison import assert_close, coarsest, compiled, expected_of, run
from fuzz.typed_graphs import inputs_for, make_graph, typed_graphs
from tilewright.base.target import Target
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.schedule import rules
from tilewright.compiler.schedule.machine_model import MachineModel

pytestmark = needs_x86
SIZES = ({"N": 1, "M": 1}, {"N": 3, "M": 17}, {"N": 33, "M": 7})
BATCH, FEW_BATCHES, BATCHES = 25, 2, 43
GRAPHS = (typed_graphs(), st.sampled_from((2, 2, 1, 0)), st.sampled_from((1, 2)))
SAME_GRAPHS = hypothesis.settings(
    derandomize=True, suppress_health_check=list(hypothesis.HealthCheck)
)


def check(graph: Graph, target: Target, opt_levels: tuple[int, ...], threads: int) -> None:
    feeds = [inputs_for(graph, dims, seed=1) for dims in SIZES]
    expected = [expected_of(graph, inputs) for inputs in feeds]
    for opt_level in opt_levels:
        model = compiled(graph, target, opt_level=opt_level, threads=threads)
        for inputs, wanted in zip(feeds, expected, strict=True):
            assert_close(run(model, inputs), wanted, coarsest(graph))


@hypothesis.given(*GRAPHS)
@hypothesis.settings(SAME_GRAPHS, max_examples=6)
def test_a_compiled_graph_agrees_with_the_evaluator(
    graph: Graph, opt_level: int, threads: int
) -> None:
    check(graph, Target.host(), (opt_level,), threads)


@pytest.mark.slow
@hypothesis.given(*GRAPHS)
@hypothesis.settings(SAME_GRAPHS, max_examples=24)
def test_more_compiled_graphs_agree_with_the_evaluator(
    graph: Graph, opt_level: int, threads: int
) -> None:
    check(graph, Target.host(), (opt_level,), threads)


def check_batch(
    batch: int, target: Target, opt_levels: tuple[int, ...] = (2, 1, 0)
) -> None:
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        try:
            check(make_graph(random.Random(seed), 14), target, opt_levels, 1 + seed % 2)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.nightly
@pytest.mark.parametrize("target", targets_apart(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("batch", range(FEW_BATCHES))
def test_larger_graphs_agree_at_every_level(batch: int, target: Target) -> None:
    check_batch(batch, target)


@pytest.mark.sampled(50)
@pytest.mark.parametrize("batch", range(FEW_BATCHES, BATCHES))
def test_a_thousand_larger_graphs_agree(batch: int) -> None:
    check_batch(batch, Target.host(), (2,))


@pytest.mark.nightly
@pytest.mark.parametrize("target", targets_here(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("batch", range(FEW_BATCHES, BATCHES))
def test_a_thousand_larger_graphs_agree_at_every_level(batch: int, target: Target) -> None:
    """By `make test-nightly`."""
    check_batch(batch, target)


# --- kernels that are decided by chance ----------------------------------------------------------


def decide_by_chance(monkeypatch: pytest.MonkeyPatch, seed: int) -> list[str]:
    """From now on any point of its space is a kernel's schedule; the points, for who wants to see them."""
    chance, plain, points = random.Random(seed), rules.schedule, list[str]()

    def schedule(
        naive: Kernel,
        machine: MachineModel,
        *,
        threads: int = 1,
        decisions: rules.Decisions | None = None,
    ) -> Kernel:
        assert decisions is None
        point = rules.space_of(naive, machine, threads=threads).sample(chance)
        points.append(str(point))
        return plain(naive, machine, threads=threads, decisions=point)

    monkeypatch.setattr(rules, "schedule", schedule)
    return points


def check_decided_by_chance(
    seeds: range, target: Target, monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    points: list[str] = []
    for seed in seeds:
        with monkeypatch.context() as patch:
            found = decide_by_chance(patch, seed)
            try:
                check(make_graph(random.Random(seed), 14), target, (2,), 1 + seed % 2)
            except Exception as error:
                error.add_note(f"seed {seed}: {found}")
                raise
            points += found
    return points


@pytest.mark.slow
def test_graphs_agree_whatever_is_decided_of_their_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = check_decided_by_chance(range(5000, 5016), Target.host(), monkeypatch)
    assert len(set(points)) > 30


@pytest.mark.nightly
@pytest.mark.parametrize("target", targets_apart(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_thousand_graphs_agree_whatever_is_decided_of_their_kernels(
    batch: int, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By `make test-nightly`."""
    first = 6000 + batch * BATCH
    check_decided_by_chance(range(first, first + BATCH), target, monkeypatch)
