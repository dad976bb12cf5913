"""Arrays become tensors and come back, of every type, with their memory where it can be shared."""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np
import pytest

from tilewright.runtime.packed.tensors import array_of, tensor_of

TYPES = (np.float32, np.int64, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_an_array_comes_back_as_it_was(dtype: type, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, dtype)
    tensor = tensor_of(array)
    assert tuple(tensor.shape) == shape
    again = array_of(tensor)
    assert again.dtype == array.dtype
    assert np.array_equal(again, array)


def test_a_tensor_shares_and_keeps_the_memory() -> None:
    array = np.zeros(4, ml_dtypes.bfloat16)
    tensor = tensor_of(array)
    array[1] = 2
    assert array_of(tensor)[1] == 2
    del array
    gc.collect()
    assert array_of(tensor)[1] == 2


def test_an_array_that_is_read_only_is_refused() -> None:
    array = np.zeros(4, ml_dtypes.bfloat16)
    array.flags.writeable = False
    with pytest.raises((BufferError, TypeError, RuntimeError)):
        tensor_of(array)
