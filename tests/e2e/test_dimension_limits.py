"""What a model takes for granted about its dynamic dimensions is checked on every call."""

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder


def table_of_positions() -> Graph:
    """y[S, 4] = x[S, 4] + table[:S], for S of at most 16."""
    rows = symbol("S", 1, 16)
    graph = Graph("positions")
    x = Value(TensorType(f32, (rows, 4)), "x")
    graph.inputs.append(x)
    b = GraphBuilder(graph)
    table = b.constant(np.arange(64, dtype=np.float32).reshape(16, 4))
    part = b.op(
        "slice", [table], {"axes": (0,), "starts": (0,), "sizes": (rows,), "steps": (1,)}
    )
    graph.outputs.append(b.op("add", [x, part]))
    graph.output_names.append("y")
    return graph


def test_a_size_above_the_limit_is_refused_before_anything_is_read() -> None:
    model = tw.compile(table_of_positions(), threads=1, jobs=1, cache=False)
    got = model(np.zeros((7, 4), np.float32))
    np.testing.assert_array_equal(got, np.arange(28, dtype=np.float32).reshape(7, 4))
    with pytest.raises(tw.InputError, match=r"'S' \(axis 0\) is 17, expected at most 16"):
        model(np.zeros((17, 4), np.float32))


def test_sizes_that_must_agree_are_compared() -> None:
    left, right = symbol("L", 1), symbol("R", 1)
    graph = Graph("pair")
    a, c = Value(TensorType(f32, (left, 2)), "a"), Value(TensorType(f32, (right, 2)), "c")
    graph.inputs += [a, c]
    b = GraphBuilder(graph)
    graph.outputs += [b.op("neg", [a]), b.op("neg", [c])]
    graph.output_names += ["x", "y"]
    graph.equalities = ((left, right * 2),)
    model = tw.compile(graph, threads=1, jobs=1, cache=False)
    model(np.zeros((6, 2), np.float32), np.zeros((3, 2), np.float32))
    with pytest.raises(tw.InputError, match="sizes do not agree: L is 6, "):
        model(np.zeros((6, 2), np.float32), np.zeros((4, 2), np.float32))
