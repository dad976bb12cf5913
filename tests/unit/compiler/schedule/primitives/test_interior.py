"""Code of its own for windows that are all inside."""

from __future__ import annotations

import pytest

from fakes.loop_nests import assert_same, body_text
from tilewright.base import symbolic
from tilewright.base.dtypes import f32
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim, symbol
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.schedule.handles import WHOLE
from tilewright.compiler.schedule.primitives import interior, split

N = symbol("N", 0)


def shifted(
    size: Dim, runs: Dim, length: int, shift: int = -1, *, divided: bool = False
) -> Kernel:
    """`y[r, i] = x[4 r + i + shift]`, 0 where there is none; maybe divided by how many there are."""
    b = KernelBuilder("shifted")
    x, y = b.parameter("x", f32, (size,)), b.result("y", f32, (runs, length))
    with b.nest((runs, length), ("r", "i")) as (r, i):
        place = 4 * r + i + shift
        value = b.load(x, (place,), b.within(place, 0, size))
        if divided:
            low = symbolic.maximum(-place, 0)
            high = symbolic.minimum(size - place, 3)
            count = symbolic.maximum(high - low, 1)
            value = b.div(value, b.cast(b.index(count), f32))
        b.store(y, (r, i), value)
    return b.build()


def test_tests_are_asked_once_for_all_of_a_run():
    changed, pieces = interior.rewrite(shifted(12, 3, 4), "i")
    first, second = pieces
    assert (first, second["i"]) == (WHOLE, "i_2")
    assert body_text(changed).splitlines() == [
        "for r in range(3):",
        "    if (index<i64>(4*r - 1) >= 0):",
        "        for i in range(4):",
        "            y[r, i] = x[i + 4*r - 1]",
        "    if not((index<i64>(4*r - 1) >= 0)):",
        "        for i_2 in range(4):",
        "            y[r, i_2] = (x[i_2 + 4*r - 1] where (index<i64>(i_2 + 4*r - 1) >= 0))",
    ]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("shift", [-1, 1, -5])
@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize(
    ("size", "runs", "dims"),
    [(12, 3, None), (N, N, {"N": 7}), (N, 4, {"N": 0}), (N, 4, {"N": 1})],
)
def test_what_is_inside_computes_the_same(size, runs, dims, shift, divided):
    kernel = shifted(size, runs, 4, shift, divided=divided)
    assert_same(kernel, interior(kernel, "i"), dims)


def test_how_much_of_a_window_is_inside_is_all_of_it():
    text = body_text(interior(shifted(N, 3, 4, divided=True), "i"))
    inside, _, outside = text.partition("if not")
    assert "/ f32(3)" in inside
    assert "max(" not in inside
    assert "max(" in outside


def test_the_guard_of_a_tile_is_kept_for_the_tiles_at_the_border():
    kernel = split(shifted(N, 1, 10), "i", 4, "guard", ("o", "n"))
    changed = interior(kernel, "n")
    for size in (0, 3, 9, 40):
        assert_same(kernel, changed, {"N": size})


def test_a_loop_without_tests_is_refused():
    kernel = shifted(12, 3, 4, 0)
    with pytest.raises(ScheduleError, match="'i' tests no place"):
        interior(kernel, "i")


def test_a_loop_that_is_never_inside_is_refused():
    with pytest.raises(ScheduleError, match="no run of 'i' is all inside"):
        interior(shifted(2, 3, 4), "i")
