"""Codes name failures, and every exception has one."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ArchiveError, DeviceError, InputError, TargetError
from tilewright.base.status import StatusCode, code_name, code_of, failure


def test_a_failure_ends_with_the_name_of_its_code() -> None:
    error = failure(
        StatusCode.NOT_FOUND, "no kernel 'x'", location="lib.so", hint="look again"
    )
    assert isinstance(error, DeviceError)
    assert error.code == 5
    assert str(error) == "lib.so: no kernel 'x' (NOT_FOUND)\nhint: look again"


def test_codes_without_a_name_stay_numbers() -> None:
    assert code_name(99) == "99"
    assert code_of(failure(99, "odd")) is StatusCode.UNKNOWN


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (failure(StatusCode.DATA_LOSS, "x"), StatusCode.DATA_LOSS),
        (TargetError("x"), StatusCode.INCOMPATIBLE),
        (InputError("x"), StatusCode.INVALID_ARGUMENT),
        (ArchiveError("x"), StatusCode.INVALID_ARGUMENT),
        (MemoryError(), StatusCode.RESOURCE_EXHAUSTED),
        (KeyboardInterrupt(), StatusCode.CANCELLED),
        (TimeoutError(), StatusCode.DEADLINE_EXCEEDED),
        (ValueError("x"), StatusCode.INTERNAL),
    ],
)
def test_every_exception_has_a_code(error: BaseException, code: StatusCode) -> None:
    assert code_of(error) is code
