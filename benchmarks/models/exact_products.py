"""Quantized models in other words, of which onnxruntime computes every product of bytes exactly.

Where the processor has no dot products of bytes, onnxruntime multiplies unsigned by signed bytes with `vpmaddubsw`,
whose sums of two products saturate at 16 bits: its result is then not what ONNX defines.  Unsigned by unsigned bytes
it extends first.  Weights and their zero points moved up by 128 are the same weights.

What it is: the rewriting of a model, for reference outputs.
What it is not: a way to run models; the ones that are timed stay as they are.
Who calls it: ``quantize.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import onnx
from onnx import numpy_helper

WEIGHTS: Final = {
    "MatMulInteger": (1, 3),
    "ConvInteger": (1, 3),
    "QLinearMatMul": (3, 5),
    "QLinearConv": (3, 5),
    "QGemm": (3, 5),
}
"""By the operator, which inputs are its weights and their zero point."""
MIDDLE: Final = 128


def with_unsigned_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model whose known signed weights of products are unsigned bytes around another zero point."""
    moved = onnx.ModelProto()
    moved.CopyFrom(model)
    known = {tensor.name: tensor for tensor in model.graph.initializer}
    added: dict[str, np.ndarray] = {}
    for node in moved.graph.node:
        for place in _signed_weights(node, known):
            name = node.input[place]
            node.input[place] = f"{name}/unsigned"
            array = numpy_helper.to_array(known[name]) if name else np.zeros((), np.int8)
            added[node.input[place]] = (array.astype(np.int16) + MIDDLE).astype(np.uint8)
    moved.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in added.items()
    )
    return moved


def _signed_weights(
    node: onnx.NodeProto, known: dict[str, onnx.TensorProto]
) -> Iterator[int]:
    """The places of a node's signed weights and zero point, where both are known; a missing one gets its place."""
    if node.op_type not in WEIGHTS:
        return
    weights, zero = WEIGHTS[node.op_type]
    name = node.input[weights]
    if name not in known or known[name].data_type != onnx.TensorProto.INT8:
        return
    node.input.extend([""] * (zero + 1 - len(node.input)))
    if not node.input[zero] or node.input[zero] in known:
        yield from (weights, zero)
