"""Relocations of images of every machine, by files whose one relocation is given another type."""

from __future__ import annotations

import struct

import pytest

from fakes.llvm_objects import compile_ir
from tilewright.base.errors import ArchiveError
from tilewright.compiler.linker import link_shared
from tilewright.formats.elf import ElfImage, parse_image
from tilewright.formats.elf.dynamic import DYNAMIC

TEXT = """
@value = global i32 7
@pointer = hidden global ptr @value
define ptr @main() { %p = load ptr, ptr @pointer
  ret ptr %p }
"""
VALUE = 2  # of the dynamic symbols, which are in the order of `exported`
TRIPLES = {
    "x86_64": "x86_64-unknown-unknown-eabi-elf",
    "aarch64": "aarch64-unknown-unknown-eabi-elf",
    "riscv64": "riscv64-unknown-unknown-eabi-elf",
}


@pytest.fixture(scope="module")
def images() -> dict[str, bytes]:
    return {
        machine: link_shared([compile_ir(TEXT, triple=triple)], exported=["main", "value"])
        for machine, triple in TRIPLES.items()
    }


def renumbered(image: bytes, kind: int, *, symbol: int = 0, addend: int = 0) -> bytes:
    """The same with its one relocation of another type, symbol and addend."""
    (found,) = parse_image(image).relocations
    at = image.index(struct.pack("<QQ", found.offset, found.type))
    data = bytearray(image)
    struct.pack_into("<IIq", data, at + 8, kind, symbol, addend)
    return bytes(data)


def word_of(image: ElfImage) -> int:
    (word,) = image.words
    return word.value


@pytest.mark.parametrize(
    ("machine", "kind"),
    [("x86_64", 0), ("aarch64", 0), ("aarch64", 256), ("riscv64", 0)],
)
def test_a_relocation_of_no_kind_changes_nothing(
    images: dict[str, bytes], machine: str, kind: int
) -> None:
    data = bytearray(renumbered(images[machine], kind))
    (found,) = parse_image(images[machine]).relocations
    at = data.index(struct.pack("<QI", found.offset, kind))
    struct.pack_into("<QII", data, at, 1 << 60, kind, 1 << 30)  # of nothing, anywhere
    parsed = parse_image(bytes(data))
    assert parsed.relocations == ()
    assert parsed.words == ()


@pytest.mark.parametrize(("machine", "kind"), [("aarch64", 261), ("riscv64", 57)])
@pytest.mark.parametrize("addend", [0, 8, -4])
def test_a_relative_word_is_the_distance_to_its_symbol(
    images: dict[str, bytes], machine: str, kind: int, addend: int
) -> None:
    (place,) = parse_image(images[machine]).relocations
    image = parse_image(renumbered(images[machine], kind, symbol=VALUE, addend=addend))
    assert word_of(image) == image.symbols["value"] + addend - place.offset


@pytest.mark.parametrize(("machine", "kind"), [("aarch64", 258), ("riscv64", 1)])
def test_an_absolute_word_is_a_number_of_either_sign(
    images: dict[str, bytes], machine: str, kind: int
) -> None:
    for value in (-(1 << 31), -1, 0, (1 << 32) - 1):
        assert (
            word_of(parse_image(renumbered(images[machine], kind, addend=value))) == value
        )
    for value in (-(1 << 31) - 1, 1 << 32):
        with pytest.raises(ArchiveError, match="does not fit into 32 bits"):
            parse_image(renumbered(images[machine], kind, addend=value))
    with pytest.raises(ArchiveError, match=r"the address of 'value' needs 64 bits"):
        parse_image(renumbered(images[machine], kind, symbol=VALUE))


@pytest.mark.parametrize(
    ("machine", "kind", "text"),
    [
        ("x86_64", 5, "R_X86_64_COPY takes data out of another library"),
        ("aarch64", 1024, "R_AARCH64_COPY takes data out of another library"),
        ("aarch64", 1028, "R_AARCH64_TLS_DTPMOD is for thread-local data"),
        ("aarch64", 1029, "R_AARCH64_TLS_DTPREL is for thread-local data"),
        ("aarch64", 1030, "R_AARCH64_TLS_TPREL is for thread-local data"),
        ("aarch64", 1031, "R_AARCH64_TLSDESC is for thread-local data"),
        ("aarch64", 1032, "R_AARCH64_IRELATIVE would call code of the image"),
        ("riscv64", 4, "R_RISCV_COPY takes data out of another library"),
        ("riscv64", 7, "R_RISCV_TLS_DTPMOD64 is for thread-local data"),
        ("riscv64", 9, "R_RISCV_TLS_DTPREL64 is for thread-local data"),
        ("riscv64", 11, "R_RISCV_TLS_TPREL64 is for thread-local data"),
        ("riscv64", 12, "R_RISCV_TLSDESC is for thread-local data"),
        ("riscv64", 58, "R_RISCV_IRELATIVE would call code of the image"),
        ("aarch64", 999, "relocation type 999 at .*: it is not supported for 'aarch64'"),
        ("riscv64", 35, "relocation type 35 at .*: it is not supported for 'riscv64'"),
    ],
)
def test_what_a_kernel_may_not_have_is_refused_with_the_reason(
    images: dict[str, bytes], machine: str, kind: int, text: str
) -> None:
    with pytest.raises(ArchiveError, match=text):
        parse_image(renumbered(images[machine], kind))


@pytest.mark.parametrize("machine", TRIPLES)
def test_every_type_of_a_row_is_one_thing(machine: str) -> None:
    row = DYNAMIC[machine]
    kinds = [row.relative, row.symbol, *row.slots, *row.words, *row.refused, *row.ignored]
    assert len(set(kinds)) == len(kinds)
