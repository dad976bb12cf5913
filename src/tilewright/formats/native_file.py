"""What a file of machine code is, by its first bytes: for choosing what to do, and for errors.

Not here: reading them (`elf`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Final

from tilewright.formats.byte_view import Buffer, ByteView
from tilewright.formats.elf.dynamic import DYNAMIC
from tilewright.formats.tar import is_gzip, is_tar

ELF_MAGIC: Final = b"\x7fELF"
ARCHIVE_MAGIC: Final = b"!<arch>\n"
OBJECT, PROGRAM, SHARED = 1, 2, 3
"""Types of ELF files."""
ZIP_MAGIC: Final = b"PK\3\4"
_PE: Final = b"MZ"
_MACH_O: Final = (b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_COFF: Final = (
    b"\x64\x86",
    b"\x64\xaa",
)  # objects for x86-64 and aarch64, which have no magic number
_MEMBER_BYTES: Final = 60
OTHER_SYSTEMS: Final = (_PE, *_MACH_O)
"""Begins of files of machine code that this system cannot load."""
_BEGINS: Final = (
    (_PE, "a file for Windows (PE)"),
    (_MACH_O, "a file for macOS (Mach-O)"),
    (ARCHIVE_MAGIC, "an archive of objects"),
    (ZIP_MAGIC, "an archive (zip)"),
    (b"\0asm", "WebAssembly"),
)
_ELF_TYPES: Final[Mapping[int, str]] = {
    OBJECT: "object", PROGRAM: "program", SHARED: "shared library", 4: "core dump",
}  # fmt: skip
_MORE_MACHINES: Final[Mapping[int, str]] = {3: "i386", 40: "arm", 8: "mips", 21: "ppc64"}
_TEXT_LIKE: Final = frozenset(range(32, 127)) | set(b"\t\r\n\f")


def elf_type(data: Buffer) -> int:
    """The type in an ELF header (`OBJECT`, `SHARED`, ...); 0 for other files."""
    view = ByteView(data, "file")
    if view.size < 20 or bytes(view.data[:4]) != ELF_MAGIC:
        return 0
    return view.u16(16, "ELF type")


def elf_machine(data: Buffer) -> str:
    """The instruction set of an ELF file (`x86_64`, ...); empty for other files and other sets."""
    view = ByteView(data, "file")
    if not elf_type(data):
        return ""
    number = view.u16(18, "ELF machine")
    return next((row.name for row in DYNAMIC.values() if row.number == number), "")


def built_for(data: Buffer) -> str:
    """What an object, or the first object of an archive, is for: `aarch64`, `Windows`; empty where nothing says so."""
    view = ByteView(data, "file").data
    is_archive = bytes(view[: len(ARCHIVE_MAGIC)]) == ARCHIVE_MAGIC
    objects = _members(view) if is_archive else iter((view,))
    return next(filter(None, map(_object_for, objects)), "")


def _object_for(data: memoryview) -> str:
    begin = bytes(data[:4])
    if begin[:2] in _COFF:
        return "Windows"
    return "macOS" if begin in _MACH_O else elf_machine(data)


def _members(archive: memoryview) -> Iterator[memoryview]:
    """The files in an archive of objects, as far as it is whole: each has a header with its size, and an even place."""
    place = len(ARCHIVE_MAGIC)
    while place + _MEMBER_BYTES <= len(archive):
        name = bytes(archive[place : place + 16])
        size = bytes(archive[place + 48 : place + 58]).strip()
        # BSD's long names, as macOS has them, stand before the file and are counted with it: '#1/20'.
        inside = name[3:].strip() if name.startswith(b"#1/") else b"0"
        if not (size.isdigit() and inside.isdigit()):
            return
        begin = place + _MEMBER_BYTES
        place = begin + int(size)
        yield archive[begin + int(inside) : place]
        place += place % 2


def describe(data: Buffer) -> str:
    """What a file is, in words: `an ELF shared library for aarch64`."""
    view = ByteView(data, "file")
    begin = bytes(view.data[:512])
    if not begin:
        return "empty"
    if begin.startswith(ELF_MAGIC):
        return _describe_elf(begin)
    for begins, words in _BEGINS:
        if begin.startswith(begins):
            return words
    if is_tar(data):
        return "an archive (tar)"
    if is_gzip(data):
        return "compressed (gzip)"
    if set(begin) <= _TEXT_LIKE:
        return "text"
    return "of an unknown format"


def _describe_elf(begin: bytes) -> str:
    if len(begin) < 20:
        return "a truncated ELF file"
    if begin[4] != 2 or begin[5] != 1:
        return "an ELF file that is not 64-bit little-endian"
    kind, machine = struct.unpack_from("<HH", begin, 16)
    names = {row.number: row.name for row in DYNAMIC.values()} | _MORE_MACHINES
    name = names.get(machine, f"machine {machine}")
    return f"an ELF {_ELF_TYPES.get(kind, 'file')} for {name}"
