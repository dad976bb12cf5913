"""Bounds-checked little-endian reads over a buffer, without copying it.

The one way in which the parsers of this room look at untrusted bytes: a read past the end is an
`ArchiveError` that names the place, never an `IndexError` or a `struct.error`.  Not a stream (no
position, no state) and not a writer.  Used by `elf`, `vmfb` and `bytecode`.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

from tilewright.base.errors import ArchiveError

if TYPE_CHECKING:
    import mmap

    import numpy as np
    import numpy.typing as npt

Buffer: TypeAlias = "bytes | bytearray | memoryview | mmap.mmap | npt.NDArray[np.generic]"
"""What carries bytes here (`collections.abc.Buffer` is newer than our oldest Python)."""

_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_I8: Final = struct.Struct("<b")
_I16: Final = struct.Struct("<h")
_I32: Final = struct.Struct("<i")
_I64: Final = struct.Struct("<q")


@final
class ByteView:
    """A read-only window on a buffer; every access is checked.

    Args:
        buffer: anything with the buffer protocol; kept alive, not copied.
        location: how error messages call this window.
    """

    __slots__ = ("data", "location", "size")

    def __init__(self, buffer: Buffer, location: str) -> None:
        self.data: Final[memoryview] = view_bytes(buffer)
        self.size: Final[int] = len(self.data)
        self.location: Final[str] = location

    def check(self, offset: int, length: int, what: str) -> None:
        """Raise unless `length` bytes lie at `offset`."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise ArchiveError(
                f"{what} at byte {offset} needs {length} bytes, the data has {self.size}",
                location=self.location,
            )

    def sub(self, offset: int, length: int, what: str) -> memoryview:
        """The bytes `offset .. offset + length`, as a view of the original memory."""
        self.check(offset, length, what)
        return self.data[offset : offset + length]

    def unpack(self, layout: struct.Struct, offset: int, what: str) -> tuple[int, ...]:
        """The fields of one structure."""
        self.check(offset, layout.size, what)
        return layout.unpack_from(self.data, offset)

    def u8(self, offset: int, what: str) -> int:
        """One unsigned byte."""
        self.check(offset, 1, what)
        return self.data[offset]

    def i8(self, offset: int, what: str) -> int:
        """One signed byte."""
        return self.unpack(_I8, offset, what)[0]

    def u16(self, offset: int, what: str) -> int:
        """An unsigned 16-bit value."""
        return self.unpack(_U16, offset, what)[0]

    def i16(self, offset: int, what: str) -> int:
        """A signed 16-bit value."""
        return self.unpack(_I16, offset, what)[0]

    def u32(self, offset: int, what: str) -> int:
        """An unsigned 32-bit value."""
        return self.unpack(_U32, offset, what)[0]

    def i32(self, offset: int, what: str) -> int:
        """A signed 32-bit value."""
        return self.unpack(_I32, offset, what)[0]

    def u64(self, offset: int, what: str) -> int:
        """An unsigned 64-bit value."""
        return self.unpack(_U64, offset, what)[0]

    def i64(self, offset: int, what: str) -> int:
        """A signed 64-bit value."""
        return self.unpack(_I64, offset, what)[0]

    def c_string(self, offset: int, what: str) -> str:
        """The zero-terminated UTF-8 text at `offset`."""
        self.check(offset, 1, what)
        for end in range(offset, min(self.size, offset + 4096)):
            if self.data[end] == 0:
                return decode_text(self.data[offset:end], self.location, what)
        raise ArchiveError(f"{what} at byte {offset} has no end", location=self.location)


def view_bytes(buffer: Buffer) -> memoryview:
    """The memory of a contiguous buffer as single bytes, not copied."""
    view = memoryview(cast("bytes", buffer))
    return view.cast("B") if view.nbytes else memoryview(b"")


def decode_text(data: Buffer, location: str, what: str) -> str:
    """UTF-8 text, or an `ArchiveError` that says which text is broken."""
    try:
        return bytes(data).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArchiveError(
            f"{what} is not UTF-8 ({error.reason})", location=location
        ) from error
