"""The primary context of a GPU, and the streams and events that live in it.

Each object owns what it made, as a `Resource` that is given back when nobody uses it; all of them
use the context, which therefore goes last.  Not here: memory, modules, queues.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Sequence
from ctypes import c_float, c_int, c_void_p
from functools import partial
from typing import Final, final

from tilewright.base.errors import DeviceError
from tilewright.runtime.drivers.cuda.resource import Resource
from tilewright.runtime.drivers.cuda.symbols import CudaLibrary

_NON_BLOCKING: Final = 1  # streams do not wait for the legacy stream of other users
_BLOCKING_SYNC: Final = 1  # a waiting thread sleeps
_DISABLE_TIMING: Final = 2
_SPARE_EVENTS: Final = 64


@final
class CudaContext:
    """The context that everything in this process uses on a GPU; `with` makes it the thread's own.

    Args:
        library: the driver library.
        ordinal: which GPU.
    Ownership: retained until nobody refers to this object.
    Thread-safety: may be used from any thread; it is pushed and popped, never just set, so other
    users of the GPU in this process keep theirs.
    """

    __slots__ = ("_kept", "device", "handle", "library", "ordinal", "resource")

    def __init__(self, library: CudaLibrary, ordinal: int) -> None:
        self._kept: list[object] = []
        self.library: CudaLibrary = library
        self.ordinal: int = ordinal
        self.resource: Resource | None = None
        device = c_int()
        library.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self.device: int = device.value
        self.handle: int = out_handle(library, "cuDevicePrimaryCtxRetain", self.device)
        self.resource = Resource(
            partial(library.try_call, "cuDevicePrimaryCtxRelease", self.device)
        )

    def __del__(self) -> None:
        drop(self.resource)

    def __enter__(self) -> None:
        self.library.call("cuCtxPushCurrent", self.handle)

    def __exit__(self, kind: object, *_: object) -> None:
        previous = c_void_p()
        result = self.library.try_call("cuCtxPopCurrent", ctypes.byref(previous))
        if result and kind is None:
            raise self.library.error("cuCtxPopCurrent", result)

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of the library in this context."""
        with self:
            self.library.call(name, *arguments)

    def create(self, name: str, *arguments: object) -> int:
        """Call a function that makes something; its handle."""
        with self:
            return out_handle(self.library, name, *arguments)

    def give_back(self, name: str, *arguments: object) -> None:
        """Call a function that gives something back, from a destructor.

        Errors are dropped: they are those of earlier work, which has reported them, and a context
        that failed takes everything with it.
        """
        with contextlib.suppress(DeviceError), self:
            self.library.try_call(name, *arguments)

    def own(
        self, name: str, *arguments: object, after: Sequence[Resource] = ()
    ) -> Resource:
        """A resource of this context that a function gives back, before those in `after`."""
        assert self.resource is not None
        give_back = partial(self.give_back, name, *arguments)
        return Resource(give_back, *after, self.resource)

    def keep(self, used: object) -> None:
        """Hold what the GPU may use for all we know until the context has ended."""
        self._kept.append(used)

    def bind_to_thread(self) -> None:
        """Make it the context of a thread of our own for good."""
        self.library.call("cuCtxSetCurrent", self.handle)

    def query_attribute(self, attribute: int) -> int:
        """A number that describes the GPU."""
        return query_attribute(self.library, self.device, attribute)


def drop(resource: Resource | None) -> None:
    """End the use of a resource, from a destructor; a process that ends gives all back anyway."""
    if resource is not None and not sys.is_finalizing():
        resource.release()


def out_handle(library: CudaLibrary, name: str, *arguments: object) -> int:
    """Call a function whose first argument is where a handle goes."""
    handle = c_void_p()
    library.call(name, ctypes.byref(handle), *arguments)
    return handle.value or 0


def query_attribute(library: CudaLibrary, device: int, attribute: int) -> int:
    """A number that describes a GPU."""
    value = c_int()
    library.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
    return value.value


@final
class CudaStream:
    """A stream: work that runs in the order in which it was put there."""

    __slots__ = ("context", "handle", "resource")

    def __init__(self, context: CudaContext) -> None:
        self.context: CudaContext = context
        self.resource: Resource | None = None
        self.handle: int = context.create("cuStreamCreate", _NON_BLOCKING)
        self.resource = context.own("cuStreamDestroy", self.handle)

    def __del__(self) -> None:
        drop(self.resource)

    def synchronize(self) -> None:
        """Block until everything in it is done.  Raises: DeviceError when some of it failed."""
        self.context.call("cuStreamSynchronize", self.handle)


@final
class CudaEvent:
    """A point in a stream.  Ownership: goes back to its pool when nobody refers to it."""

    __slots__ = ("context", "handle", "resource", "stream")

    def __init__(self, handle: int, stream: CudaStream, resource: Resource) -> None:
        self.context: CudaContext = stream.context
        self.handle: int = handle
        self.stream: CudaStream = stream
        self.resource: Resource = resource

    def __del__(self) -> None:
        drop(self.resource)

    def milliseconds_since(self, start: CudaEvent) -> float:
        """Time between two events of a pool with timing that have both happened."""
        elapsed = c_float()
        self.context.call(
            "cuEventElapsedTime", ctypes.byref(elapsed), start.handle, self.handle
        )
        return elapsed.value


@final
class EventPool:
    """Events that are used again: making one costs more than recording it.

    Thread-safety: may be used from any thread, destructors included.
    """

    __slots__ = ("_flags", "_resource", "_spare", "context")

    def __init__(self, context: CudaContext, *, has_timing: bool = False) -> None:
        assert context.resource is not None
        self.context: CudaContext = context
        self._flags: int = _BLOCKING_SYNC | (0 if has_timing else _DISABLE_TIMING)
        self._spare: list[int] = []
        destroy = partial(_destroy_events, context, self._spare)
        self._resource: Resource = Resource(destroy, context.resource)

    def __del__(self) -> None:
        drop(self._resource)

    def record(self, stream: CudaStream) -> CudaEvent:
        """An event behind everything that is in the stream now."""
        try:
            handle = self._spare.pop()
        except IndexError:
            handle = self.context.create("cuEventCreate", self._flags)
        recycle = partial(_recycle_event, self.context, self._spare, handle)
        event = CudaEvent(handle, stream, Resource(recycle, self._resource))
        self.context.call("cuEventRecord", handle, stream.handle)
        return event

    def trim(self) -> None:
        """Destroy the events that are not in use."""
        _destroy_events(self.context, self._spare)


def _recycle_event(context: CudaContext, spare: list[int], handle: int) -> None:
    if len(spare) < _SPARE_EVENTS:
        spare.append(handle)
    else:
        context.give_back("cuEventDestroy", handle)


def _destroy_events(context: CudaContext, spare: list[int]) -> None:
    while spare:
        context.give_back("cuEventDestroy", spare.pop())
