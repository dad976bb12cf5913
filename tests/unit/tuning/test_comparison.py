"""Two that run by turns are told apart by their times, not by what disturbs both."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.tuning import Comparison, compare


class Machine:
    """A clock that runs by what the code on it is said to take."""

    def __init__(self) -> None:
        self.now = 0

    def code(self, durations: Sequence[int]):
        """A function that takes these times, one after the other, again and again."""
        count = 0

        def run() -> None:
            nonlocal count
            self.now += durations[count % len(durations)]
            count += 1

        return run

    def clock(self) -> int:
        return self.now


def compared(first: Sequence[int], second: Sequence[int], **options: object) -> Comparison:
    machine = Machine()
    return compare(
        machine.code(first),
        machine.code(second),
        clock=machine.clock,
        **{"rounds": 9, **options},  # pyright: ignore[reportArgumentType] - of a test
    )


def test_the_ratio_is_that_of_the_medians() -> None:
    found = compared([100], [80])
    assert (found.ratio, found.error, found.first_ns) == (0.8, 0.0, 100)
    assert found.is_gain


def test_one_disturbed_round_changes_nothing() -> None:
    found = compared([100], [80, 80, 80, 5000, 80])
    assert found.ratio == 0.8


def test_noise_as_large_as_the_gain_is_no_gain() -> None:
    found = compared([100], [60, 99, 130, 95, 140])
    assert found.ratio < 1.0
    assert not found.is_gain


def test_less_than_a_hundredth_is_no_gain() -> None:
    assert not compared([1000], [995]).is_gain


def test_something_far_slower_is_given_up_after_three_rounds() -> None:
    runs: list[int] = []
    compare(
        lambda: None, lambda: runs.append(1), rounds=30, gives_up=True, clock=iter_clock()
    )
    assert len(runs) == 1 + 3


def iter_clock():
    """A clock by which the first of each pair takes 1 and the second 10, whichever runs first."""
    times = iter([0, 1, 0, 10, 0, 10, 0, 1] * 20)
    return lambda: next(times)


def test_times_of_several_calls_are_those_of_one() -> None:
    assert Comparison(0.5, 0.1, 300.0).per_call(3) == Comparison(0.5, 0.1, 100.0)
