"""What `thinned` and `sampled` leave in a run has many values of every parameter: as many as half of the cases that stay.

One case that stays asks for nothing, and one that is skipped where it runs counts as one that stays.
"""

from __future__ import annotations

import pytest

from selection import UNEVEN, Sample


@pytest.mark.parametrize("run", ["fast", pytest.param("slow", marks=pytest.mark.slow)])
def test_a_sample_takes_no_value_again_while_others_are_never_taken(
    run: str, request: pytest.FixtureRequest
) -> None:
    """A step that shares a divisor with the number of values of an inner parameter does."""
    wanted: list[str] = []
    assert request.config.stash[UNEVEN] == wanted, f"choose other numbers for the {run} run"


def test_a_step_with_a_divisor_of_the_values_is_noticed() -> None:
    values = [{"outer": i, "inner": j} for i in range(5) for j in range(6)]
    even, uneven = Sample(7), Sample(4)
    assert [even.takes(v) for v in values].count(True) == 5
    assert [uneven.takes(v) for v in values].count(True) == 8
    assert even.uneven() == []
    assert uneven.uneven() == ["inner"]


def test_what_is_never_in_a_run_is_no_value_that_it_lacks() -> None:
    sample = Sample(2)
    for number in range(4):
        sample.takes({"x": number // 2} if number < 2 else None)
    assert sample.uneven() == []
