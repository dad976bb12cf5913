"""Relocations of 32 bits and of kinds that a kernel may not have, in images of the system's linker.

The linker makes none of them for shared objects of 64-bit machines, so 64-bit ones that it does make
are renumbered.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tilewright.base.errors import ArchiveError
from tilewright.base.host import describe
from tilewright.formats.elf import parse_image
from tilewright.runtime import native
from tilewright.runtime.loaders.embedded_elf import image_layout

pytestmark = pytest.mark.skipif(
    describe().arch != "x86_64" or shutil.which("cc") is None,
    reason="needs a C compiler for x86-64",
)
ABSOLUTE, PC32, COPY, ABSOLUTE_32, ABSOLUTE_32S, THREAD, INDIRECT = 1, 2, 5, 10, 11, 18, 37
FIXED = 0x8000_1234
SOURCE = """
.globl target, place, other
.data
.quad 0x1122334455667788
place: .quad target
other: .quad 0x99aabbccddeeff00
target: .long 42
.section .text
.globl first
first: ret; nop; nop; nop; nop
.section .note.GNU-stack,"",@progbits
"""


def link(folder: Path, *, is_fixed: bool = False) -> bytes:
    """A shared object whose `place` is the address of `target`, or of what `target` is fixed at."""
    source, target = folder / "image.s", folder / "image.so"
    source.write_text(SOURCE, encoding="utf-8")
    command = ["cc", "-shared", "-nostdlib", "-Wl,--hash-style=sysv,-z,separate-code"]
    subprocess.run([*command, str(source), "-o", str(target)], check=True)
    image = target.read_bytes()
    if not is_fixed:
        return image
    value = struct.pack("<QQ", parse_image(image).symbols["target"], 0)
    place = image.index(value)  # of the symbol: its section comes before, its size behind
    absolute = struct.pack("<HQ", 0xFFF1, FIXED)
    return image[: place - 2] + absolute + image[place + 8 :]


def renumber(image: bytes, kind: int, addend: int | None = None) -> bytes:
    """The same with its one 64-bit relocation of another type."""
    (found,) = parse_image(image).relocations
    assert found.type == ABSOLUTE
    before = struct.pack("<Q", found.offset)
    data = bytearray(image)
    place = image.index(before + struct.pack("<I", ABSOLUTE))
    struct.pack_into("<I", data, place + 8, kind)
    if addend is not None:
        struct.pack_into("<q", data, place + 16, addend)
    return bytes(data)


def loaded(image: bytes) -> tuple[int, int, bytes]:
    """Where `place` and `target` are in memory, and the 16 bytes at `place`."""
    parsed = parse_image(image)
    start, _ = parsed.span
    layout = image_layout(parsed)
    code = native.CodeImage(
        layout.size_bytes, layout.segments, layout.relocations, layout.protections
    )
    place, target = (
        code.address(parsed.symbols[n] - start) if parsed.symbols[n] < 1 << 31 else 0
        for n in ("place", "target")
    )
    return place, target, code.read(place, 16)


REST = struct.pack("<IQ", 0, 0x99AABBCCDDEEFF00)


@pytest.mark.parametrize("addend", [0, 8, -4])
def test_a_relative_word_is_the_distance_to_its_symbol(tmp_path: Path, addend: int) -> None:
    place, target, data = loaded(renumber(link(tmp_path), PC32, addend))
    assert struct.unpack_from("<i", data)[0] == target + addend - place
    assert data[4:] == REST


def test_an_absolute_word_holds_a_number(tmp_path: Path) -> None:
    image = link(tmp_path, is_fixed=True)
    _, _, data = loaded(renumber(image, ABSOLUTE_32))
    assert struct.unpack_from("<I", data)[0] == FIXED
    assert data[4:] == REST
    _, _, data = loaded(renumber(image, ABSOLUTE_32S, -0x8000_1234 - 5))
    assert struct.unpack_from("<i", data)[0] == -5


def test_an_absolute_symbol_does_not_move_with_the_image(tmp_path: Path) -> None:
    _, _, data = loaded(link(tmp_path, is_fixed=True))
    assert struct.unpack_from("<Q", data)[0] == FIXED
    _, target, data = loaded(link(tmp_path))
    assert struct.unpack_from("<Q", data)[0] == target


@pytest.mark.parametrize(
    ("is_fixed", "kind", "addend", "text"),
    [
        (False, ABSOLUTE_32, 0, r"R_X86_64_32 at .* needs 64 bits .*\(-fPIC\)"),
        (False, ABSOLUTE_32S, 0, "R_X86_64_32S at .* 'target' needs 64 bits"),
        (True, PC32, 0, "R_X86_64_PC32 at .* the distance to a fixed address"),
        (True, ABSOLUTE_32S, 0, "0x80001234 does not fit into 32 bits"),
        (True, ABSOLUTE_32, -0x8000_1235, "-0x1 does not fit into 32 bits"),
        (True, ABSOLUTE_32, 1 << 32, "does not fit into 32 bits"),
        (False, PC32, 1 << 31, "does not fit into 32 bits"),
        (
            "target",
            COPY,
            0,
            "type 5 at .*: R_X86_64_COPY takes data out of another library",
        ),
        (False, THREAD, 0, "R_X86_64_TPOFF64 is for thread-local data"),
        (False, INDIRECT, 0, "R_X86_64_IRELATIVE would call code of the image"),
        (False, 39, 0, "relocation type 39 at .*: it is not supported for 'x86_64'"),
    ],
)
def test_what_cannot_be_loaded_is_refused_with_the_reason(
    tmp_path: Path, is_fixed: bool, kind: int, addend: int, text: str
) -> None:
    with pytest.raises(ArchiveError, match=text):
        parse_image(renumber(link(tmp_path, is_fixed=is_fixed), kind, addend))


def test_words_in_code_and_beyond_the_file_are_refused(tmp_path: Path) -> None:
    image = renumber(link(tmp_path), PC32)
    parsed = parse_image(image)
    record = image.index(
        struct.pack("<QI", parsed.words[0].segment.address + parsed.words[0].offset, PC32)
    )
    code = next(s for s in parsed.segments if s.executable)
    moved = bytearray(image)
    struct.pack_into("<Q", moved, record, code.address)
    with pytest.raises(ArchiveError, match="would patch code"):
        parse_image(bytes(moved))
    end = parsed.words[0].segment
    struct.pack_into("<Q", moved, record, end.address + end.memory_bytes - 3)
    with pytest.raises(ArchiveError, match="outside the segments"):
        parse_image(bytes(moved))


def test_a_program_that_copies_data_of_a_library_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lib.c").write_text("int shared_value = 7;\n", encoding="utf-8")
    (tmp_path / "main.c").write_text(
        "extern int shared_value; int _start(void) { return shared_value; }\n",
        encoding="utf-8",
    )
    library, program = tmp_path / "lib.so", tmp_path / "main"
    build = ["cc", "-nostdlib", "-Wl,--hash-style=sysv"]
    subprocess.run(
        [*build, "-shared", tmp_path / "lib.c", "-o", library], check=True, cwd=tmp_path
    )
    command = [*build, "-fPIE", "-pie", "-Wl,--no-dynamic-linker", tmp_path / "main.c"]
    subprocess.run([*command, library, "-o", program], check=True, cwd=tmp_path)
    with pytest.raises(ArchiveError, match="needs other libraries"):
        parse_image(program.read_bytes())
