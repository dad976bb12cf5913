"""Reads and writes .irpa, IREE's parameter archive: chained headers, entries, metadata, storage.

Offsets are relative to their header, so that files can be joined and extended.  Names and
metadata share a segment without alignment; data lies at multiples of 64 bytes.

Source: IREE `schemas/parameter_archive.h`, version 0.0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, Final, final

from tilewright.base.arena import align
from tilewright.base.budget import pace
from tilewright.base.errors import ArchiveError, UserError
from tilewright.formats.byte_view import Buffer, ByteView, decode_text, view_bytes
from tilewright.formats.parameters.entries import Entry, SplatEntry, StoredEntry

MAGIC: Final = b"IRPA"
_PREFIX: Final = struct.Struct(
    "<4sHHQQQ"
)  # magic, version, header size, next header, flags
_HEADER: Final = struct.Struct(
    "<Q6Q"
)  # entry count; entries, metadata and storage as ranges
_HEADER_BYTES: Final = _PREFIX.size + _HEADER.size
_ENTRY: Final = struct.Struct("<QIQQQQQQ")  # size, type, flags, name, metadata, alignment
_STORED: Final = struct.Struct("<QQ")
_SPLAT: Final = struct.Struct("<Q16sB")
_SKIP_TYPE, _SPLAT_TYPE, _STORED_TYPE, _EXTERNAL_TYPE = range(4)
_ENTRY_ALIGNMENT: Final = 16
_DATA_ALIGNMENT: Final = 64
_FILE_ALIGNMENT: Final = 4096
_PATTERN_SIZES: Final = (1, 2, 4, 8, 16)

Range = tuple[int, int]  # offset, length


# --- reading -----------------------------------------------------------------------------------


def read_entries(view: ByteView) -> Iterator[Entry]:
    """The entries of all headers of a file.  Raises: ArchiveError."""
    base = 0
    room = _Room(view)
    while True:
        magic, major, minor, size, following, _ = _unpack_prefix(view, base)
        if magic != MAGIC:
            raise ArchiveError(f"no header at byte {base}", location=view.location)
        if (major, minor) != (0, 0):
            raise ArchiveError(
                f"version {major}.{minor}, expected 0.0",
                location=view.location,
                hint="the archive was made by a newer release than this runtime knows",
            )
        if size != _HEADER_BYTES:
            raise ArchiveError(
                f"header of {size} bytes, expected {_HEADER_BYTES}", location=view.location
            )
        yield from _read_table(view, base, room)
        if following == 0:
            return
        base += following  # always forward: chains end


def _unpack_prefix(view: ByteView, base: int) -> tuple[bytes, int, int, int, int, int]:
    view.check(base, _PREFIX.size, "header")
    return _PREFIX.unpack_from(view.data, base)


@final
class _Room:
    """What the entries of a file may take together: no more than they could without sharing bytes."""

    __slots__ = ("_left", "_location")

    def __init__(self, view: ByteView) -> None:
        self._left: int = view.size
        self._location: str = view.location

    def take(self, length: int) -> None:
        """Raises: ArchiveError when entries, names or metadata share bytes over and over."""
        self._left -= length
        pace(1)
        if self._left < 0:
            raise ArchiveError(
                "entries refer to the same data over and over", location=self._location
            )


def _read_table(view: ByteView, base: int, room: _Room) -> Iterator[Entry]:
    count, *numbers = view.unpack(_HEADER, base + _PREFIX.size, "header")
    entries, metadata, storage = (
        _inside(view, (0, view.size), (base + numbers[i], numbers[i + 1]), subject)
        for i, subject in ((0, "entry table"), (2, "metadata"), (4, "storage"))
    )
    at = entries[0]
    for _ in range(count):
        size, kind, _, *ranges = view.unpack(_ENTRY, at, "entry")
        if size < _ENTRY.size:
            raise ArchiveError(f"entry of {size} bytes", location=view.location)
        _inside(view, (0, entries[1]), (at - entries[0], size), "entry")
        room.take(_ENTRY.size + ranges[1] + ranges[3])
        name = decode_text(
            _slice(view, metadata, (ranges[0], ranges[1]), "name"), view.location, "name"
        )
        note = bytes(_slice(view, metadata, (ranges[2], ranges[3]), "metadata"))
        found = _read_entry(view, kind, at + _ENTRY.size, storage, (name, note))
        if found is not None:
            yield found
        at += align(size, _ENTRY_ALIGNMENT)


def _read_entry(
    view: ByteView, kind: int, at: int, storage: Range, label: tuple[str, bytes]
) -> Entry | None:
    name, note = label
    if kind == _SKIP_TYPE:
        return None
    if kind == _STORED_TYPE:
        offset, length = view.unpack(_STORED, at, "data entry")
        offset, length = _inside(view, storage, (offset, length), f"parameter '{name}'")
        return StoredEntry(name, offset, length, metadata=note)
    if kind == _SPLAT_TYPE:
        view.check(at, _SPLAT.size, "splat entry")
        length, pattern, pattern_length = _SPLAT.unpack_from(view.data, at)
        if pattern_length not in _PATTERN_SIZES or length % pattern_length:
            raise ArchiveError(
                f"parameter '{name}': {length} bytes of a pattern of {pattern_length}",
                location=view.location,
            )
        return SplatEntry(name, length, pattern[:pattern_length], note)
    where = "in another file" if kind == _EXTERNAL_TYPE else f"of unknown type {kind}"
    raise ArchiveError(
        f"parameter '{name}' lies {where}, which is not supported", location=view.location
    )


def _inside(view: ByteView, outer: Range, inner: Range, subject: str) -> Range:
    """The absolute range of `inner`, which is relative to `outer` and must lie in it."""
    offset, length = inner
    if length and offset + length > outer[1]:
        raise ArchiveError(
            f"{subject}: {length} bytes at {offset}, there are {outer[1]}",
            location=view.location,
        )
    return outer[0] + (offset if length else 0), length


def _slice(view: ByteView, outer: Range, inner: Range, subject: str) -> memoryview:
    offset, length = _inside(view, outer, inner, subject)
    return view.sub(offset, length, subject)


# --- writing -----------------------------------------------------------------------------------


def write_archive(
    file: BinaryIO,
    stored: Mapping[str, Buffer],
    splats: Sequence[SplatEntry] = (),
    metadata: Mapping[str, bytes] | None = None,
) -> None:
    """Write an archive of one header.

    Args:
        file: opened for writing, at its beginning.
        stored: bytes by name.
        splats: entries that take no space.
        metadata: what is attached to an entry, by name.
    Raises: UserError for a name that stands twice or a pattern of another length.
    """
    names = [*stored, *(splat.name for splat in splats)]
    if len(set(names)) != len(names):
        raise UserError("two parameters have the same name")
    for splat in splats:
        if len(splat.pattern) not in _PATTERN_SIZES or splat.length % len(splat.pattern):
            raise UserError(f"{splat.length} bytes of a pattern of {len(splat.pattern)}")
    texts, places = _metadata_segment(names, metadata or {})
    views = {name: view_bytes(data) for name, data in stored.items()}
    ranges, storage_length = _storage_ranges([view.nbytes for view in views.values()])
    bodies = [(_STORED_TYPE, _STORED.pack(*range_), _DATA_ALIGNMENT) for range_ in ranges]
    bodies += [
        (_SPLAT_TYPE, _SPLAT.pack(s.length, s.pattern.ljust(16, b"\0"), len(s.pattern)), 0)
        for s in splats
    ]
    table = b"".join(
        _pad(_ENTRY.pack(_ENTRY.size + len(body), kind, 0, *place, alignment) + body)
        for place, (kind, body, alignment) in zip(places, bodies, strict=True)
    )
    table_at = align(_HEADER_BYTES, _ENTRY_ALIGNMENT)
    texts_at = table_at + len(table)
    storage_at = align(texts_at + len(texts), _FILE_ALIGNMENT)
    file.write(_PREFIX.pack(MAGIC, 0, 0, _HEADER_BYTES, 0, 0))
    segments = (table_at, len(table), texts_at, len(texts), storage_at, storage_length)
    file.write(_HEADER.pack(len(names), *segments))
    file.write(b"\0" * (table_at - _HEADER_BYTES) + table + texts)
    end = texts_at + len(texts)
    for (offset, _), view in zip(ranges, views.values(), strict=True):
        file.write(b"\0" * (storage_at + offset - end))
        file.write(view)
        end = storage_at + offset + view.nbytes
    file.write(b"\0" * (align(end, _FILE_ALIGNMENT) - end))


def _metadata_segment(
    names: Sequence[str], metadata: Mapping[str, bytes]
) -> tuple[bytes, list[tuple[int, int, int, int]]]:
    """The segment, and the ranges of name and metadata of each entry."""
    segment = bytearray()
    places: list[tuple[int, int, int, int]] = []
    for name in names:
        text, note = name.encode(), metadata.get(name, b"")
        at = len(segment)
        places.append((at, len(text), at + len(text) if note else 0, len(note)))
        segment += text + note
    return bytes(segment), places


def _storage_ranges(lengths: Sequence[int]) -> tuple[list[Range], int]:
    ranges: list[Range] = []
    end = 0
    for length in lengths:
        offset = align(end, _DATA_ALIGNMENT)
        ranges.append((offset, length))
        end = offset + length
    return ranges, end


def _pad(entry: bytes) -> bytes:
    return entry.ljust(align(len(entry), _ENTRY_ALIGNMENT), b"\0")
