from __future__ import annotations

import pytest

from tilewright.runtime.drivers.cuda.operations import MemoryFill, fill_operations


def apply(operations: list[MemoryFill], base: int, size: int) -> bytes:
    """What the fills leave of zeros."""
    memory = bytearray(size)
    for fill in operations:
        assert fill.target % fill.element_bytes == 0
        row = fill.value.to_bytes(fill.element_bytes, "little") * fill.width
        for y in range(fill.height):
            place = fill.target - base + y * fill.pitch
            assert 0 <= place <= size - len(row)
            memory[place : place + len(row)] = row
    return bytes(memory)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("start", [0, 1, 2, 3, 4, 6])
@pytest.mark.parametrize(
    "pattern",
    [
        b"\x05",
        b"\x01\x02",
        b"\x01\x02\x03\x04",
        bytes(range(8)),
        b"\x07" * 8,
        b"\x01\x02" * 4,
    ],
)
@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_fills_repeat_their_pattern_at_any_address(
    start: int, pattern: bytes, count: int
) -> None:
    base = 1 << 40
    size = count * len(pattern)
    operations = fill_operations(base + start, size, pattern)
    memory = apply(operations, base, 128)
    assert memory == (bytes(start) + pattern * count).ljust(128, b"\0")


def test_the_usual_fill_is_one_operation() -> None:
    assert fill_operations(256, 64, b"\0" * 4) == [MemoryFill(256, 0, 1, 64)]
    assert fill_operations(256, 64, b"\1\2\3\4") == [MemoryFill(256, 0x04030201, 4, 16)]
    assert len(fill_operations(256, 64, bytes(range(8)))) == 8
