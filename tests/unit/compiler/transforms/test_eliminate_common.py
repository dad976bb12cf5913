import numpy as np

from fakes.graphs import assert_becomes, ops, parse, run
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.passes import run_passes
from tilewright.compiler.transforms import EliminateCommon

C = [EliminateCommon()]


def test_equal_computations_are_done_once_in_a_chain():
    assert_becomes(
        C,
        "graph @g(%x: f32[2]) { %a: f32[2] = exp(%x) %b: f32[2] = exp(%x) %c: f32[2] = neg(%a)"
        " %d: f32[2] = neg(%b) %y: f32[2] = add(%c, %d) return %y }",
        "graph @g(%x: f32[2]) { %a: f32[2] = exp(%x) %c: f32[2] = neg(%a)"
        " %y: f32[2] = add(%c, %c) return %y }",
    )


def test_commuted_operands_count_as_equal_only_where_they_commute():
    graph = run(
        C,
        "graph @g(%x: f32[2], %y: f32[2]) { %a: f32[2] = add(%x, %y) %b: f32[2] = add(%y, %x)"
        " %c: f32[2] = sub(%x, %y) %d: f32[2] = sub(%y, %x) return %a, %b, %c, %d }",
    )
    assert ops(graph) == ["add", "sub", "sub"]
    assert graph.outputs[0] is graph.outputs[1]


def test_attributes_and_optional_operands_tell_nodes_apart():
    graph = run(
        C,
        "graph @g(%x: f32[2, 2], %l: f32[]) { %a: f32[2, 2] = softmax(%x) {axis = 0}"
        " %b: f32[2, 2] = softmax(%x) {axis = 1} %c: f32[2, 2] = clip(%x, %l)"
        " %d: f32[2, 2] = clip(%x, _, %l) return %a, %b, %c, %d }",
    )
    assert len(graph.nodes) == 4


def test_constants_merge_by_content_and_type():
    graph = run(
        C,
        "graph @g() { %a: f32[1] = constant {value = f32[1] [0.0]}"
        " %b: f32[1] = constant {value = f32[1] [0.0]}"
        " %c: f32[1] = constant {value = f32[1] [-0.0]}"
        " %d: i32[1] = constant {value = i32[1] [0]} return %a, %b, %c, %d }",
    )
    assert len(graph.nodes) == 3


def test_large_constants_are_compared_by_identity():
    builder = GraphBuilder()
    array = np.zeros(1 << 15, np.float32)
    same, other = builder.constant(array), builder.constant(array.copy())
    again = builder.constant(array)
    for index, value in enumerate((same, other, again)):
        builder.output(f"y{index}", value)
    run_passes(builder.graph, C)
    assert len(builder.graph.nodes) == 2


def test_nodes_with_regions_are_left_alone():
    graph = parse(
        "graph @g(%x: f32[2]) {"
        " %a: f32[2] = fused(%x) graph @k(%v: f32[2]) { %w: f32[2] = neg(%v) return %w }"
        " %b: f32[2] = fused(%x) graph @k(%v: f32[2]) { %w: f32[2] = exp(%v) return %w }"
        " return %a, %b }"
    )
    assert not run_passes(graph, C).modified
