"""What was read is written with equal values and in TVM's order of keys."""

from __future__ import annotations

import json

import pytest

from fakes.graphs_of_tvm import files
from fakes.plans import calling_plan, dynamic_plan, static_plan
from tilewright.formats.graph_json import UNKNOWN, read_graph, write_graph
from tilewright.formats.plan import Plan, to_json


@pytest.mark.parametrize("data", files())
def test_a_file_comes_back_with_equal_values(data: bytes) -> None:
    graph = read_graph(data)
    written = write_graph(graph)
    assert json.loads(written) == json.loads(data)
    assert read_graph(written) == graph
    assert write_graph(read_graph(written)) == written


@pytest.mark.parametrize("data", files())
def test_keys_stand_in_the_order_of_the_file(data: bytes) -> None:
    written = json.loads(write_graph(read_graph(data)))
    given = json.loads(data)
    assert list(written) == list(given)
    assert list(written["attrs"]) == list(given["attrs"])
    for left, right in zip(written["nodes"], given["nodes"], strict=True):
        assert list(left.get("attrs", {})) == list(right.get("attrs", {}))


PLANS = (static_plan(), dynamic_plan(), calling_plan())


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.name)
def test_plans_are_graphs_of_tvm(plan: Plan) -> None:
    graph = read_graph(to_json(plan))
    assert write_graph(graph) == to_json(plan)
    assert graph.input_names[: len(plan.inputs)] == tuple(name for name, _ in plan.inputs)
    assert len(graph.heads) == len(plan.outputs)
    assert plan.is_static == (UNKNOWN not in sum(graph.entries.shape, ()))
