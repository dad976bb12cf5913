"""Whatever a file of numpy holds, it is read or refused in words."""

from __future__ import annotations

import random
import re
import struct
import tracemalloc
import zipfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.formats.numpy_files import NumpyFileError, read_npy, read_npz

ARRAY = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def npy(head: str) -> bytes:
    text = f"{head}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(96)


def described(descr: str, shape: str = "(2, 3)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"


def saved(array: np.ndarray = ARRAY) -> bytes:
    file = BytesIO()
    np.save(file, array)
    return file.getvalue()


def archive(data: bytes) -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("x.npy", data)
    return file.getvalue()


def test_arrays_come_back(tmp_path: Path) -> None:
    np.testing.assert_array_equal(read_npy(BytesIO(saved())), ARRAY)
    np.savez_compressed(tmp_path / "a.npz", a=ARRAY, b=ARRAY[0])
    found = read_npz(tmp_path / "a.npz")
    np.testing.assert_array_equal(found["b"], ARRAY[0])
    assert list(found) == ["a", "b"]


def test_what_is_not_asked_for_is_not_unpacked(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as made:
        made.writestr("x.npy", saved())
        made.writestr("bomb.npy", npy("nothing that numpy reads"))
    found = read_npz(tmp_path / "a.npz", lambda names: [n for n in names if n != "bomb"])
    np.testing.assert_array_equal(found["x"], ARRAY)
    assert list(found) == ["x"]
    with pytest.raises(NumpyFileError):
        read_npz(tmp_path / "a.npz")


def test_arrays_are_judged_by_their_heads_before_they_are_unpacked(tmp_path: Path) -> None:
    """32 MiB of zeros in a file of 32 KiB."""
    np.savez_compressed(
        tmp_path / "a.npz", y=ARRAY, x=np.zeros((1 << 11, 1 << 12), np.float32)
    )

    def check(name: str, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        if len(shape) != 3:
            raise TypeError(f"{name} {shape} {dtype}")

    tracemalloc.start()
    with pytest.raises(TypeError, match=r"x \(2048, 4096\) float32"):
        read_npz(tmp_path / "a.npz", check=check)
    assert tracemalloc.get_traced_memory()[1] < 1 << 21
    tracemalloc.stop()
    found = read_npz(tmp_path / "a.npz", lambda _: ["y"], check)
    np.testing.assert_array_equal(found["y"], ARRAY)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_head_that_promises_more_than_there_is_is_refused(
    tmp_path: Path, version: int
) -> None:
    file = BytesIO()
    head = {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)}
    if version == 1:
        np.lib.format.write_array_header_1_0(file, head)
    else:
        np.lib.format.write_array_header_2_0(file, head)
    data = bytearray(file.getvalue())
    data[6] = version
    (tmp_path / "a.npz").write_bytes(archive(bytes(data) + bytes(8)))
    with pytest.raises(
        NumpyFileError, match="has 8 bytes behind its head, expected 4398046511104"
    ):
        read_npz(tmp_path / "a.npz", check=lambda *_: None)


@pytest.mark.parametrize("other", ["notes.txt", "x", "x/", ".npy/x"])
def test_a_member_that_is_no_array_is_refused(tmp_path: Path, other: str) -> None:
    """Also where nobody asks for it: `x` beside `x.npy` would hide it."""
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as made:
        made.writestr("x.npy", saved())
        made.writestr(other, b"hello")
    with pytest.raises(NumpyFileError, match=rf"'{re.escape(other)}' is no array"):
        read_npz(tmp_path / "a.npz", lambda names: names[:1])


@pytest.mark.parametrize("is_checked", [True, False])
def test_bytes_that_begin_as_no_array_are_refused(tmp_path: Path, is_checked: bool) -> None:
    """Before they are unpacked: 32 MiB of zeros in a file of 32 KiB."""
    (tmp_path / "a.npz").write_bytes(archive(bytes(1 << 25)))
    (tmp_path / "b.npz").write_bytes(archive(b"hello"))
    check = (lambda *_: None) if is_checked else None
    tracemalloc.start()
    for name in ("a.npz", "b.npz"):
        with pytest.raises(NumpyFileError, match=r"'x\.npy' is no array"):
            read_npz(tmp_path / name, check=check)
    assert tracemalloc.get_traced_memory()[1] < 1 << 21
    tracemalloc.stop()


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_two_arrays_of_one_name_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as made:
        made.writestr("x.npy", saved())
        made.writestr("x.npy", saved(ARRAY[0]))
    with pytest.raises(NumpyFileError, match="there are two arrays 'x'"):
        read_npz(tmp_path / "a.npz")


def test_names_that_end_as_files_do_come_back(tmp_path: Path) -> None:
    """`x.npy` and `x` are two arrays: numpy writes `x.npy.npy` and `x.npy`."""
    np.savez(tmp_path / "a.npz", **{"x.npy": ARRAY[0], "x": ARRAY, "": ARRAY[1]})
    found = read_npz(tmp_path / "a.npz")
    assert list(found) == ["x.npy", "x", ""]
    np.testing.assert_array_equal(found["x.npy"], ARRAY[0])
    np.testing.assert_array_equal(found["x"], ARRAY)


@pytest.mark.parametrize(
    "head",
    [
        "{'descr': '<f4', (",
        "'''",
        "\t\n  x\n y",
        "(" * 3000,
        "-" * 9000 + "1",
        "{1L: 2L",
        described("'|O'"),
        described("''"),
        described("'<f4'", "(99999999999999999999,)"),
        described("'<f4'", "(9223372036854775807,)"),
        described("'<f4'", "(-1,)"),
        described("('<f4', (1 << 40,))"),
        described("[('a', '<f4', (10000000000000,))]"),
        described("'<M8[99999999999999s]'"),
        described("{'names': ['a'], 'formats': ['<f4'], 'offsets': [-5]}"),
    ],
)
def test_a_head_that_is_none_is_refused_in_words(head: str) -> None:
    with pytest.raises(NumpyFileError, match=r"."):
        read_npy(BytesIO(npy(head)))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (6, 1),  # encrypted
        (6, 32),  # patched data
        (8, 99),  # a way to compress that there is not
        (-22 - 46 - 5 + 6, 250),  # a version that comes later
    ],
)
def test_an_archive_of_a_kind_that_is_not_read_is_refused_in_words(
    tmp_path: Path, place: int, value: int
) -> None:
    data = bytearray(archive(saved()))
    central = len(data) - 22 - 46 - len("x.npy")
    for at in (place, central + 2 + place) if place >= 0 else (place,):
        data[at] = value
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(NumpyFileError, match=r"."):
        read_npz(tmp_path / "a.npz")


def test_changed_files_are_read_or_refused(tmp_path: Path) -> None:
    chance = random.Random(0)
    whole = {"npy": saved(), "npz": archive(saved())}
    refused = 0
    for number in range(240):
        kind = ("npy", "npz")[number % 2]
        data = bytearray(whole[kind])
        for _ in range(chance.randint(1, 4)):
            # The description is at the beginning; in archives, at the end as well.
            near = min(len(data), 140)
            at = chance.randrange(near) * chance.choice((1, -1) if kind == "npz" else (1,))
            data[at] = chance.choice((chance.randrange(256), *b"0123456789(),'{}[]<"))
        try:
            if kind == "npy":
                read_npy(BytesIO(data))
            else:
                (tmp_path / "a.npz").write_bytes(data)
                read_npz(tmp_path / "a.npz")
        except (NumpyFileError, OSError):  # an archive may place arrays before itself
            refused += 1
    assert refused > 120


def test_a_version_that_numpy_does_not_have_is_refused_by_its_number(
    tmp_path: Path,
) -> None:
    """Not read as if it were another one."""
    data = saved()
    (tmp_path / "a.npz").write_bytes(archive(data[:6] + b"\x09\x00" + data[8:]))
    with pytest.raises(
        NumpyFileError, match=r"version 9\.0 of \.npy, expected 1\.0 to 3\.0"
    ):
        read_npz(tmp_path / "a.npz")


@pytest.mark.parametrize("place", [b"PK\x05\x06", b"PK\x01\x02"])
def test_an_archive_whose_offsets_lie_outside_of_it_is_refused(
    place: bytes, tmp_path: Path
) -> None:
    """Of the directory, where the reader would begin before the file; of a member."""
    data = bytearray(archive(saved()))
    at = data.index(place) + (16 if place == b"PK\x05\x06" else 42)
    data[at : at + 4] = b"\xff\xff\xff\x7f"
    (tmp_path / "a.npz").write_bytes(data)
    with pytest.raises(NumpyFileError):
        read_npz(tmp_path / "a.npz")
