"""Reads one field after another from untrusted bytes: counts, texts with a length, tables.

A `ByteView` with a position.  Counts are compared with what is left before anything is made of them.
"""

from __future__ import annotations

from typing import Final, final

from tilewright.base.errors import ArchiveError
from tilewright.formats.byte_view import ByteView, decode_text


@final
class ByteCursor:
    """A place in a view that moves on with every field that is read.

    Args:
        view: what is read.
        offset: of the first field.

    Raises (every method): ArchiveError for a field that reaches beyond the end.
    """

    __slots__ = ("offset", "view")

    def __init__(self, view: ByteView, offset: int = 0) -> None:
        self.view: Final[ByteView] = view
        self.offset: int = offset

    def skip(self, length: int, subject: str) -> int:
        """Where the next `length` bytes begin, which are passed."""
        self.view.check(self.offset, length, subject)
        self.offset += length
        return self.offset - length

    def u8(self, subject: str) -> int:
        """The next byte."""
        return self.view.u8(self.skip(1, subject), subject)

    def u16(self, subject: str) -> int:
        """The next 16-bit number."""
        return self.view.u16(self.skip(2, subject), subject)

    def u32(self, subject: str) -> int:
        """The next 32-bit number."""
        return self.view.u32(self.skip(4, subject), subject)

    def i32(self, subject: str) -> int:
        """The next signed 32-bit number."""
        return self.view.i32(self.skip(4, subject), subject)

    def u64(self, subject: str) -> int:
        """The next 64-bit number."""
        return self.view.u64(self.skip(8, subject), subject)

    def i64(self, subject: str) -> int:
        """The next signed 64-bit number."""
        return self.view.i64(self.skip(8, subject), subject)

    def text(self, subject: str) -> str:
        """The next text: a 64-bit length, then UTF-8."""
        return decode_text(self.raw_text(subject), self.view.location, subject)

    def raw_text(self, subject: str) -> memoryview:
        """The bytes of the next text."""
        length = self.u64(f"length of {subject}")
        return self.view.data[self.skip(length, subject) : self.offset]

    def counted(self, count: int, minimum_bytes: int, subject: str) -> range:
        """`range(count)`, when that many items of a least size can still follow."""
        if count * minimum_bytes > self.view.size - self.offset:
            raise ArchiveError(
                f"{subject} of {count} items does not fit the file",
                location=self.view.location,
            )
        return range(count)
