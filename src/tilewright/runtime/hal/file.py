"""A file: bytes outside of device memory that queues read from and write to.

`HostFile` is memory of the host (rodata, a mapped archive); `StreamFile` an open file of the
system.  Not here: formats.

Source: IREE `hal/file.h`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import BinaryIO, final

from tilewright.base.status import StatusCode, failure
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.formats.byte_view import view_bytes
from tilewright.runtime.hal.buffer import MemoryAccess


class File(ABC):
    """Bytes that are read and written at offsets.

    Thread-safety: may be used from any thread.
    """

    __slots__ = ("allowed_access",)

    def __init__(self, allowed_access: int) -> None:
        self.allowed_access: int = allowed_access

    @property
    @abstractmethod
    def length(self) -> int:
        """Bytes in the file."""

    @abstractmethod
    def read_into(self, offset: int, target: memoryview) -> None:
        """Fill `target` from the bytes at `offset`."""

    @abstractmethod
    def write_from(self, offset: int, source: memoryview) -> None:
        """Replace the bytes at `offset`."""

    def check(self, access: int, offset: int, length: int) -> None:
        """Raise unless the range lies inside and the access is allowed."""
        if access & ~self.allowed_access:
            raise failure(
                StatusCode.PERMISSION_DENIED,
                f"access {MemoryAccess(access)!r}, the file allows "
                f"{MemoryAccess(self.allowed_access)!r}",
            )
        if offset < 0 or length < 0 or offset + length > self.length:
            raise failure(
                StatusCode.OUT_OF_RANGE,
                f"{length} bytes at {offset}, the file has {self.length}",
            )


@final
class HostFile(File):
    """Host memory as a file.  Ownership: keeps the memory alive."""

    __slots__ = ("_view",)

    def __init__(self, memory: HostBytes, allowed_access: int = MemoryAccess.READ) -> None:
        super().__init__(allowed_access)
        self._view: memoryview = view_bytes(memory)

    @property
    def length(self) -> int:
        return len(self._view)

    def read_into(self, offset: int, target: memoryview) -> None:
        self.check(MemoryAccess.READ, offset, len(target))
        target[:] = self._view[offset : offset + len(target)]

    def write_from(self, offset: int, source: memoryview) -> None:
        self.check(MemoryAccess.WRITE, offset, len(source))
        self._view[offset : offset + len(source)] = source


@final
class StreamFile(File):
    """An open file of the system.  Ownership: keeps the stream open."""

    __slots__ = ("_length", "_stream")

    def __init__(self, stream: BinaryIO, allowed_access: int = MemoryAccess.READ) -> None:
        super().__init__(allowed_access)
        self._stream: BinaryIO = stream
        self._length: int = os.fstat(stream.fileno()).st_size

    @property
    def length(self) -> int:
        return self._length

    def read_into(self, offset: int, target: memoryview) -> None:
        self.check(MemoryAccess.READ, offset, len(target))
        done = 0
        while done < len(target):
            count = os.preadv(self._stream.fileno(), [target[done:]], offset + done)
            if count == 0:
                raise failure(StatusCode.DATA_LOSS, f"the file ends at {offset + done}")
            done += count

    def write_from(self, offset: int, source: memoryview) -> None:
        self.check(MemoryAccess.WRITE, offset, len(source))
        done = 0
        while done < len(source):
            done += os.pwritev(self._stream.fileno(), [source[done:]], offset + done)
