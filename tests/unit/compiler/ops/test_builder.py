from __future__ import annotations

import numpy as np
import pytest

from fakes.region_nodes import make_region_node
from tilewright.base import symbolic
from tilewright.base.dtypes import f32, i64
from tilewright.base.errors import ModelError
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph, Location
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.graph.verifier import verify
from tilewright.compiler.ops.builder import GraphBuilder

N = symbolic.symbol("N", 1)


def test_a_small_network_is_built_verified_and_run():
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (N, 3)))
    w = b.constant(np.arange(12, dtype=np.float32).reshape(3, 4), "w")
    y = b.softmax(b.relu(b.matmul(x, w)), axis=-1)
    b.output("y", y)
    verify(b.graph)
    assert str(y.type) == "f32[N, 4]"
    (out,) = evaluate(b.graph, [np.zeros((2, 3), np.float32)])
    np.testing.assert_allclose(out, 0.25)


def test_ops_with_several_results_return_a_tuple():
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (5,)))
    values, places = b.top_k(x, k=(2,), axis=0)
    assert values.type == TensorType(f32, (2,))
    assert places.type.dtype is i64


def test_names_that_are_python_keywords_take_an_underscore():
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (5,)))
    assert b.max_(x, x).type == b.max(x, x).type
    with pytest.raises(AttributeError, match="no op is called 'maxx'"):
        b.maxx(x)


def test_errors_carry_the_location():
    b = GraphBuilder(location=Location("model.onnx", "add_3"))
    x = b.input("x", TensorType(f32, (5,)))
    y = b.input("y", TensorType(f32, (4,)))
    with pytest.raises(ModelError, match=r"model\.onnx: node 'add_3': shapes"):
        b.add(x, y)


def test_defaults_are_filled_in():
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (5, 2)))
    node = b.node("layer_norm", [x])
    assert node.attributes == {"axis": -1, "epsilon": 1e-5}


def region(kind: str) -> Graph:
    inner = GraphBuilder()
    x = inner.input("x", TensorType(f32, (3,)))
    inner.output("y", inner.neg(x) if kind == "neg" else inner.exp(x))
    return inner.graph


def test_a_fused_node_runs_its_region():
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (3,)))
    node = b.add_node(make_region_node("fused", [x], [region("neg")], [x.type]))
    b.output("y", node.result)
    verify(b.graph)
    (out,) = evaluate(b.graph, [np.float32([1, 2, 3])])
    assert out.tolist() == [-1, -2, -3]


@pytest.mark.parametrize(("condition", "expected"), [(True, -1.0), (False, np.e)])
def test_if_takes_one_branch(condition: bool, expected: float):
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (3,)))
    flag = b.constant(np.asarray(condition))
    node = make_region_node("if", [flag, x], [region("neg"), region("exp")], [x.type])
    b.output("y", b.add_node(node).result)
    (out,) = evaluate(b.graph, [np.ones(3, np.float32)])
    np.testing.assert_allclose(out, expected, rtol=1e-6)


def test_while_carries_values_as_long_as_its_condition_holds():
    go_on = GraphBuilder()
    go_on.input("total", TensorType(f32, ()))
    limit = go_on.constant(np.float32(6))
    go_on.output("going", go_on.less(go_on.graph.inputs[0], limit))
    body = GraphBuilder()
    total = body.input("total", TensorType(f32, ()))
    body.output("total", body.add(total, body.constant(np.float32(2))))
    b = GraphBuilder()
    start = b.input("start", TensorType(f32, ()))
    regions = [go_on.graph, body.graph]
    node = make_region_node("while", [start], regions, [start.type], {"carried": 1})
    b.output("y", b.add_node(node).result)
    verify(b.graph)
    assert [float(evaluate(b.graph, [np.float32(x)])[0]) for x in (1, 7)] == [7, 7]
