"""Failures as the virtual machine raises them: errors with a status code.

The codes are numbers shared with `runtime.hal.status`, which this room does not import; only
those that bytecode itself can cause have names here.
"""

from __future__ import annotations

from typing import Final

from tilewright.base.errors import DeviceError

UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
NOT_FOUND: Final = 5
RESOURCE_EXHAUSTED: Final = 8
FAILED_PRECONDITION: Final = 9
OUT_OF_RANGE: Final = 11
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
_NAMES: Final = {
    1: "CANCELLED", 2: "UNKNOWN", 3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED", 5: "NOT_FOUND",
    6: "ALREADY_EXISTS", 7: "PERMISSION_DENIED", 8: "RESOURCE_EXHAUSTED",
    9: "FAILED_PRECONDITION", 10: "ABORTED", 11: "OUT_OF_RANGE", 12: "UNIMPLEMENTED",
    13: "INTERNAL", 14: "UNAVAILABLE", 15: "DATA_LOSS", 16: "UNAUTHENTICATED", 17: "DEFERRED",
    18: "INCOMPATIBLE",
}  # fmt: skip


def failure(
    code: int, message: str, *, location: object | None = None, hint: str | None = None
) -> DeviceError:
    """The exception for a failure; its text ends with the name of the code."""
    name = _NAMES.get(code, str(code))
    return DeviceError(f"{message} ({name})", code=code, location=location, hint=hint)
