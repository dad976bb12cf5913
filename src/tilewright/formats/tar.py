"""The members of a tar archive of strangers: plain files with names that stay inside, and nothing else.

Reads what GNU tar, BSD tar and Python write (ustar, GNU long names, pax names and sizes) and what
`tvm.support.tar` makes, plain or in gzip; refuses links, devices, sparse files, and names that leave the
folder, are there twice or mean something else on another system.  Bytes are views of the archive: its
size bounds what is unpacked, and gzip may not make more of it than a limit.

Python's `tarfile` is not used here: it follows what the file says (links, sizes, extended headers)
further than a file of strangers may ask.

Source: POSIX.1-2024 `pax`, GNU tar's manual, "Basic Tar Format".
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Final, final

from tilewright.base.budget import pace
from tilewright.base.errors import ArchiveError
from tilewright.base.record import record
from tilewright.formats.byte_view import Buffer, ByteView, decode_text

_BLOCK: Final = 512
_MEMBERS_AT_MOST: Final = 4096
_NAME_AT_MOST: Final = 4096
_LONGEST_LENGTH: Final = 20  # of the number before a line of an extended header
_EXTENDED_AT_MOST: Final = 1 << 20
_FILES: Final = b"0\0\x37"  # the last one: contiguous files of old systems
_FOLDER: Final = b"5"
_REFUSED: Final[Mapping[bytes, str]] = {
    b"1": "a link", b"2": "a symbolic link", b"3": "a device", b"4": "a device",
    b"6": "a pipe", b"S": "a sparse file",
}  # fmt: skip
_GZIP: Final = b"\x1f\x8b"
_GZIP_BITS: Final = 31  # of the window, and that it is gzip, as zlib has it
_CHUNK: Final = 1 << 20
UNCOMPRESSED_AT_MOST: Final = 1 << 29


@final
@record
class TarMember:
    """A file in an archive.

    Attributes:
        name: relative, with `/`; every part is a plain name.
        data: a view of the archive.
    """

    name: str
    data: memoryview


def is_gzip(data: Buffer) -> bool:
    """Whether bytes begin as what gzip compressed does."""
    return bytes(ByteView(data, "file").data[: len(_GZIP)]) == _GZIP


def is_tar(data: Buffer) -> bool:
    """Whether bytes begin, uncompressed, as an archive does that `read_tar` reads."""
    view = ByteView(data, "archive")
    if is_gzip(data):
        stream = zlib.decompressobj(_GZIP_BITS)
        try:
            begin = stream.decompress(view.data[:_CHUNK], _BLOCK)
        except zlib.error:
            return True  # `read_tar` says what is damaged
        if len(begin) < _BLOCK and not stream.eof:
            return True  # or cut off
        view = ByteView(begin, "archive")
    if view.size < _BLOCK:
        return False
    head = view.sub(0, _BLOCK, "header")
    return head[0] != 0 and _checksum_of(head) == _sum_of(head)


def read_tar(
    data: Buffer, location: str = "archive", *, limit_bytes: int = UNCOMPRESSED_AT_MOST
) -> tuple[TarMember, ...]:
    """All files of an archive.

    Args:
        data: the archive, which must stay unchanged; not copied unless it is compressed.
        location: how errors call it.
        limit_bytes: that gzip may make of a compressed archive.

    Raises: ArchiveError for damage and for members that are refused, with their name.
    """
    view = ByteView(data, location)
    if is_gzip(data):
        view = ByteView(_uncompressed(view, limit_bytes), location)
    found: dict[str, TarMember] = {}
    for name, kind, content in _members(view):
        where = f"{location}: member '{name[:200]}'"
        if kind in _REFUSED:
            raise ArchiveError(f"is {_REFUSED[kind]}, expected a file", location=where)
        parts = _checked_parts(name, where)
        if kind == _FOLDER:
            continue
        if kind not in _FILES or not kind:
            raise ArchiveError(f"is of unknown kind {kind!r}", location=where)
        plain = "/".join(parts)
        if not parts:
            raise ArchiveError("has no name", location=where)
        if plain.casefold() in found:
            raise ArchiveError("is there twice", location=where)
        found[plain.casefold()] = TarMember(plain, content)
    _check_no_file_is_a_folder(found, location)
    return tuple(found.values())


def _members(view: ByteView) -> Iterator[tuple[str, bytes, memoryview]]:
    """Name, kind and bytes of each member; long names and extended headers are resolved."""
    offset = count = 0
    long_name: str | None = None
    extended: dict[str, str] = {}
    everywhere: dict[str, str] = {}
    while offset < view.size:
        head = view.sub(offset, _BLOCK, "header")
        if not any(head):
            return
        count += 1
        pace(1)
        if count > _MEMBERS_AT_MOST:
            raise ArchiveError(
                f"more than {_MEMBERS_AT_MOST} members", location=view.location
            )
        if _checksum_of(head) != _sum_of(head):
            raise ArchiveError(
                f"the checksum of the header at byte {offset} does not fit",
                location=view.location,
            )
        kind = bytes(head[156:157])
        size = _size(view, head, extended, offset)
        content = view.sub(offset + _BLOCK, size, "member")
        offset += _BLOCK + -(-size // _BLOCK) * _BLOCK
        if kind in (b"L", b"K", b"x", b"g"):
            if size > _EXTENDED_AT_MOST:
                raise ArchiveError(f"a header of {size} bytes", location=view.location)
            if kind == b"L":
                long_name = _text(bytes(content), view, "long name")
            elif kind == b"x":
                extended = _pax(bytes(content), view)
            elif kind == b"g":
                everywhere |= _pax(bytes(content), view)
            continue
        known = everywhere | extended
        if any(key.startswith("GNU.sparse") for key in known):
            kind = b"S"
        name = known.get("path", long_name) or _short_name(head, view)
        long_name, extended = None, {}
        yield name, kind, content


def _uncompressed(view: ByteView, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    made, place = 0, 0
    stream = zlib.decompressobj(_GZIP_BITS)
    try:
        while place < view.size and not stream.eof:
            part = stream.decompress(
                view.data[place : place + _CHUNK], limit_bytes - made + 1
            )
            place += _CHUNK
            made += len(part)
            pace(1 + len(part) // _BLOCK)
            if made > limit_bytes:
                raise ArchiveError(
                    f"is more than {limit_bytes} bytes when it is uncompressed",
                    location=view.location,
                    hint="unpack it, and make a plain .tar of it",
                )
            parts.append(part)
    except zlib.error as error:
        raise ArchiveError(f"is damaged gzip: {error}", location=view.location) from error
    if not stream.eof:
        raise ArchiveError("is gzip that was cut off", location=view.location)
    return b"".join(parts)


def _checksum_of(head: memoryview) -> int:
    """The checksum that a header states; -1 for none."""
    digits = bytes(head[148:156]).strip(b" \0")
    return int(digits, 8) if digits and not digits.strip(b"01234567") else -1


def _sum_of(head: memoryview) -> int:
    return sum(head) - sum(head[148:156]) + 8 * ord(" ")


def _size(
    view: ByteView, head: memoryview, extended: Mapping[str, str], offset: int
) -> int:
    """The bytes of a member: in octal digits, as a binary number, or in an extended header."""
    stated = extended.get("size", "")
    if bytes(head[156:157]) not in (b"x", b"g", b"L", b"K") and stated:
        if stated.isascii() and stated.isdigit() and len(stated) < 20:
            return int(stated)
        raise ArchiveError(f"a member of '{stated[:40]}' bytes", location=view.location)
    field = bytes(head[124:136])
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    if digits.strip(b"01234567"):
        raise ArchiveError(
            f"the size in the header at byte {offset} is no number", location=view.location
        )
    return int(digits or b"0", 8)


def _pax(content: bytes, view: ByteView) -> dict[str, str]:
    """`length key=value` lines; what is no text is no key that matters here."""
    found: dict[str, str] = {}
    place = 0
    while place < len(content):
        digits, _, rest = content[place : place + _LONGEST_LENGTH].partition(b" ")
        length = int(digits) if digits.isdigit() and len(digits) < _LONGEST_LENGTH else 0
        line = content[place + len(digits) + 1 : place + length]
        if not rest or length <= len(digits) + 1 or line[-1:] != b"\n" or b"=" not in line:
            raise ArchiveError("an extended header is damaged", location=view.location)
        key, value = line[:-1].split(b"=", 1)
        if key in (b"path", b"size") or key.startswith(b"GNU.sparse"):
            found[_text(key, view, "key")] = _text(value, view, "extended header")
        place += length
    return found


def _short_name(head: memoryview, view: ByteView) -> str:
    name = bytes(head[:100]).split(b"\0", 1)[0]
    prefix = bytes(head[345:500]).split(b"\0", 1)[0]
    is_posix = bytes(head[257:263]) == b"ustar\0"
    whole = prefix + b"/" + name if is_posix and prefix else name
    return _text(whole, view, "name of a member")


def _text(data: bytes, view: ByteView, subject: str) -> str:
    if len(data) > _NAME_AT_MOST:
        raise ArchiveError(f"{subject} has {len(data)} bytes", location=view.location)
    return decode_text(data.rstrip(b"\0"), view.location, subject)


def _checked_parts(name: str, where: str) -> list[str]:
    """The parts of a name that stays inside the folder, on any system."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    outside = name.startswith("/") or ".." in parts or "\\" in name or ":" in name
    if outside or not name.isprintable():
        raise ArchiveError("has a name that leaves the folder", location=where)
    if any(len(part.encode()) > 255 for part in parts):
        raise ArchiveError("has a name that is too long", location=where)
    return parts


def _check_no_file_is_a_folder(found: Mapping[str, TarMember], location: str) -> None:
    for name in found:
        parts = name.split("/")
        for end in range(1, len(parts)):
            if "/".join(parts[:end]) in found:
                raise ArchiveError(
                    f"member '{'/'.join(parts[:end])}' is a file and a folder",
                    location=location,
                )
