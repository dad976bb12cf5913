"""Programs with control flow: what they compute, and where what loops carry lies."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from fakes import flow_graphs, flow_models
from fakes.graphs import parse
from tilewright.base.target import Target
from tilewright.compiler import pipeline
from tilewright.compiler.compile_options import CompileOptions
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.formats.plan import Plan

MODELS = flow_models.models()
COUNT = """graph @g<N: 1..>(%n: i64[], %x: f32[N]) {
  %zero: i64[] = constant {value = i64[] [0]}
  %t: i64[], %z: f32[N] = while(%zero, %x, %n) {carried = 2}
    graph @go(%i: i64[], %p: f32[N], %m: i64[]) {
      %g: bool[] = less(%i, %m)
      return %g
    }
    graph @body(%i: i64[], %p: f32[N], %m: i64[]) {
      %one: i64[] = constant {value = i64[] [1]}
      %j: i64[] = add(%i, %one)
      %half: f32[] = constant {value = f32[] [0.5]}
      %q: f32[N] = mul(%p, %half)
      return %j, %q
    }
  return %t, %z
}"""


def plan_of(text: str) -> Plan:
    options = CompileOptions(targets=(Target.host(),), cache=None, jobs=1)
    return pipeline.compile_model(parse(text), options).parts[0].plan


def arrays_of(results: object) -> list[np.ndarray]:
    return list(results) if isinstance(results, tuple) else [results]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MODELS)
def test_a_program_with_control_flow_computes_what_the_graph_does(name: str) -> None:
    case = MODELS[name]
    graph, model = load(case.model), tw.compile(case.model)
    for inputs in case.calls:
        wanted = evaluate(graph, list(inputs))
        for actual, expected in zip(arrays_of(model(*inputs)), wanted, strict=True):
            assert actual.shape == expected.shape
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_what_a_loop_carries_is_written_over_where_no_one_reads_it_any_more() -> None:
    plan = plan_of(COUNT)
    head = next(i for i, step in enumerate(plan.steps) if step.kind == "label")
    back = next(i for i, step in enumerate(plan.steps) if step.kind == "jump")
    assert "copy" not in {step.kind for step in plan.steps[head:back]}


def test_plans_without_control_flow_say_so() -> None:
    plan = plan_of("graph @g(%x: f32[3]) { %y: f32[3] = neg(%x) return %y }")
    assert not plan.has_flow
    assert plan.is_static


def test_what_grows_is_handed_from_trip_to_trip_and_not_copied() -> None:
    plan = plan_of(flow_graphs.GROWTH)
    head = next(i for i, step in enumerate(plan.steps) if step.kind == "label")
    back = next(i for i, step in enumerate(plan.steps) if step.kind == "jump")
    kinds = [step.kind for step in plan.steps[head:back]]
    assert kinds.count("allocate") == kinds.count("rebind") == 1
    assert "copy" not in kinds


@pytest.mark.slow
def test_what_a_branch_hands_over_may_be_carried_in_one_size() -> None:
    case = MODELS["a_loop_over_what_a_branch_made"]
    graph, model = load(case.model), tw.compile(case.model)
    for inputs in case.calls:
        (wanted,) = evaluate(graph, list(inputs))
        np.testing.assert_allclose(model(*inputs), wanted, rtol=1e-6)
