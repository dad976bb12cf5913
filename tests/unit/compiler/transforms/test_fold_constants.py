import gc
import weakref

import numpy as np

from fakes.contractions import product
from fakes.graphs import assert_becomes, ops, parse, run
from tilewright.base import dtypes
from tilewright.compiler.graph.ir import Graph, Node
from tilewright.compiler.graph.placement import empty_at_line
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.passes import run_passes
from tilewright.compiler.transforms import FoldConstants, fold_constants

F = [FoldConstants()]


def test_chains_of_constants_fold_in_one_go():
    assert_becomes(
        F,
        "graph @g(%x: f32[2]) { %a: f32[2] = constant {value = f32[2] [1.0, 2.0]}"
        " %b: f32[2] = mul(%a, %a) %c: f32[2] = add(%b, %a) %y: f32[2] = add(%x, %c) return %y }",
        "graph @g(%x: f32[2]) { %c: f32[2] = constant {value = f32[2] [2.0, 6.0]}"
        " %y: f32[2] = add(%x, %c) return %y }",
    )


def test_generators_fold_while_they_are_small():
    small = "graph @g() { %i: i64[4] = iota {shape = [4]} return %i }"
    assert_becomes(
        F,
        small,
        "graph @g() { %i: i64[4] = constant {value = i64[4] [0, 1, 2, 3]} return %i }",
    )
    graph = run(F, "graph @g() { %i: i64[40000] = iota {shape = [40000]} return %i }")
    assert ops(graph) == ["iota"]


def test_a_constant_is_not_blown_up_by_a_broadcast():
    graph = run(
        F,
        "graph @g() { %c: f32[1] = constant {value = f32[1] [3.0]}"
        " %b: f32[1000, 1000] = broadcast_to(%c) {shape = [1000, 1000]} return %b }",
    )
    assert ops(graph) == ["broadcast_to"]
    option = [FoldConstants(limit_bytes=1 << 30)]
    graph = parse(
        "graph @g() { %c: f32[1] = constant {value = f32[1] [3.0]}"
        " %b: f32[10, 10] = broadcast_to(%c) {shape = [10, 10]} return %b }"
    )
    run_passes(graph, option)
    assert ops(graph) == []


def test_generated_weights_fold_although_they_grow():
    graph = run(
        F,
        "graph @g(%x: f32[3, 300]) { %c: f32[] = constant {value = f32[] [0.5]}"
        " %w: f32[300, 200] = full(%c) {shape = [300, 200]}"
        " %t: f32[200, 300] = transpose(%w) {perm = [1, 0]}"
        " %u: f32[300, 200] = transpose(%t) {perm = [1, 0]}"
        " %y: f32[3, 200] = matmul(%x, %u) return %y }",
    )
    assert ops(graph) == ["matmul"]


def test_nothing_is_computed_for_results_without_elements():
    """A formula over nothing, of which no loop would be fused, has as many buffers as steps."""
    assert_becomes(
        F,
        "graph @g(%x: bf16[2, 0], %w: bf16[0, 3]) { %a: bf16[2, 0] = exp(%x)"
        " %b: bf16[2, 0] = add(%a, %x) %y: bf16[2, 3] = matmul(%x, %w) return %b, %y }",
        "graph @g(%x: bf16[2, 0], %w: bf16[0, 3]) {"
        " %b: bf16[2, 0] = constant {value = bf16[2, 0] []}"
        " %y: bf16[2, 3] = matmul(%x, %w) return %b, %y }",
    )


def test_symbolic_sizes_stop_folding():
    graph = run(
        F,
        "graph @g<N: 1..>(%x: f32[N]) { %c: f32[] = constant {value = f32[] [0.5]}"
        " %w: f32[N] = broadcast_to(%c) {shape = [N]} %s: i64[1] = shape_tensor {values = [N]}"
        " %y: f32[N] = add(%x, %w) return %y, %s }",
    )
    assert ops(graph) == ["broadcast_to", "shape_tensor", "add"]


def test_several_results_fold_together():
    graph = run(
        F,
        "graph @g() { %c: f32[4] = constant {value = f32[4] [3.0, 1.0, 2.0, 0.0]}"
        " %v: f32[2], %i: i64[2] = top_k(%c) {k = [2]} return %v, %i }",
    )
    assert ops(graph) == []
    np.testing.assert_array_equal(graph.nodes[-1].attributes["value"], [0, 2])


def weights(shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_weights_are_moved_and_their_originals_let_go():
    builder = GraphBuilder()
    x = builder.input("x", TensorType(dtypes.f32, (2, 300)))
    array = weights((200, 300))
    original = weakref.ref(array)
    expected = np.ascontiguousarray(array.T)
    panels = builder.pack_panels(
        builder.transpose(builder.constant(array), perm=(1, 0)), panel=8
    )
    builder.output(
        "y", builder.contract(x, panels, **product(200)([x.type.shape, panels.type.shape]))
    )
    del array, panels
    run_passes(builder.graph, F)
    gc.collect()
    assert ops(builder.graph) == ["contract:matmul"]
    assert original() is None
    packed = builder.graph.nodes[0].attributes["value"]
    np.testing.assert_array_equal(packed[0], expected[:, :8])


def test_only_the_end_of_a_chain_is_brought_to_its_place(monkeypatch):
    placed = []

    def place(shape, dtype):
        placed.append(tuple(shape))
        return empty_at_line(shape, dtype)

    monkeypatch.setattr(fold_constants, "empty_at_line", place)
    builder = GraphBuilder()
    room = np.zeros(200 * 300 * 4 + 4, np.uint8)
    start = 4 if room.ctypes.data % 64 == 0 else 0
    array = room[start : start + 200 * 300 * 4].view(np.float32).reshape(200, 300)
    assert array.ctypes.data % 64
    array[...] = weights((200, 300))
    turned = builder.transpose(builder.constant(array), perm=(1, 0))
    builder.output("y", builder.reshape(turned, shape=(5, 60, 200)))
    run_passes(builder.graph, F)
    (folded,) = builder.graph.nodes
    np.testing.assert_array_equal(
        folded.attributes["value"], array.T.reshape(5, 60, 200), strict=True
    )
    assert folded.attributes["value"].ctypes.data % 64 == 0
    assert placed == [(5, 60, 200)]


def test_a_small_view_does_not_keep_a_large_array():
    builder = GraphBuilder()
    table = builder.constant(weights((1000, 100)))
    cut = builder.slice(table, axes=(0,), starts=(3,), sizes=(2,), steps=(1,))
    builder.output("y", cut)
    run_passes(builder.graph, F)
    value = builder.graph.nodes[0].attributes["value"]
    assert value.base is None or value.base.nbytes <= 4 * value.nbytes


def test_a_constant_with_other_uses_stays():
    builder = GraphBuilder()
    table = builder.constant(weights((3, 4)))
    builder.output("t", builder.transpose(table, perm=(1, 0)))
    builder.output("w", table)
    run_passes(builder.graph, F)
    assert [n.op for n in builder.graph.nodes] == ["constant", "constant"]


def test_control_flow_is_not_folded():
    graph = Graph()
    array = np.ones(2, np.float32)
    type_ = TensorType(dtypes.f32, (2,))
    constant = GraphBuilder(graph).constant(array)
    region = parse("graph @r(%a: f32[2]) { return %a }")
    schema = (
        parse(
            "graph @g(%x: f32[2]) { %y: f32[2] = fused(%x) graph @k(%a: f32[2]) { return %a }"
            " return %y }"
        )
        .nodes[0]
        .schema
    )
    node = Node(schema, [constant], {"name": "", "kind": ""}, [type_], regions=[region])
    graph.nodes.append(node)
    graph.outputs.append(node.result)
    run_passes(graph, F)
    assert ops(graph) == ["fused"]


def test_what_is_folded_lies_at_the_boundary_of_a_line():
    for rows in (1, 7, 64, 129):  # arrays of different sizes lie at different places
        builder = GraphBuilder()
        array = weights((rows, 30))
        moved = builder.transpose(builder.constant(array), perm=(1, 0))
        builder.output("y", moved)
        run_passes(builder.graph, F)
        value = builder.graph.nodes[0].attributes["value"]
        assert value.ctypes.data % 64 == 0
        np.testing.assert_array_equal(value, array.T)


def test_what_a_node_without_elements_read_stays_where_another_reads_it_too() -> None:
    """Of two results of one operation one may be read and the other not."""
    graph = run(
        F,
        "graph @g(%x: f32[2, 3]) { %v: f32[2, 1], %p: i64[2, 1] = top_k(%x) {k = [1], axis = 1}"
        " %e: f32[0, 1] = slice(%v) {axes = [0], sizes = [0], starts = [0], steps = [1]} return %e, %p }",
    )
    assert ops(graph) == ["top_k"]


def test_what_only_a_node_without_elements_read_goes() -> None:
    graph = run(
        F,
        "graph @g(%x: f32[2, 3]) { %v: f32[2, 3] = neg(%x)"
        " %e: f32[0, 3] = slice(%v) {axes = [0], sizes = [0], starts = [0], steps = [1]} return %e }",
    )
    assert ops(graph) == []
