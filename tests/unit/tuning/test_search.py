"""A search meets every point once, walks from the best, and goes on from its notes."""

from __future__ import annotations

import dataclasses

from tilewright.base import dtypes
from tilewright.base.target import Target
from tilewright.compiler import pipeline
from tilewright.compiler.backends.registry import backend_of
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.schedule.rules import Decisions, KernelSpace, space_of
from tilewright.tuning import KernelSearch

TARGET = Target.level("v3")


def small_space() -> KernelSpace:
    """The space of a sum of rows."""
    b = GraphBuilder()
    x = b.input("x", TensorType(dtypes.f32, (6, 40)))
    b.output("y", b.reduce_sum(x, axes=(1,)))
    options = pipeline.CompileOptions(targets=(TARGET,), threads=1)
    (graph,) = pipeline.optimize(b.graph, options)
    (group,) = pipeline.find_kernels(graph)
    return space_of(group.naive, backend_of(TARGET).machine_model(TARGET))


def explored(search: KernelSearch, times: dict[str, float]) -> list[str]:
    """Every point that a search asks for, in order, where each takes what `times` says."""
    found: list[str] = []
    while points := search.next_points(3):
        for point in points:
            found.append(str(point))
            ratio = times.get(str(point), 2.0)
            search.note(point, ratio, is_best=ratio < search.best_ratio)
    return found


def test_no_point_is_tried_twice_and_all_of_a_small_space_are() -> None:
    space = small_space()
    found = explored(KernelSearch(space), {})
    assert len(found) == len(set(found))
    assert {*found, str(space.best())} == {str(point) for point in space.points()}


def test_the_best_is_found_and_its_neighbours_come_next() -> None:
    space = small_space()
    first = next(space.neighbours(space.best()))
    search = KernelSearch(space)
    (point,) = search.next_points(1)
    assert point == first
    search.note(point, 0.5, is_best=True)
    (then,) = search.next_points(1)
    assert then in list(space.neighbours(first))
    assert (search.best, search.best_ratio) == (first, 0.5)


def large_space() -> KernelSpace:
    """The space of a product with many tiles."""
    b = GraphBuilder()
    x = b.input("x", TensorType(dtypes.f32, (200, 300)))
    y = b.input("y", TensorType(dtypes.f32, (300, 400)))
    b.output("z", b.matmul(x, y))
    options = pipeline.CompileOptions(targets=(TARGET,), threads=1)
    (graph,) = pipeline.optimize(b.graph, options)
    group = max(pipeline.find_kernels(graph), key=lambda g: "matmul" in g.naive.name)
    return space_of(group.naive, backend_of(TARGET).machine_model(TARGET))


def test_every_choice_is_met_before_any_is_tried_out() -> None:
    space = large_space()
    best = space.best()
    near = list(space.neighbours(best))
    open_choices = {
        choice.name
        for choice in space.nests[0].choices
        if any(_first_change(best, point) == choice.name for point in near)
    }
    assert len(open_choices) > 3
    first = KernelSearch(space).next_points(len(open_choices))
    assert {_first_change(best, point) for point in first} == open_choices
    everything = KernelSearch(space).next_points(len(near))
    assert set(everything) == set(near)


def _first_change(best: Decisions, point: Decisions) -> str:
    """The first choice of the largest nest that is another."""
    own, other = best.nests[0], point.nests[0]
    names = [field.name for field in dataclasses.fields(own)]
    return next((n for n in names if getattr(own, n) != getattr(other, n)), "")


def test_a_search_goes_on_from_its_notes() -> None:
    space = small_space()
    search = KernelSearch(space)
    before = search.next_points(4)
    for point in before:
        search.note(point, 1.5)
    again = KernelSearch(space, search.tried)
    assert not set(map(str, before)) & set(map(str, again.next_points(1000)))


def test_a_space_that_is_tried_out_has_no_next_point() -> None:
    space = small_space()
    search = KernelSearch(space, {str(point): 1.0 for point in space.points()})
    assert search.next_points(4) == []
