"""A budget for bytecode that is not trusted: so many instructions, so many seconds.

Blocks charge their instructions when they are entered, opcodes that work on ranges charge for every
`BYTES_PER_STEP` bytes.  Both engines charge the same.  Called by the engines and by handlers; modules
without limits have no meter.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, final

from tilewright.base.status import StatusCode, failure

BYTES_PER_STEP: Final = 64


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one call from outside may take; None for as much as it wants.

    Attributes:
        max_steps: instructions, those of called functions included.
        deadline_s: seconds from the beginning of the call.
    """

    max_steps: int | None = None
    deadline_s: float | None = None


@final
class Meter(threading.local):
    """What is left of the budget, on each thread."""

    def __init__(self, limits: Limits) -> None:
        self.limits: Limits = limits
        self._left: int = 0
        self._end: float = 0.0
        self._nesting: int = 0

    def begin(self) -> None:
        """Fill up."""
        self._left = -1 if self.limits.max_steps is None else self.limits.max_steps
        self._end = time.monotonic() + (self.limits.deadline_s or 0.0)

    @contextmanager
    def call(self) -> Generator[None]:
        """Around a call from outside; a call inside of a call has the same budget."""
        if self._nesting == 0:
            self.begin()
        self._nesting += 1
        try:
            yield
        finally:
            self._nesting -= 1

    def spend(self, steps: int) -> None:
        """Take from the budget.

        Raises: DeviceError (RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED) when nothing is left.
        """
        limits = self.limits
        if limits.max_steps is not None:
            self._left -= steps
            if self._left < 0:
                raise failure(
                    StatusCode.RESOURCE_EXHAUSTED,
                    f"the call takes more than {limits.max_steps} steps",
                    hint="raise max_steps if the module is to be trusted",
                )
        if limits.deadline_s is not None and time.monotonic() > self._end:
            raise failure(
                StatusCode.DEADLINE_EXCEEDED,
                f"the call takes more than {limits.deadline_s} seconds",
            )

    def spend_bytes(self, length: int) -> None:
        """Take what work on a range of bytes costs; lengths that are refused later cost nothing."""
        if length >= BYTES_PER_STEP:
            self.spend(length // BYTES_PER_STEP)
