"""Fences whose time is over: what they say."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.semaphore import Semaphore


def test_a_fence_whose_time_is_over_tells_its_own_semaphores() -> None:
    """It told a helper's: "the semaphore is at 0, waiting for 1"."""
    fence = Fence(((Semaphore(3), 7), (Semaphore(9), 9), (Semaphore(5), 6)))
    with pytest.raises(DeviceError) as caught:
        fence.wait(1000)
    assert caught.value.code == StatusCode.DEADLINE_EXCEEDED
    assert caught.value.message == (
        "semaphore 1 of 3 is at 3, waiting for 7; semaphore 3 of 3 is at 5, waiting for 6"
        " (DEADLINE_EXCEEDED)"
    )
    with pytest.raises(DeviceError, match=r"1 of 2 is at 3, .* semaphore 2 of 2 is at 5, "):
        Fence((fence.timepoints[0], fence.timepoints[2])).wait_any(1000)


def test_a_long_fence_names_the_first_semaphores() -> None:
    fence = Fence((Semaphore(), 1) for _ in range(20))
    with pytest.raises(DeviceError, match=r"8 of 20 is at 0, waiting for 1; and 12 more"):
        fence.wait(1000)


def test_a_semaphore_that_failed_because_its_own_time_was_over_says_so() -> None:
    first, second = Semaphore(), Semaphore()
    second.fail(failure(StatusCode.DEADLINE_EXCEEDED, "the network is slow"))
    with pytest.raises(DeviceError, match="the network is slow"):
        Fence(((first, 1), (second, 1))).wait(10**10)


def test_nothing_watches_when_the_time_is_over() -> None:
    first, second = Semaphore(), Semaphore()
    with pytest.raises(DeviceError):
        Fence(((first, 1), (second, 1))).wait(1000)
    assert not first.is_watched
    assert not second.is_watched


class _Late:
    """What a wait waits for: at its end, time is over, and something has happened meanwhile."""

    error = None

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.meanwhile = meanwhile

    def wait(self, _: int, timeout_ns: int) -> None:
        self.meanwhile()
        raise failure(StatusCode.DEADLINE_EXCEEDED, f"more than {timeout_ns} ns")

    def signal(self, value: int) -> None:
        """Too late."""


@pytest.mark.parametrize("name", ["wait", "wait_any"])
def test_a_fence_that_is_reached_when_time_is_over_is_reached(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a semaphore is; "reached too late" was raised."""
    first, second = Semaphore(), Semaphore()
    fence = Fence(((first, 1), (second, 2)))
    meanwhile = fence.signal if name == "wait" else partial(second.signal, 2)
    monkeypatch.setattr("tilewright.runtime.hal.fence.Semaphore", lambda: _Late(meanwhile))
    getattr(fence, name)(1000)
    assert (first.value, second.value) == (int(name == "wait"), 2)


def test_what_was_reached_when_time_is_over_is_not_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = Semaphore(), Semaphore()
    late = _Late(partial(first.signal, 1))
    monkeypatch.setattr("tilewright.runtime.hal.fence.Semaphore", lambda: late)
    with pytest.raises(DeviceError, match=r"^semaphore 2 of 2 is at 0, waiting for 2 \("):
        Fence(((first, 1), (second, 2))).wait(1000)
