"""Hints change what is asked for, never what is computed."""

from __future__ import annotations

import pytest

from fakes.loop_nests import assert_same, body_text
from tilewright.base.dtypes import f32
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import symbol
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.verifier import verify
from tilewright.compiler.schedule.primitives import prefetch, prefetch_lines, split


def panels(rows=5):
    """`y[p, i, c] = sum over k of a[i, k] * b[p, k, c]`."""
    b = KernelBuilder("panels")
    a = b.parameter("a", f32, (rows, 7))
    w = b.parameter("b", f32, (3, 7, 4))
    y = b.result("y", f32, (3, rows, 4))
    with b.nest((3, rows, 4), ("p", "i", "c")) as (p, i, c):
        b.store(y, (p, i, c), 0)
        with b.reduce((7,), ("k",)) as (k,):
            b.accumulate(
                "add", y, (p, i, c), b.mul(b.load(a, (i, k)), b.load(w, (p, k, c)))
            )
    return b.build()


def test_prefetch_asks_for_the_next_iteration_a_bit_at_a_time() -> None:
    changed = prefetch(panels(), "b", "k", "p", 2, level=1)
    verify(changed)
    assert "prefetch b[p + 1, 0, 14*c + 56*i + 2*k]  # level 1" in body_text(changed)
    assert_same(panels(), changed)


def test_prefetch_asks_for_an_iteration_further_on() -> None:
    changed = prefetch(panels(), "b", "k", "p", 2, level=1, turns=3)
    verify(changed)
    assert "prefetch b[p + 3, 0, 14*c + 56*i + 2*k]  # level 1" in body_text(changed)
    assert_same(panels(), changed)


def test_prefetch_takes_the_loop_itself_for_what_is_ahead() -> None:
    changed = prefetch(panels(), "b", "p", "p", 9, line=4, level=1, turns=2)
    verify(changed)
    for offset in ("0]", "4]", "8]"):
        assert f"prefetch b[p + 2, 0, {offset}  # level 1" in body_text(changed)
    assert_same(panels(), changed)


def test_prefetch_follows_a_loop_that_was_split() -> None:
    kernel = split(panels(), "p", 2)
    changed = prefetch(kernel, "b", "c", "p_i", 5)
    verify(changed)
    assert "prefetch b[p_i + 2*p_o + 1, 0, 5*c + 20*i]" in body_text(changed)
    assert_same(panels(), changed)


def test_a_step_of_several_lines_takes_several_hints() -> None:
    changed = prefetch(panels(), "b", "i", "p", 9, line=4)
    for offset in ("9*i]", "9*i + 4]", "9*i + 8]"):
        assert f"prefetch b[p + 1, 0, {offset}" in body_text(changed)
    assert_same(panels(), changed)


def test_hints_go_no_further_than_is_said() -> None:
    changed = prefetch(panels(symbol("n", 1)), "b", "k", "p", 4, most=28)
    verify(changed)
    assert "prefetch b[p + 1, 0, min((28*c + 112*i + 4*k), 28)]" in body_text(changed)


def test_prefetch_takes_sizes_that_are_not_known() -> None:
    changed = prefetch(panels(symbol("n", 1)), "b", "k", "p", 1)
    verify(changed)
    assert "prefetch b[p + 1, 0, 7*c + 28*i + k]" in body_text(changed)


def test_prefetch_takes_what_is_updated_for_it_is_read_too() -> None:
    changed = prefetch(panels(), "y", "k", "c", 1)
    verify(changed)
    assert "prefetch y[" in body_text(changed)


@pytest.mark.parametrize(
    ("buffer", "loop", "ahead", "step", "reason"),
    [
        ("b", "p", "k", 1, "'p' is not inside 'k'"),
        ("b", "k", "p", 0, "cannot fetch 0 elements"),
        ("a", "k", "p", 1, "every iteration of 'p' reads the same of 'a'"),
        ("z", "k", "p", 1, "no buffer 'z'"),
    ],
)
def test_prefetch_says_why_not(buffer, loop, ahead, step, reason) -> None:
    with pytest.raises(ScheduleError, match=reason):
        prefetch(panels(), buffer, loop, ahead, step)


def test_lines_of_the_next_steps_are_those_that_a_step_reads() -> None:
    """Of two panels that lie apart, each has hints of its own."""
    b = KernelBuilder("tile")
    w = b.parameter("b", f32, (2, 12, 8))
    y = b.result("y", f32, (2, 8))
    with b.nest((2, 8), ("p", "c")) as (p, c):
        b.store(y, (p, c), 0)
    with b.reduce((12,), ("k",)) as (k,), b.nest((2, 8), ("q", "d")) as (q, d):
        b.accumulate("add", y, (q, d), b.load(w, (q, k, d)))
    kernel = split(b.build(), "k", 4)
    changed = prefetch_lines(kernel, "b", "k_i", "k_o", 4)
    verify(changed)
    hints = [x for x in body_text(changed).splitlines() if "prefetch" in x]
    places = ("0", "4", "96", "100")
    assert [x.strip() for x in hints] == [
        f"prefetch b[0, k_i + 4*k_o + 4, {place}]  # level 1" for place in places
    ]
    assert_same(kernel, changed)


@pytest.mark.parametrize(
    ("buffer", "loop", "ahead", "reason"),
    [
        ("b", "p", "k", "'p' is not inside 'k'"),
        ("a", "k", "p", "'a' is not met further on with 'p'"),
        ("z", "k", "p", "no buffer 'z'"),
        ("a", "c", "k", "'c' is not inside 'k'"),
    ],
)
def test_prefetch_of_lines_says_why_not(buffer, loop, ahead, reason) -> None:
    with pytest.raises(ScheduleError, match=reason):
        prefetch_lines(panels(), buffer, loop, ahead)


def test_lines_have_elements_and_are_not_too_many() -> None:
    with pytest.raises(ScheduleError, match="a line of 0 elements is none"):
        prefetch_lines(panels(), "b", "k", "k", 0)
    long = split(panels(4096), "i", 2048)
    with pytest.raises(ScheduleError, match="more than 64 lines of 'a'"):
        prefetch_lines(long, "a", "i_o", "i_o", 4)


def test_lines_of_rows_of_any_length_are_not_known() -> None:
    with pytest.raises(ScheduleError, match="not met at regular distances"):
        prefetch_lines(split(panels(symbol("n", 1)), "p", 2), "y", "p_i", "p_o")


def test_lines_that_are_written_are_asked_for_some_turns_ahead() -> None:
    changed = prefetch_lines(panels(), "y", "i", "i", 2, turns=3)
    verify(changed)
    hints = [x.strip() for x in body_text(changed).splitlines() if "prefetch" in x]
    assert hints == [f"prefetch y[p, i + 3, {place}]  # level 1" for place in (0, 2)]
    assert_same(panels(), changed)
