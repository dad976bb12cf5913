"""What a stranger's file may cost: steps, bytes and time, from the archive to the result.

`Limits` are the frozen numbers.  A `Budget` belongs to a session and counts the memory that is held
for it; an `Account` belongs to one call (or to loading) and counts its steps and its time.  The
account of the call that a thread works for is `CURRENT.account`, None for code that is trusted, which
so pays nothing: parsers, engines, kernels in bytecode, waits and native modules all charge that one.

What costs a step: an instruction, `BYTES_PER_STEP` bytes of work on a range, a workgroup.
The clock is read once per `_SLICE` steps, in every call of a native function and between the pieces of
long work.

Not here: which files are trusted (`runtime.modules.executable_policy`).  Called wherever work or memory
depends on what a file says.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, NoReturn, final

from tilewright.base.errors import LimitError, UserError
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.record import record
from tilewright.base.status import StatusCode, code_name

BYTES_PER_STEP: Final = 64
NATIVE_CALL_STEPS: Final = 16
OBJECT_BYTES: Final = 1024
"""What an object of the HAL counts as beside the memory that it manages."""
_NOTE_BYTES: Final = 400  # a finalizer, and its entry among all of them
_SLICE: Final = 8192
_UNBOUNDED: Final = 1 << 62
_FOREVER: Final = float("inf")


@final
@record(kw_only=True)
class Limits:
    """What a module that is not trusted may take; None for as much as it wants.

    Attributes:
        max_steps: of one call: instructions, and the work on ranges and arrays in their measure.
        max_bytes: memory held at one time for the module: its buffers, lists, globals, decoded code.
        timeout_s: seconds of one call, and of loading, by the clock on the wall; waits included.
    """

    max_steps: int | None = 2_000_000_000
    max_bytes: int | None = 1 << 30
    timeout_s: float | None = 60.0

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_bytes", "timeout_s"):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, int | float) or not value >= 0:
                raise UserError(
                    f"{name} is {value!r}, expected a number from 0 on, or None"
                )


def exceeded(limit: str, allowed: float, message: str) -> LimitError:
    """The error for a limit that is reached, with how to raise it."""
    code = (
        StatusCode.DEADLINE_EXCEEDED
        if limit == "timeout_s"
        else StatusCode.RESOURCE_EXHAUSTED
    )
    flag = {"max_steps": "--max-steps", "max_bytes": "--max-bytes"}.get(limit, "--timeout")
    return LimitError(
        f"{message} ({code_name(code)})",
        limit=limit,
        allowed=allowed,
        code=code,
        hint=f"if it may take more: limits=Limits({limit}=...), or {flag}; the limit is {allowed}",
    )


def budget_of(limits: Limits | Budget | None) -> Budget | None:
    """A budget of these limits, or the one that is there already.

    Raises: UserError for what is neither.
    """
    if isinstance(limits, Limits):
        return Budget(limits)
    if limits is None or isinstance(limits, Budget):
        return limits
    raise UserError(
        f"limits are {limits!r}, expected tilewright.Limits",
        hint="limits=tilewright.Limits(timeout_s=5.0)",
    )


@final
class Budget:
    """The limits of one session and the memory that is held for it.

    Thread-safety: may be used from any thread.  Memory may be given back from destructors.
    """

    __slots__ = ("__weakref__", "_held", "_lock", "_released", "limits")

    def __init__(self, limits: Limits) -> None:
        self.limits: Limits = limits
        self._held: int = 0
        self._released: deque[int] = deque()  # by destructors, which may not take a lock
        self._lock: threading.RLock = fork_lock(Rank.BUDGET)

    @property
    def held_bytes(self) -> int:
        """Memory held now."""
        with self._lock:
            self._settle()
            return self._held

    def _settle(self) -> None:
        while self._released:
            self._held -= self._released.popleft()

    def take(self, size_bytes: int) -> None:
        """Hold memory until `release`; asked for before it is allocated.

        Raises: LimitError where it does not fit.
        """
        allowed = self.limits.max_bytes
        with self._lock:
            self._settle()
            held = self._held
            if allowed is None or held + size_bytes <= allowed:
                self._held += size_bytes
                return
        raise exceeded(
            "max_bytes",
            allowed,
            f"the module wants {size_bytes} bytes and holds {held}, "
            f"more than {allowed} are not allowed",
        )

    def release(self, size_bytes: int) -> None:
        """Memory is no longer held."""
        self._released.append(size_bytes)

    def keep(self, owner: object, size_bytes: int) -> None:
        """Hold memory for as long as `owner` lives, and that of the note of it.  Raises: LimitError."""
        size_bytes += _NOTE_BYTES
        self.take(size_bytes)
        self.attach(owner, size_bytes)

    def attach(self, owner: object, size_bytes: int) -> None:
        """Memory that was taken is released when `owner` dies."""
        weakref.finalize(owner, self._released.append, size_bytes).atexit = False

    @contextmanager
    def transient(self, size_bytes: int) -> Generator[None]:
        """Hold memory for the time of an operation.  Raises: LimitError."""
        self.take(size_bytes)
        try:
            yield
        finally:
            self.release(size_bytes)

    @contextmanager
    def call(self) -> Generator[Account]:
        """Around a call from outside, or around loading; inside of a call it is part of that one."""
        outer = CURRENT.account
        if outer is not None and outer.budget is self:
            yield outer
            return
        account = Account(self)
        with acting_for(account):
            yield account


@final
class Account:
    """What is left of one call's steps and time.

    Attributes:
        left: steps until the clock is looked at; translated code counts it down by itself.
    Thread-safety: threads that work for one call share it; a race costs it some steps, no more.
    """

    __slots__ = ("_end", "_paced", "_reserve", "budget", "left")

    def __init__(self, budget: Budget) -> None:
        limits = budget.limits
        self.budget: Budget = budget
        self.left: int = 0
        self._paced: int = 0
        self._reserve: int = _UNBOUNDED if limits.max_steps is None else limits.max_steps
        self._end: float = (
            _FOREVER if limits.timeout_s is None else time.monotonic() + limits.timeout_s
        )

    def spend(self, steps: int) -> None:
        """Take steps.  Raises: LimitError when there are none, or no time, left."""
        self.left -= steps
        if self.left < 0:
            self.more()

    def spend_bytes(self, length: int) -> None:
        """Take what work on a range costs; lengths that are refused later cost nothing."""
        if length >= BYTES_PER_STEP:
            self.spend(length // BYTES_PER_STEP)

    def more(self) -> None:
        """Look at the clock and put the next slice of the steps into `left`.  Raises: LimitError."""
        self.check_clock()
        wanted = -self.left
        if wanted > self._reserve:
            allowed = self.budget.limits.max_steps
            assert allowed is not None, "without a limit there are always more"
            raise exceeded(
                "max_steps", allowed, f"the call takes more than {allowed} steps"
            )
        granted = min(wanted + _SLICE, self._reserve)
        self._reserve -= granted
        self.left += granted

    def pace(self, work: int) -> None:
        """Look at the clock now and then.

        For parsers, whose work is in proportion to their file and so takes no steps.
        Raises: LimitError when the time is over.
        """
        self._paced += work
        if self._paced > _SLICE:
            self._paced = 0
            self.check_clock()

    def check_clock(self) -> None:
        """Raises: LimitError when the time is over."""
        if time.monotonic() > self._end:
            self.late()

    def late(self) -> NoReturn:
        """Raises: LimitError for the time."""
        allowed = self.budget.limits.timeout_s
        assert allowed is not None, "without a limit it is never too late"
        raise exceeded("timeout_s", allowed, f"the call takes more than {allowed} seconds")

    @property
    def remaining_s(self) -> float:
        """Seconds until the time is over; infinite without a limit."""
        return max(0.0, self._end - time.monotonic())


@final
class _Current(threading.local):
    """The account of the call that this thread works for."""

    account: Account | None = None


CURRENT: Final = _Current()


@contextmanager
def acting_for(account: Account | None) -> Generator[None]:
    """This thread works for a call: what it does is charged to that account."""
    outer, CURRENT.account = CURRENT.account, account
    try:
        yield
    finally:
        CURRENT.account = outer


def check_clock() -> None:
    """Between the pieces of long work.  Raises: LimitError when the time is over."""
    account = CURRENT.account
    if account is not None:
        account.check_clock()


def pace(work: int) -> None:
    """As `Account.pace`, for whoever this thread works for, if anybody counts."""
    account = CURRENT.account
    if account is not None:
        account.pace(work)
