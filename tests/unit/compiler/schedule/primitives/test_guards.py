"""Guards that keep iterations out of a tile: which may go, and which are seen by somebody."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fakes.loop_nests import assert_same, body_text, product, row_sums
from tilewright.base import dtypes, symbolic
from tilewright.base.symbolic import Dim, symbol
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Buffer, Expression, Kernel
from tilewright.compiler.kernel.rewrite import as_index, loops
from tilewright.compiler.schedule.primitives import (
    cache_write,
    drop_guards,
    fission,
    fuse_nests,
    privatize,
    rfactor,
    set_scope,
    settle_tests,
    sink_guards,
    split,
)

f32, i64 = dtypes.f32, dtypes.i64
LANES = 8

Step = Callable[[KernelBuilder, Buffer, Buffer, Dim], None]


def chain_of_temporaries(between: Step, count: int = 5) -> Kernel:
    """`t` of guarded lanes, something made of it without a guard, and a result of guarded lanes."""
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (LANES,)), b.result("y", f32, (count,))
    t = b.temporary(f32, (LANES,), "t")
    u = b.temporary(f32, (LANES,), "u")
    for buffer in (t, u):
        with b.nest((LANES,), ("zero",)) as (j,):
            b.store(buffer, (j,), 0)
    with b.nest((LANES,), ("first",)) as (j,), b.when(b.lt(b.index(j), b.index(count))):
        b.store(t, (j,), b.mul(b.load(x, (j,)), 2))
    with b.nest((LANES,), ("between",)) as (j,):
        between(b, t, u, j)
    with b.nest((LANES,), ("last",)) as (j,), b.when(b.lt(b.index(j), b.index(count))):
        b.store(y, (j,), b.add(b.load(u, (j,)), b.load(t, (j,))))
    return in_workgroup(b)


def in_workgroup(b: KernelBuilder) -> Kernel:
    kernel = b.build()
    for name in ("t", "u"):
        kernel = set_scope(kernel, name, "workgroup")
    return kernel


def without_guards(kernel: Kernel) -> Kernel:
    for name in [loop.var.name for loop in loops(kernel.body)]:
        kernel = drop_guards(kernel, name)
    return kernel


def own_lane(b: KernelBuilder, t: Buffer, u: Buffer, j: Dim) -> None:
    b.store(u, (j,), b.add(b.load(t, (j,)), 1))


def own_lane_twice(b: KernelBuilder, t: Buffer, u: Buffer, j: Dim) -> None:
    b.store(u, (j,), b.mul(b.load(t, (j,)), b.load(u, (j,))))
    b.store(t, (j,), b.sub(b.load(u, (j,)), b.load(t, (j,))))


def lane_beside(b: KernelBuilder, t: Buffer, u: Buffer, j: Dim) -> None:
    with b.when(b.lt(b.index(j), b.index(LANES - 1))):
        b.store(u, (j,), b.load(t, (j + 1,)))


def one_for_all(b: KernelBuilder, t: Buffer, u: Buffer, j: Dim) -> None:
    b.store(u, (0,), b.max(b.load(u, (0,)), b.load(t, (j,))))


def mirrored(b: KernelBuilder, t: Buffer, u: Buffer, j: Dim) -> None:
    b.store(u, (LANES - 1 - j,), b.load(t, (j,)))


def decides(b: KernelBuilder, t: Buffer, u: Buffer, j: Dim) -> None:
    with b.when(b.gt(b.load(t, (j,)), 0)):
        b.store(u, (j,), 3)


@pytest.mark.parametrize("between", [own_lane, own_lane_twice])
def test_a_temporary_of_excluded_lanes_may_be_read_by_excluded_lanes(between: Step) -> None:
    kernel = chain_of_temporaries(between)
    changed = without_guards(kernel)
    assert body_text(kernel).count("if") == 2
    assert body_text(changed).count("if") == 1
    assert "if" in body_text(changed).partition("last")[2]
    assert_same(kernel, changed)


@pytest.mark.parametrize("between", [lane_beside, one_for_all, mirrored, decides])
def test_a_guard_stays_whose_lanes_reach_others(between: Step) -> None:
    kernel = chain_of_temporaries(between)
    changed = without_guards(kernel)
    assert "if" in body_text(changed).partition("first")[2].partition("between")[0]
    assert_same(kernel, changed)


def test_a_guard_stays_whose_temporary_lives_longer_than_the_loop_it_tests() -> None:
    """`t` has no lanes for `tile`: what the last tile adds would be seen after it."""
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (2, LANES)), b.result("y", f32, (LANES,))
    t = b.temporary(f32, (LANES,), "t")
    u = b.temporary(f32, (LANES,), "u")
    for buffer in (t, u):
        with b.nest((LANES,), ("zero",)) as (j,):
            b.store(buffer, (j,), 0)
    with b.nest((2,), ("tile",)) as (i,):
        with b.nest((LANES,), ("j",)) as (j,):
            inside = b.lt(b.index(j + LANES * i), b.index(12))
            with b.when(inside):
                b.store(t, (j,), b.load(x, (i, j)))
        with b.nest((LANES,), ("k",)) as (j,):
            b.store(u, (j,), b.add(b.load(u, (j,)), b.load(t, (j,))))
    with b.nest((LANES,), ("out",)) as (j,):
        b.store(y, (j,), b.load(u, (j,)))
    kernel = in_workgroup(b)
    changed = without_guards(kernel)
    assert body_text(changed).count("if") == 1
    assert_same(kernel, changed)


def with_guard_read(other: bool) -> Kernel:
    """Within the guard an element is read that only an excluded iteration writes: of `t`, or made of it."""
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (LANES,)), b.result("y", f32, (5,))
    t, u = b.temporary(f32, (LANES,), "t"), b.temporary(f32, (LANES,), "u")
    for buffer in (t, u):
        with b.nest((LANES,), ("zero",)) as (j,):
            b.store(buffer, (j,), 0)
    with b.nest((2,), ("r",)):
        with b.nest((LANES,), ("i",)) as (i,), b.when(b.lt(b.index(i), b.index(5))):
            read = b.load(u, (LANES - 1,)) if other else b.load(t, (LANES - 1 - i,))
            b.store(t, (i,), b.add(read, b.load(x, (i,))))
        with b.nest((LANES,), ("m",)) as (i,):
            b.store(u, (i,), b.load(t, (i,)))
    with b.nest((LANES,), ("last",)) as (i,), b.when(b.lt(b.index(i), b.index(5))):
        b.store(y, (i,), b.load(t, (i,)))
    return in_workgroup(b)


def with_limit_shared_by_another_loop() -> Kernel:
    """`o < 5` looks like the guard `i < 5`, and says nothing about it."""
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (LANES,)), b.result("y", f32, (10, 5))
    t = b.temporary(f32, (1,), "t")
    with b.nest((10,), ("o",)) as (o,), b.nest((LANES,), ("i",)) as (i,):
        with b.when(b.lt(b.index(o), b.index(5))):
            b.store(t, (0,), 1)
        with b.when(b.lt(b.index(i), b.index(5))):
            b.store(y, (o, i), b.load(t, (0,)))
        with b.when(b.lt(b.index(i), b.index(5))):
            b.store(t, (0,), b.load(x, (i,)))
    return set_scope(b.build(), "t", "workgroup")


def with_extent_that_reads() -> Kernel:
    """How often a loop runs is read from elements of excluded lanes."""
    b = KernelBuilder("k")
    x, y = b.parameter("x", i64, (LANES,)), b.result("y", i64, (LANES,))
    t = b.temporary(i64, (LANES,), "t")
    with b.nest((LANES,), ("zero",)) as (j,):
        b.store(t, (j,), 1)
        b.store(y, (j,), 0)
    with b.nest((LANES,), ("i",)) as (i,), b.when(b.lt(b.index(i), b.index(5))):
        b.store(t, (i,), b.max(b.load(x, (i,)), 0))
    with b.nest((LANES,), ("m",)) as (m,):
        times = as_index(b.load(t, (m,)))
        with b.nest((times,), ("q",)):
            b.store(y, (m,), b.add(b.load(y, (m,)), 1))
    return set_scope(b.build(), "t", "workgroup")


@pytest.mark.parametrize(
    "kernel",
    [
        with_guard_read(other=True),
        with_guard_read(other=False),
        with_limit_shared_by_another_loop(),
        with_extent_that_reads(),
    ],
    ids=["made of it", "mirrored", "limit only", "extent"],
)
def test_a_guard_stays_that_somebody_sees_in_another_way(kernel: Kernel) -> None:
    changed = without_guards(kernel)
    assert body_text(changed).count("if") == body_text(kernel).count("if")
    assert_same(kernel, changed)


def private_sums(columns: int) -> Kernel:
    return privatize(fuse_nests(row_sums(3, columns), "i", "j"), "t", "i")


def guarded_tile() -> Kernel:
    """The tile of a product with padded columns: registers guarded like the store."""
    b = KernelBuilder("k")
    a, w = b.parameter("a", f32, (5,)), b.parameter("w", f32, (5, 8))
    y = b.result("y", f32, (6,))
    with b.nest((6,), ("j",)) as (j,):
        b.store(y, (j,), 0)
        with b.reduce((5,), ("k",)) as (k,):
            b.accumulate("add", y, (j,), b.mul(b.load(a, (k,)), b.load(w, (k, j))))
    return fission(split(cache_write(b.build(), "y", "j", "t"), "j", 4), "j_o", 2)


def test_drop_guards_frees_registers_whose_readers_keep_the_guard() -> None:
    kernel = guarded_tile()
    loops = [s.var.name for s in kernel.body]
    changed = kernel
    for name in loops:
        changed = drop_guards(changed, name)
    assert body_text(kernel).count("if") == 3
    assert body_text(changed).count("if") == 1
    assert_same(kernel, changed)


def test_drop_guards_keeps_a_guard_that_keeps_loads_in_bounds() -> None:
    kernel = fission(split(cache_write(product(2, 6, 3), "y", "j", "t"), "j", 4), "i", 3)
    changed = drop_guards(kernel, kernel.body[1].var.name)
    assert body_text(changed).count("if") == 3


def test_drop_guards_keeps_a_guard_on_places_that_data_gives() -> None:
    """Places behind the last that anybody asks for may be no places at all."""
    b = KernelBuilder("k")
    x, places = b.parameter("x", f32, (8,)), b.parameter("places", i64, (4, 16))
    y = b.result("y", f32, (4, 5))
    with b.nest((4, 5), ("i", "j")) as (i, j):
        b.store(y, (i, j), 0)
        with b.reduce((3,), ("k",)):
            b.accumulate("add", y, (i, j), b.load(x, (as_index(b.load(places, (i, j))),)))
    kernel = fission(split(cache_write(b.build(), "y", "j", "t"), "j", 4), "j_o", 2)
    changed = kernel
    for name in (s.var.name for s in loops(kernel.body) if s.var.name.startswith("j_o")):
        changed = drop_guards(changed, name)
    assert body_text(changed).count("< 5") == 2  # of the sum, and of what is stored


def rows_of_a_padded_product(rows: int, columns: int) -> Kernel:
    """Tiles of 4 columns whose left operand is read in blocks of rows, the last of them shorter."""
    b = KernelBuilder("k")
    a, w = b.parameter("a", f32, (rows, 5)), b.parameter("w", f32, (5, 8))
    y = b.result("y", f32, (rows, columns))
    with b.nest((rows, columns), ("i", "j")) as (i, j):
        b.store(y, (i, j), 0)
        with b.reduce((5,), ("k",)) as (k,):
            b.accumulate("add", y, (i, j), b.mul(b.load(a, (i, k)), b.load(w, (k, j))))
    kernel = split(cache_write(b.build(), "y", "j", "t"), "i", 18, "tight", ("ib", "in"))
    return fission(split(split(kernel, "in", 2), "j", 4), "j_o", 2)


@pytest.mark.parametrize("columns", [5, 6, 7])
def test_drop_guards_frees_loads_that_another_iteration_does_too(columns: int) -> None:
    kernel = rows_of_a_padded_product(29, columns)
    changed = kernel
    for name in (s.var.name for s in loops(kernel.body) if s.var.name.startswith("j_o")):
        changed = drop_guards(changed, name)
    assert body_text(kernel).count(f"< {columns}") == 3
    assert body_text(changed).count(f"< {columns}") == 1
    assert_same(kernel, changed)


def images_with_padded_columns(columns: int) -> Kernel:
    """Tiles of 4 columns of rows of images, whose number and height a call knows."""
    n, h = symbol("n", 1), symbol("h", 1)
    b = KernelBuilder("k")
    a, w = b.parameter("a", f32, (n, h + 4)), b.parameter("w", f32, (5, 8))
    y = b.result("y", f32, (n * h, columns))
    with b.nest((n * h, columns), ("i", "j")) as (i, j):
        b.store(y, (i, j), 0)
        with b.reduce((5,), ("k",)) as (k,):
            row = b.load(a, (symbolic.floordiv(i, h), symbolic.mod(i, h) + k))
            b.accumulate("add", y, (i, j), b.mul(row, b.load(w, (k, j))))
    kernel = split(cache_write(b.build(), "y", "j", "t"), "i", 18, "tight", ("ib", "in"))
    return fission(split(kernel, "j", 4), "j_o", 2)


@pytest.mark.parametrize("columns", [5, 7])
def test_drop_guards_frees_loads_at_places_that_sizes_of_a_call_decide(
    columns: int,
) -> None:
    kernel = images_with_padded_columns(columns)
    changed = kernel
    for name in (s.var.name for s in loops(kernel.body) if s.var.name.startswith("j_o")):
        changed = drop_guards(changed, name)
    assert body_text(kernel).count(f"< {columns}") == 3
    assert body_text(changed).count(f"< {columns}") == 1
    for n, h in ((1, 1), (3, 7), (2, 19)):
        assert_same(kernel, changed, dims={"n": n, "h": h})


def test_drop_guards_keeps_a_guard_when_somebody_reads_without_it() -> None:
    kernel = rfactor(split(private_sums(6), "k", 4, into=("ko", "ki")), "t", ["ki"], 4)
    assert body_text(drop_guards(kernel, "ko")).count("if") == 1


def test_sink_guards_moves_them_inside_inner_loops() -> None:
    kernel = sink_guards(guarded_tile(), guarded_tile().body[1].var.name)
    text = body_text(kernel)
    assert text.index("for k") < text.index("if", text.index("for k"))
    assert_same(guarded_tile(), kernel)


def chosen_by_size(guard: str, test: str, least: int = 4) -> Kernel:
    """`if n guard 8: y = a if n test least else b`, and the mask of `a` is the test."""
    size = symbol("n", 0)
    b = KernelBuilder("k", list(symbolic.symbols(size)))
    x, z, y = (
        b.parameter("a", f32, (size,)),
        b.parameter("b", f32, (size,)),
        b.result("y", f32, (size,)),
    )
    compares = {"ge": b.ge, "gt": b.gt, "le": b.le, "lt": b.lt}
    with b.when(compares[guard](b.index(size), b.index(8))):
        asked = compares[test](b.index(size), b.index(least))
        with b.nest((size,), ("i",)) as (i,):
            b.store(y, (i,), b.select(asked, b.load(x, (i,), asked), b.load(z, (i,))))
    return b.build()


@pytest.mark.parametrize(
    ("guard", "test", "kept"),
    [
        ("ge", "ge", "a"),
        ("ge", "gt", "a"),
        ("ge", "lt", "b"),
        ("ge", "le", "b"),
        ("gt", "le", "b"),
        ("lt", "le", "both"),  # 4 or less, or 5 to 7
        ("le", "ge", "both"),
    ],
)
def test_tests_that_guards_decide_are_settled(guard: str, test: str, kept: str) -> None:
    before = chosen_by_size(guard, test)
    after = settle_tests(before, "i")
    text = body_text(after)
    wanted = {"a", "b"} if kept == "both" else {kept}
    assert {name for name in ("a", "b") if f"{name}[" in text} == wanted
    assert ("select" in text) == (kept == "both")
    for size in (0, 3, 4, 5, 7, 8, 9, 20):
        assert_same(before, after, {"n": size})


@pytest.mark.parametrize("size", [3, 4, 8])
def test_tests_leave_out_what_both_sides_have_in_common(size: int) -> None:
    """Which lanes are inside is the same in every call then."""
    n = symbol("n", 3)
    b = KernelBuilder("k", list(symbolic.symbols(n)))
    x, y = b.parameter("x", f32, (n,)), b.result("y", f32, (4,))
    with b.nest((4,), ("i",)) as (i,):
        asked = b.lt(b.index(n - 3 + i), b.index(n))
        b.store(y, (i,), b.select(asked, b.load(x, (n - 3 + i,), asked), 0))
    before = b.build()
    after = settle_tests(before, "i")
    assert "(index<i64>(i - 3) < 0)" in body_text(after)
    assert_same(before, after, {"n": size})


def test_a_guard_that_another_decides_is_opened_or_left_out() -> None:
    size = symbol("n", 0)
    b = KernelBuilder("k", list(symbolic.symbols(size)))
    x, y = b.parameter("x", f32, (size,)), b.result("y", f32, (size,))
    with b.when(b.ge(b.index(size), 8)), b.nest((size,), ("i",)) as (i,):
        b.store(y, (i,), b.load(x, (i,)))
        with b.when(b.lt(b.index(size), 8)):
            b.store(y, (i,), 1)
        with b.when(b.gt(b.index(size), 7)):
            b.accumulate("add", y, (i,), b.load(x, (i,)))
    before = b.build()
    after = settle_tests(before, "i")
    assert body_text(after).count("if ") == 1
    for count in (0, 7, 8, 9):
        assert_same(before, after, {"n": count})


def test_a_test_of_numbers_of_few_bits_stays() -> None:
    """A size of 200 is below 0 in eight bits."""
    size = symbol("n", 0)
    b = KernelBuilder("k", list(symbolic.symbols(size)))
    x, y = b.parameter("x", f32, (size,)), b.result("y", f32, (size,))
    with b.when(b.ge(b.index(size), 8)), b.nest((size,), ("i",)) as (i,):
        b.store(y, (i,), b.load(x, (i,)))
        with b.when(b.lt(b.index(size, dtypes.i8), 0)):
            b.store(y, (i,), 1)
    before = b.build()
    after = settle_tests(before, "i")
    for count in (7, 8, 127, 128, 200):
        assert_same(before, after, {"n": count})


Test = Callable[[KernelBuilder, Dim, Dim], Expression]


def sum_of_masked_loads(test: Test) -> Kernel:
    """Two neighbours added up in the lanes that a guard admits; `test` says which of them a load reads."""
    b = KernelBuilder("k")
    n = symbol("n", 1, LANES)
    x, y = b.parameter("x", f32, (n,)), b.result("y", f32, (n,))
    t = b.temporary(f32, (LANES,), "t")
    for name in ("zero", "sum", "out"):
        with b.nest((LANES,), (name,)) as (j,):
            if name == "zero":
                b.store(t, (j,), 0)
                continue
            with b.when(b.lt(b.index(j), b.index(n))):
                if name == "out":
                    b.store(y, (j,), b.load(t, (j,)))
                    continue
                with b.loop(2, "tap") as tap:
                    value = b.load(x, (j + tap,), test(b, j + tap, n))
                    b.store(t, (j,), b.add(b.load(t, (j,)), value))
    return set_scope(b.build(), "t", "workgroup")


def whole_test(b: KernelBuilder, place: Dim, n: Dim) -> Expression:
    return b.within(place, 0, n)


def test_loads_that_test_their_places_themselves_need_no_guard() -> None:
    kernel = sum_of_masked_loads(whole_test)
    changed = without_guards(kernel)
    assert body_text(kernel).count("if") == 2
    assert "if" not in body_text(changed).partition("out")[0]
    for n in (1, 5, LANES):
        assert_same(kernel, changed, {"n": n})


@pytest.mark.parametrize(
    "test",
    [
        lambda b, place, n: b.lt(b.index(place), b.index(n + 1)),
        lambda b, place, n: b.or_(whole_test(b, place, n), whole_test(b, place - 1, n)),
        lambda b, place, n: b.not_(b.ge(b.index(place), b.index(n))),
        lambda b, place, n: b.lt(b.index(place - 1), b.index(n)),
    ],
    ids=["one more", "either", "not beyond", "another place"],
)
def test_a_guard_stays_around_loads_whose_test_does_not_keep_them_inside(
    test: Test,
) -> None:
    changed = without_guards(sum_of_masked_loads(test))
    assert "if" in body_text(changed).partition("sum")[2].partition("out")[0]
