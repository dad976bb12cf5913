"""A stream of a GPU as the deferred work queue sees it."""

from __future__ import annotations

from typing import final

from tilewright.runtime.drivers.cuda.context import CudaEvent, CudaStream, EventPool
from tilewright.runtime.hal.deferred_work_queue import QueueDevice


@final
class StreamDevice(QueueDevice):
    """The stream that work is issued to.

    GPUs of one driver library can wait for each other's events: that is their domain.
    """

    __slots__ = ("events", "stream")

    def __init__(self, stream: CudaStream, events: EventPool) -> None:
        self.stream: CudaStream = stream
        self.events: EventPool = events

    @property
    def domain(self) -> object:
        return self.stream.context.library

    def bind_to_thread(self) -> None:
        self.stream.context.bind_to_thread()

    def record_event(self) -> object:
        return self.events.record(self.stream)

    def wait_event(self, event: object) -> None:
        if not isinstance(event, CudaEvent) or event.stream is self.stream:
            return  # a stream keeps its own order
        self.stream.context.call("cuStreamWaitEvent", self.stream.handle, event.handle, 0)

    def synchronize_event(self, event: object) -> None:
        assert isinstance(event, CudaEvent)
        self.stream.context.call("cuEventSynchronize", event.handle)

    def synchronize(self) -> None:
        self.stream.synchronize()
