"""The first iterations of a loop that are the same whatever loops around it are at."""

import pytest

from fakes.loop_nests import assert_same, body_text
from tilewright.base.dtypes import f32
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim, floordiv, maximum, minimum
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.schedule.primitives import split_alike


def growing(first: int, step: int, blocks: int = 9, most: int = 60) -> Kernel:
    """`for t in 5: for b: for j in min(8, seen - 8 * b): y[t] += x[8 * b + j]`, where `step` more are seen from t to t."""
    b = KernelBuilder("growing")
    x, y = b.parameter("x", f32, (80,)), b.result("y", f32, (5,))
    with b.nest((5,), ("t",)) as (t,):
        b.store(y, (t,), 0)
        seen: Dim = maximum(0, minimum(most, step * t + first))
        with (
            b.loop(minimum(blocks, floordiv(seen + 7, 8)), "b") as block,
            b.reduce((minimum(8, seen - 8 * block),), ("j",)) as (j,),
        ):
            b.accumulate("add", y, (t,), b.load(x, (8 * block + j,)))
    return b.build()


@pytest.mark.parametrize(
    ("first", "step", "blocks", "alike"),
    [
        (8, 8, 9, 1),
        (15, 8, 9, 1),
        (16, 3, 9, 2),
        (40, 40, 9, 5),
        (59, 1, 9, 7),
        (20, 40, 3, 2),
    ],
)
def test_blocks_that_all_see_whole_stand_apart(
    first: int, step: int, blocks: int, alike: int
) -> None:
    kernel = growing(first, step, blocks)
    done = split_alike(kernel, "b", "t")
    whole = loops(done.body)[1]
    assert whole.extent == alike
    assert [x.extent for x in loops(whole.body)] == [8]
    assert_same(kernel, done)


@pytest.mark.parametrize(("first", "step"), [(7, 8), (0, 40), (-9, 30)])
def test_no_block_is_whole_for_all(first: int, step: int) -> None:
    with pytest.raises(ScheduleError, match="no iteration of 'b' is alike"):
        split_alike(growing(first, step), "b", "t")


def test_what_shrinks_is_not_cut() -> None:
    with pytest.raises(ScheduleError, match=r"nothing says that .* grows with"):
        split_alike(growing(40, -8), "b", "t")


def test_what_nothing_decides_is_not_cut() -> None:
    with pytest.raises(ScheduleError, match="is the same in all iterations of 't'"):
        split_alike(growing(40, 0), "b", "t")


def test_a_loop_elsewhere_is_not_around() -> None:
    with pytest.raises(ScheduleError, match="'t' is not in 'b'"):
        split_alike(growing(8, 8), "t", "b")


def test_loops_that_run_no_time_are_left_out() -> None:
    b = KernelBuilder("hidden")
    x, y = b.parameter("x", f32, (80,)), b.result("y", f32, (5, 80))
    with b.nest((5,), ("t",)) as (t,), b.loop(floordiv(8 * t + 16, 8), "b") as block:
        first = maximum(0, minimum(8, 8 * t + 9 - 8 * block))
        with b.nest((8 - first,), ("j",)) as (j,):
            b.store(y, (t, 8 * block + first + j), b.load(x, (8 * block + first + j,)))
        with b.nest((first,), ("j",)) as (j,):
            b.store(y, (t, 8 * block + j), 1)
    kernel = b.build()
    done = split_alike(kernel, "b", "t")
    assert [x.extent for x in loops(done.body)[1:3]] == [1, 8], body_text(done)
    assert_same(kernel, done)
