"""Code images: what is copied, relocated, protected and called."""

from __future__ import annotations

import ctypes
import mmap
import platform
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tilewright.runtime.native import PROTECT_EXECUTE, PROTECT_READ, PROTECT_WRITE

PAGE = mmap.PAGESIZE
RETURN_ARGUMENT = {"x86_64": "48c7c0{:02x}000000c3"}  # mov rax, imm32; ret


def code_returning(value: int) -> bytes:
    """Machine code of a function that returns a small number."""
    form = RETURN_ARGUMENT.get(platform.machine())
    if form is None:
        pytest.skip(f"no machine code for {platform.machine()} here")
    return bytes.fromhex(form.format(value))


def access_of(address: int) -> str:
    """The access bits the system shows for an address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, _, end = line.split()[0].partition("-")
        if int(begin, 16) <= address < int(end, 16):
            return line.split()[1][:3]
    return "not mapped"


def test_an_image_holds_segments_zeros_and_relocations(core: ModuleType) -> None:
    image = core.CodeImage(
        2 * PAGE + 10,
        [(0, b"abc"), (PAGE - 2, b"across the border")],
        [(64, 17, True), (72, 17, False), (80, (1 << 64) - 1, False)],
        [(0, 2 * PAGE + 10, PROTECT_READ)],
    )
    assert image.size_bytes == 2 * PAGE + 10
    assert image.base % PAGE == 0
    assert image.read(image.base, 5) == b"abc\0\0"
    assert image.read(image.address(PAGE - 2), 17) == b"across the border"
    words = np.frombuffer(image.read(image.base + 64, 24), "<u8").tolist()
    assert words == [image.base + 17, 17, (1 << 64) - 1]


def test_pages_get_exactly_their_protections(core: ModuleType) -> None:
    image = core.CodeImage(
        5 * PAGE,
        [],
        [],
        [
            (0, PAGE, PROTECT_READ),
            (PAGE, PAGE, PROTECT_READ | PROTECT_EXECUTE),
            (2 * PAGE, 2 * PAGE, PROTECT_READ | PROTECT_WRITE),
            (2 * PAGE, 1, PROTECT_READ),  # RELRO: read-only after relocation
        ],
    )
    access = [access_of(image.base + page * PAGE) for page in range(5)]
    assert access == ["r--", "r-x", "r--", "rw-", "---"]


def test_a_page_is_never_writable_and_executable(core: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"protection 1.*writable and executable"):
        core.CodeImage(
            PAGE, [], [], [(0, 1, PROTECT_READ), (0, 1, PROTECT_WRITE | PROTECT_EXECUTE)]
        )


@pytest.mark.parametrize(
    ("subject", "parts"),
    [
        ("segment 0", ([(PAGE - 1, b"ab")], [], [])),
        ("segment 1", ([(0, b""), ((1 << 63), b"ab")], [], [])),
        ("relocation 0", ([], [(PAGE - 7, 0, True)], [])),
        ("protection 0", ([], [], [(0, PAGE + 1, PROTECT_READ)])),
        ("protection 0", ([], [], [(PAGE + 1, 0, PROTECT_READ)])),
    ],
)
def test_nothing_is_written_outside_the_image(
    core: ModuleType, subject: str, parts: tuple[list[object], list[object], list[object]]
) -> None:
    with pytest.raises(ValueError, match=f"{subject}: outside the image of {PAGE} bytes"):
        core.CodeImage(PAGE, *parts)


def test_reading_stays_inside_the_readable_pages(core: ModuleType) -> None:
    image = core.CodeImage(2 * PAGE, [], [], [(0, PAGE, PROTECT_READ)])
    outside = [
        (image.base - 1, 2),
        (image.base + PAGE - 1, 2),
        (image.base + PAGE, 1),
        (image.base, 3 * PAGE),
        (image.base + 2 * PAGE, 1),
        (0, 8),
    ]
    for address, length in outside:
        with pytest.raises(IndexError, match="not readable image memory"):
            image.read(address, length)
    assert image.read(image.base + PAGE - 1, 1) == b"\0"


def test_an_offset_outside_the_image_has_no_address(core: ModuleType) -> None:
    image = core.CodeImage(10, [], [], [])
    assert image.address(9) == image.base + 9
    with pytest.raises(IndexError, match="offset 10 is outside the image of 10 bytes"):
        image.address(10)


def test_code_in_an_image_runs(core: ModuleType) -> None:
    image = core.CodeImage(
        2 * PAGE,
        [(PAGE, code_returning(42))],
        [],
        [(0, PAGE, PROTECT_READ), (PAGE, PAGE, PROTECT_READ | PROTECT_EXECUTE)],
    )
    function = ctypes.CFUNCTYPE(ctypes.c_int)(image.address(PAGE))
    assert function() == 42
    assert image.call_query(PAGE, 6, 0) == 42


def test_a_query_must_point_to_code(core: ModuleType) -> None:
    image = core.CodeImage(2 * PAGE, [], [], [(0, PAGE, PROTECT_READ)])
    for offset in (0, PAGE, 2 * PAGE, 1 << 62):
        with pytest.raises(ValueError, match="not executable image memory"):
            image.call_query(offset, 6, 0)


def test_an_image_is_unmapped_with_its_last_reference(core: ModuleType) -> None:
    image = core.CodeImage(PAGE, [], [], [(0, PAGE, PROTECT_READ | PROTECT_EXECUTE)])
    base = image.base
    assert access_of(base) == "r-x"
    del image
    assert access_of(base) != "r-x"


@pytest.mark.parametrize("size_bytes", [0])
def test_an_image_of_no_bytes_is_refused(core: ModuleType, size_bytes: int) -> None:
    with pytest.raises(ValueError, match="size_bytes is out of range"):
        core.CodeImage(size_bytes, [], [], [])
