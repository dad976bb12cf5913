"""Bounds-checked little-endian reads over a buffer, without copying it.

The one way in which the parsers of this room look at untrusted bytes: a read past the end is an
`ArchiveError` that names the place, never an `IndexError` or a `struct.error`.  Not a stream (no
position, no state) and not a writer.  Used by `elf`, `vmfb` and `bytecode`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, cast, final

from tilewright.base.errors import ArchiveError
from tilewright.base.lazy import lazy

if TYPE_CHECKING:
    import mmap

    import numpy as np
    import numpy.typing as npt


@final
class LazyBytes:
    """Bytes that are made when somebody looks at them; `view_bytes` does."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make: Callable[[], bytes] = make

    @lazy
    def made(self) -> bytes:
        """The bytes.  Raises: what making them raises."""
        return self._make()

    @property
    def are_made(self) -> bool:
        """Whether somebody has looked at them."""
        return "made" in self.__dict__


Buffer: TypeAlias = (
    "bytes | bytearray | memoryview | mmap.mmap | npt.NDArray[np.generic] | LazyBytes"
)
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

    def check(self, offset: int, length: int, subject: str) -> None:
        """Raise unless `length` bytes lie at `offset`."""
        if offset < 0 or length < 0 or offset + length > self.size:
            raise ArchiveError(
                f"{subject} at byte {offset} needs {length} bytes, the data has {self.size}",
                location=self.location,
            )

    def sub(self, offset: int, length: int, subject: str) -> memoryview:
        """The bytes `offset .. offset + length`, as a view of the original memory."""
        self.check(offset, length, subject)
        return self.data[offset : offset + length]

    def unpack(self, layout: struct.Struct, offset: int, subject: str) -> tuple[int, ...]:
        """The fields of one structure."""
        self.check(offset, layout.size, subject)
        return layout.unpack_from(self.data, offset)

    def u8(self, offset: int, subject: str) -> int:
        """One unsigned byte."""
        self.check(offset, 1, subject)
        return self.data[offset]

    def i8(self, offset: int, subject: str) -> int:
        """One signed byte."""
        return self.unpack(_I8, offset, subject)[0]

    def u16(self, offset: int, subject: str) -> int:
        """An unsigned 16-bit value."""
        return self.unpack(_U16, offset, subject)[0]

    def i16(self, offset: int, subject: str) -> int:
        """A signed 16-bit value."""
        return self.unpack(_I16, offset, subject)[0]

    def u32(self, offset: int, subject: str) -> int:
        """An unsigned 32-bit value."""
        return self.unpack(_U32, offset, subject)[0]

    def i32(self, offset: int, subject: str) -> int:
        """A signed 32-bit value."""
        return self.unpack(_I32, offset, subject)[0]

    def u64(self, offset: int, subject: str) -> int:
        """An unsigned 64-bit value."""
        return self.unpack(_U64, offset, subject)[0]

    def i64(self, offset: int, subject: str) -> int:
        """A signed 64-bit value."""
        return self.unpack(_I64, offset, subject)[0]

    def c_string(self, offset: int, subject: str) -> str:
        """The zero-terminated UTF-8 text at `offset`."""
        self.check(offset, 1, subject)
        for end in range(offset, min(self.size, offset + 4096)):
            if self.data[end] == 0:
                return decode_text(self.data[offset:end], self.location, subject)
        raise ArchiveError(f"{subject} at byte {offset} has no end", location=self.location)


def view_bytes(buffer: Buffer) -> memoryview:
    """The memory of a contiguous buffer as single bytes, not copied."""
    if isinstance(buffer, LazyBytes):
        buffer = buffer.made
    view = memoryview(cast("bytes", buffer))
    return view.cast("B") if view.nbytes else memoryview(b"")


def decode_text(data: Buffer, location: str, subject: str) -> str:
    """UTF-8 text, or an `ArchiveError` that says which text is broken."""
    try:
        return bytes(view_bytes(data)).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArchiveError(
            f"{subject} is not UTF-8 ({error.reason})", location=location
        ) from error
