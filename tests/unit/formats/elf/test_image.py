from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from tilewright.base.errors import ArchiveError
from tilewright.compiler.linker import link_shared
from tilewright.formats.elf import parse_image
from tilewright.formats.elf.dynamic import DYNAMIC

TEXT = """
@value = global i32 7
@pointer = constant ptr @value
define ptr @main() { %p = load ptr, ptr @pointer
  ret ptr %p }
"""


@pytest.fixture
def image(compile_ir: Callable[..., bytes]) -> bytes:
    return link_shared([compile_ir(TEXT)], exported=["main"])


def program_headers(data: bytes) -> list[int]:
    """Where the program headers lie."""
    count = struct.unpack_from("<H", data, 56)[0]
    return [64 + 56 * index for index in range(count)]


def dynamic_entry(data: bytes, tag: int) -> int:
    """Where the entry of a tag lies in the file."""
    for place in program_headers(data):
        kind, _, offset = struct.unpack_from("<IIQ", data, place)
        if kind == 2:
            for entry in range(offset, len(data), 16):
                if struct.unpack_from("<Q", data, entry)[0] == tag:
                    return entry
    raise AssertionError(tag)


def changed(data: bytes, place: int, layout: str, value: int) -> bytes:
    copy = bytearray(data)
    struct.pack_into(layout, copy, place, value)
    return bytes(copy)


def test_patches_are_absolute_addresses_and_values(image: bytes) -> None:
    parsed = parse_image(image)
    first, second = (list(parsed.patches(bias)) for bias in (0x10000, 0x20000))
    assert first
    for one, two in zip(first, second, strict=True):
        assert two.address - one.address == 0x10000
        assert two.value - one.value == 0x10000
        assert one.moves


def test_the_span_covers_whole_pages(image: bytes) -> None:
    start, size = parse_image(image).span
    assert start % 4096 == 0
    assert size % 4096 == 0
    last = parse_image(image).segments[-1]
    assert start + size >= last.address + last.memory_bytes


def test_contents_are_views_of_the_file(image: bytes) -> None:
    parsed = parse_image(image)
    assert parsed.contents(parsed.segments[0]).obj is image


def test_embedded_kernels_of_iree_are_read(iree_kernels: bytes) -> None:
    parsed = parse_image(iree_kernels)
    assert list(parsed.symbols) == ["iree_hal_executable_library_query"]
    assert parsed.machine in ("x86_64", "aarch64", "riscv64")
    assert parsed.relro is not None
    assert parsed.init_array == (0, 0)
    relative = DYNAMIC[parsed.machine].relative
    assert all(item.type == relative for item in parsed.relocations)


def test_writable_code_is_refused(image: bytes) -> None:
    code = next(
        p for p in program_headers(image) if struct.unpack_from("<I", image, p + 4)[0] == 5
    )
    with pytest.raises(ArchiveError, match="both writable and executable"):
        parse_image(changed(image, code + 4, "<I", 7))


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        (8, 1 << 40, "the data has"),
        (32, 1 << 40, "the data has"),
        (40, 1 << 40, r"overlap|spans"),
        (40, 0x7FFF_FFFF_FFFF_FFFF, "out of range|overlap"),
        (16, 0, "overlap|share a page"),
    ],
)
def test_segments_outside_of_file_or_memory_are_refused(
    image: bytes, field: int, value: int, complaint: str
) -> None:
    second = program_headers(image)[1]
    with pytest.raises(ArchiveError, match=complaint):
        parse_image(changed(image, second + field, "<Q", value))


@pytest.mark.parametrize(
    ("tag", "replacement", "complaint"),
    [
        (4, 0x6FFF_FEF5, "lacks DT_HASH"),
        (5, 0x7000_0001, "lacks DT_STRTAB"),
        (30, 1, "needs other libraries"),
        (9, 36, "relocations without addends"),
    ],
)
def test_dynamic_tables_that_cannot_be_honoured_are_refused(
    image: bytes, tag: int, replacement: int, complaint: str
) -> None:
    with pytest.raises(ArchiveError, match=complaint):
        parse_image(changed(image, dynamic_entry(image, tag), "<Q", replacement))


def test_initializers_are_code(image: bytes) -> None:
    parsed = parse_image(image)
    data = next(segment for segment in parsed.segments if not segment.executable)
    code = next(segment for segment in parsed.segments if segment.executable)
    # DT_INIT in the place of a tag that readers do without.
    entry = dynamic_entry(image, 11)
    with_init = changed(image, entry, "<Q", 12)
    assert parse_image(changed(with_init, entry + 8, "<Q", code.address)).init_function
    with pytest.raises(ArchiveError, match=r"DT_INIT at address 0x[0-9a-f]+ lies in data"):
        parse_image(changed(with_init, entry + 8, "<Q", data.address + 8))


def test_only_pages_of_the_segment_become_read_only(image: bytes) -> None:
    place = next(p for p in program_headers(image) if image[p : p + 4] == b"R\xe5td")
    relro = parse_image(image).relro
    assert relro is not None
    start, size = relro
    assert (start + size) % 4096 == 0
    assert parse_image(changed(image, place + 40, "<Q", size + 5000)).relro == relro
    with pytest.raises(ArchiveError, match="larger than its segment"):
        parse_image(changed(image, place + 40, "<Q", 1 << 20))


def test_code_does_not_become_read_only(image: bytes) -> None:
    """A kernel would end the process where its code goes on in the first page that may not be executed."""
    place = next(p for p in program_headers(image) if image[p : p + 4] == b"R\xe5td")
    code = next(s for s in parse_image(image).segments if s.executable)
    moved = changed(image, place + 16, "<Q", code.address)
    with pytest.raises(ArchiveError, match="lies in code, expected data"):
        parse_image(changed(moved, place + 40, "<Q", 1))


def test_an_import_is_refused_by_name(image: bytes) -> None:
    table = dynamic_entry(image, 6)
    symbols = struct.unpack_from("<Q", image, table + 8)[0]
    with pytest.raises(ArchiveError, match="imports 'main'"):
        parse_image(changed(image, symbols + 24 + 6, "<H", 0))


def test_a_relocation_into_code_is_refused(image: bytes) -> None:
    parsed = parse_image(image)
    code = next(segment for segment in parsed.segments if segment.executable)
    table = struct.unpack_from("<Q", image, dynamic_entry(image, 7) + 8)[0]
    with pytest.raises(ArchiveError, match="would patch code"):
        parse_image(changed(image, table, "<Q", code.address))


@pytest.mark.parametrize("kind", [5, 16, 37, 99])
def test_other_relocation_types_are_refused(image: bytes, kind: int) -> None:
    table = struct.unpack_from("<Q", image, dynamic_entry(image, 7) + 8)[0]
    with pytest.raises(ArchiveError, match=f"relocation type {kind} at"):
        parse_image(changed(image, table + 8, "<Q", kind))


def test_an_object_is_not_an_image(compile_ir: Callable[..., bytes]) -> None:
    with pytest.raises(ArchiveError, match=r"ELF type 1, expected 3 \(shared object\)"):
        parse_image(compile_ir(TEXT))
