"""What a file of machine code is, by its first bytes: for choosing what to do, and for errors.

Not here: reading them (`elf`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
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
