"""Exports of the `hal` module about fences.

Signatures before 3.4 lack flags.  A failed wait raises the failure itself, not just its code, so
that the reason reaches the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base.budget import CURRENT, OBJECT_BYTES
from tilewright.base.errors import DeviceError, LimitError
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.semaphore import INFINITE
from tilewright.runtime.modules.hal.state import HalState
from tilewright.runtime.vm.native_module import NativeFunction

_NS_PER_MS: Final = 1_000_000


def _create(state: HalState, device: Device, flags: int) -> Fence:
    del state, flags
    semaphore = device.create_semaphore(0)
    account = CURRENT.account
    if account is not None:
        account.budget.keep(semaphore, OBJECT_BYTES)
    return Fence(((semaphore, 1),))


def _join(state: HalState, flags: int, fences: Sequence[Fence | None]) -> Fence:
    del state, flags
    return Fence.join(fences)


def _join_3_0(state: HalState, fences: Sequence[Fence | None]) -> Fence:
    return _join(state, 0, fences)


def _await(
    state: HalState, timeout_ms: int, flags: int, fences: Sequence[Fence | None]
) -> int:
    del state, flags
    timeout_ns = INFINITE if timeout_ms < 0 else timeout_ms * _NS_PER_MS
    try:
        for fence in fences:
            if fence is not None:
                fence.wait(timeout_ns)
    except DeviceError as error:
        is_own = error.code == StatusCode.DEADLINE_EXCEEDED and timeout_ms >= 0
        if is_own and not isinstance(error, LimitError):
            return error.code
        raise
    return 0


def _await_3_0(state: HalState, timeout_ms: int, fences: Sequence[Fence | None]) -> int:
    return _await(state, timeout_ms, 0, fences)


def _unreached(
    state: HalState, timeout_ms: int, flags: int, fences: Sequence[Fence | None]
) -> Fence | None:
    """What an unbounded wait would have to wait for; bounded ones are not suspended."""
    del state, flags
    waiting = Fence.join(fences)
    return waiting if timeout_ms < 0 and not _is_over(waiting) else None


def _is_over(fence: Fence) -> bool:
    """Reached or failed: either way a wait returns at once."""
    return fence.query() != StatusCode.DEFERRED


def _unreached_3_0(
    state: HalState, timeout_ms: int, fences: Sequence[Fence | None]
) -> Fence | None:
    return _unreached(state, timeout_ms, 0, fences)


def _query(state: HalState, fence: Fence) -> int:
    del state
    return int(fence.query())


def _signal(state: HalState, fence: Fence) -> None:
    del state
    fence.signal()


def _fail(state: HalState, fence: Fence, status: int) -> None:
    del state
    code = status or StatusCode.UNKNOWN
    fence.fail(failure(code, "the program failed the fence"))


ROWS: Final = (
    NativeFunction("fence.create", ("0rI_r", "0ri_r"), _create, "device"),
    NativeFunction("fence.join", ("0ICrD_r",), _join, "fence?"),
    NativeFunction("fence.join", ("0CrD_r",), _join_3_0, "fence?"),
    NativeFunction("fence.await", ("0iICrD_i",), _await, "fence?", _unreached),
    NativeFunction("fence.await", ("0iCrD_i",), _await_3_0, "fence?", _unreached_3_0),
    NativeFunction("fence.query", ("0r_i",), _query, "fence"),
    NativeFunction("fence.signal", ("0r_v",), _signal, "fence"),
    NativeFunction("fence.fail", ("0ri_v",), _fail, "fence"),
)
