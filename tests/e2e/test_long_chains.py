"""Hundreds of operators one after the other: expressions deeper than a call stack of Python."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

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


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("op", "count"),
    [("Tanh", 63), ("Tanh", 300), pytest.param("Sin", 64, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("target", ["host", pytest.param("c host", marks=needs_cc)])
def test_long_chains_compile(op: str, count: int, target: str) -> None:
    want = X.astype(np.float64)
    for _ in range(count):
        want = np.tanh(want) if op == "Tanh" else np.sin(want)
    (y,) = tw.compile(chain(op, count), target=target).run({"x0": X}).values()
    np.testing.assert_allclose(y, want, rtol=1e-4)
