"""Models whose nodes stand in another order than they are computed in."""

import numpy as np
import onnx
import pytest

from fakes import onnx_models
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.frontends.onnx.order import ordered
from tilewright.compiler.graph.evaluator import evaluate

TEXT = """graph (float[3] x, bool c) => (float[3] y) {
  k = Neg (x)
  t = Exp (x)
  s = If (c) <
    then_branch = a () => (float[3] p) { n = Abs (k) p = Add (n, x) },
    else_branch = b () => (float[3] q) { q = Mul (k, t) }
  >
  y = Add (s, t)
}"""


def reversed_everywhere(nodes: list[onnx.NodeProto]) -> None:
    turned = [onnx.NodeProto.FromString(n.SerializeToString()) for n in reversed(nodes)]
    del nodes[:]
    nodes.extend(turned)
    for node in nodes:
        for attribute in node.attribute:
            reversed_everywhere(attribute.g.node)


def test_nodes_are_computed_behind_what_they_read_whatever_their_order() -> None:
    model, turned = onnx_models.parse(TEXT), onnx_models.parse(TEXT)
    reversed_everywhere(turned.graph.node)
    assert turned.graph.node[0].op_type == "Add"
    x = np.array([-1, 0.5, 2], np.float32)
    for c in (True, False):
        (expected,) = evaluate(load(model), [x, np.array(c)])
        (found,) = evaluate(load(turned), [x, np.array(c)])
        np.testing.assert_array_equal(found, expected)


def test_functions_are_ordered_too() -> None:
    text = "graph (float[2] x) => (float[2] y) { y = local.f (x) }"
    body = (
        '<domain: "local", opset_import: ["": 21]> f (x) => (y) { y = Neg (t) t = Exp (x) }'
    )
    x = np.array([0, 1], np.float32)
    (found,) = evaluate(load(onnx_models.parse(text + body)), [x])
    np.testing.assert_allclose(found, -np.exp(x), rtol=1e-6)


def test_an_order_that_is_right_is_kept() -> None:
    nodes = onnx_models.parse(TEXT).graph.node
    assert ordered(nodes) is nodes


def test_nodes_that_read_each_other_are_refused_by_name() -> None:
    text = "graph (float[2] x) => (float[2] y) { a = Add (x, b) b = Neg (a) y = Exp (b) }"
    with pytest.raises(ModelError, match="input 'b' is not defined before its use"):
        load(onnx_models.parse(text))
