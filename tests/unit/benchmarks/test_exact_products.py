"""Reference outputs of quantized models are what ONNX defines, on processors whose products saturate, too."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from exact_products import with_unsigned_weights

DEPTH, COLUMNS = 37, 5


def product(weights: np.ndarray, zero: np.ndarray | None) -> onnx.ModelProto:
    """A product of unsigned activations [3, DEPTH] and known weights."""
    known = {"w": weights} | ({} if zero is None else {"w_zero": zero})
    inputs = ["x", "w"] if zero is None else ["x", "w", "", "w_zero"]
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", inputs, ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [3, DEPTH])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [3, COLUMNS])],
        [numpy_helper.from_array(array, name) for name, array in known.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    return model


@pytest.mark.parametrize(
    "zero", [None, np.array(-3, np.int8), np.array([0, 1, -128, 127, 5], np.int8)]
)
def test_weights_moved_up_are_the_same_weights(zero: np.ndarray | None) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    weights = np.full((DEPTH, COLUMNS), 127, np.int8)
    weights[1::7] = -128
    x = np.full((3, DEPTH), 255, np.uint8)
    moved = with_unsigned_weights(product(weights, zero))
    session = onnxruntime.InferenceSession(
        moved.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    shift = 0 if zero is None else zero.astype(np.int32)
    want = x.astype(np.int32) @ (weights.astype(np.int32) - shift)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], want)
    kinds = {
        tensor.data_type for tensor in moved.graph.initializer if "unsigned" in tensor.name
    }
    assert kinds == {TensorProto.UINT8}


def test_unsigned_weights_and_other_operators_stay() -> None:
    model = product(np.ones((DEPTH, COLUMNS), np.uint8), np.array(1, np.uint8))
    assert with_unsigned_weights(model).graph == model.graph
