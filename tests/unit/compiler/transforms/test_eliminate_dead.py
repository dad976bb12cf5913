from fakes import tiny_ops
from fakes.graphs import assert_becomes, parse
from tilewright.compiler.passes import run_passes
from tilewright.compiler.readers.graph_text import parse_graph
from tilewright.compiler.transforms import EliminateDead

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
