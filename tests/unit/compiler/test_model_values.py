"""A plan says which of its tensors are values of the model: those whose names are there once."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tilewright as tw
from fakes.graphs import parse
from tilewright.base.errors import ArchiveError
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.ops.builder import make_node
from tilewright.formats.plan import ModelValue, Plan, from_json, to_json
from tilewright.runtime.plan_executor import PlanExecutor

CHAIN = """graph @g(%x: f32[2, 6]) {
  %a: f32[2, 6] = exp(%x)
  %r: f32[12] = reshape(%a) {shape = [12]}
  %s: f32[12] = softmax(%r) {axis = 0}
  %t: f32[12] = tanh(%s)
  return %t
}"""


def plan_of(text: str, level: int) -> Plan:
    executor = tw.compile(parse(text), opt_level=level).session.executor
    assert isinstance(executor, PlanExecutor)
    return executor.plan


def test_views_are_the_tensor_that_they_show_and_the_order_is_the_models() -> None:
    values = plan_of(CHAIN, 0).values
    assert [(v.name, v.step) for v in values] == [("a", 0), ("r", 0), ("s", 1), ("t", 2)]


def test_a_name_that_two_values_have_is_nobodys() -> None:
    text = """graph @g(%x: f32[4], %c: bool[]) {
      %y: f32[4] = if(%c, %x)
        graph @then(%p: f32[4]) {
          %v: f32[4] = exp(%p)
          return %v
        }
        graph @else(%p: f32[4]) {
          %v: f32[4] = tanh(%p)
          return %v
        }
      %z: f32[4] = neg(%y)
      return %z
    }"""
    names = [value.name for value in plan_of(text, 0).values]
    assert names == ["z"]


def test_the_file_form_keeps_them() -> None:
    plan = plan_of(CHAIN, 2)
    assert plan.values
    assert from_json(to_json(plan)).values == plan.values


def test_what_is_replaced_by_another_order_of_axes_names_what_is_reordered() -> None:
    graph = parse("""graph @g(%x: f32[2, 3, 4]) {
      %y: f32[2, 4, 3] = transpose(%x) {perm = [0, 2, 1]}
      return %y
    }""")
    (node,) = graph.nodes
    with Editor(graph) as edit:
        inner = make_node("neg", [graph.inputs[0]])
        edit.insert_before(node, inner)
        moved = make_node("transpose", [inner.result], {"perm": (0, 2, 1)})
        edit.insert_before(node, moved)
        edit.replace(node, [moved.result])
    assert [value.name for n in graph for value in n.results] == ["y(0, 2, 1)", "y"]


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (ModelValue("a", 9, 0), "no step 9"),
        (ModelValue("a", 0, 3), "no result 3"),
        (ModelValue("a", 0, 0, (0, 0)), "axes are none of 2"),
    ],
)
def test_a_value_that_is_not_there_is_refused(value: ModelValue, problem: str) -> None:
    plan = replace(plan_of(CHAIN, 0), values=(value,))
    with pytest.raises(ArchiveError, match=problem):
        from_json(to_json(plan))
