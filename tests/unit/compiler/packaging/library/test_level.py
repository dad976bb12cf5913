"""What a library's plan says: sizes are compared before anything runs."""

from __future__ import annotations

from dataclasses import replace

from fakes.plans import flow_plan
from tilewright.base.symbolic import symbol
from tilewright.compiler.packaging.library.level import expecting_at_once
from tilewright.formats.plan import Step, verify_plan

N, M = symbol("N", 0), symbol("M", 0)


def test_what_a_step_expects_is_expected_of_every_call() -> None:
    plan = flow_plan()
    step = Step("expect", "expect_sizes", "node 'x'", (), 0, dims=(N, M, N, 3))
    steps = (*plan.steps[:2], step, *plan.steps[3:])
    changed = expecting_at_once(replace(plan, steps=steps, equalities=((N, M),)))
    assert changed.equalities == ((N, M), (N, 3))
    assert [s.kind for s in changed.steps] == [
        "row",
        "branch",
        "label",
        *(s.kind for s in steps[3:]),
    ]
    verify_plan(replace(changed, equalities=()))


def test_a_plan_that_expects_nothing_stays() -> None:
    plan = flow_plan()
    assert expecting_at_once(plan) is plan
