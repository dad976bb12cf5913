"""Callables that take numpy arrays: of every type, over the caller's memory, borrowed or not."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.runtime.packed.array_function import array_function
from tilewright.runtime.packed.tensor_call import bind_tensors


@pytest.mark.parametrize(
    "dtype", [np.float32, np.int64, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]
)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4)])
def test_arrays_are_over_the_memory_of_the_caller(
    dtype: Any, shape: tuple[int, ...]
) -> None:
    x, y = np.ones(shape, dtype), np.zeros(shape, dtype)
    seen: list[Any] = []

    def copy(source: np.ndarray, target: np.ndarray) -> None:
        seen.append((source.dtype, source.shape))
        target[...] = source

    type_ = (dtypes.from_numpy(x.dtype), shape)
    bind_tensors(array_function(copy), [type_, type_], "here")(
        x.reshape(-1).view(np.uint8).data, y.reshape(-1).view(np.uint8).data
    )
    assert seen == [(x.dtype, shape)]
    np.testing.assert_array_equal(y, x)


def test_arrays_passed_from_python_arrive_too() -> None:
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)

    def double(source: np.ndarray, target: np.ndarray) -> None:
        target[...] = 2 * source

    array_function(double)(x, y)
    np.testing.assert_array_equal(y, 2 * x)
