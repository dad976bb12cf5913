"""The errors of calls that the C core walks by itself, which it has as a status and a text.

Called by the C core (`native/src/python/flow_program_type.c`).  Not here: failures of single lists (`kernel_error`).
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from tilewright.base.errors import ArchiveError, InputError, TilewrightError
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.native.memory_report import MORE
from tilewright.runtime.native.model_status import ModelStatus

INCONSISTENT: Final = "the program does not fit itself: "
"""How the text begins where a plan is at fault.  MIRROR PROGRAM ERRORS: `native/src/program/bound.c`."""

_HINT: Final = "\nhint: "
_PLACE: Final = re.compile(r"(\w+ '.*?'): ")


def raise_flow_error(status: int, text: str) -> NoReturn:
    """Raise what a call failed with.

    Raises: InputError for its tensors, or what their data decides; ArchiveError for the plan; DeviceError for memory and
        kernels; KeyboardInterrupt where it was interrupted.
    """
    if status == ModelStatus.INTERRUPTED:
        raise KeyboardInterrupt
    raise _error(status, text)


def _error(status: int, text: str) -> TilewrightError:
    if text.startswith(INCONSISTENT):
        return ArchiveError(text.removeprefix(INCONSISTENT), location="plan")
    location, told = _split(text)
    problem, _, hint = told.partition(_HINT)
    if status == ModelStatus.BAD_INPUT:
        return InputError(problem, location=location, hint=hint or None)
    is_memory = status == ModelStatus.NO_MEMORY
    code = StatusCode.RESOURCE_EXHAUSTED if is_memory else StatusCode.ABORTED
    return failure(
        code, problem, location=location, hint=hint or (MORE if is_memory else None)
    )


def _split(text: str) -> tuple[str | None, str]:
    """The place that a text begins with, if it does, and the rest."""
    found = _PLACE.match(text)
    return (None, text) if found is None else (found[1], text[found.end() :])
