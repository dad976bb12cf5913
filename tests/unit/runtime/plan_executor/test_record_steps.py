"""Steps as commands: what leads where, what is looked at when, and what fails only where it runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from fakes import flow_graphs
from fakes.graphs import parse
from fakes.plans import flow_plan
from tilewright.base.errors import ArchiveError, InputError, UserError
from tilewright.formats.plan import Plan, Step
from tilewright.runtime.plan_executor.executor import PlanExecutor
from tilewright.runtime.plan_executor.record_steps import Resources, StepRecorder
from tilewright.runtime.recorder import Recorder

X = np.arange(6, dtype=np.float32).reshape(3, 2)


def ask(executor: PlanExecutor, place: int, *, picks: bool) -> list[float]:
    (y,) = executor(X, np.array(place), np.array(picks))
    return y.tolist()


def test_a_plan_picks_a_row_and_a_branch() -> None:
    executor = PlanExecutor(flow_plan(), None, [])
    assert [ask(executor, i, picks=True) for i in (0, 1, 2, -1, 9)] == [
        *([0, 1], [2, 3], [4, 5], [4, 5], [4, 5])
    ]
    assert ask(executor, 2, picks=False) == [0, 1]


def test_such_a_plan_is_prepared_and_writes_where_it_shall() -> None:
    executor = PlanExecutor(flow_plan(), None, [])
    out, place = np.zeros(2, np.float32), np.array(1)
    executor.run_into([X, place, np.array(True)], [out])
    assert out.tolist() == [2, 3]
    prepared = executor.prepare([X, place, np.array(True)], [out])
    place[...] = 2
    prepared()
    assert out.tolist() == [4, 5]


def test_a_profile_has_the_steps_that_compute() -> None:
    executor = PlanExecutor(flow_plan(), None, [])
    rows = executor.profile([X, np.array(0), np.array(False)])
    assert [step.kind for step, _ in rows] == ["row", "copy", "copy"]


def recorded(plan: Plan, start: int, stop: int) -> StepRecorder:
    recorder = Recorder()
    steps = StepRecorder(Resources(plan, None, (), None, None), {}, recorder)
    slots = [
        recorder.row_slot(8) if s.kind == "row" else recorder.slot(24, writable=True)
        for s in plan.storages
    ]
    steps.places = [(slot, 0) for slot in slots]
    steps.record(start, stop)
    return steps


def test_every_command_says_whose_it_is() -> None:
    assert recorded(flow_plan(), 0, 7).command_steps == [0, 1, 2, 3, 5]
    assert recorded(flow_plan(), 2, 3).command_steps == [2]


def test_what_could_not_run_fails_only_where_it_is_reached() -> None:
    """A branch whose sizes make no sense here is not the one that is taken."""
    plan = flow_plan()
    broken = replace(plan.steps[5], kind="dispatch", name="none", target="none")
    plan = replace(plan, steps=(*plan.steps[:5], broken, plan.steps[6]))
    executor = PlanExecutor(plan, None, [])
    assert ask(executor, 1, picks=True) == [2, 3]
    with pytest.raises(ArchiveError, match="executable has no kernel 'none'"):
        ask(executor, 1, picks=False)


def test_what_always_runs_fails_when_it_is_recorded() -> None:
    plan = flow_plan()
    broken = Step("dispatch", "none", "none", (5, 3), 1)
    with pytest.raises(ArchiveError, match="no kernel 'none'"):
        PlanExecutor(replace(plan, steps=(broken,)), None, [])


def test_an_index_of_any_trip_is_looked_at() -> None:
    """Also where the trips behind it overwrite what was found."""
    model = tw.compile(parse(flow_graphs.INDEXING))
    x = np.arange(5, dtype=np.float32)
    assert model(x, np.array([4, 0, -2])) == 7
    for place in range(3):
        places = np.array([1, 1, 1])
        places[place] = 5
        with pytest.raises(InputError, match="index 5 is out of range on axis 0 of size 5"):
            model(x, places)


def test_a_loop_is_refused_step_by_step_and_says_so() -> None:
    model = tw.compile(parse(flow_graphs.INDEXING))
    inputs = [np.arange(5, dtype=np.float32), np.array([4, 0, -2])]
    with pytest.raises(UserError, match="control flow does not run step by step"):
        model.session.executor.stepper(inputs)
