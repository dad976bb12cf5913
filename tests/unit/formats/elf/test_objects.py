from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from tilewright.base.errors import ArchiveError
from tilewright.formats.elf.objects import parse_object

TEXT = """
@value = global i32 7
declare i32 @other(ptr)
define i32 @main() { %r = call i32 @other(ptr @value)
  ret i32 %r }
"""


def test_an_object_is_read_into_sections_symbols_and_relocations(
    compile_ir: Callable[..., bytes],
) -> None:
    data = compile_ir(TEXT)
    item = parse_object(data, "a.o")
    assert item.machine == 62
    by_name = {symbol.name: symbol for symbol in item.symbols}
    assert by_name["other"].section == 0
    section = item.sections[by_name["main"].section]
    assert section.name == ".text"
    named = {item.symbols[relocation.symbol].name for relocation in section.relocations}
    assert named == {"other", "value"}
    assert section.data.obj is not None


def test_bytes_that_are_no_object_are_refused(compile_ir: Callable[..., bytes]) -> None:
    data = bytearray(compile_ir(TEXT))
    for bad, complaint in (
        (b"", "ELF file header"),
        (b"\x7fELF", "ELF file header"),
        (b"MZ" + bytes(data[2:]), "not an ELF file"),
        (bytes(data[:4]) + b"\x01" + bytes(data[5:]), "expected 64-bit little-endian"),
        (bytes(data[:16]) + b"\x03" + bytes(data[17:]), "ELF type 3, expected 1"),
        (bytes(data[:-1]), "section header table"),
    ):
        with pytest.raises(ArchiveError, match=complaint):
            parse_object(bad, "a.o")


def test_a_relocation_outside_its_section_is_refused(
    compile_ir: Callable[..., bytes],
) -> None:
    data = bytearray(compile_ir(TEXT))
    offset = struct.unpack_from("<Q", data, 40)[0]
    count = struct.unpack_from("<H", data, 60)[0]
    for index in range(count):
        kind = struct.unpack_from("<I", data, offset + 64 * index + 4)[0]
        if kind == 4:
            place = struct.unpack_from("<Q", data, offset + 64 * index + 24)[0]
            struct.pack_into("<Q", data, place, 1 << 40)
            break
    with pytest.raises(ArchiveError, match="lies outside section"):
        parse_object(bytes(data))
