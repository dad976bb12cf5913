from dataclasses import dataclass
from typing import final

import numpy as np

from fakes import tiny_ops
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.verifier import verify
from tilewright.compiler.passes import Emitter, GraphPass, apply_rewrites, run_passes
from tilewright.compiler.readers.graph_text import parse_graph


def neg_of_neg(node, emit):
    inner = node.operands[0].node
    return inner.operands[0] if inner is not None and inner.op == "neg" else None


def sub_to_add(node, emit):
    return emit.op("add", [node.operands[0], emit.op("neg", [node.operands[1]])])


def split_to_itself(node, emit):
    return [node.operands[0], node.operands[0]] if node.results[0].type.rank > 9 else None


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrites(GraphPass):
    """Test rewrites."""

    def run(self, graph, context):
        table = {"neg": [neg_of_neg], "sub": [sub_to_add], "*": [split_to_itself]}
        return apply_rewrites(graph, table, tiny_ops.lookup)


def test_rules_run_until_nothing_changes_and_are_counted_by_name():
    graph = parse_graph(
        "graph @g(%x: f32[2], %y: f32[2]) { %a: f32[2] = neg(%y) %b: f32[2] = sub(%x, %a)"
        " return %b }",
        tiny_ops.lookup,
    )
    result = run_passes(graph, [Rewrites()])
    verify(graph)
    assert result.counts == {"sub_to_add": 1, "neg_of_neg": 1}
    (node,) = graph.nodes
    assert node.op == "add"
    assert node.operands == graph.inputs
    assert node.result.name == "b"


def test_nothing_to_do_is_no_modification():
    graph = parse_graph("graph @g(%x: f32[2]) { return %x }", tiny_ops.lookup)
    assert not run_passes(graph, [Rewrites()]).modified


def test_unused_nodes_are_not_rewritten():
    graph = parse_graph(
        "graph @g(%x: f32[2]) { %a: f32[2] = sub(%x, %x) return %x }", tiny_ops.lookup
    )
    assert not run_passes(graph, [Rewrites()]).modified


def test_nodes_with_effects_stay_when_a_rule_drops_their_result():
    graph = parse_graph(
        "graph @g(%x: f32[2]) { %a: f32[2] = impure(%x) %b: f32[2] = neg(%a)"
        " %c: f32[2] = neg(%b) return %c }",
        tiny_ops.lookup,
    )
    run_passes(graph, [Rewrites()])
    assert [n.op for n in graph.nodes] == ["impure"]


def test_the_emitter_places_nodes_before_the_anchor_with_its_location():
    graph = parse_graph(
        'graph @g(%x: f16[2]) { %a: f16[2] = neg(%x) at "m" "n" return %a }',
        tiny_ops.lookup,
    )
    with Editor(graph) as edit:
        emit = Emitter(edit, tiny_ops.lookup, graph.nodes[0])
        scalar = emit.scalar(0.5, graph.inputs[0])
        emit.constant(np.zeros(3, np.float32))
    assert [n.op for n in graph.nodes] == ["constant", "constant", "neg"]
    assert str(scalar.type) == "f16[]"
    assert str(scalar.node.location) == "m: node 'n'"
