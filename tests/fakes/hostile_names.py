"""A model whose names want to be something else: markup, script, the end of a text, a whole screen."""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

SCRIPT = "</script><script>window.hacked = 1</script>"
IMAGE = "\"><img src=x onerror='window.hacked = 2'>"
TEMPLATE = "$script ${data} {{7*7}} &lt;b&gt; %s"
REVERSED = "abc\u202egnp.exe\u2066"
CONTROL = "bell\x07null\x01escape\x1b[31m"
LONG = "x" * 10_000

NAMES = (SCRIPT, IMAGE, TEMPLATE, REVERSED, CONTROL, LONG)


def hostile_model() -> onnx.ModelProto:
    """Six elementwise chains; every name of a node, an input, an output and the graph is hostile."""
    nodes: list[onnx.NodeProto] = []
    inputs: list[onnx.ValueInfoProto] = []
    outputs: list[onnx.ValueInfoProto] = []
    for number, name in enumerate(NAMES):
        taken, made = f"{name} in", f"{name} out"
        nodes.append(
            helper.make_node("MatMul", [taken, taken], [f"{name} m"], f"{name} {number}")
        )
        nodes.append(
            helper.make_node("Softmax", [f"{name} m"], [made], f"{name} {number} b")
        )
        inputs.append(helper.make_tensor_value_info(taken, TensorProto.FLOAT, [4, 4]))
        outputs.append(helper.make_tensor_value_info(made, TensorProto.FLOAT, [4, 4]))
    graph = helper.make_graph(nodes, SCRIPT + IMAGE, inputs, outputs)
    opsets = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)
