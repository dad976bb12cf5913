import random

import pytest

from fakes import tiny_ops
from tilewright.base.dtypes import f32
from tilewright.base.errors import InternalError, ModelError
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.ir import Location, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.graph.verifier import verify
from tilewright.compiler.readers.graph_text import parse_graph

CHAIN = """graph @g(%x: f32[2]) {
  %a: f32[2] = neg(%x)
  %b: f32[2] = neg(%a)
  %c: f32[2] = add(%a, %b)
  return %c, %a
}"""


def chain():
    return parse_graph(CHAIN, tiny_ops.lookup)


def ops(graph):
    return [n.op for n in graph.nodes]


def test_uses_are_counted_with_outputs():
    graph = chain()
    a, b, c = graph.nodes
    edit = Editor(graph)
    assert set(edit.users(a.result)) == {b, c}
    assert edit.use_count(a.result) == 3
    assert edit.sole_user(b.result) is c
    assert edit.sole_user(a.result) is None
    assert edit.sole_user(c.result) is None
    assert not edit.modified


def test_what_a_node_takes_or_the_graph_returns_is_used():
    graph = chain()
    edit = Editor(graph)
    a, b, c = graph.nodes
    assert all(edit.is_used(node.result) for node in (a, b, c))
    graph.outputs[:] = [a.result]
    assert not edit.is_used(c.result)


def test_a_graph_with_a_node_twice_is_refused():
    graph = chain()
    graph.nodes.append(graph.nodes[0])
    with pytest.raises(InternalError, match="twice"):
        Editor(graph)


def test_a_node_using_a_value_twice_is_no_sole_user():
    graph = parse_graph(
        "graph @g(%x: f32[2]) { %a: f32[2] = neg(%x) %b: f32[2] = add(%a, %a) return %b }",
        tiny_ops.lookup,
    )
    assert Editor(graph).sole_user(graph.nodes[0].result) is None


def test_create_inserts_before_and_infers():
    graph = chain()
    with Editor(graph) as edit:
        new = edit.create(tiny_ops.mul, [graph.inputs[0]] * 2, before=graph.nodes[1])
    assert ops(graph) == ["neg", "mul", "neg", "add"]
    assert str(new.result.type) == "f32[2]"
    assert edit.modified
    verify(graph)


def test_create_at_the_end_and_with_bad_operands():
    graph = chain()
    with Editor(graph) as edit:
        edit.create(tiny_ops.neg, [graph.nodes[2].result], before=None)
        other = edit.create(
            tiny_ops.concat, [graph.inputs[0]] * 2, {"axis": 0}, before=None
        )
        with pytest.raises(ModelError, match="do not broadcast"):
            edit.create(
                tiny_ops.add, [graph.inputs[0], graph.inputs[0], other.result], before=None
            )
    assert ops(graph)[-2:] == ["neg", "concat"]
    verify(graph)


def test_a_node_that_cannot_be_says_what_it_was_made_for():
    """A pass that makes an impossible node fails with the name of the node of the model."""
    graph = chain()
    first = graph.nodes[0]
    first.location = Location("net.onnx", "first")
    wrong = Value(TensorType(f32, (3,)))
    with Editor(graph) as edit, pytest.raises(ModelError) as caught:
        edit.create(tiny_ops.lookup("add"), [first.operands[0], wrong], before=first)
    assert str(caught.value).startswith("net.onnx: node 'first': ")


def test_replace_moves_uses_outputs_and_the_name():
    graph = chain()
    a, b, c = graph.nodes
    with Editor(graph) as edit:
        new = edit.create(tiny_ops.mul, [a.result, a.result], before=c)
        edit.replace(c, [new.result])
        assert edit.users(b.result) == ()
        edit.erase_dead(b)
    assert ops(graph) == ["neg", "mul"]
    assert graph.outputs[0] is new.result
    assert new.result.name == "c"
    verify(graph)


def test_replacing_by_another_type_is_refused():
    graph = chain()
    edit = Editor(graph)
    new = edit.create(tiny_ops.concat, [graph.inputs[0]] * 2, {"axis": 0}, before=None)
    with pytest.raises(InternalError, match="cannot replace a value of type"):
        edit.replace_uses(graph.nodes[0].result, new.result)


def test_erasing_a_used_node_is_refused():
    graph = chain()
    edit = Editor(graph)
    with pytest.raises(
        InternalError, match="cannot erase op 'neg', its result '%a' is used"
    ):
        edit.erase(graph.nodes[0])
    with pytest.raises(InternalError, match="'%c' is used"):
        edit.erase(graph.nodes[2])


def test_erase_dead_follows_operands_but_stops_at_uses():
    graph = parse_graph(
        "graph @g(%x: f32[2]) { %a: f32[2] = neg(%x) %b: f32[2] = neg(%a) %c: f32[2] = neg(%b)"
        " return %a }",
        tiny_ops.lookup,
    )
    with Editor(graph) as edit:
        edit.erase_dead(graph.nodes[2])
    assert ops(graph) == ["neg"]
    verify(graph)


def test_a_use_of_a_later_value_reorders_the_nodes():
    graph = chain()
    a, b, _ = graph.nodes
    with Editor(graph) as edit:
        late = edit.create(tiny_ops.mul, [graph.inputs[0]] * 2, before=None)
        edit.replace_uses(a.result, late.result)
    verify(graph)
    assert graph.nodes.index(late) < graph.nodes.index(b)


def test_a_cycle_is_refused():
    graph = chain()
    a, _, c = graph.nodes
    edit = Editor(graph)
    edit.replace_uses(a.result, c.result)
    with pytest.raises(InternalError, match="depends on itself"):
        edit.finish()


def test_iteration_survives_erasing_and_inserting():
    graph = chain()
    seen = []
    with Editor(graph) as edit:
        for node in edit.nodes():
            seen.append(node.op)
            if node.op == "neg":
                new = edit.create(tiny_ops.mul, [node.operands[0]] * 2, before=node)
                edit.replace(node, [new.result])
            elif node.op == "add":
                extra = edit.create(tiny_ops.neg, [node.result], before=None)
                edit.erase(extra)
    assert seen == ["neg", "neg", "add"]
    assert ops(graph) == ["mul", "mul", "add"]
    verify(graph)


def test_iteration_survives_erasing_the_following_nodes():
    graph = parse_graph(
        "graph @g(%x: f32[2]) { %a: f32[2] = neg(%x) %b: f32[2] = neg(%x) %c: f32[2] = neg(%x)"
        " %d: f32[2] = add(%x, %x) return %d }",
        tiny_ops.lookup,
    )
    seen = []
    with Editor(graph) as edit:
        for node in edit.nodes():
            seen.append(node.op)
            if node.op == "neg":
                for other in list(graph.nodes):
                    if other.op == "neg" and edit.contains(other):
                        edit.erase(other)
    assert seen == ["neg", "add"]


def test_reversed_iteration_allows_erasing():
    graph = chain()
    with Editor(graph) as edit:
        graph.outputs[:] = [graph.nodes[0].result]
        for node in edit.reversed_nodes():
            if not edit.use_count(node.results[0]):
                edit.erase(node)
    assert ops(graph) == ["neg"]


def test_reversed_iteration_allows_erasing_what_is_ahead():
    graph = chain()
    with Editor(graph) as edit:
        graph.outputs[:] = [graph.inputs[0]]
        for node in edit.reversed_nodes():
            edit.erase_dead(node)
    assert ops(graph) == []


def test_an_anchor_outside_of_the_graph_is_refused():
    graph = chain()
    anchor = graph.nodes[-1]
    with Editor(graph) as edit:
        graph.outputs[:] = [graph.nodes[0].result]
        edit.erase(anchor)
        before = list(edit.nodes())
        with pytest.raises(
            InternalError, match=r"'neg' is inserted before op .* not in the graph"
        ):
            edit.create(tiny_ops.neg, [graph.inputs[0]], before=anchor)
        assert list(edit.nodes()) == before
    assert graph.nodes == before


def test_many_insertions_at_one_place_stay_in_order():
    graph = chain()
    with Editor(graph) as edit:
        anchor = graph.nodes[1]
        made = [
            edit.create(tiny_ops.neg, [graph.inputs[0]], before=anchor) for _ in range(100)
        ]
    assert graph.nodes[1:101] == made


def test_random_edits_keep_the_use_lists_and_the_links():
    rng = random.Random(7)
    graph = chain()
    with Editor(graph) as edit:
        for _ in range(300):
            alive = list(edit.nodes())
            node = rng.choice(alive)
            if rng.random() < 0.5 or len(alive) < 3:
                edit.create(tiny_ops.neg, [node.results[0]], before=None)
            elif not edit.use_count(node.results[0]):
                edit.erase(node)
            else:
                edit.replace_uses(node.results[0], graph.inputs[0])
        order = list(edit.nodes())
        assert order == list(edit.reversed_nodes())[::-1]
        for value in [*graph.inputs, *(n.results[0] for n in order)]:
            expected = sum(v is value for n in order for v in n.operands)
            assert edit.use_count(value) == expected + sum(
                v is value for v in graph.outputs
            )
    assert graph.nodes == order
    verify(graph)
