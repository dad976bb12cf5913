"""Files of machine code are told apart by their first bytes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tilewright.formats.native_file import describe, elf_machine, elf_type


def elf(kind: int, machine: int, width: int = 2) -> bytes:
    return (
        b"\x7fELF"
        + bytes([width, 1, 1])
        + bytes(9)
        + bytes([kind, 0, machine, 0])
        + bytes(44)
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (elf(3, 62), "an ELF shared library for x86_64"),
        (elf(1, 183), "an ELF object for aarch64"),
        (elf(2, 243), "an ELF program for riscv64"),
        (elf(3, 40), "an ELF shared library for arm"),
        (elf(3, 99), "an ELF shared library for machine 99"),
        (elf(3, 62, width=1), "an ELF file that is not 64-bit little-endian"),
        (b"\x7fELF\2\1", "a truncated ELF file"),
        (b"!<arch>\nx", "an archive of objects"),
        (b"", "empty"),
        (b"int main;", "text"),
        (b"\0\1\2\3", "of an unknown format"),
    ],
)
def test_a_file_is_described(data: bytes, text: str) -> None:
    assert describe(data) == text


def test_the_type_of_elf_files_is_read() -> None:
    assert [elf_type(elf(kind, 62)) for kind in (1, 2, 3)] == [1, 2, 3]
    assert elf_type(b"\x7fELF") == elf_type(b"#!/bin/sh" * 9) == 0
    if sys.platform == "linux":
        assert elf_type(Path(sys.executable).resolve().read_bytes()[:64]) in (2, 3)


def test_the_machine_of_elf_files_is_read() -> None:
    assert elf_machine(elf(3, 62)) == "x86_64"
    assert elf_machine(elf(3, 183)) == "aarch64"
    assert elf_machine(elf(3, 40)) == elf_machine(b"MZ") == ""
