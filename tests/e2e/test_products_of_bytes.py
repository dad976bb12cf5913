"""Sums of products of bytes are exact whatever instruction a machine has for them.

The oracle is numpy in 64-bit integers.  Machines without a product of bytes multiply pairs of 16-bit numbers, and
whatever saturates on the way would be seen here: operands are the largest and the least that there are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tilewright as tw
from fakes import onnx_models
from tilewright.base.target import Target

LEVELS = ("v3", "host", *(pytest.param(x, marks=pytest.mark.slow) for x in ("v2", "v4")))
RNG = np.random.default_rng(23)
ENDS = {"uint8": (0, 255), "int8": (-128, 127)}

pytestmark = pytest.mark.skipif(
    Target.host().arch != "x86_64", reason="levels are those of x86-64"
)


def numbers(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Half of them as large as can be."""
    least, most = ENDS[dtype]
    every = RNG.integers(least, most + 1, shape)
    ends = np.where(RNG.integers(0, 2, shape), least, most)
    return np.where(RNG.integers(0, 2, shape), ends, every).astype(dtype)


def model_of(body: str, w: np.ndarray) -> onnx.ModelProto:
    proto = onnx_models.parse(body)
    proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
    return proto


def product(
    rows: int, depth: int, columns: int, left: str
) -> tuple[onnx.ModelProto, np.ndarray, np.ndarray]:
    x, w = numbers(left, (rows, depth)), numbers("int8", (depth, columns))
    body = f"""graph ({left}[{rows}, {depth}] x) => (int32[{rows}, {columns}] y) {{ y = MatMulInteger(x, w) }}"""
    return model_of(body, w), x, x.astype(np.int64) @ w.astype(np.int64)


def convolution(
    channels: int, filters: int, groups: int
) -> tuple[onnx.ModelProto, np.ndarray, np.ndarray]:
    """3x3, stride 2, of a 7x9 image without padding."""
    x = numbers("uint8", (1, channels, 7, 9))
    w = numbers("int8", (filters, channels // groups, 3, 3))
    body = f"""graph (uint8[1, {channels}, 7, 9] x) => (int32[1, {filters}, 3, 4] y) {{
      y = ConvInteger<strides = [2, 2], group = {groups}>(x, w)
    }}"""
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))[:, :, ::2, ::2]
    each = windows.astype(np.int64).reshape(1, groups, channels // groups, 3, 4, 3, 3)
    by_group = w.astype(np.int64).reshape(
        groups, filters // groups, channels // groups, 3, 3
    )
    sums = np.einsum("bgchwij,gfcij->bgfhw", each, by_group)
    return model_of(body, w), x, sums.reshape(1, filters, 3, 4)


def images(
    channels: int, filters: int, height: int, width: int
) -> tuple[onnx.ModelProto, np.ndarray, np.ndarray]:
    """3x3 of two padded images, the largest numbers side by side."""
    x = numbers("uint8", (2, channels, height, width))
    x[0] = 255
    w = numbers("int8", (filters, channels, 3, 3))
    w[0], w[1] = -128, 127
    size = f"{height}, {width}"
    body = f"""graph (uint8[2, {channels}, {size}] x) => (int32[2, {filters}, {size}] y)
      <uint8 zero = {{9}}> {{ y = ConvInteger<pads = [1, 1, 1, 1]>(x, w, zero) }}"""
    padded = np.pad(x.astype(np.int64) - 9, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return model_of(body, w), x, np.einsum("bchwij,fcij->bfhw", windows, w.astype(np.int64))


CASES: dict[str, Callable[[], tuple[onnx.ModelProto, np.ndarray, np.ndarray]]] = {
    "13 x 33 of 67": lambda: product(13, 67, 33, "uint8"),
    "signed": lambda: product(7, 64, 40, "int8"),
    "one row": lambda: product(1, 129, 65, "uint8"),
    "one step": lambda: product(5, 1, 17, "uint8"),
    "convolution of 3 channels": lambda: convolution(3, 19, 1),
    "groups of whole words": lambda: convolution(16, 10, 2),
    "groups of half words": lambda: convolution(12, 8, 2),
    "a filter for each group": lambda: convolution(16, 2, 2),
    "a filter for each channel": lambda: convolution(6, 6, 6),
    "stride 1": lambda: images(32, 41, 11, 13),
    "stride 1, tiles of four": lambda: images(64, 64, 30, 29),
    "stride 1, one place": lambda: images(16, 16, 1, 1),
}


@pytest.mark.sampled(3)
@pytest.mark.thinned(13)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", CASES)
def test_sums_are_exact_on_every_level(name: str, level: str) -> None:
    target = Target.host() if level == "host" else Target.level(level)
    if not target.runs_on(Target.host()):
        pytest.skip(f"this machine has less than {level}")
    model, x, expected = CASES[name]()
    result = tw.compile(model, target=target, threads=1)(x)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, expected)


@pytest.mark.slow
def test_bytes_are_pairs_where_there_is_no_product_of_them() -> None:
    model, _, _ = product(13, 67, 33, "uint8")
    for level, name, word in (("v3", "extended", "i16"), ("znver4", "bytes", "i32")):
        graph = tw.compile(model, target=Target.level(level)).compiled.graph
        (node,) = (n for n in graph if n.op == "contract")
        assert node.attributes["product"] == name
        assert str(node.operands[1].type.dtype) == word, (
            "weights stay bytes, side by side in words"
        )


@pytest.mark.slow
def test_convolutions_of_stride_1_multiply_less_where_bytes_are_extended() -> None:
    model, x, expected = images(64, 64, 30, 29)
    compiled = tw.compile(model, target=Target.level("v3"), threads=1)
    assert "winograd_input" in {node.op for node in compiled.compiled.graph}
    np.testing.assert_array_equal(compiled(x), expected)
    direct = tw.compile(model, target=Target.level("znver4"), threads=1)
    assert "winograd_input" not in {node.op for node in direct.compiled.graph}
