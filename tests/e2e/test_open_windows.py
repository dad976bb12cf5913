"""Windows of open sizes between sums and products that could stand in the memory of their operands."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import helper

import tilewright

Image = npt.NDArray[np.float64]
WINDOW = {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1]}
HEIGHTS, WIDTHS = (0, 1, 3, 4, 5, 9), (0, 1, 7, 8, 9, 17)
"""None, less than a tile, a tile, and some that a tile does not divide."""


def residual_poolings() -> onnx.ModelProto:
    """Each pooling is added to, or multiplied by, what it has read or what is as large: no value is needed afterwards."""
    node = helper.make_node
    nodes = [
        node("Exp", ["x"], ["e"]),
        node("MaxPool", ["e"], ["largest"], **WINDOW),
        node("Add", ["largest", "e"], ["s"]),
        node("AveragePool", ["s"], ["mean"], count_include_pad=1, **WINDOW),
        node("Softmax", ["x"], ["z"], axis=-1),
        node("Add", ["mean", "z"], ["t"]),
        node("Relu", ["t"], ["u"]),
        node("MaxPool", ["u"], ["v"], **WINDOW),
        node("Mul", ["v", "t"], ["r"]),
        node("MaxPool", ["r"], ["y"], **WINDOW),
    ]
    shape = ["N", 3, "H", "W"]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)]
        for name in "xy"
    )
    graph = helper.make_graph(nodes, "residual poolings", inputs, outputs)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )


def windows(x: Image, outside: float, reduce: Callable[..., Image]) -> Image:
    height, width = x.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=outside)
    places = itertools.product(range(3), repeat=2)
    taps = [padded[:, :, i : i + height, j : j + width] for i, j in places]
    return reduce(np.stack(taps), axis=0)


def expected(x: Image) -> Image:
    e = np.exp(x)
    s = windows(e, -np.inf, np.max) + e
    t = windows(s, 0, np.sum) / 9 + e / e.sum(-1, keepdims=True)
    r = windows(np.maximum(t, 0), -np.inf, np.max) * t
    return windows(r, -np.inf, np.max)


@pytest.mark.slow
def test_what_tiles_make_twice_is_the_same_in_every_memory_and_on_every_thread() -> None:
    alone, together = (
        tilewright.compile(residual_poolings(), threads=threads, jobs=1)
        for threads in (1, 2)
    )
    for height, width in itertools.product(HEIGHTS, WIDTHS):
        x = np.random.default_rng(7).standard_normal((2, 3, height, width), np.float32)
        before = x.copy()
        y = np.asarray(alone(x))
        wide = expected(x.astype(np.float64))
        np.testing.assert_allclose(y, wide, rtol=3e-5, atol=1e-5)
        np.testing.assert_array_equal(y, np.asarray(together(x)))
        np.testing.assert_array_equal(x, before)
