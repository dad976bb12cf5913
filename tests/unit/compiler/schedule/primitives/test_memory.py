from __future__ import annotations

import pytest

from fakes.loop_nests import assert_same, body_text, chained, doubled, product, row_sums
from tilewright.base.dtypes import f32
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim, symbol, symbols
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel, Space
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.readers.kernel_text import parse_kernel
from tilewright.compiler.schedule.primitives import (
    bind,
    cache_read,
    cache_write,
    compute_at,
    expand,
    fission,
    fuse_nests,
    keep_line,
    privatize,
    reorder,
    separate,
    set_scope,
    split,
    vectorize,
    version,
)


def window():
    """`t = 2 x; y[i] = t[i] + t[i + 1] + t[i + 2]`."""
    b = KernelBuilder("window")
    x, y = b.parameter("x", f32, (10,)), b.result("y", f32, (8,))
    t = b.temporary(f32, (10,), "t")
    with b.nest((10,), ("j",)) as (j,):
        b.store(t, (j,), b.mul(b.load(x, (j,)), 2))
    with b.nest((8,), ("i",)) as (i,):
        b.store(y, (i,), 0)
        with b.reduce((3,), ("k",)) as (k,):
            b.accumulate("add", y, (i,), b.load(t, (i + k,)))
    return b.build()


def test_set_scope_moves_a_temporary() -> None:
    changed = set_scope(chained(), "t", "workgroup")
    assert changed.locals[0].space is Space.WORKGROUP
    assert_same(chained(), changed)
    with pytest.raises(ScheduleError, match="'x' is a parameter"):
        set_scope(chained(), "x", "workgroup")
    with pytest.raises(ScheduleError, match="a scope is one of"):
        set_scope(chained(), "t", "moon")


def test_privatize_drops_the_dimensions_an_iteration_does_not_need() -> None:
    changed = privatize(fuse_nests(row_sums(), "i", "j"), "t", "i")
    (t,) = changed.locals
    assert (t.shape, t.space) == ((), Space.REGISTER)
    assert_same(row_sums(), changed)


def test_privatize_keeps_the_part_of_a_block() -> None:
    kernel = fuse_nests(chained(12), "i", "j")
    kernel = split(kernel, "i", 4)
    changed = privatize(kernel, "t", "i_o", "workgroup")
    assert changed.locals[0].shape == (4,)
    assert_same(chained(12), changed)


def test_privatize_refuses_values_that_cross_iterations() -> None:
    with pytest.raises(ScheduleError, match="used outside 'i'"):
        privatize(chained(), "t", "i")
    b = KernelBuilder("k")
    y, t = b.result("y", f32, (5,)), b.temporary(f32, (5,), "t")
    with b.nest((5,), ("i",)) as (i,):
        b.store(y, (i,), b.load(t, (i,)))
        b.store(t, (i,), 1)
    with pytest.raises(ScheduleError, match="it did not write"):
        privatize(b.build(), "t", "i")


def test_cache_write_keeps_an_updated_element_in_a_register() -> None:
    changed = cache_write(product(), "y", "j")
    assert body_text(changed).splitlines()[-1].strip() == "y[i, j] = y_r[]"
    assert_same(product(), changed)


def test_cache_write_loads_an_element_that_is_read_first() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (3, 4)), b.parameter("y", f32, (3,))
    with b.nest((3,), ("i",)) as (i,), b.reduce((4,), ("k",)) as (k,):
        b.accumulate("add", y, (i,), b.load(x, (i, k)))
    kernel = b.build()
    changed = cache_write(kernel, "y", "i")
    assert "y_r[] = y[i]" in body_text(changed)


def test_cache_write_loads_what_a_guard_may_leave_unwritten() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (3, 4)), b.result("y", f32, (3,))
    with b.nest((3,), ("i",)) as (i,):
        with b.when(b.within(i, 0, 2)):
            b.store(y, (i,), 7)
        b.store(y, (i,), b.add(b.load(y, (i,)), b.load(x, (i, 0))))
    kernel = b.build()
    changed = cache_write(kernel, "y", "i")
    assert "y_r[] = y[i]" in body_text(changed)
    assert_same(kernel, changed)


def test_cache_write_refuses_what_a_guard_keeps_in_bounds() -> None:
    kernel = split(product(5, 7), "j", 4)
    with pytest.raises(ScheduleError, match="a guard decides whether 'j_i' touches 'y'"):
        cache_write(kernel, "y", "j_i")
    assert_same(product(5, 8), cache_write(split(product(5, 8), "j", 4), "y", "j_i"))


def test_cache_write_takes_what_a_guard_around_the_loop_keeps_in_bounds() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (3, 4)), b.result("y", f32, (3,))
    with (
        b.nest((4,), ("i",)) as (i,),
        b.when(b.within(i, 0, 3)),
        b.reduce((4,), ("k",)) as (k,),
        b.when(b.within(k, 1, 4)),
    ):
        b.accumulate("add", y, (i,), b.load(x, (i, k)))
    kernel = b.build()
    changed = cache_write(kernel, "y", "k")
    assert "y_r[] = y[i]" in body_text(changed)
    assert_same(kernel, changed)


def test_cache_write_refuses_more_than_one_element() -> None:
    with pytest.raises(ScheduleError, match="more than one element"):
        cache_write(product(), "y", "i")
    with pytest.raises(ScheduleError, match="does not write 'a'"):
        cache_write(product(), "a", "i")
    b = KernelBuilder("k")
    y = b.result("y", f32, (6,))
    with b.nest((5,), ("i",)) as (i,):
        b.store(y, (i,), 1)
        b.store(y, (i + 1,), 2)
    with pytest.raises(ScheduleError, match="more than one element"):
        cache_write(b.build(), "y", "i")


@pytest.mark.parametrize("scope", ["register", "workgroup"])
def test_cache_read_copies_what_the_inner_loops_read(scope: str) -> None:
    kernel = cache_write(product(4, 6, 5), "y", "j", "t")
    changed = cache_read(kernel, "a", "k", scope)
    made = changed.locals[-1]
    assert made.shape == (5,)
    assert_same(product(4, 6, 5), changed)


@pytest.mark.parametrize(("columns", "width"), [(20, 8), (16, 8), (9, 4), (7, 2)])
def test_cache_read_in_front_of_blocks_of_columns_packs_panels(
    columns: int, width: int
) -> None:
    kernel = product(3, columns, 7)
    sums = split(fission(kernel, "i", 2), "j_2", width)
    blocked = reorder(sums, ["j_2_o", "i_2", "k_2", "j_2_i"])
    changed = cache_read(blocked, "w", "j_2_o", "device")
    assert changed.locals[-1].shape == (-(-columns // width), 7, width)
    assert_same(kernel, changed)


def test_cache_read_keeps_the_guard_of_a_partial_block() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (7,)), b.result("y", f32, (3, 7))
    with b.nest((3, 7), ("i", "j")) as (i, j):
        b.store(y, (i, j), b.load(x, (j,)))
    kernel = reorder(split(b.build(), "j", 4), ["j_o", "i", "j_i"])
    changed = cache_read(kernel, "x", "i")
    assert body_text(changed).count("if") == 2
    assert_same(kernel, changed)


def test_cache_read_keeps_a_guard_that_its_own_loops_do_not_decide() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (7, 3)), b.result("y", f32, (7, 3))
    with b.nest((7, 3), ("i", "j")) as (i, j):
        b.store(y, (i, j), b.load(x, (i, j)))
    kernel = split(b.build(), "i", 4)
    changed = cache_read(kernel, "x", "j")
    assert body_text(changed).count("if") == 2
    assert_same(kernel, changed)


def test_cache_read_leaves_out_a_guard_that_holds_around_the_copy() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (7, 3)), b.result("y", f32, (7, 3))
    with (
        b.nest((8,), ("i",)) as (i,),
        b.when(b.within(i, 0, 7)),
        b.nest((3,), ("j",)) as (j,),
        b.when(b.within(i, 0, 7)),
    ):
        b.store(y, (i, j), b.load(x, (i, j)))
    kernel = b.build()
    changed = cache_read(kernel, "x", "j")
    assert body_text(changed).count("if") == body_text(kernel).count("if") == 2
    assert_same(kernel, changed)


@pytest.mark.parametrize(("start", "fits"), [(4, False), (3, True)])
def test_cache_read_in_front_of_a_loop_that_may_not_run(start: int, fits: bool) -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (5,)), b.result("y", f32, (5,))
    with b.nest((0, 2), ("i", "j")) as (_, j):
        b.store(y, (j + start,), b.load(x, (j + start,)))
    kernel = b.build()
    if fits:
        assert_same(kernel, cache_read(kernel, "x", "i"))
        return
    with pytest.raises(
        ScheduleError, match="'i' may run no time, and then that part of 'x'"
    ):
        cache_read(kernel, "x", "i")


def test_cache_read_in_front_of_a_loop_that_surely_runs() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (symbol("M", 1),)), b.result("y", f32, (2,))
    b.parameter("rows", f32, (symbol("N", 1),))
    with b.nest((symbol("N", 1), 2), ("i", "j")) as (_, j):
        b.store(y, (j,), b.load(x, (j,)))
    kernel = b.build()
    assert_same(kernel, cache_read(kernel, "x", "i"), {"M": 2, "N": 3})


def test_cache_read_refuses_a_loop_of_workgroups() -> None:
    kernel = bind(doubled(), "i", "x")
    with pytest.raises(ScheduleError, match="'i' is made of workgroups"):
        cache_read(kernel, "x", "i")


def test_cache_read_refuses_several_indices_writes_and_open_sizes() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (7,)), b.result("y", f32, (6,))
    with b.nest((6,), ("i",)) as (i,):
        b.store(y, (i,), b.add(b.load(x, (i,)), b.load(x, (i + 1,))))
    with pytest.raises(ScheduleError, match="at several indices"):
        cache_read(b.build(), "x", "i")
    with pytest.raises(ScheduleError, match="does not only read 'y'"):
        cache_read(product(), "y", "j")
    with pytest.raises(ScheduleError, match="no upper bound"):
        cache_read(product(4, symbol("N", 1)), "w", "j")


def test_compute_at_computes_only_what_an_iteration_reads() -> None:
    changed = compute_at(window(), "t", "k")
    assert len(changed.body) == 1
    assert changed.locals[-1].shape == (3,)
    assert_same(window(), changed)


def test_expand_turns_private_values_into_lanes() -> None:
    kernel = privatize(fuse_nests(row_sums(4), "i", "j"), "t", "i")
    with pytest.raises(ScheduleError, match="meet in 't'"):
        vectorize(kernel, "i")
    changed = vectorize(expand(kernel, "i"), "i")
    assert changed.locals[0].shape == (4,)
    assert_same(row_sums(4), changed)


def passes(length: Dim, *, first: bool = True):
    """Rows that are doubled, then summed up; `first` says whether the first pass writes a row, or reads it."""
    b = KernelBuilder("passes", symbols(length))
    x, y = b.parameter("x", f32, (3, length)), b.result("y", f32, (3, length))
    with b.nest((3,), ("i",)) as (i,):
        if first:
            with b.nest((length,), ("j",)) as (j,):
                b.store(y, (i, j), b.mul(b.load(x, (i, j)), 2))
        with b.nest((length,), ("k",)) as (k,):
            b.store(y, (i, k), b.add(b.load(y, (i, k)), b.load(x, (i, k))))
    return b.build()


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("buffer", ["x", "y"])
def test_stage_copies_a_line_in_where_it_is_read_and_out_where_it_is_written(
    buffer: str, *, first: bool
) -> None:
    naive = passes(symbol("n", 0), first=first)
    kernel = version(naive, "i", symbol("n", 0), 6)
    with pytest.raises(ScheduleError, match="at most 8"):
        keep_line(kernel, buffer, "i", 8)
    with pytest.raises(ScheduleError, match="at most 4"):
        keep_line(kernel, buffer, "i_2", 4)
    changed = keep_line(kernel, buffer, "i_2", 5)
    assert changed.locals[-1].shape == (5,)
    copies = body_text(changed).count("for line")
    assert copies == {"x": 1, "y": 1 if first else 2}[buffer]
    for length in (0, 1, 5, 9):
        assert_same(naive, changed, {"n": length})
    assert_same(passes(5, first=first), keep_line(passes(5, first=first), buffer, "i", 5))


def test_stage_refuses_what_is_no_whole_line() -> None:
    with pytest.raises(ScheduleError, match="goes over no line of 't'"):
        keep_line(window(), "t", "i", 16)
    with pytest.raises(ScheduleError, match="goes over no line of 'y'"):
        keep_line(split(passes(5), "j", 2), "y", "i", 16)
    with pytest.raises(ScheduleError, match="goes over no line of 'x'"):
        keep_line(passes(5), "x", "j", 16)


def test_cache_read_copies_what_a_guard_reads_only_sometimes_with_its_mask() -> None:
    n = symbol("n", 0)
    b = KernelBuilder("k", symbols(n))
    x, y = b.parameter("x", f32, (4,)), b.result("y", f32, (8,))
    with b.nest((8, 4), ("i", "j")) as (i, j):
        there = b.lt(b.index(j), b.index(n))
        with b.when(b.gt(b.load(x, (j,), there), 0.0)):
            b.store(y, (i,), 1.0)
    kernel = b.build()
    cached = cache_read(kernel, "x", "j")
    assert body_text(cached).count(" where ") == 1
    for count in (0, 2, 4, 9):
        assert_same(kernel, cached, {"n": count})


def rows_in_a_line(length: Dim, count: Dim = 3, *, again: bool = False):
    """Rows through a line of memory that all share; `again`: what the last one left there is read behind them."""
    b = KernelBuilder("rows_in_a_line", [*symbols(length), *symbols(count)])
    x, y = b.parameter("x", f32, (count, length)), b.result("y", f32, (count, length))
    t = b.temporary(f32, (length,), "t")
    with b.nest((count,), ("i",)) as (i,):
        with b.nest((length,), ("j",)) as (j,):
            b.store(t, (j,), b.mul(b.load(x, (i, j)), 2))
        with b.nest((length,), ("k",)) as (k,):
            b.store(y, (i, k), b.add(b.load(t, (k,)), 1))
    if again:
        z = b.result("z", f32, (length,))
        with b.nest((length,), ("l",)) as (at,):
            b.store(z, (at,), b.load(t, (at,)))
    return b.build()


@pytest.mark.parametrize("sizes", [(0, 3), (1, 1), (5, 0), (7, 4)])
def test_separate_gives_workgroups_lines_of_their_own(sizes: tuple[int, int]) -> None:
    kernel = rows_in_a_line(symbol("n", 0), symbol("m", 0))
    with pytest.raises(ScheduleError, match="meet in 't'"):
        bind(kernel, "i", "x")
    changed = bind(separate(kernel, "i"), "i", "x")
    assert changed.locals[0].shape == (symbol("m", 0), symbol("n", 0))
    assert kernel_text(parse_kernel(kernel_text(changed))) == kernel_text(changed)
    assert_same(kernel, changed, dict(zip("nm", sizes, strict=True)))


def test_separate_refuses_what_others_need_and_loops_inside() -> None:
    with pytest.raises(ScheduleError, match="'i' has no temporary in device memory"):
        separate(rows_in_a_line(5, again=True), "i")
    with pytest.raises(ScheduleError, match="'j' is not outermost"):
        separate(rows_in_a_line(5), "j")
    with pytest.raises(ScheduleError, match="'i' has no temporary in device memory"):
        separate(set_scope(rows_in_a_line(5), "t", "workgroup"), "i")
    with pytest.raises(ScheduleError, match="'i' has no temporary in device memory"):
        separate(passes(5), "i")


@pytest.mark.parametrize("again", [False, True])
def test_stage_writes_a_temporary_out_only_where_somebody_reads_it(*, again: bool) -> None:
    naive = rows_in_a_line(symbol("n", 0), again=again)
    kernel = version(naive, "i", symbol("n", 0), 6)
    changed = keep_line(kernel, "t", "i_2", 5)
    assert body_text(changed).count("for line") == int(again)
    for length in (0, 1, 5, 9):
        assert_same(naive, changed, {"n": length})


def masked_product(mask_by: str) -> Kernel:
    """Columns behind the third are 0: masked by the column, by the row, or by what memory says."""
    b = KernelBuilder("k")
    a = b.parameter("a", f32, (4, 5))
    w = b.parameter("w", f32, (5, 3))
    y = b.result("y", f32, (4, 8))
    with b.nest((4, 8), ("i", "j")) as (i, j):
        b.store(y, (i, j), 0)
    with b.reduce((5,), ("k",)) as (k,), b.nest((4, 8), ("r", "c")) as (i, j):
        there = b.lt(b.index(j), 3)
        if mask_by == "row":
            there = b.and_(there, b.lt(b.index(i), 2))
        if mask_by == "memory":
            there = b.and_(there, b.lt(b.load(a, (i, k)), 2))
        b.accumulate("add", y, (i, j), b.mul(b.load(a, (i, k)), b.load(w, (k, j), there)))
    return b.build()


def test_a_cache_of_masked_reads_has_the_mask() -> None:
    before = masked_product("column")
    after = cache_read(before, "w", "r")
    assert body_text(after).count(" where ") == 1
    assert_same(before, after)
    # The cache is read without one: all lanes of it are there.
    assert_same(before, vectorize(after, "c"))


@pytest.mark.parametrize("mask_by", ["row", "memory"])
def test_a_mask_that_the_cache_does_not_know_is_refused(mask_by: str) -> None:
    with pytest.raises(ScheduleError, match=r"mask decides|memory decides"):
        cache_read(masked_product(mask_by), "w", "r")
