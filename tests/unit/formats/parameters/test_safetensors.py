"""Files of safetensors that we write."""

from __future__ import annotations

import io
import json

import ml_dtypes
import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.errors import ArchiveError, UserError
from tilewright.formats.parameters import (
    StoredEntry,
    read_arrays,
    read_parameters,
    write_safetensors,
)

ARRAYS = {
    "odd": np.arange(5, dtype=np.int8),
    "whole lines": np.arange(32, dtype=np.float32).reshape(2, 16),
    "scalar": np.float64(1.5) + np.zeros((), np.float64),
    "half": np.ones((3, 2), ml_dtypes.bfloat16),
    "none": np.zeros((0, 4), np.uint16),
    "turned": np.arange(64, dtype=np.int64).reshape(8, 8).T,
}


def written() -> bytes:
    file = io.BytesIO()
    write_safetensors(file, ARRAYS)
    return file.getvalue()


def test_what_is_written_is_read_again() -> None:
    index = read_parameters(memoryview(written()), "w.safetensors")
    assert index.entries.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        entry = index.entries[name]
        assert isinstance(entry, StoredEntry)
        assert entry.shape == array.shape
        assert bytes(index.bytes_of(entry)) == array.tobytes()


def test_what_fills_whole_cache_lines_is_aligned() -> None:
    index = read_parameters(memoryview(written()), "w.safetensors")
    for name in ("whole lines", "turned"):
        entry = index.entries[name]
        assert isinstance(entry, StoredEntry)
        assert entry.offset % 64 == 0


@pytest.mark.slow  # with transformers comes safetensors
def test_the_package_itself_reads_it() -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    arrays = {name: a for name, a in ARRAYS.items() if name != "half"}
    file = io.BytesIO()
    write_safetensors(file, arrays)
    found = safetensors.load(file.getvalue())
    assert found.keys() == arrays.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, arrays[name])


def test_a_type_without_a_name_is_refused() -> None:
    with pytest.raises(UserError, match="'x' is of type i4"):
        write_safetensors(io.BytesIO(), {"x": np.zeros(2, dtypes.i4.numpy)})


def test_a_size_that_no_number_of_a_machine_is_gets_said() -> None:
    table = {"a": {"dtype": "F32", "shape": [1 << 63] * 60, "data_offsets": [0, 4]}}
    text = json.dumps(table).encode()
    with pytest.raises(ArchiveError, match="4 bytes for F32"):
        read_parameters(len(text).to_bytes(8, "little") + text + bytes(4))


def test_extents_beyond_what_an_array_has_are_refused_though_there_are_no_bytes() -> None:
    table = {"a": {"dtype": "F32", "shape": [1 << 63, 0], "data_offsets": [0, 0]}}
    text = json.dumps(table).encode()
    with pytest.raises(ArchiveError, match="parameter 'a'"):
        read_arrays(len(text).to_bytes(8, "little") + text)


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": %s, "a": %s}',
        b'{"a": %s, "b": %s, "__metadata__": {"a": "1", "a": "2"}}',
    ],
)
def test_a_key_that_stands_twice_is_refused(text: bytes) -> None:
    """The last of them was taken, where other readers take the first."""
    entry = b'{"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}'
    header = text % (entry, entry)
    with pytest.raises(ArchiveError, match="key 'a' stands twice in one object"):
        read_parameters(len(header).to_bytes(8, "little") + header + bytes(4))
