"""What an operation that cannot be imported says."""

from __future__ import annotations

import pytest

from tilewright.base.errors import InternalError, ModelError
from tilewright.compiler.frontends.kit.problems import REFUSALS, malformed, refusal_of


def test_what_a_row_refuses_is_said_as_it_is() -> None:
    error = ModelError("axis 3 is out of range", hint="look at the shape")
    assert refusal_of(error) is error


@pytest.mark.parametrize(
    "error", [KeyError("axis"), ZeroDivisionError("by zero"), RecursionError("too deep")]
)
def test_what_a_malformed_operation_runs_into_is_named(error: Exception) -> None:
    assert isinstance(error, REFUSALS)
    found = refusal_of(error)
    assert isinstance(found, ModelError)
    assert found.message == f"is malformed ({type(error).__name__}: {error})"


def test_what_memory_does_not_hold_is_not_called_malformed() -> None:
    error = MemoryError("Unable to allocate 2.00 GiB")
    expected = "needs more memory than there is (MemoryError: Unable to allocate 2.00 GiB)"
    assert refusal_of(error).message == expected
    assert malformed(error, "the model").reason == f"the model {expected}"


def test_a_long_reason_ends_after_its_first_line() -> None:
    assert refusal_of(ValueError("a\nb")).message == "is malformed (ValueError: a)"
    assert len(refusal_of(ValueError("a" * 1000)).message) < 220


def test_a_bug_of_ours_stays_one() -> None:
    with pytest.raises(InternalError):
        refusal_of(InternalError("a row gave two results"))
