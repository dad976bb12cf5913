"""The weights of attention: powers beside 1, none of them denormal."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.loop_nests import op_kernel
from tilewright.base.dtypes import DType, f32, f64
from tilewright.compiler.kernel.evaluator import evaluate

QUERIES, KEYS = (1, 1, 3, 2), (1, 1, 2, 2)
BIAS = (1, 1, 1, 2)


def second_of_two(mask: float, dtype: DType) -> np.ndarray:
    """What two keys weigh of which the second is masked: rows of (first, second)."""
    kernel = op_kernel("attention", [QUERIES, KEYS, KEYS, BIAS], QUERIES, dtype=dtype)
    zero, y = np.zeros(QUERIES, dtype.numpy), np.ones(QUERIES, dtype.numpy)
    values = np.eye(2, dtype=dtype.numpy).reshape(KEYS)
    # A denormal weight would be seen beside a number as large as this one.
    values[..., 1, 1] = np.finfo(dtype.numpy).max / 4
    bias = np.array([0, mask], dtype.numpy).reshape(BIAS)
    evaluate(kernel, [zero, zero[..., :2, :], values, bias, y])
    return y.reshape(-1, 2)


@pytest.mark.parametrize(("dtype", "least"), [(f32, -87.336), (f64, -708.395)], ids=str)
def test_a_weight_is_normal_or_nothing(dtype: DType, least: float) -> None:
    for mask in (least, least / 2, -1.0):
        weight = second_of_two(mask, dtype)[:, 1] / (np.finfo(dtype.numpy).max / 4)
        wanted = np.exp(mask) / (1 + np.exp(mask))
        np.testing.assert_allclose(weight, wanted, rtol=1e-4 * abs(mask))
    for mask in (least - 1, least - 12, -1e30, -np.inf):
        weights = second_of_two(mask, dtype)
        np.testing.assert_array_equal(weights, [[1, 0]] * 3)


@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_nan_is_a_weight_of_all(dtype: DType) -> None:
    assert np.isnan(second_of_two(np.nan, dtype)).all()
