"""What libraries of other systems export, read from their headers: PE (.dll) and Mach-O (.dylib).

Sources: Microsoft's PE format, "The .edata section"; Apple's `mach-o/loader.h`, `nlist.h`.
"""

from __future__ import annotations

import struct

_PE32_PLUS = 0x20B
_AMD64 = 0x8664
_MACHO_64 = 0xFEEDFACF
_ARM64 = 0x0100000C
_DYLIB = 6
_SYMTAB = 2
_EXTERNAL, _TYPE = 1, 0xE


def text_at(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()


def exports_of_pe(data: bytes) -> set[str]:
    """The names that a DLL for x86-64 exports."""
    (head,) = struct.unpack_from("<I", data, 0x3C)
    assert data[head : head + 4] == b"PE\0\0"
    machine, sections = struct.unpack_from("<HH", data, head + 4)
    optional_size, characteristics = struct.unpack_from("<HH", data, head + 20)
    assert machine == _AMD64
    assert characteristics & 0x2000, "the file says that it is no DLL"
    optional = head + 24
    assert struct.unpack_from("<H", data, optional)[0] == _PE32_PLUS
    (directory,) = struct.unpack_from("<I", data, optional + 112)
    rows = [
        struct.unpack_from("<IIII", data, optional + optional_size + 40 * i + 8)
        for i in range(sections)
    ]

    def place(address: int) -> int:
        for size, begin, _, offset in rows:
            if begin <= address < begin + size:
                return address - begin + offset
        raise AssertionError(f"no section has address {address:#x}")

    table = place(directory)
    count, _, names = struct.unpack_from("<III", data, table + 24)
    first = place(names)
    return {
        text_at(data, place(struct.unpack_from("<I", data, first + 4 * i)[0]))
        for i in range(count)
    }


def exports_of_macho(data: bytes) -> set[str]:
    """The names that a library for Macs with Apple's processors defines for others."""
    magic, processor, _, kind, commands = struct.unpack_from("<IIIII", data)
    assert (magic, processor, kind) == (_MACHO_64, _ARM64, _DYLIB)
    at, found = 32, set[str]()
    for _ in range(commands):
        command, size = struct.unpack_from("<II", data, at)
        if command == _SYMTAB:
            symbols, count, strings, _ = struct.unpack_from("<IIII", data, at + 8)
            for i in range(count):
                name, bits, _, _, _ = struct.unpack_from("<IBBHQ", data, symbols + 16 * i)
                if bits & _EXTERNAL and bits & _TYPE:
                    found.add(text_at(data, strings + name).removeprefix("_"))
        at += size
    return found
