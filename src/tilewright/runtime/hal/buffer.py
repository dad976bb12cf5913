"""A buffer: a range of bytes of a device, with what may be done to it.

The bytes themselves are a `Storage`, of which each kind of device has its own; buffers and
subspans of buffers refer to it.  Not here: shapes and types (`buffer_view`), where storages come
from (`allocator`).

Source: IREE `hal/buffer.h` (names and bit values).
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from typing import Final, final

from tilewright.base.status import StatusCode, failure

WHOLE_BUFFER: Final = -1
"""As a length: up to the end of the buffer."""


class MemoryType(enum.IntFlag):
    """Where memory is and who sees it."""

    NONE = 0
    OPTIMAL = 1
    HOST_VISIBLE = 2
    HOST_COHERENT = 4
    HOST_CACHED = 8
    HOST_LOCAL = 2 | 4 | 64
    DEVICE_VISIBLE = 16
    DEVICE_LOCAL = 16 | 32


class MemoryAccess(enum.IntFlag):
    """What a mapping or a file may be used for."""

    NONE = 0
    READ = 1
    WRITE = 2
    DISCARD = 4
    MAY_ALIAS = 8
    UNALIGNED = 16
    ANY = 32
    ALL = 1 | 2 | 4


class BufferUsage(enum.IntFlag):
    """What the bytes of a buffer may be used for."""

    NONE = 0
    TRANSFER_SOURCE = 1 << 0
    TRANSFER_TARGET = 1 << 1
    TRANSFER = 3
    DISPATCH_INDIRECT_PARAMETERS = 1 << 8
    DISPATCH_UNIFORM_READ = 1 << 9
    DISPATCH_STORAGE_READ = 1 << 10
    DISPATCH_STORAGE_WRITE = 1 << 11
    DISPATCH_STORAGE = 3 << 10
    DISPATCH_IMAGE_READ = 1 << 12
    DISPATCH_IMAGE_WRITE = 1 << 13
    SHARING_EXPORT = 1 << 16
    SHARING_REPLICATE = 1 << 17
    SHARING_CONCURRENT = 1 << 18
    SHARING_IMMUTABLE = 1 << 19
    MAPPING_SCOPED = 1 << 24
    MAPPING_PERSISTENT = 1 << 25
    MAPPING_OPTIONAL = 1 << 26
    MAPPING_ACCESS_RANDOM = 1 << 27
    MAPPING_ACCESS_SEQUENTIAL_WRITE = 1 << 28
    DEFAULT = 0xC03
    MAPPING = 1 << 24 | 1 << 25


# Plain numbers where buffers are used: flag arithmetic of `enum` is slow.
READ: Final = int(MemoryAccess.READ)
WRITE: Final = int(MemoryAccess.WRITE)
_ACCESS: Final = int(MemoryAccess.ALL)
_DEVICE_LOCAL: Final = int(MemoryType.DEVICE_LOCAL)
_DEFAULT_USAGE: Final = int(BufferUsage.DEFAULT)


class Storage(ABC):
    """The memory under a buffer.

    Ownership: whoever holds the storage, or a view of it, keeps the memory.
    """

    __slots__ = ("__weakref__",)

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """How many bytes there are."""

    @property
    @abstractmethod
    def readonly(self) -> bool:
        """Whether nothing may write to the memory."""

    @abstractmethod
    def map(self, offset: int, length: int) -> memoryview:
        """Host view of a range that lies inside; writable unless `readonly`.

        Raises: DeviceError where the host cannot see the memory.
        """

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Replace a range that lies inside with bytes from the host."""
        self.map(offset, len(data))[:] = data

    @property
    def is_host_visible(self) -> bool:
        """Whether `map` works; if not, bytes come and go by `read` and `write` alone."""
        return True

    def read(self, offset: int, length: int) -> bytes:
        """Copy of a range that lies inside."""
        return bytes(self.map(offset, length))

    def read_into(self, offset: int, target: memoryview) -> None:
        """Copy of a range that lies inside, to memory of the caller."""
        target[:] = self.map(offset, len(target))

    def fill(self, offset: int, length: int, pattern: bytes) -> None:
        """Repeat a pattern over a range that lies inside."""
        self.map(offset, length)[:] = pattern * (length // len(pattern))

    def invalidate(self, offset: int, length: int) -> None:
        """Make device writes visible to host mappings that are not coherent."""
        del offset, length

    def flush(self, offset: int, length: int) -> None:
        """Make host writes through mappings that are not coherent visible to the device."""
        del offset, length


@final
class Buffer:
    """A range of a storage.

    Thread-safety: immutable but for the bytes, which callers synchronise.
    """

    __slots__ = (
        "allowed_access",
        "allowed_usage",
        "byte_length",
        "byte_offset",
        "memory_type",
        "preserve_count",
        "storage",
    )

    def __init__(
        self,
        storage: Storage,
        byte_offset: int = 0,
        byte_length: int = WHOLE_BUFFER,
        *,
        memory_type: int = _DEVICE_LOCAL,
        allowed_access: int = _ACCESS,
        allowed_usage: int = _DEFAULT_USAGE,
    ) -> None:
        size = storage.size_bytes
        length = size - byte_offset if byte_length < 0 else byte_length
        if byte_offset < 0 or length < 0 or byte_offset + length > size:
            raise failure(
                StatusCode.OUT_OF_RANGE,
                f"buffer at byte {byte_offset} of length {byte_length}, the storage has {size} bytes",
            )
        self.storage: Storage = storage
        self.byte_offset: int = byte_offset
        self.byte_length: int = length
        self.memory_type: int = memory_type
        self.allowed_access: int = (
            allowed_access & ~WRITE if storage.readonly else allowed_access
        )
        self.allowed_usage: int = allowed_usage
        self.preserve_count: int = 1

    def __repr__(self) -> str:
        return f"<buffer of {self.byte_length} bytes at {self.byte_offset}>"

    @property
    def allocation_size(self) -> int:
        """Bytes of the allocation that the range belongs to."""
        return self.storage.size_bytes

    def check_range(self, offset: int, length: int, subject: str = "range") -> int:
        """The length of a range, `WHOLE_BUFFER` resolved.

        Raises: DeviceError (OUT_OF_RANGE) when it leaves the buffer.
        """
        size = self.byte_length
        resolved = size - offset if length == WHOLE_BUFFER else length
        if offset < 0 or resolved < 0 or offset + resolved > size:
            raise failure(
                StatusCode.OUT_OF_RANGE,
                f"{subject} at byte {offset} of length {length}, the buffer has {size} bytes",
            )
        return resolved

    def subspan(self, offset: int, length: int = WHOLE_BUFFER) -> Buffer:
        """A part of the buffer, sharing its memory."""
        length = self.check_range(offset, length, "subspan")
        if offset == 0 and length == self.byte_length:
            return self
        return Buffer(
            self.storage,
            self.byte_offset + offset,
            length,
            memory_type=self.memory_type,
            allowed_access=self.allowed_access,
            allowed_usage=self.allowed_usage,
        )

    def map_range(
        self, access: int, offset: int = 0, length: int = WHOLE_BUFFER
    ) -> memoryview:
        """Host view of a range; read-only unless `access` asks to write.

        Raises: DeviceError when the range is outside or the access is not allowed.
        """
        length = self._check_access(access, offset, length, "mapping")
        view = self.storage.map(self.byte_offset + offset, length)
        return view if access & WRITE else view.toreadonly()

    def _check_access(self, access: int, offset: int, length: int, subject: str) -> int:
        length = self.check_range(offset, length, subject)
        if access & ~self.allowed_access & _ACCESS:
            raise self._denied(access)
        return length

    def _denied(self, access: int) -> Exception:
        return failure(
            StatusCode.PERMISSION_DENIED,
            f"access {MemoryAccess(access)!r}, the buffer allows "
            f"{MemoryAccess(self.allowed_access)!r}",
        )

    def read(self, offset: int = 0, length: int = WHOLE_BUFFER) -> bytes:
        """Copy of a range."""
        length = self._check_access(READ, offset, length, "read")
        return self.storage.read(self.byte_offset + offset, length)

    def read_into(self, target: memoryview, offset: int = 0) -> None:
        """Copy of a range, to memory of the caller."""
        self._check_access(READ, offset, len(target), "read")
        self.storage.read_into(self.byte_offset + offset, target)

    def write(self, data: bytes | memoryview, offset: int = 0) -> None:
        """Replace bytes from the host."""
        source = data if isinstance(data, bytes) else memoryview(data).cast("B")
        self._check_access(WRITE, offset, len(source), "write")
        self.storage.write(self.byte_offset + offset, source)

    def fill(self, pattern: bytes, offset: int = 0, length: int = WHOLE_BUFFER) -> None:
        """Repeat 1, 2 or 4 bytes over a range.

        Raises: DeviceError when the length is no multiple of the pattern.
        """
        length = self._check_access(WRITE, offset, length, "fill")
        if len(pattern) not in (1, 2, 4, 8) or length % len(pattern):
            raise failure(
                StatusCode.INVALID_ARGUMENT,
                f"pattern of {len(pattern)} bytes over {length} bytes",
            )
        self.storage.fill(self.byte_offset + offset, length, pattern)

    def invalidate_range(self, offset: int = 0, length: int = WHOLE_BUFFER) -> None:
        """Make device writes visible to mappings."""
        length = self.check_range(offset, length, "range")
        self.storage.invalidate(self.byte_offset + offset, length)

    def flush_range(self, offset: int = 0, length: int = WHOLE_BUFFER) -> None:
        """Make host writes visible to the device."""
        length = self.check_range(offset, length, "range")
        self.storage.flush(self.byte_offset + offset, length)

    # --- manual counts for stream-ordered deallocation -------------------------------------------

    def preserve(self) -> None:
        """One more holder of the allocation."""
        self.preserve_count += 1

    def discard(self) -> bool:
        """One holder less; whether it was the last."""
        self.preserve_count = max(0, self.preserve_count - 1)
        return self.preserve_count == 0

    @property
    def is_terminal(self) -> bool:
        """Whether there is just one holder left."""
        return self.preserve_count <= 1
