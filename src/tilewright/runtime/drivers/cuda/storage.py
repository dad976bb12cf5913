"""Memory that a GPU reaches: its own, pinned memory of the host, and memory both share.

The host sees some of it; the rest comes and goes through a stream.  Not here: where it comes from
(`allocator`).
"""

from __future__ import annotations

import contextlib
import sys
from typing import Final, cast, final

import numpy as np

from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode, failure
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.formats.byte_view import view_bytes
from tilewright.runtime.drivers.cuda.context import CudaStream, drop
from tilewright.runtime.drivers.cuda.operations import fill_operations
from tilewright.runtime.drivers.cuda.resource import Resource
from tilewright.runtime.drivers.cuda.stream_commands import issue_operation
from tilewright.runtime.hal.buffer import Storage

_EMPTY: Final = np.zeros(0, np.uint8)


@final
class CudaStorage(Storage):
    """A range of addresses of the GPU.

    Args:
        stream: for transfers that the host waits for.
        size_bytes: how much there is.
        host_address: where the host sees it; 0 where it does not.
        owner: whatever keeps host memory that is somebody else's.
    Ownership: `bind` brings the memory, which goes back when nobody refers to the storage, or by
    `free`.
    Thread-safety: as for buffers; binding and freeing are ordered by the queue.
    """

    __slots__ = (
        "_may_be_in_use",
        "_owner",
        "_pointer",
        "_readonly",
        "_resource",
        "_size_bytes",
        "host_address",
        "stream",
    )

    def __init__(
        self,
        stream: CudaStream,
        size_bytes: int,
        *,
        host_address: int = 0,
        owner: object = None,
        readonly: bool = False,
    ) -> None:
        self.stream: CudaStream = stream
        self.host_address: int = host_address
        self._owner: object = owner
        self._size_bytes: int = size_bytes
        self._readonly: bool = readonly
        self._pointer: int = 0
        self._resource: Resource | None = None
        self._may_be_in_use: bool = False

    def __del__(self) -> None:
        self.free()

    def bind(self, pointer: int, resource: Resource) -> None:
        """The memory is there from now on, in the order of the stream it was asked for in."""
        self._pointer = pointer
        self._resource = resource

    def move_to(self, pointer: int) -> None:
        """Say where the GPU sees memory that is bound."""
        self._pointer = pointer

    def free(self) -> None:
        """Give the memory back; what is in a stream already may still use it."""
        resource, self._resource = self._resource, None
        if self._may_be_in_use and not sys.is_finalizing():
            # By a transfer: it is in another stream than the one the memory goes back in.
            with contextlib.suppress(DeviceError):
                self.stream.synchronize()
        drop(resource)

    @property
    def pointer(self) -> int:
        """The GPU's address.

        Raises: DeviceError (FAILED_PRECONDITION) before the memory is allocated and after it was
        given back.
        """
        if self._resource is None and self._size_bytes:
            state = "was deallocated" if self._pointer else "is not allocated yet"
            raise failure(
                StatusCode.FAILED_PRECONDITION,
                f"a transient buffer of {self._size_bytes} bytes {state}",
            )
        return self._pointer

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    @property
    def readonly(self) -> bool:
        return self._readonly

    @property
    def is_host_visible(self) -> bool:
        return self.host_address != 0 or self._size_bytes == 0

    @property
    def __array_interface__(self) -> dict[str, object]:
        """Lets numpy see the bytes and keep the storage as the array's base."""
        return {
            "version": 3,
            "shape": (self._size_bytes,),
            "typestr": "|u1",
            "data": (self.host_address, self._readonly),
        }

    def map(self, offset: int, length: int) -> memoryview:
        if not self.is_host_visible:
            raise failure(
                StatusCode.FAILED_PRECONDITION,
                "the host cannot see memory of the GPU",
                hint="allocate with MemoryType.HOST_VISIBLE, or use read and write",
            )
        if length == 0:
            return memoryview(b"") if self._readonly else memoryview(bytearray())
        return view_bytes(np.asarray(self)[offset : offset + length])

    def read(self, offset: int, length: int) -> bytes:
        if self.is_host_visible:
            return bytes(self.map(offset, length))
        data = bytearray(length)
        self.read_into(offset, memoryview(data))
        return bytes(data)

    def read_into(self, offset: int, target: memoryview) -> None:
        if self.is_host_visible:
            target[:] = self.map(offset, len(target))
        elif len(target):
            source, place = self.pointer + offset, host_address(target)
            self._transfer(target, "cuMemcpyDtoHAsync", place, source, len(target))

    def write(self, offset: int, data: bytes | memoryview) -> None:
        if self.is_host_visible:
            self.map(offset, len(data))[:] = data
        elif len(data):
            target, place = self.pointer + offset, host_address(data)
            self._transfer(data, "cuMemcpyHtoDAsync", target, place, len(data))

    def fill(self, offset: int, length: int, pattern: bytes) -> None:
        if self.is_host_visible:
            self.map(offset, length)[:] = pattern * (length // len(pattern))
            return
        with self.stream.context:
            for operation in fill_operations(self.pointer + offset, length, pattern):
                issue_operation(operation, self.stream)
        self._wait()

    def _transfer(self, memory: HostBytes, function: str, *arguments: object) -> None:
        context = self.stream.context
        context.call(function, *arguments, self.stream.handle)
        try:
            self._wait()
        except DeviceError:
            context.keep(memory)  # the copy may still be under way
            raise

    def _wait(self) -> None:
        try:
            self.stream.synchronize()
        except DeviceError:
            self._may_be_in_use = True
            raise


def host_address(data: HostBytes) -> int:
    """Where the bytes of a buffer lie; the caller keeps it alive."""
    view = memoryview(cast("bytes", data))
    array = np.frombuffer(view, np.uint8) if view.nbytes else _EMPTY
    return cast("int", array.__array_interface__["data"][0])
