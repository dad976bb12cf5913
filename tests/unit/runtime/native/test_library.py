"""Reading the tables of an executable library, sound and corrupt."""

from __future__ import annotations

import struct
from types import ModuleType

import numpy as np
import pytest

from tilewright.base.errors import ArchiveError
from tilewright.runtime.native import (
    PROTECT_EXECUTE,
    PROTECT_READ,
    Export,
    ProcessMemory,
    read_library,
)

PAGE = 4096
HEADER, NAME, FUNCTIONS, ATTRIBUTES, NAMES, IMPORTS, TEXT, CODE = range(
    256, 256 + 8 * 256, 256
)


class Changed:
    """An image with other content, which is read as if it lay at `base`; all of it is code."""

    def __init__(self, core: ModuleType, content: bytes | bytearray, base: int) -> None:
        rows = [(0, bytes(content))], [], [(0, PAGE, PROTECT_READ)]
        self.image = core.CodeImage(PAGE, *rows)
        self.base = base

    def read(self, address: int, length: int) -> bytes:
        return self.image.read(address - self.base + self.image.base, length)

    def holds_code(self, address: int) -> bool:
        return True


def image_of(
    core: ModuleType, attributes: bool = True, access: int = PROTECT_READ | PROTECT_EXECUTE
) -> tuple[object, int, bytearray]:
    """An image with a library at offset 0: two exports, one import, three constants."""
    data = bytearray(PAGE)
    relocations: list[tuple[int, int, bool]] = []

    def point(at: int, target: int) -> None:
        relocations.append((at, target, True))

    struct.pack_into("<I", data, 8, 1)
    struct.pack_into("<I", data, 24, 2)
    struct.pack_into("<I", data, 104, 3)
    struct.pack_into("<I4xQII", data, HEADER, 6, 0, 9, 1)
    for at, target in (
        (0, HEADER),
        (HEADER + 8, NAME),
        (16, IMPORTS),
        (32, FUNCTIONS),
        (64, NAMES),
    ):
        point(at, target)
    if attributes:
        point(40, ATTRIBUTES)
    struct.pack_into("<QHBBIIHH", data, ATTRIBUTES, 1, 2, 3, 4, 5, 6, 7, 8)
    struct.pack_into("<QHBBIIHH", data, ATTRIBUTES + 64, 0, 0, 0, 1, 1, 1, 1, 0)
    data[NAME : NAME + 8] = b"library\0"
    data[TEXT : TEXT + 40] = b"first\0".ljust(20, b"-") + b"second \xc3\xa9\0".ljust(
        20, b"-"
    )
    data[-5:] = b"?imp\0"
    for index in range(2):
        point(FUNCTIONS + 8 * index, CODE + 16 * index)
        point(NAMES + 8 * index, TEXT + 20 * index)
    point(IMPORTS, PAGE - 5)
    image = core.CodeImage(PAGE, [(0, bytes(data))], relocations, [(0, PAGE, access)])
    return image, image.base, data


def test_the_tables_are_read(core: ModuleType) -> None:
    image, base, _ = image_of(core)
    library = read_library(image, base)  # pyright: ignore[reportArgumentType]
    assert (library.name, library.version, library.features, library.sanitizer) == (
        "library",
        6,
        9,
        1,
    )
    assert library.constant_count == 3
    assert library.imports == ("?imp",)
    assert library.exports == (
        Export("first", base + CODE, 1, 2 * 4096, 3, 4, (5, 6, 7), 8),
        Export("second é", base + CODE + 16, 0, 0, 0, 1, (1, 1, 1), 0),
    )


def test_attributes_may_be_missing(core: ModuleType) -> None:
    image, base, _ = image_of(core, attributes=False)
    library = read_library(image, base)  # pyright: ignore[reportArgumentType]
    assert library.exports[0].workgroup_size == (1, 1, 1)
    assert library.exports[0].local_memory_bytes == 0


def test_a_library_of_version_4_has_short_attributes_and_no_counts(
    core: ModuleType,
) -> None:
    def make(version: int) -> bytes:
        """A library at 0 as versions 4 and 5 lay it out: two exports."""
        data = bytearray(PAGE)
        struct.pack_into("<I", data, 24, 2)
        struct.pack_into("<I", data, 80, 7)
        struct.pack_into("<I", data, HEADER, version)
        struct.pack_into("<HHHH", data, ATTRIBUTES, 2, 0, 3, 0)
        return bytes(data)

    targets = [(0, HEADER), (32, FUNCTIONS), (40, ATTRIBUTES), (48, NAMES)]
    targets += [(at + 8 * i, CODE) for at in (FUNCTIONS, NAMES) for i in range(2)]
    rows = [(at, target, True) for at, target in targets]
    access = [(0, PAGE, PROTECT_READ | PROTECT_EXECUTE)]
    image = core.CodeImage(PAGE, [(0, make(4))], rows, access)
    library = read_library(image, image.base)
    assert (library.version, library.constant_count, library.has_counts) == (4, 7, False)
    assert [e.local_memory_bytes for e in library.exports] == [2 * PAGE, 3 * PAGE]
    assert [e.binding_count for e in library.exports] == [0, 0]
    image = core.CodeImage(PAGE, [(0, make(5))], rows, access)
    library = read_library(image, image.base)
    assert library.has_counts
    assert [e.constant_count for e in library.exports] == [0, 0]


def test_exports_are_code(core: ModuleType) -> None:
    image, base, _ = image_of(core, access=PROTECT_READ)
    for memory in (image, ProcessMemory()):
        with pytest.raises(
            ArchiveError, match="export 'first' points to data, expected code"
        ):
            read_library(memory, base)  # pyright: ignore[reportArgumentType]


def test_memory_of_the_process_is_read_where_it_is_mapped(core: ModuleType) -> None:
    image, base, _ = image_of(core)
    memory = ProcessMemory()
    assert read_library(memory, base) == read_library(image, base)  # pyright: ignore[reportArgumentType]
    assert memory.holds_code(base)
    assert not memory.holds_code(id(image))
    for address in (0, 1 << 63, (1 << 64) - 4):
        with pytest.raises(IndexError, match="not readable memory"):
            memory.read(address, 8)


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    "offset", [0, 16, 32, 40, 64, HEADER + 8, FUNCTIONS, NAMES + 8, IMPORTS]
)
@pytest.mark.parametrize("value", [8, (1 << 64) - 8, 1 << 63])
def test_a_pointer_out_of_the_image_is_an_error(
    core: ModuleType, offset: int, value: int
) -> None:
    image, base, _ = image_of(core)
    content = bytearray(image.read(base, PAGE))  # pyright: ignore[reportAttributeAccessIssue]
    struct.pack_into("<Q", content, offset, value)
    with pytest.raises(ArchiveError, match=r"executable library: .* bytes at address -?0x"):
        read_library(Changed(core, content, base), base)


def test_a_table_of_absurd_length_is_an_error(core: ModuleType) -> None:
    image, base, _ = image_of(core)
    content = bytearray(image.read(base, PAGE))  # pyright: ignore[reportAttributeAccessIssue]
    for offset in (8, 24):
        changed = content.copy()
        struct.pack_into("<I", changed, offset, 0xFFFFFFFF)
        with pytest.raises(ArchiveError, match="table of 4294967295 entries"):
            read_library(Changed(core, changed, base), base)


def test_random_damage_never_escapes_the_image(core: ModuleType) -> None:
    rng = np.random.default_rng(0)
    image, base, _ = image_of(core)
    content = np.frombuffer(image.read(base, PAGE), np.uint8)  # pyright: ignore[reportAttributeAccessIssue]
    outcomes = {"read": 0, "refused": 0}
    for _ in range(300):
        damaged = content.copy()
        damaged[rng.integers(0, CODE, 8)] = rng.integers(0, 256, 8)
        try:
            read_library(Changed(core, damaged.tobytes(), base), base)
        except ArchiveError:
            outcomes["refused"] += 1
        else:
            outcomes["read"] += 1
    assert min(outcomes.values()) > 10
