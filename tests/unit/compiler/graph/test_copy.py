"""Copies of graphs: the same text, nothing shared that an edit could reach."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from fakes.random_graphs import Case, graphs
from fakes.region_nodes import make_region_node
from tilewright.base import dtypes
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.compare import difference
from tilewright.compiler.graph.copy import copy_graph
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.graph.verifier import verify
from tilewright.compiler.ops.builder import GraphBuilder


@given(graphs(dynamic=True))
@settings(max_examples=20)
def test_a_copy_is_the_same_graph(case: Case) -> None:
    copy = copy_graph(case.graph)
    verify(copy)
    assert difference(case.graph, copy) is None
    assert not set(copy.values()) & set(case.graph.values())


def test_edits_of_the_copy_do_not_reach_the_original() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(dtypes.f32, (2,)))
    y = b.output("y", b.relu(b.constant(np.ones(2, np.float32))))
    copy = copy_graph(b.graph)
    with Editor(copy) as edit:
        edit.replace_uses(copy.outputs[0], copy.inputs[0])
    copy.nodes[0].attributes["value"] = np.zeros(2, np.float32)
    assert b.graph.outputs == [y]
    assert b.graph.inputs == [x]
    np.testing.assert_array_equal(b.graph.nodes[0].attributes["value"], [1, 1])


def test_regions_are_copied_with_what_they_read_from_outside() -> None:
    f32 = TensorType(dtypes.f32, (2,))
    b = GraphBuilder()
    condition = b.input("c", TensorType(dtypes.bool_, ()))
    x = b.input("x", f32)

    def branch(op: str) -> Graph:
        inner = GraphBuilder(Graph(op))
        inner.output("r", inner.op(op, [x]))
        return inner.graph

    node = make_region_node("if", [condition], [branch("relu"), branch("neg")], [f32])
    b.add_node(node)
    b.output("y", node.result)
    copy = copy_graph(b.graph)
    reads = copy.nodes[0].regions[0].nodes[0].operands[0]
    assert isinstance(reads, Value)
    assert reads is copy.inputs[1]
    assert reads is not x


def test_sizes_that_must_agree_and_names_come_along() -> None:
    n = symbol("n")
    graph = Graph("g", output_names=["y"], equalities=((n, n + 1),))
    copy = copy_graph(graph)
    assert (copy.name, copy.output_names, copy.equalities) == ("g", ["y"], ((n, n + 1),))
    copy.output_names.append("z")
    assert graph.output_names == ["y"]


def test_an_operand_from_nowhere_is_a_bug() -> None:
    b = GraphBuilder()
    stray = Value(TensorType(dtypes.f32, (2,)), "stray")
    b.output("y", b.relu(stray))
    with pytest.raises(KeyError):
        copy_graph(b.graph)
