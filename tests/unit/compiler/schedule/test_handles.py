"""Primitives hand back what they made, under the names it has in the kernel."""

from __future__ import annotations

from fakes.loop_nests import doubled, product
from tilewright.base.symbolic import symbol
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.schedule.handles import WHOLE, Piece
from tilewright.compiler.schedule.primitives import (
    cache_read,
    fission,
    fuse,
    partition,
    rfactor,
    specialize,
    split,
    split_powers,
    unroll,
)
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import find, find_buffer

N = symbol("N", 1, 7)


def test_a_split_loop_is_two() -> None:
    s = Schedule(doubled(10))
    outer, inner = s.apply(split, "i", 4)
    assert find(s.kernel, outer).extent == 3
    assert find(s.kernel, inner).extent == 4
    assert s.apply(fuse, outer, inner) == outer
    assert s.apply(unroll, outer) is None


def test_parts_are_found_whatever_they_are_called() -> None:
    s = Schedule(product(5, 7, 6))
    first, second = s.apply(partition, "i", 2)
    assert first is WHOLE
    assert find(s.kernel, second["i"]).extent == 3
    assert second["j"] in {x.var.name for x in loops(find(s.kernel, second["i"]).body)}


def test_a_part_that_never_runs_is_not_handed_back() -> None:
    s = Schedule(doubled(10))
    (only,) = s.apply(partition, "i", 0)
    assert find(s.kernel, only["i"]).extent == 10


def test_full_and_partial_runs_are_parts() -> None:
    s = Schedule(doubled(10))
    _, inner = s.apply(split, "i", 4)
    full, rest = s.parts(specialize, inner)
    assert find(s.kernel, full[inner]).extent == 4
    assert find(s.kernel, rest[inner]).extent == 2
    assert s.parts(specialize, full[inner]) == (WHOLE,)  # it has no guard any more


def test_powers_of_two_are_parts() -> None:
    s = Schedule(doubled(N))
    parts = s.apply(split_powers, "i", 4)
    assert [find(s.kernel, part["i"]).extent for part in parts] == [4, 2, 1]


def test_statements_with_loops_of_their_own_are_parts() -> None:
    s = Schedule(product(5, 7, 6))
    parts = s.apply(fission, "i", 2)
    names = [part["j"] for part in parts]
    assert len(names) == len(set(names)) > 1
    assert all(find(s.kernel, name).extent == 7 for name in names)


def test_caches_and_partial_results_come_with_their_loops() -> None:
    s = Schedule(product(5, 7, 8))
    cache, copy = s.apply(cache_read, "a", "j")
    assert find_buffer(s.kernel, cache).shape == (8,)
    assert [find(s.kernel, name).extent for name in copy] == [8]
    _, lane = s.apply(split, "k", 4)
    total, start = s.apply(rfactor, "y", [lane])
    assert find_buffer(s.kernel, total).shape == (4,)
    assert find(s.kernel, start).extent == 4


def test_a_part_of_a_part_is_one_of_the_first_code() -> None:
    first = Piece({"i": "i_2", "j": "j_2"})  # type: ignore[arg-type]
    further = Piece({"j_2": "j_3", "k": "k_2"})  # type: ignore[arg-type]
    both = first.then(further)
    assert [both[name] for name in "ijkl"] == ["i_2", "j_3", "k_2", "l"]
