"""A shared library as it lies in memory: its bytes by address, and its names.

Called by the readers of shared libraries, which look at nothing but what was found to lie in a segment here.

Source: System V ABI (gABI) chapter 5; glibc's `elf/dl-load.c`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, final

import tilewright.formats.elf.structures as elf
from tilewright.base.errors import ArchiveError
from tilewright.base.record import record
from tilewright.formats.byte_view import ByteView

_HEADERS_AT_MOST: Final = 256
_SPAN_AT_MOST: Final = 1 << 40
_LARGEST_PAGE_BYTES: Final = 1 << 16
_IN_SEGMENTS: Final = {  # read where they are mapped
    elf.PT_DYNAMIC: "PT_DYNAMIC",
    elf.PT_NOTE: "PT_NOTE",
    elf.PT_TLS: "PT_TLS",
    elf.PT_GNU_PROPERTY: "PT_GNU_PROPERTY",
    elf.PT_GNU_EH_FRAME: "PT_GNU_EH_FRAME",
}


@final
@record
class Segment:
    """A range that is mapped, by address; from `file_end` on it is zero.  Units: bytes."""

    address: int
    end: int
    file_end: int
    offset: int
    flags: int
    align: int


@final
class Memory:
    """The library seen by address instead of by place in the file."""

    __slots__ = ("dynamic", "segments", "view")

    def __init__(self, view: ByteView, headers: Sequence[tuple[int, ...]]) -> None:
        self.view: Final[ByteView] = view
        self.segments: Final[tuple[Segment, ...]] = tuple(_segments(view, headers))
        self.dynamic: tuple[int, int] = (0, 0)
        for kind, _, _, address, _, length, size, _ in headers:
            if kind in _IN_SEGMENTS and length:
                self.read(address, length, _IN_SEGMENTS[kind])
            if kind == elf.PT_GNU_RELRO:
                self._check_read_only(address, address + size)
            if kind == elf.PT_DYNAMIC:
                if length != size:
                    raise self.error(f"PT_DYNAMIC of {length} bytes, in memory {size}")
                self.dynamic = (address, length)

    def error(self, message: str) -> ArchiveError:
        return ArchiveError(message, location=self.view.location)

    def find(self, address: int, length: int, subject: str) -> Segment:
        """The segment in which `length` bytes at `address` lie."""
        for segment in self.segments:
            if segment.address <= address and address + length <= segment.end:
                return segment
        raise self.error(
            f"{subject} at address {address:#x} with {length} bytes lies outside the segments"
        )

    def read(self, address: int, length: int, subject: str) -> memoryview:
        """Bytes of the file by address."""
        segment = self.find(address, length, subject)
        if address + length > segment.file_end:
            raise self.error(f"{subject} at address {address:#x} has no bytes in the file")
        return self.view.sub(segment.offset + address - segment.address, length, subject)

    def _check_read_only(self, begin: int, end: int) -> None:
        """What is protected after relocation ends with the last page of its segment."""
        segment = self.find(begin, 0, "PT_GNU_RELRO")
        page = min(segment.align, _LARGEST_PAGE_BYTES)
        if end > -(-segment.end // page) * page:
            raise self.error(f"PT_GNU_RELRO up to address {end:#x} leaves its segment")

    def rest(self, address: int, subject: str) -> memoryview:
        """All bytes of the file from an address to the end of its segment."""
        segment = self.find(address, 0, subject)
        return self.read(address, max(segment.file_end - address, 0), subject)

    def unpack(self, layout: struct.Struct, address: int, subject: str) -> tuple[int, ...]:
        return layout.unpack(self.read(address, layout.size, subject))

    def check_code(self, address: int, subject: str) -> None:
        if not self.find(address, 1, subject).flags & elf.PF_X:
            raise self.error(
                f"{subject} at address {address:#x} lies in data, expected code"
            )


def program_headers(view: ByteView, header: Sequence[int]) -> list[tuple[int, ...]]:
    """The program headers of a file.  Raises: ArchiveError for none, or very many."""
    offset, entry_size, count = header[5], header[9], header[10]
    if entry_size != elf.PROGRAM_HEADER.size or not 0 < count <= _HEADERS_AT_MOST:
        raise ArchiveError(
            f"{count} program headers of {entry_size} bytes, expected 1 to "
            f"{_HEADERS_AT_MOST} of {elf.PROGRAM_HEADER.size}",
            location=view.location,
        )
    table = view.sub(offset, count * entry_size, "program header table")
    return list(elf.PROGRAM_HEADER.iter_unpack(table))


def _segments(view: ByteView, headers: Sequence[tuple[int, ...]]) -> Iterator[Segment]:
    """What is mapped: inside the file, rising, not overlapping."""
    end, found = 0, False
    for kind, flags, offset, address, _, length, size, align in headers:
        if kind != elf.PT_LOAD:
            continue
        view.check(offset, length, "segment")
        if length > size or address < end or address + size > _SPAN_AT_MOST:
            raise ArchiveError(
                f"a segment of {length} bytes in the file and {size} in memory at address "
                f"{address:#x} does not follow the one before",
                location=view.location,
            )
        if flags & elf.PF_X and length != size:
            raise ArchiveError(
                f"code at address {address:#x} has {length} of {size} bytes in the file",
                location=view.location,
            )
        if align & (align - 1) or (align > 1 and (address - offset) % align):
            raise ArchiveError(
                f"a segment at address {address:#x} is not aligned to {align}",
                location=view.location,
            )
        end, found = address + size, True
        yield Segment(address, end, address + length, offset, flags, max(align, 1))
    if not found:
        raise ArchiveError("no segment to load", location=view.location)


@final
class Names:
    """The table of names, in which every name must end."""

    def __init__(self, memory: Memory, tags: Mapping[int, int]) -> None:
        size = tags.get(elf.DT_STRSZ, 0)
        self._memory: Memory = memory
        self._table: bytes = bytes(memory.read(tags[elf.DT_STRTAB], size, "table of names"))
        if not self._table.endswith(b"\0"):
            raise memory.error("the last name of the table of names has no end")

    def at(self, place: int, subject: str) -> str:
        if place >= len(self._table):
            raise self._memory.error(
                f"{subject} at byte {place} of {len(self._table)} bytes of names"
            )
        return self._table[place : self._table.index(b"\0", place)].decode(errors="replace")
