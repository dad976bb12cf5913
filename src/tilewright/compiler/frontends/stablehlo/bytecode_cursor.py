"""Numbers and bytes of MLIR bytecode, read within bounds.

Every count is checked against what is left before anything is made of it.  Not sections, not meaning.
Called by the readers of sections, attributes and operations.

Source: MLIR Bytecode Format, "Basic Type Encodings" and "Sections".
"""

from __future__ import annotations

import struct
from typing import Final, final

from tilewright.base.errors import ModelError

_PADDING: Final = 0xCB
_ALIGNED: Final = 0x80
_BYTE: Final = 8
_WORD: Final = 64


@final
class ByteCursor:
    """A place in a range of bytes.

    Args:
        data: the whole file.
        file: what to call it in messages.
        start, stop: the range.
    """

    __slots__ = ("data", "file", "place", "stop")

    def __init__(
        self, data: bytes, file: str, start: int = 0, stop: int | None = None
    ) -> None:
        self.data: bytes = data
        self.file: str = file
        self.place: int = start
        self.stop: int = len(data) if stop is None else stop

    def error(self, message: str) -> ModelError:
        """An error at this place."""
        return ModelError(message, location=f"{self.file}: byte {self.place}")

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return self.stop - self.place

    def take(self, count: int) -> bytes:
        """The next bytes.  Raises: ModelError if there are not as many."""
        if not 0 <= count <= self.left:
            raise self.error(f"{count} bytes are said to follow, {self.left} are left")
        found = self.data[self.place : self.place + count]
        self.place += count
        return found

    def part(self, count: int) -> ByteCursor:
        """The next bytes as a range of their own; this cursor steps over them."""
        start = self.place
        if not 0 <= count <= self.left:
            raise self.error(f"{count} bytes are said to follow, {self.left} are left")
        self.place += count
        return ByteCursor(self.data, self.file, start, self.place)

    def byte(self) -> int:
        """The next byte."""
        return self.take(1)[0]

    def number(self) -> int:
        """An unsigned number of up to 64 bits: zeros below the lowest one count the bytes that follow."""
        first = self.byte()
        if first & 1:
            return first >> 1
        if first == 0:
            return int(struct.unpack("<Q", self.take(8))[0])
        extra = (first & -first).bit_length() - 1
        whole = first | int.from_bytes(self.take(extra), "little") << _BYTE
        return whole >> (extra + 1)

    def signed(self) -> int:
        """A number with its sign in the lowest bit."""
        found = self.number()
        return (found >> 1) ^ -(found & 1)

    def flagged(self) -> tuple[int, bool]:
        """A number and the flag in its lowest bit."""
        found = self.number()
        return found >> 1, bool(found & 1)

    def count(self, each: int = 1) -> int:
        """How many entries follow, of at least `each` bytes.  Raises: ModelError if they cannot."""
        found = self.number()
        if found * each > self.left:
            raise self.error(f"{found} entries are said to follow in {self.left} bytes")
        return found

    def numbers(self) -> list[int]:
        """A list of unsigned numbers."""
        return [self.number() for _ in range(self.count())]

    def signed_numbers(self) -> list[int]:
        """A list of signed numbers."""
        return [self.signed() for _ in range(self.count())]

    def bits(self, width: int) -> int:
        """The bits of a number of known width, without a sign."""
        if width <= _BYTE:
            return self.byte()
        if width <= _WORD:
            return self.signed() & ((1 << width) - 1)
        words = [self.signed() & ((1 << _WORD) - 1) for _ in range(self.count())]
        return sum(word << (_WORD * i) for i, word in enumerate(words)) & ((1 << width) - 1)

    def float64(self) -> float:
        """An IEEE double."""
        return float(struct.unpack("<d", struct.pack("<Q", self.bits(_WORD)))[0])

    def text(self) -> str:
        """Up to the next zero byte."""
        end = self.data.find(b"\0", self.place, self.stop)
        if end < 0:
            raise self.error("a text does not end")
        found = self.take(end - self.place)
        self.place += 1
        return found.decode("utf-8", "replace")

    def blob(self) -> bytes:
        """Bytes with their count before them."""
        return self.take(self.number())

    def section(self) -> tuple[int, ByteCursor]:
        """The kind of the next section, and its bytes."""
        kind = self.byte()
        length = self.number()
        if kind & _ALIGNED:
            self._align(self.number())
        return kind & ~_ALIGNED, self.part(length)

    def _align(self, alignment: int) -> None:
        if alignment < 1 or alignment & (alignment - 1):
            raise self.error(f"{alignment} is no alignment")
        gap = -self.place % alignment
        if self.take(gap).strip(bytes([_PADDING])):
            raise self.error("the padding of a section is damaged")
