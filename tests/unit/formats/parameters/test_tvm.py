"""TVM's parameter files: what TVM wrote is read, and what is written are TVM's bytes."""

from __future__ import annotations

import io
import struct

import ml_dtypes
import numpy as np
import pytest

from tilewright.base.errors import ArchiveError, UserError
from tilewright.formats.parameters import StoredEntry, read_parameters, write_tvm_params

# apache-tvm 0.27: save_param_dict({"w": arange(6, float32).reshape(2, 3), "b": int64 3, "e": float16 of 0x4})
MADE_BY_TVM = bytes.fromhex(
    "b79c04054f8de5f70000000000000000030000000000000001000000000000007701000000000000"
    "006201000000000000006503000000000000003fa1b496f0405edd00000000000000000100000000"
    "00000002000000022001000200000000000000030000000000000018000000000000000000000000"
    "00803f0000004000004040000080400000a0403fa1b496f0405edd00000000000000000100000000"
    "0000000000000000400100080000000000000003000000000000003fa1b496f0405edd0000000000"
    "00000001000000000000000200000002100100000000000000000004000000000000000000000000"
    "000000"
)
ARRAYS = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.array(3, dtype=np.int64),
    "e": np.zeros((0, 4), np.float16),
}
FIRST_TENSOR = MADE_BY_TVM.index(struct.pack("<Q", 0xDD5E40F096B4A13F))


def written(arrays: dict[str, np.ndarray]) -> bytes:
    file = io.BytesIO()
    write_tvm_params(file, arrays)
    return file.getvalue()


def changed(offset: int, layout: str, value: int) -> bytes:
    data = bytearray(MADE_BY_TVM)
    struct.pack_into(layout, data, offset, value)
    return bytes(data)


def test_what_tvm_wrote_is_read_in_place() -> None:
    index = read_parameters(MADE_BY_TVM)
    assert index.format == "params"
    assert list(index.entries) == list(ARRAYS)
    for name, array in ARRAYS.items():
        entry = index.entries[name]
        assert isinstance(entry, StoredEntry)
        assert (entry.element_type, entry.shape) == (array.dtype.name, array.shape)
        assert bytes(index.bytes_of(entry)) == array.tobytes()


def test_the_bytes_are_those_of_tvm() -> None:
    assert written(ARRAYS) == MADE_BY_TVM


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (np.bool_, "bool"),
        (np.uint8, "uint8"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (ml_dtypes.float8_e4m3fn, "float8_e4m3fn"),
        (ml_dtypes.float8_e5m2, "float8_e5m2"),
        (ml_dtypes.int4, "int4"),
    ],
)
def test_types_have_the_names_of_tvm(dtype: type, name: str) -> None:
    array = np.arange(3).astype(dtype)
    index = read_parameters(written({"x": array}))
    entry = index.entries["x"]
    assert isinstance(entry, StoredEntry)
    assert (entry.element_type, entry.length) == (name, array.nbytes)


def test_arrays_in_any_order_of_memory_are_written_as_they_read() -> None:
    array = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    assert written({"x": array.T[::-1]}) == written({"x": array.T[::-1].copy()})
    assert list(read_parameters(written({})).entries) == []


def test_a_type_without_a_row_is_refused() -> None:
    with pytest.raises(UserError, match="complex64"):
        written({"x": np.zeros(3, np.complex64)})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (changed(16, "<Q", 1 << 60), "list of names of"),
        (changed(16, "<Q", 2), "tensors for 2 names"),
        (changed(24, "<Q", 1 << 62), "name of a parameter at byte"),
        (changed(FIRST_TENSOR, "<Q", 5), "'w': no tensor at byte"),
        (changed(FIRST_TENSOR + 24, "<i", -1), "rank -1"),
        (changed(FIRST_TENSOR + 24, "<i", 65), "rank 65"),
        (changed(FIRST_TENSOR + 28, "<B", 99), "unknown data type .code 99"),
        (changed(FIRST_TENSOR + 30, "<H", 0), "0 lanes"),
        (changed(FIRST_TENSOR + 30, "<H", 2), "24 bytes for float32x2.2, 3., expected 48"),
        (changed(FIRST_TENSOR + 32, "<q", -2), "shape .-2, 3."),
        (changed(FIRST_TENSOR + 32, "<q", 1 << 62), "24 bytes for float32"),
        (changed(FIRST_TENSOR + 48, "<q", 25), "25 bytes for float32"),
        (MADE_BY_TVM[:-1], "needs 8 bytes"),
        (
            MADE_BY_TVM.replace(b"\x01\0\0\0\0\0\0\0b", b"\x01\0\0\0\0\0\0\0w"),
            "'w' stands twice",
        ),
    ],
)
def test_damaged_files_are_refused_with_the_place(data: bytes, message: str) -> None:
    with pytest.raises(ArchiveError, match=message) as caught:
        read_parameters(data, "w.params")
    assert str(caught.value).startswith("w.params")


def test_a_shape_beyond_all_numbers_is_refused() -> None:
    sizes = struct.pack("<64q", *[2**62] * 64)
    head = MADE_BY_TVM[: FIRST_TENSOR + 24] + struct.pack("<iBBH", 64, 2, 32, 1)
    with pytest.raises(ArchiveError, match="0 bytes for float32"):
        read_parameters(head + sizes + bytes(8))
