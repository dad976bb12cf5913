"""The error tree: everything Tilewright raises on purpose.

    TilewrightError
    ├── UserError            the input or the request is at fault
    │   ├── ModelError       unsupported op, type mismatch, bad attribute (location: the model's terms)
    │   ├── TargetError      unknown CPU, missing feature, impossible target
    │   ├── ArchiveError     corrupt or incompatible artifact (location: file and byte range or field)
    │   ├── ScheduleError    a schedule primitive does not apply here
    │   └── InputError       a call got the wrong number, type or shape of tensors
    ├── DeviceError          a device, driver or queue failed (carries a status code)
    │   └── LimitError       a module that is not trusted wants more than its limits allow
    └── InternalError        a broken invariant of ours ("please report")

A message reads `location: what, expected, got`, lower case, no full stop, values quoted; the
hint follows on its own line.  Not a place for logging or warnings (see `diagnostics`).
"""

from __future__ import annotations

from typing import Final

DOCS: Final = "docs/errors.md"
OF_DAMAGE: Final = "copy the file again, or compile the model again"
"""The hint about an artifact that a disk or a transfer has damaged."""


def version_hint(again: str, *, is_newer: bool) -> str:
    """The hint about a file of another version: an update helps where it is newer than what is read.

    Args:
        again: how the file is made, as "compile the model again".
        is_newer: its version is above all that are read here.
    """
    return f"{'update Tilewright, or ' if is_newer else ''}{again} with this version"


class TilewrightError(Exception):
    """Base of the tree; catches everything Tilewright raises on purpose.

    Args:
        message: *what, expected, got* in lower case, without full stop.
        location: where, in the terms of the input (`model.onnx: node 'add_3'`).
        hint: the call or flag that helps.
    """

    def __init__(
        self, message: str, *, location: object | None = None, hint: str | None = None
    ) -> None:
        self.message: str = message
        self.location: object | None = location
        self.hint: str | None = hint
        super().__init__(message)

    def __str__(self) -> str:
        text = self.message if self.location is None else f"{self.location}: {self.message}"
        return text if self.hint is None else f"{text}\nhint: {self.hint}"


class UserError(TilewrightError):
    """The input or the request is at fault, not Tilewright."""


class ModelError(UserError):
    """A model cannot be understood or compiled as it stands."""


class TargetError(UserError):
    """A target is unknown, contradictory or cannot run the code."""


class ArchiveError(UserError):
    """An artifact is corrupt, truncated or of an incompatible version."""


class ScheduleError(UserError):
    """A schedule primitive does not apply to the given kernel."""


class InputError(UserError):
    """A call got the wrong number, type or shape of tensors."""


def index_error(
    index: int,
    low: int,
    high: int,
    *,
    axis: int,
    size: int,
    location: object | None = None,
) -> InputError:
    """The error for an index (a length) of the data that lies outside `low .. high`."""
    expected = "which has no element" if high < low else f"expected {low} .. {high}"
    return InputError(
        f"index {index} is out of range on axis {axis} of size {size}, {expected}",
        location=location,
    )


def reason_of(error: BaseException) -> str:
    """Why a file could not be used: in the words of the system where it has some, else in those of the error."""
    return getattr(error, "strerror", None) or str(error)


DOES_NOT_HOLD: Final = ", which does not hold for this call"
"""Ends the place of a check of a condition: its error says that, not which size a truth value is.  ORDER flow.c"""


def condition_text(place: str) -> str:
    """What the error of a check says that has this place; empty where it checks no condition."""
    if not place.endswith(DOES_NOT_HOLD):
        return ""
    return f"{place.removesuffix(DOES_NOT_HOLD)}: does not hold for this call"


def size_error(
    size: int, low: int | None, high: int | None, location: object | None = None
) -> InputError | None:
    """The error for a size that the data of a call gives, or a condition (0 or 1), where it lies outside `low .. high`."""
    if low is not None and size < low:
        expected = f"at least {low}"
    elif high is not None and size > high:
        expected = f"at most {high}"
    else:
        return None
    told = condition_text(str(location or ""))
    if told:
        return InputError(told)
    return InputError(f"the data gives size {size}, expected {expected}", location=location)


class DeviceError(TilewrightError):
    """A device, driver or queue failed.

    Args:
        message: what happened.
        code: the status code (`tilewright.base.status`), an integer.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = 2,
        location: object | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, location=location, hint=hint)
        self.code: int = code


class LimitError(DeviceError):
    """A module that is not trusted wants more than its limits allow.

    Args:
        message: what it wants and what is allowed.
        limit: `max_steps`, `max_bytes` or `timeout_s`.
        allowed: the limit: steps, bytes or seconds.
        code: RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED.
    """

    def __init__(
        self,
        message: str,
        *,
        limit: str = "",
        allowed: float = 0,
        code: int = 8,
        location: object | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, code=code, location=location, hint=hint)
        self.limit: str = limit
        self.allowed: float = allowed


class InternalError(TilewrightError):
    """An invariant of Tilewright itself broke; the text asks for a report.

    Args:
        message: which one.
        location: where.
        dump: what helps to find out, printed after the message.
    """

    def __init__(
        self, message: str, *, location: object | None = None, dump: str | None = None
    ) -> None:
        self.dump: str | None = dump
        hint = "this is a bug in Tilewright, please report it with the model and this text"
        super().__init__(
            message if dump is None else f"{message}\n{dump}", location=location, hint=hint
        )
