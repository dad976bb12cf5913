"""Convolutions in Winograd's domain as machine code: how many digits they lose, beside the direct sum."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from fakes.onnx_models import one_node
from tilewright.transform import PassContext

CHANNELS = 128


def convolution(size: int, filters: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An image, filters of 3 x 3, and the convolution with a border of zeros in f64."""
    random = np.random.default_rng(size)
    x = random.standard_normal((1, CHANNELS, size, size)).astype(np.float32)
    w = random.standard_normal((filters, CHANNELS, 3, 3)).astype(np.float32)
    wide = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (1, 1), (1, 1)])
    expected = np.zeros((1, filters, size, size))
    for i in range(3):
        for j in range(3):
            cut = wide[0, :, i : i + size, j : j + size]
            expected[0] += np.einsum("chw,fc->fhw", cut, w[:, :, i, j].astype(np.float64))
    return x, w, expected


@pytest.mark.parametrize("size", [29, pytest.param(56, marks=pytest.mark.slow)])
def test_few_digits_are_lost_beside_the_direct_sum(size: int) -> None:
    """As docs/numerics.md says; errors relative to the largest result."""
    x, w, expected = convolution(size, 67)
    model = one_node("Conv", [x, w], constants=[1], pads=[1, 1, 1, 1])
    found: list[float] = []
    for disabled in (["winograd-convolution"], []):
        with PassContext(disabled_pass=disabled):
            compiled = tilewright.compile(model, threads=1, target="x86_64-v3")
        names = {kernel.name for kernel in compiled.kernels}
        assert any("winograd" in name for name in names) is not bool(disabled), names
        found.append(float(np.abs(compiled(x) - expected).max() / np.abs(expected).max()))
    direct, winograd = found
    assert direct < 2e-6
    assert winograd < 4 * direct
