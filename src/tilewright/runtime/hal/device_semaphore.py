"""A semaphore whose next values may be under way on a device.

Beside the values that are reached it knows those that issued work will bring, each with the
device's event for it: later work for the same device may be issued behind that event, without the
host in between.  Made and promised to by `deferred_work_queue`.
"""

from __future__ import annotations

import contextlib
from typing import final

from tilewright.base.errors import DeviceError
from tilewright.runtime.hal.semaphore import Semaphore


@final
class DeviceSemaphore(Semaphore):
    """A timeline with a second one before it: what is issued.

    Args:
        initial_value: where both begin.
        domain: devices of one domain can wait for each other's events.
    Thread-safety: may be used from any thread; promises come from one queue at a time.
    """

    __slots__ = ("_events", "domain", "issued")

    def __init__(self, initial_value: int = 0, domain: object = None) -> None:
        super().__init__(initial_value)
        self.domain: object = domain
        self.issued: Semaphore = Semaphore(initial_value)
        self._events: dict[int, object] = {}

    def signal(self, value: int) -> None:
        super().signal(value)
        self._advance(value)
        for promised in list(self._events):
            if promised <= value:
                self._events.pop(promised, None)

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        self.issued.fail(error)
        self._events.clear()

    def promise(self, value: int, event: object) -> None:
        """Work that will signal `value` is issued; `event` happens before it does."""
        self._events[value] = event
        self._advance(value)

    def promised_event(self, value: int) -> object | None:
        """The event behind which `value` is reached; None where nothing has to be waited for."""
        if self.value >= value:
            return None
        promised = [entry for entry in list(self._events.items()) if entry[0] >= value]
        return min(promised, key=lambda entry: entry[0])[1] if promised else None

    def _advance(self, value: int) -> None:
        if self.issued.value < value:
            # Another thread may have been faster: then the timeline is there already.
            with contextlib.suppress(DeviceError):
                self.issued.signal(value)
