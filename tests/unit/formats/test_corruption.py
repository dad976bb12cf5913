"""Damaged files end in an `ArchiveError` or are read; nothing else, and soon.

Every region of real files is changed in a seeded way: bits flipped, bytes set to values that
hurt (zero, all ones, large offsets), pieces cut out and doubled.  Raise `ROUNDS` to dig deeper:
at 30 all is well, in ten minutes.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator

import pytest

from tilewright.base.errors import ArchiveError
from tilewright.compiler.linker import link_shared
from tilewright.formats.elf import parse_image
from tilewright.formats.vmfb import archive_bytes, decode_module, read_archive
from tilewright.formats.vmfb.text import disassemble_module
from unit.compiler.linker.test_link import CALLEE, CALLER, EXPORTS
from unit.formats.conftest import ARCHIVES, compile_ir
from unit.formats.vmfb.modules import add_module

ROUNDS = 1
REGION_BYTES = 24
NASTY = [
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0xFFFF,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    1 << 40,
    (1 << 64) - 1,
]


def damaged(data: bytes, seed: int) -> Iterator[bytes]:
    """Copies of the data, each with one region changed; every region gets its turn."""
    dice = random.Random(seed)
    for start in range(0, len(data), REGION_BYTES):
        for _ in range(ROUNDS):
            copy = bytearray(data)
            place = start + dice.randrange(REGION_BYTES)
            kind = dice.randrange(5)
            if kind == 0 and place < len(copy):
                copy[place] ^= 1 << dice.randrange(8)
            elif kind == 1:
                width = dice.choice([1, 2, 4, 8])
                value = dice.choice(NASTY) & ((1 << 8 * width) - 1)
                copy[place : place + width] = value.to_bytes(width, "little")
            elif kind == 2:
                value = dice.randrange(2 * len(data))
                copy[start : start + 4] = struct.pack("<I", value)
            elif kind == 3:
                del copy[place : place + dice.randrange(1, 9)]
            else:
                piece = dice.randrange(len(data))
                copy[place:place] = data[piece : piece + 8]
            yield bytes(copy)


def refused(read: Callable[[bytes], object], data: bytes) -> int:
    """How many damaged copies are refused, properly; all others must be readable."""
    copies = list(damaged(data, len(data)))
    return sum(not is_read(read, copy) for copy in copies)


def is_read(read: Callable[[bytes], object], data: bytes) -> bool:
    try:
        read(data)
    except ArchiveError:
        return False
    return True


def read_module(data: bytes) -> None:
    module = read_archive(data)
    decode_module(module)
    disassemble_module(module)


@pytest.mark.parametrize(
    "name",
    [
        "iree-3.10.0-add_vmvx.vmfb",
        pytest.param("iree-3.0.0-ctrl_vmvx.vmfb", marks=pytest.mark.slow),
        pytest.param("iree-3.13.0-dd_vmvx.vmfb", marks=pytest.mark.slow),
    ],
)
def test_damaged_archives_of_iree(name: str) -> None:
    assert refused(read_module, (ARCHIVES / name).read_bytes()) > 50


def test_damaged_archives_of_ours() -> None:
    assert refused(read_module, archive_bytes(add_module())) > 20


def test_damaged_code() -> None:
    """Only the bytecode changes, so that the verifier has all the work."""
    module = read_archive((ARCHIVES / "iree-3.13.0-ctrl_vmvx.vmfb").read_bytes())
    data = archive_bytes(module)
    code = bytes(module.bytecode)
    start = data.index(code)

    def read(changed: bytes) -> None:
        read_module(
            data[:start] + changed[: len(code)].ljust(len(code)) + data[start + len(code) :]
        )

    assert refused(read, code) > 40


def test_damaged_images(iree_kernels: bytes) -> None:
    def read(data: bytes) -> None:
        image = parse_image(data)
        list(image.patches(0x10000))
        assert all(len(image.contents(s)) == s.file_bytes for s in image.segments)
        start, size = image.span
        assert all(
            start <= p.address - 0x10000 <= start + size - 8 for p in image.patches(0x10000)
        )

    assert refused(read, iree_kernels) > 5
    objects = [compile_ir(text) for text in (CALLER, CALLEE)]
    assert refused(read, link_shared(objects, exported=EXPORTS)) > 10


def test_damaged_objects() -> None:
    first, second = compile_ir(CALLER), compile_ir(CALLEE)
    assert refused(lambda data: link_shared([data, second], exported=EXPORTS), first) > 20


@pytest.mark.parametrize("length", [0, 1, 3, 4, 8, 60, 64, 100, 1000])
def test_noise(length: int) -> None:
    dice = random.Random(length)
    for read in (read_module, parse_image, lambda data: link_shared([data])):
        for prefix in (b"", b"\x7fELF\x02\x01\x01", b"PK\x03\x04", struct.pack("<I", 60)):
            with pytest.raises(ArchiveError):
                read(prefix + dice.randbytes(length))
