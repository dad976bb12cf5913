import pytest

from fakes import tiny_ops
from fakes.graphs import assert_becomes, parse
from tilewright.compiler.graph.ir import Node
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.passes import run_passes
from tilewright.compiler.readers.graph_text import parse_graph
from tilewright.compiler.transforms import EliminateDead
from tilewright.compiler.transforms.eliminate_dead import is_pure

D = [EliminateDead()]


def test_chains_that_nobody_uses_vanish():
    assert_becomes(
        D,
        "graph @g(%x: f32[2]) { %a: f32[2] = neg(%x) %b: f32[2] = exp(%a) %c: f32[2] = neg(%x)"
        " return %c }",
        "graph @g(%x: f32[2]) { %c: f32[2] = neg(%x) return %c }",
    )


def test_one_used_result_keeps_a_node():
    graph = parse(
        "graph @g(%x: f32[4]) { %v: f32[2], %i: i64[2] = top_k(%x) {k = [2]} return %i }"
    )
    assert not run_passes(graph, D).modified


def test_what_has_effects_stays():
    graph = parse_graph(
        "graph @g(%x: f32[2]) { %a: f32[2] = neg(%x) %b: f32[2] = impure(%a) return %x }",
        tiny_ops.lookup,
    )
    assert not run_passes(graph, D).modified


def test_control_flow_without_effects_vanishes():
    text = (
        "graph @g(%x: f32[2]) { %b: f32[2] = branch(%x) graph @k(%a: f32[2])"
        " { %c: f32[2] = OP(%a) return %c } return %x }"
    )
    pure = parse_graph(text.replace("OP", "neg"), tiny_ops.lookup)
    assert run_passes(pure, D).counts == {"erased": 1}
    effect = parse_graph(text.replace("OP", "impure"), tiny_ops.lookup)
    assert not run_passes(effect, D).modified


def test_dead_nodes_within_regions_vanish():
    graph = parse_graph(
        "graph @g(%x: f32[2]) { %b: f32[2] = branch(%x) graph @k(%a: f32[2])"
        " { %c: f32[2] = neg(%a) return %a } return %b }",
        tiny_ops.lookup,
    )
    assert run_passes(graph, D).modified
    assert graph.nodes[0].regions[0].nodes == []


def test_each_node_of_a_nest_is_looked_at_once_for_effects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner = "graph @k(%a: f32[2]) { %c: f32[2] = neg(%a) return %c }"
    for _ in range(10):
        inner = f"graph @k(%a: f32[2]) {{ %b: f32[2] = branch(%a) {inner} return %b }}"
    graph = parse_graph(
        f"graph @g(%x: f32[2]) {{ %b: f32[2] = branch(%x) {inner} return %x }}",
        tiny_ops.lookup,
    )
    seen: list[Node] = []
    has = Node.has

    def noting(node: Node, trait: Trait) -> bool:
        if trait is Trait.PURE:
            seen.append(node)
        return has(node, trait)

    monkeypatch.setattr(Node, "has", noting)
    assert is_pure(graph.nodes[0])
    assert len(seen) == 1
