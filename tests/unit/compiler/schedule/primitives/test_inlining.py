from __future__ import annotations

import pytest

from fakes.contractions import product as packed_product
from fakes.loop_nests import assert_same, body_text, chained, emit, product, row_sums
from tilewright.base.dtypes import f32
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim, symbol, symbols
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.schedule.primitives import (
    forward,
    fuse_nests,
    inline,
    partition,
    privatize,
    reverse_inline,
)


def heads(rows: Dim = 3) -> Kernel:
    """A product of 2 heads of 4 columns, then split into heads: y[h, s, d] = t[s, h * 4 + d]."""
    b = KernelBuilder("heads")
    x, y = b.parameter("x", f32, (rows, 8)), b.result("y", f32, (2, rows, 4))
    t = b.temporary(f32, (rows, 8), "t")
    with b.nest((rows, 8), ("i", "j")) as (i, j):
        b.store(t, (i, j), 0)
        with b.reduce((5,), ("k",)) as (k,):
            b.accumulate(
                "add", t, (i, j), b.mul(b.load(x, (i, j)), b.cast(b.index(k), f32))
            )
    with b.nest((2, rows, 4), ("h", "s", "d")) as (h, s, d):
        b.store(y, (h, s, d), b.load(t, (s, h * 4 + d)))
    return b.build()


def test_inline_computes_a_temporary_where_it_is_read() -> None:
    changed = inline(chained(), "t")
    assert body_text(changed) == (
        "for j in range(9):\n    y[j] = ((x[j] + 1.0) * (x[j] + 1.0))"
    )
    assert not changed.locals
    assert_same(chained(), changed)


def test_inline_follows_shifted_and_masked_reads() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (6,)), b.result("y", f32, (8,))
    t = b.temporary(f32, (6,), "t")
    with b.nest((6,), ("i",)) as (i,):
        b.store(t, (i,), b.add(b.load(x, (i,)), 5))
    with b.nest((8,), ("j",)) as (j,):
        b.store(y, (j,), b.load(t, (j - 1,), b.within(j - 1, 0, 6)))
    kernel = b.build()
    assert_same(kernel, inline(kernel, "t"))


def test_inline_refuses_reductions_parameters_and_changed_operands() -> None:
    with pytest.raises(ScheduleError, match="not defined by one plain store"):
        inline(row_sums(), "t")
    with pytest.raises(ScheduleError, match="'x' is not a temporary"):
        inline(chained(), "x")
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (6,)), b.result("y", f32, (6,))
    t = b.temporary(f32, (6,), "t")
    with b.nest((6,), ("i",)) as (i,):
        b.store(t, (i,), b.load(x, (i,)))
    with b.nest((6,), ("j",)) as (j,):
        b.store(x, (j,), 0)
    with b.nest((6,), ("k",)) as (k,):
        b.store(y, (k,), b.load(t, (k,)))
    with pytest.raises(ScheduleError, match="'x' changes after 't' is computed"):
        inline(b.build(), "t")


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_reverse_inline_solves_for_a_split_and_transposed_store(rows: int) -> None:
    kernel = heads(symbol("S", 1))
    changed = reverse_inline(kernel, "h", "t")
    assert len(changed.body) == 1
    assert "y[j // 4, i, j % 4]" in body_text(changed)
    assert_same(kernel, changed, {"S": rows})


def images(count: Dim, height: Dim, width: Dim, stride: Dim, *, more: int = 0) -> Kernel:
    """Rows of a product as places of images, inside a border: y[b, i + 1, j + 1] = t[b * stride * width + i * width + j]."""
    b, rows = (
        KernelBuilder("images", symbols(count * height * width)),
        count * height * width,
    )
    x = b.parameter("x", f32, (rows + more, 3))
    y = b.result("y", f32, (count, height + 2, width + 2))
    t = b.temporary(f32, (rows + more,), "t")
    with b.nest((rows + more,), ("m",)) as (m,):
        b.store(t, (m,), 0)
        with b.reduce((3,), ("k",)) as (k,):
            b.accumulate("add", t, (m,), b.load(x, (m, k)))
    with b.nest((count, height, width), ("b", "i", "j")) as (n, i, j):
        place = n * stride * width + i * width + j
        b.store(y, (n, i + 1, j + 1), b.load(t, (place,)))
    return b.build()


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 1, 5), (3, 4, 1), (2, 3, 5), (0, 3, 5)])
def test_reverse_inline_solves_for_places_of_images_of_open_sizes(
    sizes: tuple[int, int, int],
) -> None:
    count, height, width = (symbol(name, 1) for name in ("B", "H", "W"))
    kernel = images(count, height, width, height)
    changed = reverse_inline(kernel, "b", "t")
    assert len(changed.body) == 1
    assert "y[(m // W) // H, ((m // W) % H) + 1, (m % W) + 1]" in body_text(changed)
    assert_same(kernel, changed, dict(zip("BHW", sizes, strict=True)))


@pytest.mark.parametrize("sizes", [(0, 0, 0), (2, 0, 3), (2, 3, 0), (0, 2, 1), (2, 2, 3)])
def test_reverse_inline_divides_by_sizes_that_may_be_0_only_where_nothing_runs_then(
    sizes: tuple[int, int, int],
) -> None:
    count, height, width = (symbol(name, 0) for name in ("B", "H", "W"))
    kernel, dims = (
        images(count, height, width, height),
        dict(zip("BHW", sizes, strict=True)),
    )
    assert_same(kernel, reverse_inline(kernel, "b", "t"), dims)
    with pytest.raises(ScheduleError, match="may run over nothing"):
        reverse_inline(images(count, height, width, height, more=2), "b", "t")
    rows = [symbol(name, 1) for name in "HW"]
    kernel = images(count, *rows, rows[0], more=2)
    if all(sizes[1:]):
        assert_same(kernel, reverse_inline(kernel, "b", "t"), dims)


def test_reverse_inline_refuses_images_that_are_no_rows_one_by_one() -> None:
    count, height, width = (symbol(name, 1) for name in ("B", "H", "W"))
    with pytest.raises(ScheduleError, match="does not count elements one by one"):
        reverse_inline(images(count, height, width, height + 1), "b", "t")
    with pytest.raises(ScheduleError, match="cannot be solved for 'b'"):
        reverse_inline(images(2, 3, 5, -3), "b", "t")


def test_reverse_inline_joins_digits_of_one_loop() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (3, 4)), b.result("y", f32, (12,))
    t = b.temporary(f32, (3, 4), "t")
    with b.nest((3, 4), ("i", "j")) as (i, j):
        b.store(t, (i, j), b.load(x, (i, j)))
    with b.nest((12,), ("f",)) as (f,):
        b.store(y, (f,), b.mul(b.load(t, (f // 4, f % 4)), 2))
    kernel = b.build()
    changed = reverse_inline(kernel, "f", "t")
    assert "y[4*i + j]" in body_text(changed)
    assert_same(kernel, changed)


def test_reverse_inline_guards_a_consumer_of_a_part() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (9,)), b.result("y", f32, (4,))
    t = b.temporary(f32, (9,), "t")
    with b.nest((9,), ("i",)) as (i,):
        b.store(t, (i,), b.load(x, (i,)))
    with b.nest((4,), ("j",)) as (j,):
        b.store(y, (j,), b.load(t, (j + 3,)))
    kernel = b.build()
    changed = reverse_inline(kernel, "j", "t")
    assert body_text(changed).count("if") == 2
    assert_same(kernel, changed)


def longer_than_read(how: str) -> Kernel:
    """`t` of 3 elements; then `y` of 5, which is `t` where there is one, and -1 or what it was where there is none."""
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (3,)), b.result("y", f32, (5,))
    t = b.temporary(f32, (3,), "t")
    with b.nest((3,), ("i",)) as (i,):
        b.store(t, (i,), b.load(x, (i,)))
    with b.nest((5,), ("j",)) as (j,):
        inside = b.within(j, 0, 3)
        if how == "chosen":
            b.store(y, (j,), b.select(inside, b.load(t, (j,), inside), -1))
        else:
            if how == "filled":
                b.store(y, (j,), -1)
            with b.when(inside):
                b.store(y, (j,), b.load(t, (j,)))
    return b.build()


@pytest.mark.parametrize("how", ["chosen", "filled"])
def test_reverse_inline_refuses_a_consumer_that_fills_what_it_reads_nothing_for(
    how: str,
) -> None:
    with pytest.raises(ScheduleError, match="not every iteration reads an element of 't'"):
        reverse_inline(longer_than_read(how), "j", "t")


def test_reverse_inline_takes_a_consumer_that_does_nothing_where_it_reads_nothing() -> None:
    kernel = longer_than_read("left")
    assert_same(kernel, reverse_inline(kernel, "j", "t"))


def in_parts(guarded: bool) -> Kernel:
    """`t` by two nests, of which the second makes all again, or only a part; then `y = t * t`."""
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (9,)), b.result("y", f32, (9,))
    t = b.temporary(f32, (9,), "t")
    with b.nest((9,), ("i",)) as (i,):
        b.store(t, (i,), 0)
    with b.nest((9,), ("j",)) as (j,), b.when(b.within(j, 0, 4 if guarded else 9)):
        b.accumulate("add", t, (j,), b.load(x, (j,)))
    with b.nest((9,), ("k",)) as (k,):
        b.store(y, (k,), b.mul(b.load(t, (k,)), b.load(t, (k,))))
    return b.build()


def test_reverse_inline_follows_the_nest_that_finishes_every_element() -> None:
    kernel = in_parts(guarded=False)
    assert_same(kernel, reverse_inline(kernel, "k", "t"))


def test_reverse_inline_refuses_a_producer_of_a_part() -> None:
    with pytest.raises(ScheduleError, match="several nests make the elements of 't'"):
        reverse_inline(in_parts(guarded=True), "k", "t")
    with pytest.raises(ScheduleError, match="several nests make the elements of 't'"):
        reverse_inline(partition(chained(), "i", 4), "j", "t")


def test_reverse_inline_refuses_a_consumer_that_makes_what_it_reads() -> None:
    kernel = partition(product(), "i", 2)
    first, second = (s.var.name for s in kernel.body)
    assert first == "i"
    with pytest.raises(ScheduleError, match=f"'{second}' does not only read 'y'"):
        reverse_inline(kernel, second, "y")


def beside_producer(*, behind: bool, own: bool) -> Kernel:
    """`t` row by row, `b` in front of the row or behind it; then `y = t + b[column]`, or `b[row]`."""
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (4, 4)), b.result("y", f32, (4, 4))
    t, bias = b.temporary(f32, (4, 4), "t"), b.temporary(f32, (4,), "b")
    with b.nest((4,), ("i",)) as (i,):
        if not behind:
            b.store(bias, (i,), b.load(x, (i, 0)))
        with b.nest((4,), ("j",)) as (j,):
            b.store(t, (i, j), b.load(x, (i, j)))
        if behind:
            b.store(bias, (i,), b.load(x, (i, 0)))
    with b.nest((4, 4), ("p", "q")) as (p, q):
        b.store(y, (p, q), b.add(b.load(t, (p, q)), b.load(bias, (p if own else q,))))
    return b.build()


@pytest.mark.parametrize(("behind", "own"), [(True, True), (True, False), (False, False)])
def test_reverse_inline_refuses_what_is_made_later_beside_the_producer(
    behind: bool, own: bool
) -> None:
    with pytest.raises(ScheduleError, match="code that touches 'b' is in the way"):
        reverse_inline(beside_producer(behind=behind, own=own), "p", "t")


def test_reverse_inline_reads_what_is_made_in_front_of_the_producer() -> None:
    kernel = beside_producer(behind=False, own=True)
    assert_same(kernel, reverse_inline(kernel, "p", "t"))


def test_reverse_inline_enters_the_guard_of_a_padded_panel() -> None:
    b = KernelBuilder("packed")
    a, w = b.parameter("a", f32, (5, 3)), b.parameter("w", f32, (2, 3, 4))
    bias, y = b.parameter("bias", f32, (7,)), b.result("y", f32, (5, 7))
    t = b.temporary(f32, (5, 7), "t")
    emit(b, "contract", packed_product(7), [a, w], t)
    emit(b, "add", {}, [t, bias], y)
    kernel = b.build()
    _, second, third = (s.var.name for s in kernel.body)
    changed = reverse_inline(reverse_inline(kernel, second, "acc"), third, "t")
    assert len(changed.body) == 1
    assert_same(kernel, changed)


def test_reverse_inline_refuses_repeated_and_inner_reads() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (3,)), b.result("y", f32, (3, 5))
    t = b.temporary(f32, (3,), "t")
    with b.nest((3,), ("i",)) as (i,):
        b.store(t, (i,), b.load(x, (i,)))
    with b.nest((5, 3), ("h", "j")) as (h, j):
        b.store(y, (j, h), b.load(t, (j,)))
    with pytest.raises(ScheduleError, match="more than once"):
        reverse_inline(b.build(), "h", "t")
    with pytest.raises(ScheduleError, match="not a nest at the top"):
        reverse_inline(row_sums(), "k", "t")


def test_forward_passes_a_value_on_and_drops_the_store() -> None:
    kernel = privatize(fuse_nests(chained(), "i", "j"), "t", "i")
    changed = forward(kernel, "t")
    assert "t[" not in body_text(changed)
    assert_same(chained(), changed)


def test_forward_keeps_the_store_of_a_parameter() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (4,)), b.result("y", f32, (4,))
    z = b.result("z", f32, (4,))
    with b.nest((4,), ("i",)) as (i,):
        b.store(y, (i,), b.add(b.load(x, (i,)), 1))
        b.store(z, (i,), b.mul(b.load(y, (i,)), 2))
    kernel = b.build()
    changed = forward(kernel, "y")
    assert "y[i] =" in body_text(changed)
    assert_same(kernel, changed)


def test_forward_refuses_updates_and_reads_elsewhere() -> None:
    with pytest.raises(ScheduleError, match="not stored once"):
        forward(row_sums(), "t")
    with pytest.raises(ScheduleError, match="read elsewhere"):
        forward(chained(), "t")
