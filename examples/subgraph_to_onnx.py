"""A subgraph of a few ops as an ONNX model, for the example of a code generator."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper, numpy_helper

from tilewright import byoc

# Our ops and ONNX's where they mean the same.
OPERATORS = {"matmul": "MatMul", "add": "Add", "relu": "Relu", "tanh": "Tanh"}


def to_onnx(graph: byoc.Graph, name: str) -> bytes:
    """The subgraph as an ONNX model; sizes that vary are symbols there, too."""
    names = {value: f"v{i}" for i, value in enumerate(graph.values())}

    def described(value: byoc.Value) -> onnx.ValueInfoProto:
        shape = [d if isinstance(d, int) else str(d) for d in value.type.shape]
        return helper.make_tensor_value_info(names[value], TensorProto.FLOAT, shape)

    nodes, weights = [], []
    for node in graph:
        results = [names[v] for v in node.results]
        array = byoc.constant_of(node.results[0])
        if array is not None:
            weights.append(numpy_helper.from_array(array, results[0]))
        else:
            operands = [names[v] for v in node.present_operands]
            nodes.append(helper.make_node(OPERATORS[node.op], operands, results))
    inputs, outputs = map(described, graph.inputs), map(described, graph.outputs)
    body = helper.make_graph(nodes, name, list(inputs), list(outputs), weights)
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(body, opset_imports=opset, ir_version=8).SerializeToString()
