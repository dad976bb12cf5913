"""IREE's grammar for tensors on the command line: every form, and what is wrong with the others.

The printed texts are what `iree-run-module` of release 3.13 prints for the same tensors.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tilewright.base.errors import InputError, UserError
from tilewright.formats.tensor_text import (
    TensorReader,
    compare,
    format_tensor,
    write_outputs,
)


def read(*values: str) -> list[np.ndarray]:
    return TensorReader().read(values)


def assert_same(actual: np.ndarray, expected: np.ndarray) -> None:
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2x3xf32=1 2 3 4 5 6", np.arange(1, 7, dtype=np.float32).reshape(2, 3)),
        ("2x3xf32=[[1, 2, 3], [4, 5, 6]]", np.arange(1, 7, dtype=np.float32).reshape(2, 3)),
        ("2x3xf32=[1 2 3][4 5 6]", np.arange(1, 7, dtype=np.float32).reshape(2, 3)),
        ("2x2xf32=0.5", np.full((2, 2), 0.5, np.float32)),
        ("2x2xf32", np.zeros((2, 2), np.float32)),
        ("2x2xf32=", np.zeros((2, 2), np.float32)),
        ("0x3xf32=", np.zeros((0, 3), np.float32)),
        ("0xi32", np.zeros((0,), np.int32)),
        ("f32=1.5", np.array(1.5, np.float32)),
        ("f32", np.array(0, np.float32)),
        ("3.5", np.array(3.5, np.float32)),
        ("-7", np.array(-7, np.int32)),
        ("1e3", np.array(1000, np.float32)),
        ("3xf32=inf -inf nan", np.array([np.inf, -np.inf, np.nan], np.float32)),
        ("1xf32=1e40", np.array([np.inf], np.float32)),
        ("2xf32=0x1p3 -0x1.8p1", np.array([8, -3], np.float32)),
        ("4xi8=-128 127 0x10 -1", np.array([-128, 127, 16, -1], np.int8)),
        ("2xsi16=1 2", np.array([1, 2], np.int16)),
        ("2xui8=255 0", np.array([255, 0], np.uint8)),
        ("1xi64=9223372036854775807", np.array([2**63 - 1], np.int64)),
        ("1xu64=18446744073709551615", np.array([2**64 - 1], np.uint64)),
        ("3xi1=1 0 true", np.array([True, False, True])),
        ("2xbool=true false", np.array([True, False])),
        ("2xf16=1 65504", np.array([1, 65504], np.float16)),
        ("2xbf16=1 0.5", np.array([1, 0.5], ml_dtypes.bfloat16)),
        ("1xf64=0.1", np.array([0.1], np.float64)),
        (" 2xf32 = 1 2 ", np.array([1, 2], np.float32)),
    ],
)
def test_every_form_of_a_literal(text: str, expected: np.ndarray) -> None:
    (array,) = read(text)
    assert_same(array, expected)


def test_values_come_back_in_the_order_they_were_given() -> None:
    assert [a.dtype.name for a in read("2xf32=1", "i32=3", "1xf64")] == [
        "float32",
        "int32",
        "float64",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2x3xf32=1 2", "got 2 values, expected 6 (or 1 for all)"),
        ("0xf32=1 2", "got 2 values, expected 0 (or 1 for all)"),
        ("2xi8=300", "bad value"),
        ("2xu8=-1", "bad value"),
        ("2xi32=1.5 2", "bad value"),
        ("2xf32=one two", "bad value"),
        ("2xf33=1 2", "f33"),
        ("hello", "'hello'"),
        ("", "not a tensor"),
        ("2x3=1", "not a tensor"),
        ("x3xf32=1", "'x3xf32'"),
        ("99999999999", "not a tensor"),
        ("99999999999999xf64", "bad value"),
        ("9999999999999999999999xf64", "bad value"),
        ("9" * 5000 + "xf64", "not a tensor"),
        ("@missing.npy", "cannot read 'missing.npy': No such file or directory"),
        ("x=@missing.npy", "hint: write 2x3xf32=1 2 3 4 5 6"),
        ("4xf32=@missing.bin", "cannot read 'missing.bin'"),
        ("&4xf32", "storage arguments"),
        ("(null)", "storage arguments and null references"),
    ],
)
def test_a_bad_value_is_named_with_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    assert problem in str(caught.value)
    assert str(caught.value).startswith(f"'{text}': ")


def test_an_archive_of_arrays_says_what_to_save_instead(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.ones(3))
    with pytest.raises(InputError, match=r"not a \.npy file") as caught:
        read(f"@{path}")
    assert caught.value.hint == "numpy.save writes one"


@given(st.text(alphabet="0123x-fi=@+*.e[] ,nu", max_size=14))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        arrays = read(text)
    except InputError:
        return
    assert all(isinstance(a, np.ndarray) for a in arrays)


# --- files -----------------------------------------------------------------------------------


def test_npy_files_are_read_one_array_after_the_other(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    arrays = [np.arange(n, dtype=np.float32) for n in (1, 2, 3, 4)]
    with path.open("wb") as file:
        for array in arrays:
            np.save(file, array)
    assert [len(a) for a in read(f"@{path}", f"+{path}")] == [1, 2]
    assert [len(a) for a in read(f"@{path}", f"@{path}")] == [1, 1]
    assert [len(a) for a in read(f"*{path}")] == [1, 2, 3, 4]
    assert [len(a) for a in read(f"@{path}", f"*{path}")] == [1, 2, 3, 4]
    with pytest.raises(InputError, match=r"not a \.npy file"):
        read(*[f"+{path}"] * 5)


def test_raw_files_go_on_where_the_last_read_ended(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(np.arange(6, dtype=np.float32).tobytes())
    first, second = read(f"2x2xf32=@{path}", f"2xf32=+{path}")
    assert_same(first, np.arange(4, dtype=np.float32).reshape(2, 2))
    assert_same(second, np.array([4, 5], np.float32))
    with pytest.raises(InputError, match="file has 24 bytes left, expected 28"):
        read(f"7xf32=@{path}")
    with pytest.raises(InputError, match="file has 8 bytes left, expected 16"):
        read(f"4xf32=@{path}", f"4xf32=+{path}")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
@pytest.mark.parametrize(
    ("mark", "count", "expected"), [("@", 1, 1), ("*", 1, 1), ("*", 3, 3)]
)
def test_npy_data_comes_through_a_pipe(
    tmp_path: Path, mark: str, count: int, expected: int
) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "one.npy", array)
    data = (tmp_path / "one.npy").read_bytes() * count
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(data,))
    writer.start()
    read = TensorReader().read([f"{mark}{tmp_path / 'pipe'}"])
    writer.join()
    assert len(read) == expected
    for one in read:
        np.testing.assert_array_equal(one, array)


def test_npy_files_that_would_run_code_or_eat_all_memory_are_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(InputError, match=r"not a \.npy file"):
        read(f"@{path}")
    huge = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({10**15},), }}"
    header = (huge + " " * (117 - len(huge)) + "\n").encode()
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with pytest.raises(InputError, match=r"not a \.npy file"):
        read(f"@{path}")
    path.write_bytes(b"not numpy at all")
    with pytest.raises(InputError, match=r"not a \.npy file"):
        read(f"@{path}")


# --- outputs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.arange(4, dtype=np.float32), "4xf32=0 1 2 3"),
        (np.arange(4, dtype=np.int32).reshape(2, 2), "2x2xi32=[0 1][2 3]"),
        (np.arange(4, dtype=np.int64).reshape(1, 2, 2), "1x2x2xi64=[[0 1][2 3]]"),
        (np.array(1.5, np.float64), "f64=1.5"),
        (np.array([True, False]), "2xi1=1 0"),
        (np.array([1.5], ml_dtypes.bfloat16), "1xbf16=1.5"),
        (np.zeros((0, 3), np.float32), "0x3xf32="),
        (np.zeros((2, 0), np.float32), "2x0xf32=[][]"),
        (
            np.array(
                [1e-7, 1e10, np.inf, np.nan, 0, 8, 3.14159265, 1234567, 1.5], np.float32
            ),
            "9xf32=1E-07 1E+10 INF NAN 0 8 3.14159 1.23457E+06 1.5",
        ),
    ],
)
def test_tensors_are_printed_as_iree_prints_them(array: np.ndarray, text: str) -> None:
    assert format_tensor(array) == text


def test_long_tensors_are_cut_at_the_limit() -> None:
    assert format_tensor(np.arange(5, dtype=np.int8), limit=3) == "5xi8=0 1 2..."
    grid = np.arange(9, dtype=np.int8).reshape(3, 3)
    assert format_tensor(grid, limit=4) == "3x3xi8=[0 1 2][3...]..."
    assert format_tensor(grid, limit=3) == "3x3xi8=[0 1 2]..."


integers = hnp.arrays(
    st.sampled_from([np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint64, np.bool_]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


@given(integers)
def test_a_printed_integer_tensor_reads_back(array: np.ndarray) -> None:
    (again,) = read(format_tensor(array, limit=1000))
    assert_same(again, array)


def test_outputs_go_where_they_are_sent(tmp_path: Path) -> None:
    arrays = [np.arange(n, dtype=np.float32) for n in (1, 2, 3)]
    npy, raw = tmp_path / "y.npy", tmp_path / "y.bin"
    lines = write_outputs(arrays, ["-", f"@{npy}", ""])
    assert lines == ["result[0]: hal.buffer_view", "1xf32=0"]
    write_outputs(arrays, [f"+{npy}", "", f"@{raw}"])
    assert [len(a) for a in read(f"*{npy}")] == [2, 1]
    assert raw.read_bytes() == arrays[2].tobytes()
    write_outputs(arrays[:1], [f"+{raw}"])
    assert len(raw.read_bytes()) == 16


def test_without_output_options_every_result_is_printed() -> None:
    lines = write_outputs([np.zeros(2, np.int8), np.array(3, np.int8)], [])
    assert lines == [
        "result[0]: hal.buffer_view",
        "2xi8=0 0",
        "result[1]: hal.buffer_view",
        "i8=3",
    ]


@pytest.mark.parametrize(
    ("outputs", "problem"),
    [
        (["-", "-"], "got 2 --output for 1 results"),
        (["y.npy"], "--output 'y.npy': expected -, @file or +file"),
        (["@missing/y.npy"], "missing: no such folder"),
    ],
)
def test_an_output_that_goes_nowhere_is_an_error(
    outputs: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as caught:
        write_outputs([np.zeros(2, np.float32)], outputs)
    assert problem in str(caught.value)


# --- expected outputs ------------------------------------------------------------------------


def test_equal_and_close_tensors_match() -> None:
    x = np.array([1.0, np.nan, np.inf], np.float32)
    assert compare(0, x, x, rtol=0, atol=0) is None
    assert compare(0, x + np.float32(1e-6), x, rtol=1e-4, atol=0) is None
    assert compare(0, np.zeros(0, np.int8), np.zeros(0, np.int8), rtol=0, atol=0) is None
    half = np.array([1, 2], ml_dtypes.bfloat16)
    assert compare(0, half, half, rtol=0, atol=0) is None


def test_the_first_difference_is_shown() -> None:
    a = np.array([[1, 2], [3, 4]], np.float32)
    b = np.array([[1, 2], [3.5, 5]], np.float32)
    assert compare(2, a, b, rtol=1e-3, atol=0) == (
        "result[2]: 2 of 4 elements differ, first at [1, 0]: got 3, expected 3.5"
    )


def test_other_shapes_and_types_do_not_match() -> None:
    a = np.zeros((2, 3), np.float32)
    assert compare(0, a, a.T, rtol=1, atol=1) == (
        "result[0]: got float32[2, 3], expected float32[3, 2]"
    )
    assert compare(0, a, a.astype(np.float64), rtol=1, atol=1) is not None
