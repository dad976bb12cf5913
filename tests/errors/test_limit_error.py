"""What a module hears that wants more than it may have."""

from tilewright.base.budget import exceeded
from tilewright.base.errors import DeviceError, LimitError


def test_the_text_says_which_limit_how_much_and_how_to_raise_it() -> None:
    error = exceeded("max_steps", 1000, "the call takes more than 1000 steps")
    assert isinstance(error, DeviceError)
    assert isinstance(error, LimitError)
    assert (error.limit, error.allowed, error.code) == ("max_steps", 1000, 8)
    assert str(error) == (
        "the call takes more than 1000 steps (RESOURCE_EXHAUSTED)\n"
        "hint: if it may take more: limits=Limits(max_steps=...), or --max-steps; "
        "the limit is 1000"
    )


def test_a_time_limit_has_the_code_of_a_deadline() -> None:
    error = exceeded("timeout_s", 2.0, "the call takes more than 2.0 seconds")
    assert "(DEADLINE_EXCEEDED)" in str(error)
    assert "limits=Limits(timeout_s=...), or --timeout; the limit is 2.0" in str(error)
