"""Small ONNX models for tests of sessions, the API and the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

_HEAD = '<ir_version: 10, opset_import: ["" : 21]>'


def scale_and_shift() -> onnx.ModelProto:
    """Two inputs, two outputs, dynamic batch: y = relu(x * scale + 1), z = x transposed."""
    return onnx.parser.parse_model(
        _HEAD
        + """
        model (float[batch,3] x, float[3] scale) => (float[batch,3] y, float[3,batch] z) {
            one = Constant <value = float {1.0}> ()
            scaled = Mul (x, scale)
            shifted = Add (scaled, one)
            y = Relu (shifted)
            z = Transpose <perm = [1, 0]> (x)
        }
    """
    )


def scale_and_shift_reference(x: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, ...]:
    return np.maximum(x * scale + np.float32(1), 0), x.T


def mlp(batch: int | str = 5, seed: int = 0) -> onnx.ModelProto:
    """One input, two dense layers with weights; static unless `batch` is a name."""
    random = np.random.default_rng(seed)
    weights = {
        "w1": random.standard_normal((20, 33), np.float32),
        "b1": random.standard_normal(33, np.float32),
        "w2": random.standard_normal((33, 7), np.float32),
    }
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w1"], ["h1"]),
            helper.make_node("Add", ["h1", "b1"], ["h2"]),
            helper.make_node("Relu", ["h2"], ["h3"]),
            helper.make_node("MatMul", ["h3", "w2"], ["h4"]),
            helper.make_node("Softmax", ["h4"], ["y"], axis=-1),
        ],
        "mlp",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [batch, 20])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [batch, 7])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )


def with_host_op() -> onnx.ModelProto:
    """Counts of words have no kernel: they run on the host between two that have."""
    return onnx.parser.parse_model(
        _HEAD
        + """
        model (float[2,5] x) => (float[2,3] y) {
            r = Relu (x)
            i = Cast <to = 7> (r)
            d = TfIdfVectorizer <mode = "TF", min_gram_length = 1, max_gram_length = 1, max_skip_count = 0,
                ngram_counts = [0], ngram_indexes = [0, 1, 2], pool_int64s = [1, 2, 3]> (i)
            y = Neg (d)
        }
    """
    )


def save(model: onnx.ModelProto, path: Path) -> Path:
    onnx.save(model, path)
    return path
