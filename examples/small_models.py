"""The model of the examples: one layer of a transformer, written with `onnx.helper`.

Small enough to compile in seconds, and yet what real models are made of: matmuls with bias, a
softmax over scores, layer normalizations, GELU spelled out in pieces, residual sums.
Called by the numbered examples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 64
HEADS = 4


class Writer:
    """Collects nodes and weights; every method returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(0)

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def weight(self, array: np.ndarray | Sequence[float]) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def constant(self, value: float) -> str:
        return self.weight(np.float32(value))

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        matrix = self.random.standard_normal((inputs, outputs), np.float32) / inputs**0.5
        bias = self.random.standard_normal(outputs, np.float32)
        return self.node(
            "Add", self.node("MatMul", x, self.weight(matrix)), self.weight(bias)
        )

    def norm(self, x: str) -> str:
        scale = self.random.uniform(0.5, 1.5, WIDTH).astype(np.float32)
        bias = self.random.standard_normal(WIDTH, np.float32)
        return self.node("LayerNormalization", x, self.weight(scale), self.weight(bias))

    def heads(self, x: str, perm: Sequence[int]) -> str:
        shape = self.weight(np.array([0, 0, HEADS, WIDTH // HEADS]))
        return self.node("Transpose", self.node("Reshape", x, shape), perm=perm)

    def gelu(self, x: str) -> str:
        """As torch exports it: x / sqrt(2), erf, + 1, * x, * 0.5."""
        inner = self.node("Erf", self.node("Div", x, self.constant(2**0.5)))
        product = self.node("Mul", x, self.node("Add", inner, self.constant(1.0)))
        return self.node("Mul", product, self.constant(0.5))


def encoder_layer() -> onnx.ModelProto:
    """x: f32[batch, tokens, 64] → the same shape; both leading sizes are dynamic."""
    w = Writer()
    normed = w.norm("x")
    q, k, v = (w.dense(normed, WIDTH, WIDTH) for _ in range(3))
    keys, values = w.heads(k, [0, 2, 3, 1]), w.heads(v, [0, 2, 1, 3])
    scores = w.node("MatMul", w.heads(q, [0, 2, 1, 3]), keys)
    scaled = w.node("Div", scores, w.constant((WIDTH // HEADS) ** 0.5))
    mixed = w.node("MatMul", w.node("Softmax", scaled, axis=-1), values)
    joined = w.node("Transpose", mixed, perm=[0, 2, 1, 3])
    flat = w.node("Reshape", joined, w.weight(np.array([0, 0, WIDTH])))
    middle = w.node("Add", "x", w.dense(flat, WIDTH, WIDTH))
    hidden = w.gelu(w.dense(w.norm(middle), WIDTH, 4 * WIDTH))
    w.nodes.append(
        helper.make_node("Add", [middle, w.dense(hidden, 4 * WIDTH, WIDTH)], ["y"])
    )
    shape = ["batch", "tokens", WIDTH]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in ("x", "y")]
    graph = helper.make_graph(w.nodes, "encoder_layer", ends[:1], ends[1:], w.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
