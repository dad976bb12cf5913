"""Codes for large and small sizes and for some numbers, and factors that are computed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from fakes.loop_nests import assert_same, product
from tilewright.base.dtypes import f32, i32
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim, Symbol, floordiv, mod, symbol
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import (
    Expression,
    For,
    If,
    Kernel,
    LoopKind,
    Space,
    walk,
)
from tilewright.compiler.kernel.rewrite import loops, stores
from tilewright.compiler.schedule.primitives import (
    bind,
    precompute_factors,
    privatize,
    split,
    unroll,
    version,
    version_by_limits,
    version_of_sizes,
    widen,
)

Step = Callable[[KernelBuilder, Expression, Expression], Expression]


def scaled(rows: Dim = 5, steps: Dim = 3, columns: int = 4, *, gap: int = 1) -> Kernel:
    """`y[i, j] = sum over k of (x[i, 2k] * f(w) + x[i, 2k + gap] * g(w)) * s`, of whole numbers of 4 bits."""
    b = KernelBuilder("k")
    x = b.parameter("x", f32, (rows, 2 * steps + gap))
    w = b.parameter("w", i32, (steps, columns))
    s = b.parameter("s", f32, (columns,))
    y = b.result("y", f32, (rows, columns))
    with b.nest((rows, columns), ("i", "j")) as (i, j):
        b.store(y, (i, j), 0)
        with b.reduce((steps,), ("k",)) as (k,):
            word = b.load(w, (k, j))
            low = b.cast(b.and_(word, 15), f32)
            high = b.cast(b.and_(b.binary("shr", word, b.const(4, i32)), 15), f32)
            total = b.add(
                b.mul(b.load(x, (i, 2 * k)), low), b.mul(b.load(x, (i, 2 * k + gap)), high)
            )
            b.accumulate("add", y, (i, j), b.mul(total, b.load(s, (j,))))
    return b.build()


# --- version ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1, 4, 5, 9])
def test_a_loop_has_a_code_for_many_and_one_for_few(rows: int) -> None:
    kernel = product(symbol("M"), 3)
    changed = version(kernel, "i", "M", 5)
    assert [type(statement) for statement in changed.body] == [If, If]
    assert len({loop.var.name for loop in loops(changed.body)}) == len(loops(changed.body))
    assert_same(kernel, changed, {"M": rows})


def summed(most: int) -> Kernel:
    """`t = sum over k of x[i, k]; y[i] = t` of rows of open length, which loops of `most` iterations written out walk up to there."""
    b = KernelBuilder("k")
    m, n = symbol("M"), symbol("N", 1)
    x = b.parameter("x", f32, (m, n))
    y = b.result("y", f32, (m,))
    t = b.temporary(f32, ())
    with b.nest((m,), ("i",)) as (i,):
        b.store(t, (), 0)
        with b.reduce((n,), ("k",)) as (k,):
            b.accumulate("add", t, (), b.load(x, (i, k)))
        b.store(y, (i,), b.load(t, ()))
    long_and_short = version(privatize(b.build(), "t", "i"), "i", "N", most + 1)
    return unroll(widen(long_and_short, "k_2", most), "k_2")


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 6, 7, 9])
def test_ranges_of_a_size_have_code_that_ends_with_them(length: int) -> None:
    kernel = summed(6)
    changed = version_by_limits(kernel, "i_2", "N", [2, 5])
    written_out = [x for x in loops(changed.body) if x.kind is LoopKind.UNROLL]
    asked = [any(isinstance(s, If) for s in x.body) for x in written_out]
    pieces = [(x.extent, y) for x, y in zip(written_out, asked, strict=True)]
    assert pieces == [(1, False), (1, True), (3, False), (2, True), (6, False)]
    assert len({loop.var.name for loop in loops(changed.body)}) == len(loops(changed.body))
    assert_same(kernel, changed, {"M": 3, "N": length})


def test_each_range_of_a_size_has_temporaries_of_its_own() -> None:
    changed = version_by_limits(summed(6), "i_2", "N", [2, 5])
    short = [x for x in walk(changed.body) if isinstance(x, For) and "i" in x.var.name[:1]]
    totals = [{x.buffer.name for x in stores(loop.body)} - {"y"} for loop in short]
    assert len(totals) == len(set(map(frozenset, totals))) == 4


def test_statements_that_no_size_decides_stay_in_all_iterations() -> None:
    """A loop that is written out asks for some of what it does only."""
    n = symbol("N", 1, 4)
    b = KernelBuilder("k", (Symbol("N", 1, 4),))
    x, y = b.parameter("x", f32, (2, 4)), b.result("y", f32, (2, 4))
    with b.nest((2, 4), ("i", "j")) as (i, j):
        b.store(y, (i, j), 1)
        with b.when(b.compare("lt", b.index(j), b.index(n))):
            b.store(y, (i, j), b.load(x, (i, j)))
    kernel = unroll(b.build(), "j")
    changed = version_by_limits(kernel, "i", "N", [2])
    for size in (1, 2, 3, 4):
        assert_same(kernel, changed, {"N": size})


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_steps_that_ask_for_less_and_less_stay_together(size: int) -> None:
    n = symbol("N", 1, 4)
    b = KernelBuilder("k", (Symbol("N", 1, 4),))
    x, y = b.parameter("x", f32, (2, 4)), b.result("y", f32, (2, 4))
    with b.nest((2, 4), ("i", "j")) as (i, j):
        b.store(y, (i, j), 1)
        with b.when(b.compare("lt", b.index(3 - j), b.index(n))):
            b.store(y, (i, j), b.load(x, (i, j)))
    kernel = unroll(b.build(), "j")
    assert_same(kernel, version_by_limits(kernel, "i", "N", [2]), {"N": size})


@pytest.mark.parametrize("limits", [[], [3, 3], [4, 2]])
def test_limits_of_ranges_rise(limits: list[int]) -> None:
    with pytest.raises(ScheduleError, match="no limits that rise"):
        version_by_limits(product(symbol("M"), 3), "i", "M", limits)


def test_ranges_are_those_of_a_size_of_the_call() -> None:
    with pytest.raises(ScheduleError, match="4 is known before a call"):
        version_by_limits(product(4, 3), "i", 4, [2])
    with pytest.raises(ScheduleError, match="unknown symbol 'i'"):
        version_by_limits(product(symbol("M"), 3), "j", "i", [2])
    kernel = bind(product(symbol("M"), 3), "i", "x")
    with pytest.raises(ScheduleError, match="'i' is made of workgroups"):
        version_by_limits(kernel, "i", "M", [2])


def test_a_known_size_has_one_code() -> None:
    with pytest.raises(ScheduleError, match="4 is known before a call"):
        version(product(4, 3), "i", 4, 2)


def test_workgroups_are_those_of_all_calls() -> None:
    kernel = bind(product(symbol("M"), 3), "i", "x")
    with pytest.raises(ScheduleError, match="'i' is made of workgroups"):
        version(kernel, "i", "M", 2)


def test_a_size_must_be_one_that_the_kernel_knows() -> None:
    with pytest.raises(ScheduleError, match="unknown symbol 'N'"):
        version(product(symbol("M"), 3), "i", "N", 2)


# --- version_of_sizes ---------------------------------------------------------------------------


@pytest.mark.thinned(3)
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 4, 64, 70, 130])
def test_numbers_that_a_size_may_be_have_code_of_their_own(rows: int) -> None:
    kernel = split(product(symbol("M"), 3), "i", 64, "tight", ("b", "n"))
    changed = version_of_sizes(kernel, "n", "M", (2, 3))
    names = [loop.var.name for loop in loops(changed.body)]
    assert len(set(names)) == len(names)
    assert_same(kernel, changed, {"M": rows})


def test_blocks_that_are_one_are_the_first() -> None:
    kernel = split(product(symbol("M"), 3), "i", 64, "tight", ("b", "n"))
    changed = version_of_sizes(kernel, "n", "M", (2, 3))
    (block,) = changed.body
    assert isinstance(block, For)
    known = [part.body[0] for part in block.body if isinstance(part, If)]
    assert [part.extent for part in known if isinstance(part, For)][:2] == [2, 3]
    for part in known[:2]:
        used = [i for s in stores((part,)) for i in s.indices if not isinstance(i, int)]
        assert all("b" not in i.names for i in used)


def test_a_number_that_is_named_twice_has_one_code() -> None:
    kernel = product(symbol("M"), 3)
    twice = version_of_sizes(kernel, "i", "M", (2, 2))
    assert len(twice.body) == len(version_of_sizes(kernel, "i", "M", (2,)).body)


def test_only_a_size_of_its_own_is_one_of_some_numbers() -> None:
    with pytest.raises(ScheduleError, match=r"\(M \+ 1\) is no size of its own"):
        version_of_sizes(product(symbol("M"), 3), "i", "M + 1", (2,))
    with pytest.raises(ScheduleError, match="4 is no size of its own"):
        version_of_sizes(product(4, 3), "i", 4, (2,))


def test_a_number_that_makes_a_divisor_nothing_has_no_code() -> None:
    b, n = KernelBuilder("k"), symbol("n", 1)
    size = floordiv(n, 3)
    x, y = b.parameter("x", f32, (size,)), b.result("y", f32, (n,))
    with b.nest((n,), ("i",)) as (i,):
        b.store(y, (i,), b.load(x, (mod(i, size),)))
    kernel = b.build()
    changed = version_of_sizes(kernel, "i", "n", (2, 3))
    assert len(changed.body) == 2
    for number in (3, 4, 10):
        assert_same(kernel, changed, {"n": number})


def test_a_number_that_leaves_no_blocks_to_be_counted_has_no_code() -> None:
    b, n, m = KernelBuilder("k"), symbol("n", 1), symbol("m", 1)
    y = b.result("y", f32, (floordiv(m, floordiv(n, 3)), n))
    with b.nest(y.shape, ("b", "i")) as (block, i):
        b.store(y, (block, i), 1)
    kernel = b.build()
    changed = version_of_sizes(kernel, "i", "n", (2, 3))
    assert sum(isinstance(s, If) for s in walk(changed.body)) == 2
    assert_same(kernel, changed, {"n": 3, "m": 4})


def test_workgroups_have_no_code_by_number() -> None:
    kernel = bind(product(symbol("M"), 3), "i", "x")
    with pytest.raises(ScheduleError, match="'i' is made of workgroups"):
        version_of_sizes(kernel, "i", "M", (2,))


# --- precompute_factors ---------------------------------------------------------------------------


@pytest.mark.parametrize("gap", [1, 3])
@pytest.mark.parametrize("rows", [0, 1, 5])
def test_factors_are_computed_once_in_front_of_the_rows(rows: int, gap: int) -> None:
    kernel = scaled(symbol("M"), gap=gap)
    changed = precompute_factors(kernel, "i", "j")
    (made,) = (b for b in changed.locals if b.space is Space.WORKGROUP)
    assert made.shape == (3, 2, 4)
    assert_same(kernel, changed, {"M": rows}, exact=False)


def test_products_get_a_loop_of_their_own() -> None:
    changed = precompute_factors(scaled(), "i", "j")
    steps = [loop for loop in loops(changed.body) if loop.reduction]
    assert [loop.extent for loop in steps] == [3, 2]


def test_factors_by_no_lane_are_refused() -> None:
    with pytest.raises(ScheduleError, match="no sum in 'i' has factors by 'i'"):
        precompute_factors(scaled(), "i", "i")


def test_open_steps_are_refused() -> None:
    with pytest.raises(ScheduleError, match="no sum in 'i' has factors"):
        precompute_factors(scaled(5, symbol("K")), "i", "j")


def test_workgroups_share_no_factors() -> None:
    with pytest.raises(ScheduleError, match="'i' is made of workgroups"):
        precompute_factors(bind(scaled(), "i", "x"), "i", "j")


def _of_rows(b: KernelBuilder, left: Expression, right: Expression) -> Expression:
    """Factors that are other ones in every row."""
    return b.add(b.mul(left, left), b.mul(right, left))


def _of_one(b: KernelBuilder, left: Expression, right: Expression) -> Expression:
    del right
    return b.mul(left, b.const(2, f32))


def _of_a_difference(b: KernelBuilder, left: Expression, right: Expression) -> Expression:
    return b.sub(b.mul(left, right), b.mul(left, right))


@pytest.mark.parametrize("step", [_of_rows, _of_one, _of_a_difference])
def test_other_sums_are_refused(step: Step) -> None:
    b = KernelBuilder("k")
    x, w = b.parameter("x", f32, (5, 4)), b.parameter("w", f32, (3, 4))
    y = b.result("y", f32, (5, 4))
    with b.nest((5, 4), ("i", "j")) as (i, j):
        b.store(y, (i, j), 0)
        with b.reduce((3,), ("k",)) as (k,):
            b.accumulate("add", y, (i, j), step(b, b.load(x, (i, k)), b.load(w, (k, j))))
    with pytest.raises(ScheduleError, match="no sum in 'i'"):
        precompute_factors(b.build(), "i", "j")


def _at_places(places: Sequence[int]) -> Kernel:
    """Products of elements at some places of each step, added in that order."""
    b = KernelBuilder("k")
    x, w = b.parameter("x", f32, (5, 12)), b.parameter("w", i32, (3, 4))
    y = b.result("y", f32, (5, 4))
    with b.nest((5, 4), ("i", "j")) as (i, j):
        b.store(y, (i, j), 0)
        with b.reduce((3,), ("k",)) as (k,):
            word = b.load(w, (k, j))
            first, *others = (
                b.mul(b.load(x, (i, 3 * k + at)), b.cast(b.add(word, at), f32))
                for at in places
            )
            for other in others:
                first = b.add(first, other)
            b.accumulate("add", y, (i, j), first)
    return b.build()


@pytest.mark.parametrize("places", [(0, 2, 3), (0, 0, 0), (2, 0, 2)])
def test_elements_that_lie_unevenly_are_refused(places: tuple[int, ...]) -> None:
    with pytest.raises(ScheduleError, match="no sum in 'i'"):
        precompute_factors(_at_places(places), "i", "j")


@pytest.mark.parametrize("places", [(0, 2, 1), (4, 2, 0), (5, 3)])
def test_products_are_added_in_whatever_order(places: tuple[int, ...]) -> None:
    kernel = _at_places(places)
    assert_same(kernel, precompute_factors(kernel, "i", "j"), exact=False)


def test_what_only_a_row_makes_sure_of_is_not_read_before_it() -> None:
    """The words end where the rows do: without a row there are none."""
    b = KernelBuilder("k")
    count = symbol("M")
    x, w = b.parameter("x", f32, (count, 6)), b.parameter("w", i32, (count,))
    y = b.result("y", f32, (count, 4))
    with b.nest((count, 4), ("i", "j")) as (i, j):
        b.store(y, (i, j), 0)
        with b.reduce((3,), ("k",)) as (k,):
            factor = b.cast(b.add(b.load(w, (0,)), b.cast(b.index(j), i32)), f32)
            total = b.add(
                b.mul(b.load(x, (i, 2 * k)), factor),
                b.mul(b.load(x, (i, 2 * k + 1)), factor),
            )
            b.accumulate("add", y, (i, j), total)
    with pytest.raises(ScheduleError, match="that part of 'w' may not exist"):
        precompute_factors(b.build(), "i", "j")


def test_what_a_row_changes_is_not_made_before() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (5, 6)), b.result("y", f32, (5, 4))
    w = b.temporary(f32, (3, 4), "w")
    with b.nest((5, 4), ("i", "j")) as (i, j):
        b.store(w, (0, j), b.load(x, (i, 0)))
        b.store(y, (i, j), 0)
        with b.reduce((3,), ("k",)) as (k,):
            factor = b.add(b.load(w, (0, j)), b.const(1, f32))
            total = b.add(
                b.mul(b.load(x, (i, 2 * k)), factor),
                b.mul(b.load(x, (i, 2 * k + 1)), factor),
            )
            b.accumulate("add", y, (i, j), total)
    with pytest.raises(ScheduleError, match="no sum in 'i'"):
        precompute_factors(b.build(), "i", "j")


def test_left_elements_that_the_loop_changes_are_refused() -> None:
    b = KernelBuilder("k")
    w, y = b.parameter("w", f32, (3, 4)), b.result("y", f32, (5, 6))
    with b.nest((5, 4), ("i", "j")) as (i, j), b.reduce((3,), ("k",)) as (k,):
        factor = b.add(b.load(w, (k, j)), b.const(1, f32))
        total = b.add(
            b.mul(b.load(y, (i, j)), factor), b.mul(b.load(y, (i, j + 1)), factor)
        )
        b.store(y, (i, j), b.add(b.load(y, (i, j)), total))
    with pytest.raises(ScheduleError, match="no sum in 'i'"):
        precompute_factors(b.build(), "i", "j")
