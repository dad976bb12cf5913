"""What a replay raises reaches users in a device's words."""

from __future__ import annotations

import pytest

from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode
from tilewright.runtime import native
from tilewright.runtime.recorder import raise_failure


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (native.KernelError(3, "add", 7), StatusCode.ABORTED, "kernel 'add'.*returned 7"),
        (RuntimeError("the pool is closed"), StatusCode.ABORTED, "the pool is closed"),
        (ValueError("slot 0 is short"), StatusCode.INVALID_ARGUMENT, "slot 0 is short"),
    ],
)
def test_failures_have_a_code_and_keep_their_cause(
    error: RuntimeError | ValueError, code: StatusCode, text: str
) -> None:
    with pytest.raises(DeviceError, match=text) as caught:
        raise_failure(error)
    assert caught.value.code == code
    assert caught.value.__cause__ is error


def test_a_recursion_error_is_the_callers() -> None:
    with pytest.raises(RecursionError, match="too deep"):
        raise_failure(RecursionError("too deep"))
