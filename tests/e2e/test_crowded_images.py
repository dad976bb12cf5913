"""Convolutions of images whose places would meet in one set of a cache, as machine code."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from fakes.onnx_models import one_node


def direct(x: np.ndarray, w: np.ndarray, step: int, groups: int, pad: int) -> np.ndarray:
    """The sum of products in f64."""
    wide = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    filters, own, *taps = w.shape
    rows, columns = ((n - t) // step + 1 for n, t in zip(wide.shape[2:], taps, strict=True))
    found = np.zeros((len(x), groups, filters // groups, rows, columns))
    for i, j in np.ndindex(*taps):
        cut = wide[:, :, i : i + rows * step : step, j : j + columns * step : step]
        cut = cut[:, :, :rows, :columns].reshape(len(x), groups, own, rows, columns)
        own_taps = w[:, :, i, j].astype(np.float64).reshape(groups, -1, own)
        found += np.einsum("ngchw,gfc->ngfhw", cut, own_taps, optimize=True)
    return found.reshape(len(x), filters, rows, columns)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("shape", "filters", "taps", "step", "groups", "pad"),
    [
        ((1, 512, 9, 11), 40, 3, 2, 1, 1),
        ((3, 512, 7, 8), 48, 3, 2, 4, 1),
        ((2, 512, 9, 13), 300, 1, 2, 1, 0),
        ((1, 1024, 8, 8), 272, 2, 1, 1, 0),
        ((1, 512, 1, 1), 16, 3, 2, 1, 1),
        ((0, 512, 5, 5), 16, 3, 2, 1, 1),
    ],
)
def test_sums_are_those_of_the_direct_form(
    shape: tuple[int, int, int, int],
    filters: int,
    taps: int,
    step: int,
    groups: int,
    pad: int,
) -> None:
    random = np.random.default_rng(taps)
    x = random.standard_normal(shape).astype(np.float32)
    kernel = (filters, shape[1] // groups, taps, taps)
    w = random.standard_normal(kernel).astype(np.float32)
    model = one_node(
        "Conv", [x, w], constants=[1], strides=[step] * 2, group=groups, pads=[pad] * 4
    )
    compiled = tilewright.compile(model, threads=1)
    expected = direct(x, w, step, groups, pad)
    limit = 1e-5 * np.abs(expected).max(initial=1)
    np.testing.assert_allclose(compiled(x), expected, rtol=0, atol=limit)
