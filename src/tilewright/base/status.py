"""Status codes: how a failure is named across devices and modules.

Failures travel as exceptions; a code is what bytecode sees of one.  Called by the runtime: every
noun of the HAL, the virtual machine and its modules.

Source: IREE `base/status.h`.
"""

from __future__ import annotations

import enum
from typing import Final

from tilewright.base.errors import DeviceError, TargetError, UserError


class StatusCode(enum.IntEnum):
    """What kind of failure; 0 is success."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16
    DEFERRED = 17
    INCOMPATIBLE = 18


_KNOWN: Final = frozenset(int(code) for code in StatusCode)


def failure(
    code: int,
    message: str,
    *,
    location: object | None = None,
    hint: str | None = None,
) -> DeviceError:
    """The exception for a failure; its text ends with the name of the code."""
    return DeviceError(
        f"{message} ({code_name(code)})", code=int(code), location=location, hint=hint
    )


def code_name(code: int) -> str:
    """`NOT_FOUND` for 5; the number itself where it has no name."""
    return StatusCode(code).name if code in _KNOWN else str(code)


def code_of(error: BaseException) -> StatusCode:
    """The code that stands for an exception."""
    if isinstance(error, DeviceError):
        return StatusCode(error.code) if error.code in _KNOWN else StatusCode.UNKNOWN
    if isinstance(error, TargetError):
        return StatusCode.INCOMPATIBLE
    if isinstance(error, UserError):
        return StatusCode.INVALID_ARGUMENT
    if isinstance(error, MemoryError):
        return StatusCode.RESOURCE_EXHAUSTED
    if isinstance(error, KeyboardInterrupt):
        return StatusCode.CANCELLED
    if isinstance(error, TimeoutError):
        return StatusCode.DEADLINE_EXCEEDED
    return StatusCode.INTERNAL
