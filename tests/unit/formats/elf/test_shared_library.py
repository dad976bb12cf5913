"""Libraries that system linkers made: read, and checked for what the system would follow without asking."""

from __future__ import annotations

import lzma
import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright.formats.elf.structures as elf
from tilewright.base.errors import ArchiveError
from tilewright.formats.elf.shared_library import read_shared_library

GOLDEN = Path(__file__).parents[3] / "golden" / "libraries" / "tvm_0_27_mlp.so.xz"


@pytest.fixture(scope="module")
def library() -> bytes:
    return lzma.decompress(GOLDEN.read_bytes())


def test_a_library_says_what_it_has_and_needs(library: bytes) -> None:
    file = read_shared_library(library)
    assert file.machine == "x86_64"
    assert file.symbols["__tvm_ffi_matmul"].is_code
    assert not file.symbols["__tvm_ffi__library_bin"].is_code
    assert file.symbols["__tvm_ffi__library_bin"].size == 1936
    assert file.imports == {"TVMFFIErrorSetRaisedFromCStrParts"}
    assert file.needs == ()
    data = file.data_at("__tvm_ffi__library_bin", "blob")
    assert struct.unpack_from("<Q", data) == (1936 - 8,)


def test_libraries_of_the_system_are_read() -> None:
    paths = sorted(Path("/usr/lib/x86_64-linux-gnu").glob("*.so.*"))[:10]
    if not paths:
        pytest.skip("another system")
    for path in paths:
        data = path.read_bytes()
        if data.startswith(elf.MAGIC):
            assert read_shared_library(data, str(path)).machine == "x86_64"


def place_of(library: bytes, tag: int) -> int:
    """Where in the file a value of the dynamic section stands."""
    offset, count = struct.unpack_from("<Q", library, 32)[0], library[56]
    for index in range(count):
        fields = elf.PROGRAM_HEADER.unpack_from(library, offset + 56 * index)
        if fields[0] == elf.PT_DYNAMIC:
            for at in range(fields[2], fields[2] + fields[5], 16):
                if struct.unpack_from("<Q", library, at)[0] == tag:
                    return at + 8
    raise AssertionError(tag)


@pytest.mark.parametrize(
    ("tag", "said"),
    [
        (elf.DT_STRTAB, "lies outside the segments"),
        (elf.DT_SYMTAB, "table of symbols at address"),
        (elf.DT_GNU_HASH, "hash table at address"),
        (elf.DT_RELA, "lies outside the segments"),
        (elf.DT_INIT, "DT_INIT at address"),
        (elf.DT_INIT_ARRAY, "lies outside the segments"),
    ],
)
def test_a_table_outside_of_the_library_is_refused(
    library: bytes, tag: int, said: str
) -> None:
    data = bytearray(library)
    struct.pack_into("<Q", data, place_of(library, tag), 1 << 40)
    with pytest.raises(ArchiveError, match=said):
        read_shared_library(data)


def test_a_constructor_in_data_is_refused(library: bytes) -> None:
    data = bytearray(library)
    address = read_shared_library(library).symbols["__tvm_ffi__library_bin"].address
    struct.pack_into("<Q", data, place_of(library, elf.DT_INIT), address)
    with pytest.raises(ArchiveError, match="lies in data, expected code"):
        read_shared_library(data)


@pytest.mark.parametrize("length", [0, 10, 64, 200, 4096, 12_000, 16_000])
def test_a_library_that_was_cut_is_refused(library: bytes, length: int) -> None:
    assert length < read_shared_library(library).file_bytes
    with pytest.raises(ArchiveError):
        read_shared_library(library[:length], "net.so")


def test_objects_and_programs_are_no_libraries(library: bytes) -> None:
    data = bytearray(library)
    data[16] = 1
    with pytest.raises(ArchiveError, match="ELF type 1, expected 3"):
        read_shared_library(data)


def first_relocation(library: bytes, kind: int) -> int:
    """Where in the file the first relocation of a type stands; its table lies where it is mapped."""
    begin, size = (
        struct.unpack_from("<Q", library, place_of(library, tag))[0]
        for tag in (elf.DT_RELA, elf.DT_RELASZ)
    )
    for at in range(begin, begin + size, 24):
        if elf.RELOCATION.unpack_from(library, at)[1] & 0xFFFF_FFFF == kind:
            return at
    raise AssertionError(kind)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        (8, 6, "that add the address is of another type"),
        (8, 8 | 999 << 32, "is of another type"),
        (0, 0x10, "in read-only memory"),
        (16, 1 << 40, "constructor at address 0x10000000000"),
        (16, 0x33CF, "lies in data, expected code"),
    ],
)
def test_a_relocation_that_would_end_the_process_is_refused(
    library: bytes, field: int, value: int, said: str
) -> None:
    data = bytearray(library)
    struct.pack_into("<Q", data, first_relocation(library, 8) + field, value)
    with pytest.raises(ArchiveError, match=said):
        read_shared_library(data)


def test_a_constructor_that_is_not_relocated_is_refused(library: bytes) -> None:
    data = bytearray(library)
    struct.pack_into("<Q", data, place_of(library, elf.DT_RELACOUNT), 0)
    struct.pack_into("<Q", data, first_relocation(library, 8) + 8, 0)
    with pytest.raises(ArchiveError, match=r"constructor at address .* is not relocated"):
        read_shared_library(data)


def test_code_that_is_not_in_the_file_is_refused(library: bytes) -> None:
    data = bytearray(library)
    for at in range(64, 64 + 56 * data[56], 56):
        kind, flags = struct.unpack_from("<II", data, at)
        if kind == elf.PT_LOAD and flags & elf.PF_X:
            (size,) = struct.unpack_from("<Q", data, at + 32)
            struct.pack_into("<Q", data, at + 32, size - 64)
    with pytest.raises(ArchiveError, match="code at address 0x1000 has"):
        read_shared_library(data)


def test_a_symbol_that_nobody_can_find_is_refused(library: bytes) -> None:
    data = bytearray(library)
    table = struct.unpack_from("<Q", data, place_of(library, elf.DT_SYMTAB))[0]
    struct.pack_into("<IB", data, table + 24, 0, 0)
    with pytest.raises(ArchiveError, match="symbol 1 '' is neither here nor elsewhere"):
        read_shared_library(data)


def test_a_library_that_only_has_constructors_is_read(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler of Linux")
    source, library = tmp_path / "net.c", tmp_path / "net.so"
    source.write_text(
        "#include <stdio.h>\n"
        '__attribute__((constructor)) static void begin(void) { puts("here"); }\n'
    )
    words = (
        compiler,
        "-shared",
        "-fPIC",
        "-O1",
        "-Wl,--hash-style=gnu",
        source,
        "-o",
        library,
    )
    subprocess.run(words, check=True)
    file = read_shared_library(library.read_bytes())
    assert file.symbols == {}
    assert "puts" in file.imports


# --- versions of symbols: glibc follows the chains to their ends, whatever the counts say ----------


@pytest.fixture(scope="module")
def versioned(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A library that needs versions of symbols of two others, and defines one."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("needs a C compiler of x86-64 Linux")
    folder = tmp_path_factory.mktemp("versioned")
    source = folder / "net.c"
    source.write_text(
        "#include <math.h>\n#include <stdio.h>\n"
        'double tw_f(double x) { puts("f"); return sin(x) + pow(x, x); }\n'
    )
    (folder / "net.map").write_text("TW_1 { global: tw_f; local: *; };\n")
    library = folder / "net.so"
    words = (compiler, "-shared", "-fPIC", "-O1", "-fno-builtin", source, "-o", library)
    script = f"-Wl,--version-script={folder / 'net.map'}"
    subprocess.run([*words, script, "-Wl,--no-as-needed", "-lm"], check=True)
    return library.read_bytes()


def needed_versions(library: bytes) -> int:
    """Where in the file the first needed version stands; it lies where it is mapped."""
    return struct.unpack_from("<Q", library, place_of(library, elf.DT_VERNEED))[0]


def test_a_library_with_versions_is_read(versioned: bytes) -> None:
    file = read_shared_library(versioned)
    assert set(file.needs) == {"libm.so.6", "libc.so.6"}
    assert {"sin", "pow", "puts"} <= file.imports
    assert "tw_f" in file.symbols


@pytest.mark.parametrize("count", [0, 1, 1 << 60])
def test_how_many_versions_there_are_said_to_be_means_nothing(
    versioned: bytes, count: int
) -> None:
    data = bytearray(versioned)
    for tag in (elf.DT_VERNEEDNUM, elf.DT_VERDEFNUM):
        struct.pack_into("<Q", data, place_of(versioned, tag), count)
    read_shared_library(data)
    at = needed_versions(versioned)
    (following,) = struct.unpack_from("<I", data, at + 12)
    struct.pack_into("<I", data, at + following + 4, 1 << 30)
    with pytest.raises(ArchiveError, match="name of a library at byte"):
        read_shared_library(data)


@pytest.mark.parametrize(
    ("place", "layout", "value", "said"),
    [
        (12, "<I", 1 << 31, "needed version at address"),  # vn_next
        (8, "<I", 1 << 31, "needed version at address"),  # vn_aux
        (4, "<I", 1, "versions of '.*', which is not among the libraries that it needs"),
        (16 + 12, "<I", 1 << 31, "needed version at address"),  # vna_next
        (16 + 8, "<I", 1 << 31, "name of a version at byte"),
    ],
)
def test_a_list_of_needed_versions_that_leads_astray_is_refused(
    versioned: bytes, place: int, layout: str, value: int, said: str
) -> None:
    data = bytearray(versioned)
    struct.pack_into(layout, data, needed_versions(versioned) + place, value)
    with pytest.raises(ArchiveError, match=said):
        read_shared_library(data)


@pytest.mark.parametrize("field", [12, 16])  # vd_aux, vd_next
def test_a_list_of_defined_versions_that_leads_astray_is_refused(
    versioned: bytes, field: int
) -> None:
    data = bytearray(versioned)
    at = struct.unpack_from("<Q", data, place_of(versioned, elf.DT_VERDEF))[0]
    struct.pack_into("<I", data, at + field, 1 << 31)
    with pytest.raises(ArchiveError, match="defined version at address"):
        read_shared_library(data)


def test_a_symbol_with_a_version_that_there_is_not_is_refused(versioned: bytes) -> None:
    data = bytearray(versioned)
    at = struct.unpack_from("<Q", data, place_of(versioned, elf.DT_VERSYM))[0]
    struct.pack_into("<H", data, at + 2, 0x7FF0)
    with pytest.raises(ArchiveError, match="symbol 1 has version 32752 of"):
        read_shared_library(data)


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ((elf.DT_VERSYM,), "lists of versions, but no versions of symbols"),
        ((elf.DT_VERNEED, elf.DT_VERDEF), "versions of symbols, but no list of versions"),
    ],
)
def test_versions_without_their_other_half_are_refused(
    versioned: bytes, gone: tuple[int, ...], said: str
) -> None:
    data = bytearray(versioned)
    for tag in gone:
        struct.pack_into("<q", data, place_of(versioned, tag) - 8, 21)  # DT_DEBUG
    with pytest.raises(ArchiveError, match=said):
        read_shared_library(data)


def test_lists_of_versions_that_overlap_without_end_are_refused(library: bytes) -> None:
    data, file = bytearray(library), read_shared_library(library)
    blob = file.symbols["__tvm_ffi__library_bin"].address
    place = library.index(bytes(file.data_at("__tvm_ffi__library_bin", "blob")))
    for step in range(100):  # each begins a list of all that follow
        struct.pack_into("<HHIII", data, place + 16 * step, 1, 0, 0, 16, 16)
    struct.pack_into("<HHIII", data, place + 1600, 1, 0, 0, 0, 0)
    end = place_of(library, elf.DT_NULL) - 8
    struct.pack_into("<QQ", data, end, elf.DT_VERNEED, blob)
    struct.pack_into("<QQ", data, end + 16, elf.DT_NEEDED, 0)
    with pytest.raises(ArchiveError, match="lists of versions do not fit the file"):
        read_shared_library(data)
