from __future__ import annotations

import pytest

from fakes.loop_nests import assert_same, body_text, chained, product, row_sums
from tilewright.base.dtypes import f32, i64
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import symbol
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import AccessMode, Kernel
from tilewright.compiler.schedule.primitives import (
    cache_write,
    fission,
    fuse_nests,
    privatize,
    split,
)


def test_fuse_nests_joins_loops_of_equal_extent() -> None:
    changed = fuse_nests(chained(), "i", "j")
    assert body_text(changed) == (
        "for i in range(9):\n    t[i] = (x[i] + 1.0)\n    y[i] = (t[i] * t[i])"
    )
    assert_same(chained(), changed)


def test_fuse_nests_of_dynamic_loops() -> None:
    kernel = chained(symbol("N", 0))
    for size in (0, 1, 6):
        assert_same(kernel, fuse_nests(kernel, "i", "j"), {"N": size})


def test_fuse_nests_refuses_to_read_what_a_later_iteration_writes() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (8,)), b.result("y", f32, (8,))
    t = b.temporary(f32, (8,), "t")
    with b.nest((8,), ("i",)) as (i,):
        b.store(t, (i,), b.load(x, (i,)))
    with b.nest((8,), ("j",)) as (j,):
        b.store(y, (j,), b.load(t, (7 - j,)))
    with pytest.raises(ScheduleError, match="needs 't' of another iteration"):
        fuse_nests(b.build(), "i", "j")


def test_fuse_nests_moves_down_when_code_between_is_in_the_way_of_moving_up() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (6,)), b.result("y", f32, (6,))
    total = b.result("total", f32, ())
    with b.nest((6,), ("i",)) as (i,):
        b.store(y, (i,), b.mul(b.load(x, (i,)), 3))
    b.store(total, (), 0)
    with b.reduce((6,), ("k",)) as (k,):
        b.accumulate("add", total, (), b.load(y, (k,)))
    kernel = b.build()
    changed = fuse_nests(kernel, "i", "k")
    assert body_text(changed).startswith("total[] = 0.0\nfor i")
    assert_same(kernel, changed)


def test_fuse_nests_refuses_when_neither_can_pass_what_stands_between() -> None:
    b = KernelBuilder("k")
    y, total = b.parameter("y", f32, (6,)), b.result("total", f32, ())
    with b.reduce((6,), ("i",)) as (i,):
        b.accumulate("add", total, (), b.load(y, (i,)))
    b.store(total, (), b.mul(b.load(total, ()), 2))
    with b.reduce((6,), ("k",)) as (k,):
        b.accumulate("add", total, (), b.load(y, (k,)))
    with pytest.raises(ScheduleError, match="cannot pass code that touches 'total'"):
        fuse_nests(b.build(), "i", "k")


def test_fuse_nests_refuses_other_extents_and_places() -> None:
    b = KernelBuilder("k")
    y, z = b.result("y", f32, (6,)), b.result("z", f32, (5,))
    with b.nest((6,), ("i",)) as (i,):
        b.store(y, (i,), 1)
    with b.nest((5,), ("j",)) as (j,):
        b.store(z, (j,), 1)
    with pytest.raises(ScheduleError, match="'i' runs 6 times, 'j' 5"):
        fuse_nests(b.build(), "i", "j")
    with pytest.raises(ScheduleError, match="'i' stands before 'j'"):
        fuse_nests(chained(), "j", "i")
    with pytest.raises(ScheduleError, match="side by side"):
        fuse_nests(product(), "i", "k")
    with pytest.raises(ScheduleError, match="side by side"):
        fuse_nests(product(), "i", "i")


def test_fission_gives_each_statement_its_loops_and_private_values_an_element() -> None:
    kernel = privatize(fuse_nests(row_sums(), "i", "j"), "t", "i")
    changed = fission(kernel, "i")
    assert len(changed.body) == 3
    (t,) = changed.locals
    assert t.shape == (3,)
    assert_same(row_sums(), changed)


@pytest.mark.parametrize(
    ("together", "shape"), [("iterations", (5, 3)), ("elements", (3, 5))]
)
def test_fission_lays_what_is_asked_for_side_by_side(
    together: str, shape: tuple[int, ...]
) -> None:
    def rows() -> Kernel:
        b = KernelBuilder("k")
        x, y = b.parameter("x", f32, (3, 5)), b.result("y", f32, (3, 5))
        t = b.temporary(f32, (3, 5), "t")
        with b.nest((3,), ("i",)) as (i,):
            with b.nest((5,), ("j",)) as (j,):
                b.store(t, (i, j), b.load(x, (i, j)))
            with b.nest((5,), ("j",)) as (j,):
                b.store(y, (i, j), b.mul(b.load(t, (i, j)), 2))
        return privatize(b.build(), "t", "i")

    changed = fission(rows(), "i", 1, "workgroup", together)
    assert [t.shape for t in changed.locals] == [shape]
    assert_same(rows(), changed)


def test_fission_knows_what_may_lie_side_by_side() -> None:
    with pytest.raises(ScheduleError, match="got 'rows'"):
        fission(row_sums(), "i", together="rows")


def test_fission_of_two_loops_at_once_repeats_a_guard() -> None:
    kernel = cache_write(product(5, 7), "y", "j", "t")
    kernel = split(kernel, "j", 4)
    changed = fission(kernel, "i", 3)
    assert len(changed.body) == 3
    assert body_text(changed).count("if") == 3
    assert_same(product(5, 7), changed)


def test_fission_refuses_when_a_later_statement_feeds_the_next_iteration() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (9,)), b.result("y", f32, (9,))
    with b.nest((8,), ("i",)) as (i,):
        b.store(y, (i,), b.load(x, (i,)))
        b.store(x, (i + 1,), b.load(y, (i,)))
    with pytest.raises(ScheduleError, match="depend on each other through 'x'"):
        fission(b.build(), "i")


def test_fission_needs_the_stated_depth() -> None:
    with pytest.raises(ScheduleError, match="has 2 perfectly nested loops, not 3"):
        fission(product(), "i", 3)


def test_fission_refuses_when_a_statement_changes_what_guards_the_next() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (9,)), b.result("y", f32, (9,))
    z = b.result("z", f32, (9,))
    with b.nest((9,), ("i",)) as (i,), b.when(b.gt(b.load(y, (i,)), 0)):
        b.store(y, (i,), b.neg(b.load(x, (i,))))
        b.store(z, (i,), b.load(x, (i,)))
    with pytest.raises(
        ScheduleError, match="'y' decides whether code runs that changes it"
    ):
        fission(b.build(), "i")


def test_fission_refuses_when_a_statement_changes_how_often_the_next_runs() -> None:
    b = KernelBuilder("k")
    n, y = b.parameter("n", i64, (9,), AccessMode.READ_WRITE), b.result("y", f32, (9,))
    with b.loop(9, "o") as o, b.loop(b.as_index(b.load(n, (o,))), "i") as i:
        b.store(n, (o,), 1)
        b.store(y, (b.as_index(b.min(b.abs(b.index(i)), 8)),), 1)
    with pytest.raises(ScheduleError, match="'n' decides how often 'i' runs"):
        fission(b.build(), "o", 2)
