"""Hundreds of operators one after the other, and sizes of many terms: deeper than a call stack of Python, and no search."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from fakes.c_kernel import needs_cc

X = np.linspace(-2, 2, 21, dtype=np.float32).reshape(3, 7)


def chain(op: str, count: int) -> onnx.ModelProto:
    nodes = [helper.make_node(op, [f"x{i}"], [f"x{i + 1}"]) for i in range(count)]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [3, "n"])],
        [helper.make_tensor_value_info(f"x{count}", TensorProto.FLOAT, [3, "n"])],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.thinned(8)
@pytest.mark.parametrize(
    ("op", "count"),
    [("Tanh", 63), ("Tanh", 300), pytest.param("Sin", 64, marks=pytest.mark.nightly)],
)
@pytest.mark.parametrize("target", ["host", pytest.param("c host", marks=needs_cc)])
def test_long_chains_compile(op: str, count: int, target: str) -> None:
    want = X.astype(np.float64)
    for _ in range(count):
        want = np.tanh(want) if op == "Tanh" else np.sin(want)
    (y,) = tw.compile(chain(op, count), target=target).run({"x0": X}).values()
    np.testing.assert_allclose(y, want, rtol=1e-4)


def between_bytes(count: int) -> onnx.ModelProto:
    """`count` sums and tangents between `DequantizeLinear` and `QuantizeLinear`."""
    nodes = [helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["x0"])]
    for i in range(count):
        nodes.append(helper.make_node("Add", [f"x{i}", "half"], [f"s{i}"]))
        nodes.append(helper.make_node("Tanh", [f"s{i}"], [f"x{i + 1}"]))
    nodes.append(helper.make_node("QuantizeLinear", [f"x{count}", "scale", "zero"], ["y"]))
    held = [
        numpy_helper.from_array(np.float32(0.0078), "scale"),
        numpy_helper.from_array(np.uint8(127), "zero"),
        numpy_helper.from_array(np.float32(-0.5), "half"),
    ]
    graph = helper.make_graph(
        nodes, "chain",
        [helper.make_tensor_value_info("q", TensorProto.UINT8, ["n", 7])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, ["n", 7])], held,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.slow
def test_long_chains_between_bytes_compile() -> None:
    q = np.resize(np.arange(256, dtype=np.uint8), (37, 7))
    want = (q.astype(np.float64) - 127) * np.float32(0.0078)
    for _ in range(200):
        want = np.tanh(want - 0.5)
    want = np.clip(np.rint(want / np.float32(0.0078)) + 127, 0, 255)
    (y,) = tw.compile(between_bytes(200)).run({"q": q}).values()
    assert np.abs(y.astype(int) - want).max() <= 1


def pyramid(levels: int) -> onnx.ModelProto:
    """A signal of open length, and what is left of it halved and doubled again, side by side."""
    nodes, held = [], []
    for i in range(levels):
        nodes.append(
            helper.make_node(
                "MaxPool", [f"x{i}"], [f"x{i + 1}"], kernel_shape=[2], strides=[2]
            )
        )
        sizes = np.float32([1, 1, 2 ** (i + 1)])
        held.append(numpy_helper.from_array(sizes, f"scale{i}"))
        nodes.append(
            helper.make_node(
                "Resize", [f"x{i + 1}", "", f"scale{i}"], [f"wide{i}"], mode="nearest",
                coordinate_transformation_mode="asymmetric", nearest_mode="floor",
            )
        )  # fmt: skip
    parts = ["x0", *(f"wide{i}" for i in range(levels))]
    nodes.append(helper.make_node("Concat", parts, ["all"], axis=2))
    nodes.append(helper.make_node("Relu", ["all"], ["y"]))
    graph = helper.make_graph(
        nodes, "pyramid",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [1, 3, "n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, "m"])], held,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


@pytest.mark.slow
def test_pyramids_of_an_open_length_compile() -> None:
    """The length of the result has seven terms: one more made the compilation take ten times as long."""
    program = tw.compile(pyramid(6))
    for size in (64, 65, 127, 1000):
        x = np.random.default_rng(size).normal(size=(1, 3, size)).astype(np.float32)
        parts, low = [x], x
        for i in range(6):
            low = low[..., : low.shape[2] // 2 * 2].reshape(1, 3, -1, 2).max(3)
            parts.append(low.repeat(2 ** (i + 1), 2))
        (y,) = program.run({"x0": x}).values()
        np.testing.assert_array_equal(y, np.maximum(np.concatenate(parts, 2), 0))
