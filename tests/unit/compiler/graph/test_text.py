import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fakes import tiny_ops
from tilewright.base import dtypes
from tilewright.base.errors import UserError
from tilewright.compiler.graph.compare import attributes_equal, difference
from tilewright.compiler.graph.ir import Graph, Location, Node, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.graph.text import ArrayHashes, describe, resources, to_text
from tilewright.compiler.graph.verifier import verify
from tilewright.compiler.ops import catalogue
from tilewright.compiler.readers.graph_text import parse_graph

EVERYTHING = """graph @main<N: 1.., S: 0..512>(%x: f32[N, 4], %"input.1/a": f32[2*N, (S + 4)]) {
  %w: f32[4] = constant {value = f32[4] [1.0, -0.0, inf, nan]}
  %0: f32[N, 4] = add(%x, %w)
  %lo: f32[(N // 2), 4], %hi: f32[(N // 2), 4] = split(%0)
  %c: f32[N, 4] = clip(%0, _, %w)
  %k: f32[N, 4] = knobs(%c) {axes = [-1, 2], count = 7, dims = [N, (S + 4)], flag = true, \
mode = "a\\"b", ratio = 1e-05, scales = [0.5, 2.0], table = i64[0] [], type = bf16}
  %d: f32[N, 4] = knobs(%k)
  %f: f32[N, 4] = fused(%d, %w) {name = "k"}
    graph @k(%a: f32[N, 4], %b: f32[4]) {
      %r: f32[N, 4] = mul(%a, %b)
      return %r
    }
  return %f as "out", %hi as "hi"
}
"""


def test_text_parses_and_prints_back_to_itself():
    graph = parse_graph(EVERYTHING, tiny_ops.lookup)
    verify(graph)
    assert to_text(graph) == EVERYTHING


def test_nodes_without_results_are_read_back():
    text = """graph @g<N: 0..4>(%n: i64[1], %x: f32[4]) {
  bind_sizes(%n) {sizes = [N]}
  expect_sizes {left = [N], right = [2]}
  %y: f32[N] = slice(%x) {axes = [0], sizes = [N], starts = [0], steps = [1]}
  return %y
}
"""
    assert to_text(parse_graph(text, catalogue.schema)) == text


def test_symbols_keep_their_bounds():
    graph = parse_graph(EVERYTHING, tiny_ops.lookup)
    (term, _), *_ = graph.inputs[1].type.shape[1].terms
    assert (term[0].name, term[0].lower, term[0].upper) == ("S", 0, 512)


def test_defaults_are_completed_by_the_parser_and_left_out_by_the_printer():
    text = "graph @g(%x: i8[]) {\n  %y: i8[] = knobs(%x)\n  return %y\n}\n"
    graph = parse_graph(text, tiny_ops.lookup)
    assert graph.nodes[0].attributes["mode"] == "edge"
    assert to_text(graph) == text


def test_large_arrays_are_printed_by_reference_and_read_from_resources():
    graph = Graph("g")
    data = np.arange(40, dtype=np.float32).reshape(5, 8)
    node = Node(tiny_ops.constant, (), {"value": data}, [TensorType(dtypes.f32, (5, 8))])
    graph.nodes.append(node)
    graph.outputs.append(node.result)
    text = to_text(graph)
    assert "resource" in text
    with pytest.raises(UserError, match=r"resource .* is not given"):
        parse_graph(text, tiny_ops.lookup)
    again = parse_graph(text, tiny_ops.lookup, resources=resources(graph))
    assert again.nodes[0].attributes["value"] is data
    assert to_text(again) == text


@pytest.mark.parametrize(
    ("array", "shown"),
    [
        (np.zeros((64, 64), np.float32), "f32[64, 64] splat 0.0"),
        (np.full((64,), True), "bool[64] splat true"),
        (np.broadcast_to(np.float16(0.5), (1 << 20, 1 << 20)), "splat 0.5"),
        (np.full((40,), np.nan), "f64[40] splat nan"),
        (np.array(3, np.int64), "i64[] [3]"),
        (np.zeros((0, 3), np.uint8), "u8[0, 3] []"),
        (np.array([0.1], np.float32), "f32[1] [0.1]"),
    ],
)
def test_arrays_print_short(array, shown):
    graph = Graph()
    type_ = TensorType(dtypes.from_numpy(array.dtype), array.shape)
    graph.nodes.append(Node(tiny_ops.constant, (), {"value": array}, [type_]))
    assert shown in to_text(graph)


def test_zeros_of_both_signs_are_no_splat():
    array = np.zeros(40, np.float32)
    array[17] = -0.0
    graph = Graph()
    graph.nodes.append(
        Node(tiny_ops.constant, (), {"value": array}, [TensorType(dtypes.f32, (40,))])
    )
    assert "resource" in to_text(graph)


def test_equal_names_are_numbered_and_empty_ones_get_numbers():
    graph = Graph()
    type_ = TensorType(dtypes.f32, ())
    x = Value(type_, "x")
    graph.inputs.append(x)
    for name in ("x", "", "x", ""):
        node = Node(tiny_ops.neg, (x,), {}, [type_], names=[name])
        graph.nodes.append(node)
        graph.outputs.append(node.result)
    text = to_text(graph)
    assert "return %x_1, %0, %x_2, %1" in text
    assert difference(graph, parse_graph(text, tiny_ops.lookup)) is None


def test_locations_print_on_request_and_are_read_back():
    graph = parse_graph(
        "graph @g(%x: f32[]) { %y: f32[] = neg(%x) return %y }", tiny_ops.lookup
    )
    graph.nodes[0].location = Location("m.onnx", "a/b")
    text = to_text(graph, locations=True)
    assert '= neg(%x) at "m.onnx" "a/b"' in text
    again = parse_graph(text, tiny_ops.lookup)
    assert str(again.nodes[0].location) == "m.onnx: node 'a/b'"
    graph.nodes[0].location = Location("m.onnx", "a/b", ", a step of which is 0")
    again = parse_graph(to_text(graph, locations=True), tiny_ops.lookup)
    assert again.nodes[0].location == graph.nodes[0].location
    assert again.nodes[0].location.place == "node 'a/b', a step of which is 0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("grap @g() { return }", "line 1, column 1: expected 'graph'"),
        (
            "graph @g() {\n  %x: f33[] = neg(%x)\n}",
            "line 2, column 7: expected a data type",
        ),
        ("graph @g() {\n  %x: f32[] = neg(%y)\n}", r"line 2, column 19: value '%y' is not"),
        ("graph @g(%x: f32[], %x: f32[]) { return }", "'%x' is defined twice"),
        ("graph @g(%x: f32[1 +]) { return }", "expected a dimension"),
        (
            "graph @g(%x: f32[]) { %y: f32[] = negg(%x) return }",
            "line 1, column 35: unknown op 'negg'",
        ),
        ("graph @g(%x: f32[]) { %y: f32[] = neg(%x) {a = 1} return }", "no attribute 'a'"),
        (
            "graph @g() { %y: f32[2] = constant {value = f32[2] [1.0]} return }",
            "expected 2 elem",
        ),
        (
            "graph @g(%x: f32[]) { returned %x }",
            "line 1, column 23: unknown op 'returned'",
        ),
        ("graph @g() { return } x", "expected the end of the text, got 'x'"),
    ],
)
def test_syntax_errors_name_line_and_column(text, message):
    with pytest.raises(UserError, match=message):
        parse_graph(text, tiny_ops.lookup)


@given(
    st.sampled_from([t for t in dtypes.ANY if t is not dtypes.bf16]).flatmap(
        lambda t: arrays.arrays(
            t.numpy, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0)
        )
    )
)
def test_any_array_survives_the_text_form(array):
    graph = Graph()
    type_ = TensorType(dtypes.from_numpy(array.dtype), array.shape)
    graph.nodes.append(Node(tiny_ops.constant, (), {"value": array}, [type_]))
    again = parse_graph(to_text(graph), tiny_ops.lookup, resources=resources(graph))
    value = again.nodes[0].attributes["value"]
    nan = array.dtype.kind == "f" and np.isnan(array).any()
    assert attributes_equal(value, array) or (
        nan and np.array_equal(value, array, equal_nan=True)
    )


def test_hashes_follow_content_not_identity():
    hashes = ArrayHashes()
    a = np.arange(6.0)
    assert hashes.of(a) == hashes.of(a.copy()) == ArrayHashes().of(a)
    assert hashes.of(a) != hashes.of(a.reshape(2, 3))
    assert hashes.of(a) != hashes.of(a.astype(np.float32))


def test_describe_shows_types_on_one_line():
    graph = parse_graph(
        "graph @g(%x: f32[2]) { %y: f32[2] = clip(%x, _, %x) return }", tiny_ops.lookup
    )
    assert describe(graph.nodes[0]) == "clip(f32[2], _, f32[2]) -> f32[2]"
