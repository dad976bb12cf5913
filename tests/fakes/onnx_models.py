"""Small ONNX models written in ONNX's text form, for tests of everything above the front end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate


def parse(body: str, *, opset: int = 21, ir_version: int = 10) -> onnx.ModelProto:
    """A model from `graph (float[N] x) => (float[N] y) { y = Relu(x) }` and functions after it."""
    head = f'<ir_version: {ir_version}, opset_import: ["" : {opset}, "com.microsoft" : 1, "local" : 1]>'
    return onnx.parser.parse_model(head + body)


def one_node(
    op: str,
    arrays: Sequence[np.ndarray | None],
    *,
    outputs: int = 1,
    opset: int = 21,
    domain: str = "",
    constants: Sequence[int] = (),
    **attributes: object,
) -> onnx.ModelProto:
    """A model of one node; the operands whose places are in `constants` become initializers."""
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(arrays)]
    node = helper.make_node(
        op, names, [f"y{i}" for i in range(outputs)], domain=domain, **attributes
    )
    present = [
        (i, n, a)
        for i, (n, a) in enumerate(zip(names, arrays, strict=True))
        if a is not None
    ]
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(
                n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape
            )
            for i, n, a in present
            if i not in constants
        ],
        [helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)],
        [numpy_helper.from_array(a, n) for i, n, a in present if i in constants],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def run_node(
    op: str, arrays: Sequence[np.ndarray | None], **options: object
) -> list[np.ndarray]:
    """What one node computes, through import and the graph evaluator."""
    model = one_node(op, arrays, **options)
    graph = load(model)
    constants = options.get("constants", ())
    feeds = [a for i, a in enumerate(arrays) if a is not None and i not in constants]
    return evaluate(graph, feeds)


FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64
