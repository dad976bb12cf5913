"""A plan is stepped through where its steps run: rows, branches, memory that changes hands."""

from __future__ import annotations

import numpy as np

from fakes.plans import block_plan, flow_plan
from tilewright.formats.plan import Plan
from tilewright.runtime.plan_executor.executor import PlanExecutor
from tilewright.runtime.plan_executor.flow_stepper import FlowStepper

X = np.arange(6, dtype=np.float32).reshape(3, 2)


def stepper(plan: Plan, *inputs: np.ndarray) -> FlowStepper:
    return PlanExecutor(plan, None, []).flow_stepper([X, *inputs])


def walked(steps: FlowStepper) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    while (index := steps.advance()) is not None:
        found.append((steps.path, index))
        steps.run()
    return found


def test_a_row_is_seen_where_it_lies() -> None:
    for place, row in ((0, 0), (-1, 2), (2, 2), (9, 2), (-9, 0)):
        steps = stepper(flow_plan(), np.array(place), np.array(True))
        assert walked(steps) == [("else.then/", 2)]
        np.testing.assert_array_equal(steps.tensor(4), X[row])
        np.testing.assert_array_equal(steps.tensor(3), X[row])


def test_only_what_runs_is_a_step() -> None:
    steps = stepper(block_plan(), np.array(False))
    assert walked(steps) == [("else.else/", 7), ("", 10)]
    np.testing.assert_array_equal(steps.tensor(2), X)
    assert walked(stepper(block_plan(), np.array(True))) == [("else.then/", 2), ("", 10)]


def test_a_step_may_run_again() -> None:
    steps = stepper(block_plan(), np.array(True))
    assert steps.advance() == 2
    for _ in range(3):
        steps.run()
    np.testing.assert_array_equal(steps.tensor(3), X[:1])
