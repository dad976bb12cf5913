"""Random typed graphs compute compiled what the evaluator computes, at every level and size.

The default run keeps twelve graphs that hypothesis chooses the same way each time; `slow` more of them, and
graphs from plain random numbers, more and larger ones, for every x86-64 level of this machine;
`make test-nightly` a thousand of them.
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
@hypothesis.settings(SAME_GRAPHS, max_examples=12)
def test_a_compiled_graph_agrees_with_the_evaluator(
    graph: Graph, opt_level: int, threads: int
) -> None:
    check(graph, Target.host(), (opt_level,), threads)


@pytest.mark.slow
@hypothesis.given(*GRAPHS)
@hypothesis.settings(SAME_GRAPHS, max_examples=120)
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


@pytest.mark.sampled(10)
@pytest.mark.parametrize("batch", range(FEW_BATCHES, BATCHES))
def test_a_thousand_larger_graphs_agree(batch: int) -> None:
    check_batch(batch, Target.host(), (2,))


@pytest.mark.nightly
@pytest.mark.parametrize("target", targets_here(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("batch", range(FEW_BATCHES, BATCHES))
def test_a_thousand_larger_graphs_agree_at_every_level(batch: int, target: Target) -> None:
    """By `make test-nightly`."""
    check_batch(batch, target)
