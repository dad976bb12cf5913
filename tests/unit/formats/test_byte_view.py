from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from tilewright.base.errors import ArchiveError
from tilewright.formats.byte_view import ByteView, decode_text, view_bytes


def test_numbers_are_read_little_endian_with_their_sign() -> None:
    view = ByteView(bytes([0xFE, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]), "x")
    assert view.u8(0, "n") == 0xFE
    assert view.i8(0, "n") == -2
    assert view.u16(0, "n") == 0xFFFE
    assert view.i16(0, "n") == -2
    assert view.u32(0, "n") == 0xFFFF_FFFE
    assert view.i32(0, "n") == -2
    assert view.u64(0, "n") == 0xFFFF_FFFF_FFFF_FFFE
    assert view.i64(0, "n") == -2


@pytest.mark.parametrize(
    ("offset", "length"), [(-1, 2), (0, 9), (8, 1), (4, -1), (1 << 70, 1)]
)
def test_a_range_outside_of_the_data_is_an_archive_error(offset: int, length: int) -> None:
    view = ByteView(bytes(8), "model.vmfb")
    with pytest.raises(ArchiveError, match=r"model.vmfb: thing at byte .* the data has 8"):
        view.sub(offset, length, "thing")


def test_a_number_past_the_end_is_an_archive_error() -> None:
    view = ByteView(bytes(3), "x")
    for read in (view.u32, view.i32, view.u64, view.i64):
        with pytest.raises(ArchiveError):
            read(0, "number")
    with pytest.raises(ArchiveError):
        view.u8(3, "number")


def test_a_string_needs_its_end_and_utf8() -> None:
    assert ByteView(b"ab\0cd", "x").c_string(0, "name") == "ab"
    with pytest.raises(ArchiveError, match="has no end"):
        ByteView(b"ab", "x").c_string(0, "name")
    with pytest.raises(ArchiveError, match="name is not UTF-8"):
        ByteView(b"\xff\0", "x").c_string(0, "name")
    with pytest.raises(ArchiveError):
        decode_text(b"\xc3", "x", "name")


def test_sub_is_a_view_of_the_same_memory() -> None:
    data = bytearray(b"abcdef")
    part = ByteView(data, "x").sub(2, 2, "part")
    data[2] = ord("X")
    assert bytes(part) == b"Xd"


def test_views_take_arrays_maps_and_nothing(tmp_path: Path) -> None:
    assert bytes(view_bytes(np.arange(2, dtype=np.int32))) == bytes(
        [0, 0, 0, 0, 1, 0, 0, 0]
    )
    assert bytes(view_bytes(np.zeros((0, 3), np.float32))) == b""
    file = tmp_path / "data"
    file.write_bytes(b"mapped")
    with (
        file.open("rb") as handle,
        mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as m,
    ):
        view = ByteView(m, "x")
        assert bytes(view.sub(0, 6, "all")) == b"mapped"
        view.data.release()
