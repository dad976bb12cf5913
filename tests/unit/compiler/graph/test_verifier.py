import numpy as np
import pytest

from fakes import tiny_ops
from tilewright.base import dtypes
from tilewright.base.errors import InternalError
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.graph.verifier import formal_operands, verify, violations
from tilewright.compiler.ops import catalogue
from tilewright.compiler.readers.graph_text import parse_graph

F32 = TensorType(dtypes.f32, (2,))


def graph_of(text):
    return parse_graph(text, tiny_ops.lookup)


def test_a_valid_graph_passes():
    graph = graph_of("graph @g(%x: f32[2]) { %y: f32[2] = add(%x, %x) return %y }")
    verify(graph)
    assert violations(graph) == []


def test_use_before_definition_is_found():
    graph = graph_of(
        "graph @g(%x: f32[2]) { %y: f32[2] = neg(%x) %z: f32[2] = neg(%y) return %z }"
    )
    graph.nodes.reverse()
    (found,) = violations(graph)
    assert "operand 0 '%y' is not defined before its use" in found


def test_an_undefined_output_is_found():
    graph = graph_of("graph @g(%x: f32[2]) { return %x }")
    graph.outputs.append(Value(F32, "q"))
    assert violations(graph) == ["output 1 '%q' is not defined in graph 'g'"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("%y: f32[3] = neg(%x)", "other result types than inferred: f32[2]"),
        ("%y: f32[2] = add(%x)", "1 operands do not fit the signature (x, y)"),
        ("%y: f32[2] = add(%x, %i)", "operand 1 'y' has type i32[2], expected f32"),
        ("%y: bool[2] = neg(%b)", "operand 0 'x' has type bool[2], expected"),
        ("%y: f32[2] = add(%x, _)", "operand 1 'y' is missing"),
        ("%y: f32[2] = add(%x, %j)", "types cannot be inferred: shapes"),
        ("%y: f32[2] = concat(%x, %i) {axis = 0}", "expected f32"),
        ("%y: f32[2] = concat(%x)", "attribute 'axis' is missing"),
    ],
)
def test_a_wrong_node_is_found(body, message):
    graph = graph_of(
        f"graph @g(%x: f32[2], %i: i32[2], %b: bool[2], %j: f32[3]) {{ {body} return %y }}"
    )
    with pytest.raises(InternalError) as caught:
        verify(graph)
    assert message in str(caught.value)
    assert "please report" in str(caught.value)
    assert "graph @g" in caught.value.dump


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", 1.5), ("count", True), ("ratio", "x"), ("mode", 1), ("flag", 1),
        ("type", "f32"), ("dims", [1]), ("axes", (1.0,)), ("table", 3), ("mode", None), ("scales", ("a",)),
    ],
)  # fmt: skip
def test_an_attribute_of_the_wrong_kind_is_found(name, value):
    graph = graph_of("graph @g(%x: f32[2]) { %y: f32[2] = knobs(%x) return %y }")
    graph.nodes[0].attributes[name] = value
    assert any(f"attribute '{name}'" in v for v in violations(graph))


def test_unknown_and_missing_attributes_are_found():
    graph = graph_of("graph @g(%x: f32[2]) { %y: f32[2] = knobs(%x) return %y }")
    graph.nodes[0].attributes["extra"] = 1
    del graph.nodes[0].attributes["count"]
    found = "\n".join(violations(graph))
    assert "attribute 'extra' is unknown" in found
    assert "attribute 'count' is missing" in found


def test_a_region_must_agree_with_its_fused_node():
    graph = graph_of(
        "graph @g(%x: f32[2]) { %y: f32[2] = fused(%x) graph @k(%a: f32[3]) { return %a }"
        " return %y }"
    )
    found = "\n".join(violations(graph))
    assert "region takes (f32[3]), the node has (f32[2])" in found
    assert "region yields (f32[3]), the node has (f32[2])" in found


def test_a_region_cannot_see_the_outer_graph():
    graph = graph_of(
        "graph @g(%x: f32[2]) { %y: f32[2] = fused(%x) graph @k(%a: f32[2]) { return %a }"
        " return %y }"
    )
    region = graph.nodes[0].regions[0]
    region.nodes.append(Node(tiny_ops.neg, [graph.inputs[0]], {}, [F32]))
    assert "region 0" in violations(graph)[0]


def test_a_node_listed_twice_and_broken_back_references_are_found():
    graph = graph_of("graph @g(%x: f32[2]) { %y: f32[2] = neg(%x) return %y }")
    graph.nodes.append(graph.nodes[0])
    graph.nodes[0].results[0].index = 4
    found = "\n".join(violations(graph))
    assert "listed twice" in found
    assert "does not point back" in found


def test_a_missing_region_is_found():
    graph = Graph(inputs=[Value(F32, "x")])
    graph.nodes.append(Node(tiny_ops.fused, graph.inputs, {"name": ""}, [F32]))
    assert "has 0 regions, expected 1" in violations(graph)[0]


def test_output_names_must_match_in_number():
    graph = graph_of('graph @g(%x: f32[2]) { return %x as "a" }')
    graph.output_names.append("b")
    assert violations(graph) == ["1 outputs have 2 names"]


def test_formal_operands_spread_variadic_and_skip_trailing_optional():
    assert [s.name for s in formal_operands(tiny_ops.concat, 3)] == ["xs"] * 3
    assert [s.name for s in formal_operands(tiny_ops.clip, 1)] == ["x"]
    assert formal_operands(tiny_ops.clip, 0) is None
    assert formal_operands(tiny_ops.clip, 4) is None
    assert formal_operands(tiny_ops.constant, 0) == []
    assert np.size(formal_operands(tiny_ops.concat, 0)) == 0


GROWTH = """graph @g(%n: i32[], %x: f32[2]) {
  %t: i32[], %z: f32[E] = while(%n, %x) {carried = 2, sizes = [E], trip_sizes = [S]}
    graph @go(%i: i32[], %p: f32[S]) {
      %c: bool[] = less(%i, %i)
      return %c
    }
    graph @body(%i: i32[], %p: f32[S]) {
      %q: f32[2*S] = concat(%p, %p) {axis = 0}
      return %i, %q
    }
  return %z
}"""
EITHER = """graph @g(%c: bool[], %x: f32[2]) {
  %y: f32[B] = if(%c, %x) {sizes = [B]}
    graph @then(%a: f32[2]) { return %a }
    graph @else(%a: f32[2]) { %d: f32[4] = concat(%a, %a) {axis = 0} return %d }
  return %y
}"""


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (GROWTH, "trip_sizes = [S]", "trip_sizes = []", "region 0 takes (i32[], f32[S])"),
        (GROWTH, "f32[E] = while", "f16[E] = while", "carries (i32[], f32[S])"),
        (EITHER, "sizes = [B]", "sizes = [C]", "region 0 yields (f32[2])"),
        (EITHER, "f32[B] = if", "f32[B, 1] = if", "region 0 yields (f32[2])"),
    ],
)
def test_sizes_that_are_known_inside_of_a_region_are_named(
    text: str, old: str, new: str, message: str
) -> None:
    verify(parse_graph(text, catalogue.schema))
    with pytest.raises(InternalError) as caught:
        verify(parse_graph(text.replace(old, new), catalogue.schema))
    assert message in str(caught.value)
