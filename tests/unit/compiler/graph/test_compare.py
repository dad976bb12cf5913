from fakes import tiny_ops
from tilewright.compiler.graph.compare import (
    difference,
    fingerprint,
    node_fingerprint,
    same,
)
from tilewright.compiler.graph.ir import Value
from tilewright.compiler.graph.text import ArrayHashes
from tilewright.compiler.readers.graph_text import parse_graph

BASE = """graph @g<N: ..>(%x: f32[N, 2]) {
  %w: f32[2] = constant {value = f32[2] [1.0, 2.0]}
  %y: f32[N, 2] = add(%x, %w)
  %z: f32[N, 2] = knobs(%y) {count = 2}
  return %z
}"""


def graph_of(text):
    return parse_graph(text, tiny_ops.lookup)


def test_names_do_not_count():
    other = BASE.replace("%y", "%other").replace("@g", "@h").replace("%x", "%input")
    assert same(graph_of(BASE), graph_of(other))
    assert fingerprint(graph_of(BASE)) == fingerprint(graph_of(other))


def test_everything_else_counts():
    changes = [
        ("count = 2", "count = 3"),
        ("[1.0, 2.0]", "[1.0, 2.5]"),
        ("[1.0, 2.0]", "[1.0, nan]"),
        ("add(%x, %w)", "add(%w, %x)"),
        ("add(%x, %w)", "mul(%x, %w)"),
        ("return %z", "return %y"),
        ("return %z", "return %z, %z"),
        ("N, 2", "N, 2, 1"),
        ("%z: f32[N, 2] = knobs(%y) {count = 2}", "%z: f32[N, 2] = neg(%y)"),
        ("  return", "  %q: f32[N, 2] = neg(%y)\n  return"),
    ]
    base = graph_of(BASE)
    prints = {fingerprint(base)}
    for old, new in changes:
        other = graph_of(BASE.replace(old, new))
        assert difference(base, other) is not None, (old, new)
        prints.add(fingerprint(other))
    assert len(prints) == len(changes) + 1


def test_regions_are_compared_inside():
    text = (
        "graph @g(%x: f32[2]) { %y: f32[2] = fused(%x)"
        " graph @k(%a: f32[2]) { %b: f32[2] = neg(%a) return %b } return %y }"
    )
    other = text.replace("neg(%a)", "add(%a, %a)")
    assert same(graph_of(text), graph_of(text))
    assert "neg" in difference(graph_of(text), graph_of(other))
    assert fingerprint(graph_of(text)) != fingerprint(graph_of(other))


def test_a_node_is_told_by_all_but_names_and_by_the_types_of_what_it_reads():
    def print_of(text):
        return node_fingerprint(graph_of(text).nodes[-1], ArrayHashes())

    alike = [("%z", "%other"), ("[1.0, 2.0]", "[1.0, 2.5]"), ("add(%x, %w)", "neg(%x)")]
    prints = {print_of(BASE.replace(old, new)) for old, new in alike}
    assert prints == {print_of(BASE)}
    others = [("count = 2", "count = 3"), ("N, 2", "N, 2, 1"), ("N", "M")]
    prints |= {print_of(BASE.replace(old, new)) for old, new in others}
    assert len(prints) == 1 + len(others)


def test_values_that_nothing_makes_are_equal_to_themselves_only():
    left, right = (graph_of(BASE) for _ in range(2))
    for graph in (left, right):
        graph.nodes[1].operands[1] = Value(graph.nodes[0].result.type, "lost")
    assert difference(left, left) is None
    assert "lost from outside" in (difference(left, right) or "")
    assert fingerprint(left) != fingerprint(right)


def test_nan_constants_are_equal_to_themselves():
    text = BASE.replace("2.0]", "nan]")
    assert same(graph_of(text), graph_of(text))
