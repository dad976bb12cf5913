"""Pools that stop at a mask, beside onnxruntime's CPU kernel."""

import numpy as np
import pytest

from fakes.contributed import agrees, ours
from tilewright.base.errors import ModelError

RNG = np.random.default_rng(31)


def _mask(*shape: int) -> np.ndarray:
    return RNG.integers(-1, 2, shape).astype(np.int32)


@pytest.mark.parametrize("mask", ["111111111", "000000000", "011011101", "110100011"])
@pytest.mark.parametrize("pads", [[0, 0], [2, 1]])
def test_a_window_of_one_axis_ends_at_the_mask(mask: str, pads: list[int]) -> None:
    x = RNG.standard_normal((1, 1, 9)).astype(np.float32)
    held = np.array([*map(int, mask)], np.int32)[None, None]
    agrees("MaxpoolWithMask", [x, held], kernel_shape=[3], strides=[2], pads=pads)


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (1, 2, 4, 4, 6), (1, 1, 2, 2)])
def test_each_row_of_a_window_ends_by_itself(shape: tuple[int, ...]) -> None:
    x, rank = RNG.standard_normal(shape).astype(np.float32), len(shape) - 2
    options = {
        "kernel_shape": [2] * rank,
        "strides": [1, 2, 1][:rank],
        "pads": [1] * rank + [0] * rank,
    }
    mask = _mask(1, 1, *shape[2:])
    agrees("MaxpoolWithMask", [x, mask], **options)
    agrees("MaxpoolWithMask", [x, mask], auto_pad="SAME_UPPER", kernel_shape=[2] * rank)


def test_what_is_no_number_is_passed_over() -> None:
    x = np.array([np.nan, 1, -np.inf, np.inf, np.nan, np.nan], np.float32)[None, None]
    mask = np.ones(x.shape, np.int32)
    agrees("MaxpoolWithMask", [x, mask], kernel_shape=[2], strides=[1], pads=[0, 0])


def test_masks_of_other_shapes_are_errors() -> None:
    x = np.zeros((2, 3, 5), np.float32)
    with pytest.raises(ModelError, match="mask i32"):
        ours("MaxpoolWithMask", [x, _mask(2, 5)], kernel_shape=[2])
    with pytest.raises(ModelError, match="a mask for each channel"):
        ours("MaxpoolWithMask", [x, _mask(2, 3, 5)], kernel_shape=[2])
