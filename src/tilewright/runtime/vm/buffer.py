"""`!vm.buffer`: host bytes that bytecode reads and writes, bounds-checked.

Rodata, strings and packed tables; not device memory.  Offsets and lengths are bytes here; the
interpreter scales those of typed accesses.

Source: IREE `vm/buffer.h`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, final

from tilewright.base.budget import OBJECT_BYTES, Budget
from tilewright.base.status import StatusCode, failure
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.formats.byte_view import view_bytes

_FILL_BYTES: Final = 1 << 20
_LARGEST_BYTES: Final = 1 << 40


class _Held(bytearray):
    """Memory that a budget counts until nothing refers to it, views included."""

    __slots__ = ("__weakref__",)


def held_zeros(budget: Budget, length: int) -> bytearray:
    """Zeros that are taken from a budget before they are there.

    Raises: DeviceError for a negative length; LimitError.
    """
    if length < 0:
        raise failure(StatusCode.INVALID_ARGUMENT, f"buffer of {length} bytes")
    budget.take(length + OBJECT_BYTES)
    try:
        memory = _Held(length)
    except BaseException:
        budget.release(length + OBJECT_BYTES)
        raise
    budget.attach(memory, length + OBJECT_BYTES)
    return memory


@final
class VmBuffer:
    """Bytes.

    Ownership: keeps `data` alive.
    Thread-safety: callers synchronise writes.
    """

    __slots__ = ("data",)

    def __init__(self, data: HostBytes) -> None:
        self.data: memoryview = view_bytes(data)

    @staticmethod
    def allocate(length: int) -> VmBuffer:
        """Zeros.  Raises: DeviceError for a length that is negative or absurd."""
        if not 0 <= length < _LARGEST_BYTES:
            raise failure(StatusCode.INVALID_ARGUMENT, f"buffer of {length} bytes")
        return VmBuffer(bytearray(length) or b"")

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"<vm.buffer of {len(self.data)} bytes>"

    @property
    def text(self) -> str:
        """The bytes as UTF-8 text, broken sequences replaced."""
        return bytes(self.data).decode("utf-8", errors="replace").rstrip("\0")

    def range(self, offset: int, length: int) -> memoryview:
        """The bytes of a range.  Raises: DeviceError (OUT_OF_RANGE)."""
        size = len(self.data)
        if offset < 0 or length < 0 or offset + length > size:
            raise failure(
                StatusCode.OUT_OF_RANGE,
                f"{length} bytes at {offset} of a buffer with {size}",
            )
        return self.data[offset : offset + length]

    def writable(self, offset: int, length: int) -> memoryview:
        """The same, for writing.  Raises: DeviceError for read-only data."""
        if self.data.readonly and length:
            raise failure(StatusCode.INVALID_ARGUMENT, "write to a read-only buffer")
        return self.range(offset, length)

    def load(self, layout: Struct, offset: int) -> int | float:
        """One number."""
        return layout.unpack(self.range(offset, layout.size))[0]

    def store(self, layout: Struct, offset: int, value: float) -> None:
        """Replace one number."""
        layout.pack_into(self.writable(offset, layout.size), 0, value)

    def fill(self, layout: Struct, offset: int, length: int, value: float) -> None:
        """Repeat one number over `length` bytes."""
        target = self.writable(offset, length)
        pattern = layout.pack(value)
        piece = pattern * min(length // len(pattern), _FILL_BYTES // len(pattern))
        for begin in range(0, length, _FILL_BYTES):
            part = target[begin : begin + _FILL_BYTES]
            part[:] = piece[: len(part)]
