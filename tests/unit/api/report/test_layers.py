"""The layout of graphs: downwards, without overlap, quick."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.api.report.layers import Layout, lay_out, layers_of

Edges = list[tuple[int, int]]


def laid(count: int, edges: Edges, width: float = 100.0) -> Layout:
    return lay_out([width] * count, edges, layers_of(count, edges))


def chain(count: int) -> Edges:
    return [(n, n + 1) for n in range(count - 1)]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, Edges]:
    count = draw(st.integers(1, 30))
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    edges = draw(st.lists(pairs, max_size=60))
    return count, [(min(e), max(e)) for e in edges if e[0] != e[1]]


@given(graphs())
def test_every_edge_goes_down_and_nothing_overlaps(graph: tuple[int, Edges]) -> None:
    count, edges = graph
    found = laid(count, edges)
    for source, target in edges:
        assert found.layer[source] < found.layer[target]
    rows: dict[int, list[float]] = {}
    for layer, center in zip(found.layer, found.center, strict=True):
        rows.setdefault(layer, []).append(center)
    for centers in rows.values():
        centers.sort()
        for left, right in pairwise(centers):
            assert right - left >= 100.0 - 1e-6
    for center in found.center:
        assert 50.0 - 1e-6 <= center <= found.width - 50.0 + 1e-6
    for (source, target), bends in found.bends.items():
        assert len(bends) == found.layer[target] - found.layer[source] - 1
    assert set(found.bends) | set(found.far) == set(edges)


def test_a_chain_is_a_straight_line() -> None:
    found = laid(50, chain(50))
    assert found.layer == tuple(range(50))
    assert len(set(found.center)) == 1


def test_a_residual_goes_around_the_chain_which_stays_nearly_straight() -> None:
    edges = [*chain(9), (0, 4), (4, 8)]
    found = laid(9, edges)
    assert max(found.center) - min(found.center) < 12.0
    for node, bend in enumerate(found.bends[0, 4], 1):
        assert abs(bend - found.center[node]) >= 57.0 - 1e-6


def test_a_node_stands_above_its_first_reader() -> None:
    layers = layers_of(7, [(0, 6), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6)])
    assert layers == [4, 0, 1, 2, 3, 4, 5]


def test_tensors_that_are_read_far_away_are_said_not_drawn() -> None:
    found = laid(200, [*chain(200), (0, 199)])
    assert found.far == ((0, 199),)
    assert (0, 199) not in found.bends


@pytest.mark.slow
@pytest.mark.parametrize("count", [500, 2000])
def test_large_graphs_have_a_layer_per_step(count: int) -> None:
    chance = random.Random(1)
    edges = chain(count)
    edges += [(n, min(n + chance.randint(2, 40), count - 1)) for n in range(count - 2)]
    assert laid(count, edges).layer_count == count


def test_no_nodes_are_a_layout_too() -> None:
    assert laid(0, []) == Layout((), (), {}, (), 0.0, 0)
