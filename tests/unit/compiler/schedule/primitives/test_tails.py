"""Runs of which the last begins earlier, and lengths that stand in memory."""

import pytest

from fakes.loop_nests import assert_same, body_text, doubled
from tilewright.base.dtypes import f32
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import minimum, symbol
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.readers.kernel_text import parse_kernel
from tilewright.compiler.schedule.primitives import (
    bind,
    overlap,
    partition,
    split,
    version,
    widen,
)

N = symbol("N", 0)


@pytest.mark.parametrize("size", [0, 3, 4, 5, 7, 8, 9, 100])
def test_overlap_begins_the_last_run_earlier_where_it_is_whole(size: int) -> None:
    kernel = overlap(split(version(doubled(N), "i", N, 4), "i", 4), "i_i")
    assert f"y[i_i + {minimum(N - 4, 4 * symbol('i_o'))}]" in body_text(kernel)
    assert_same(doubled(N), kernel, {"N": size})


@pytest.mark.parametrize("size", [0, 3, 4, 5, 7, 8, 9, 100])
@pytest.mark.parametrize("last", ["partial", "alone"])
def test_overlap_may_give_the_last_run_code_of_its_own(last: str, size: int) -> None:
    kernel = split(version(doubled(N), "i", N, 4), "i", 4)
    changed = overlap(kernel, "i_i", last)
    runs = [x.extent for x in loops(changed.body) if "_o" in x.var.name]
    assert (runs[1] == 1) == (last == "alone")
    assert "min(" not in body_text(changed)
    assert "y[N + i_i_2 - 4]" in body_text(changed)
    assert_same(doubled(N), changed, {"N": size})


@pytest.mark.parametrize("size", [0, 4, 5, 8, 9, 12, 13, 100])
def test_a_guard_says_how_many_runs_a_loop_has(size: int) -> None:
    kernel = split(split(version(doubled(N), "i", N, 9), "i", 4), "i_2", 8)
    first = widen(partition(kernel, "i_o", 3), "i_2_o", 1)
    assert [x.extent for x in loops(first.body) if "_o" in x.var.name][::2] == [3, 1]
    assert_same(doubled(N), first, {"N": size})
    unsure = partition(kernel, "i_o", 4)
    assert minimum((N + 3) // 4, 4) in [x.extent for x in loops(unsure.body)]
    with pytest.raises(ScheduleError, match="runs at most 0 times"):
        widen(kernel, "i_2_o", 0)


TRIANGLE = """kernel triangle(write y: f32[N], *, N: 4..):
    for r in range((N + 3) // 4):
        for k in range(r):
            for i in range(4):
                if (index<i64>(4*r + i) < index<i64>(N)):
                    y[4*r + i] = 1.0
"""


def between_and_around() -> tuple[Kernel, Kernel]:
    """`t = x[i]; y[i] = t * x[i]` with `t` in device memory, and `y[i] = i` by what the runs of a split loop count."""
    b = KernelBuilder("between")
    x, y = b.parameter("x", f32, (N,)), b.result("y", f32, (N,))
    with b.nest((N,), ("i",)) as (i,):
        b.store(y, (i,), b.load(x, (i,)))
        b.store(y, (i,), b.mul(b.load(y, (i,)), b.load(x, (i,))))
    counted = """kernel counted(write y: i64[N], *, N: 4..):
    for r in range((N + 3) // 4):
        for i in range(4):
            if (index<i64>(4*r + i) < index<i64>(N)):
                y[4*r + i] = index<i64>(r)
"""
    return b.build(), parse_kernel(counted)


def test_overlap_refuses_what_makes_something_else_the_second_time() -> None:
    large = version(doubled(N), "i", N, 4)
    read, counted = between_and_around()
    with pytest.raises(ScheduleError, match="nothing says that there are 8 of 'i_i'"):
        overlap(split(large, "i", 8), "i_i")
    with pytest.raises(ScheduleError, match="no guard to specialize"):
        overlap(split(doubled(8), "i", 4), "i_i")
    with pytest.raises(ScheduleError, match="those of several workgroups"):
        overlap(bind(split(doubled(N + 4), "i", 4), "i_o", "x"), "i_i")
    with pytest.raises(ScheduleError, match="read what they make, 'y'"):
        overlap(split(version(read, "i", N, 4), "i", 4), "i_i")
    for other in (counted, parse_kernel(TRIANGLE)):
        with pytest.raises(ScheduleError, match="differ in more than where they begin"):
            overlap(other, "i")
    with pytest.raises(ScheduleError, match="'joined', 'partial' or 'alone', got 'x'"):
        overlap(split(large, "i", 4), "i_i", "x")
    blocks = split(split(large, "i", 4), "i_o", 2)
    with pytest.raises(ScheduleError, match="are not those of one loop"):
        overlap(blocks, "i_i")


MADE_TWICE = {
    "meet in 'y'": """kernel steps(read x: f32[N], read w: f32[4], write y: f32[N + 3], *, N: 4..):
    for r in range((N + 3) // 4):
        for k in range(4):
            for i in range(4):
                if (index<i64>(4*r + i) < index<i64>(N)):
                    y[4*r + i + k] = (x[4*r + i] + w[k])
""",
    "what 'i' computes is read elsewhere": """kernel last(read x: f32[N + 3], write y: f32[N], write z: f32[(N + 3) // 4], *, N: 4..):
    local t: f32[]@register
    for r in range((N + 3) // 4):
        for i in range(4):
            t[] = x[4*r + i]
            if (index<i64>(4*r + i) < index<i64>(N)):
                y[4*r + i] = t[]
        z[r] = t[]
""",
    "of several workgroups or threads": """kernel threads(read x: f32[N], write y: f32[N], *, N: 8..12):
    for r in range(3):  # thread.x
        for i in range(4):
            if (index<i64>(4*r + i) < index<i64>(N)):
                y[4*r + i] = x[4*r + i]
""",
    "nothing says that there are 4 of 'i'": """kernel counted(read x: f32[8], write y: f32[8], write n: i64[1]):
    n[0] = 8
    if (index<i64>(<n[0]>) >= index<i64>(4)):
        n[0] = 2
        for r in range(2):
            for i in range(4):
                if (index<i64>(4*r + i) < index<i64>(<n[0]>)):
                    y[4*r + i] = x[4*r + i]
""",
}


@pytest.mark.parametrize(("message", "text"), MADE_TWICE.items(), ids=str)
def test_overlap_refuses_where_somebody_sees_that_elements_are_made_twice(
    message: str, text: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        overlap(parse_kernel(text), "i")


def test_runs_that_overlap_are_not_split_over_workgroups() -> None:
    """Two of them would write the same elements at once."""
    kernel = overlap(split(doubled(symbol("N", 4)), "i", 4), "i_i")
    with pytest.raises(ScheduleError, match="iterations of 'i_o' meet in 'y'"):
        bind(kernel, "i_o", "x")


def test_widen_refuses_a_length_that_changes_behind_its_guard() -> None:
    kernel = parse_kernel("""kernel grows(write y: i64[9], write n: i64[1]):
    n[0] = 4
    if (index<i64>(<n[0]>) <= index<i64>(4)):
        n[0] = 9
        for i in range(<n[0]>):
            y[i] = index<i64>(i)
""")
    with pytest.raises(ScheduleError, match="nothing says that 'i' runs at most 4"):
        widen(kernel, "i", 4)
