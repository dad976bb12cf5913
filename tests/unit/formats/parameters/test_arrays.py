"""Tensors of parameter files as arrays."""

from __future__ import annotations

import io

import ml_dtypes
import numpy as np
import pytest

from fakes import parameter_files
from tilewright.base.errors import ArchiveError
from tilewright.formats.parameters import SplatEntry, read_arrays, write_tvm_params

ARRAYS = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "b": np.ones(3, ml_dtypes.bfloat16),
    "i": np.array(7, np.int64),
    "empty": np.zeros((0, 4), np.uint8),
}


def test_what_is_written_for_tvm_comes_back() -> None:
    file = io.BytesIO()
    write_tvm_params(file, ARRAYS)
    found = read_arrays(file.getvalue())
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_safetensors_are_read() -> None:
    data = parameter_files.safetensors(
        {"a": ARRAYS["w"], "h": ARRAYS["b"]}, {"a": "F32", "h": "BF16"}
    )
    found = read_arrays(data)
    np.testing.assert_array_equal(found["a"].ravel(), ARRAYS["w"].ravel())
    assert found["h"].dtype == ml_dtypes.bfloat16


def test_what_is_no_tensor_is_refused_by_name() -> None:
    splat = parameter_files.irpa({}, [SplatEntry("s", 64, bytes(16))])
    with pytest.raises(ArchiveError, match="parameter 's': is a pattern"):
        read_arrays(splat)
    with pytest.raises(ArchiveError, match="parameter 'a': is of type ''"):
        read_arrays(parameter_files.irpa({"a": ARRAYS["w"]}, []))
