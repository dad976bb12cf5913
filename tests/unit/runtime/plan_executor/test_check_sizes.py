"""Sizes that a plan does not run with are said before anything runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.plans import dynamic_plan
from tilewright.base import dtypes
from tilewright.base.errors import InputError
from tilewright.base.symbolic import symbol
from tilewright.formats.plan import Dimension, Entry, Plan, Storage
from tilewright.formats.plan.flow_layout import open_extents
from tilewright.runtime.plan_executor.check_sizes import (
    SizeChecks,
    check_sizes,
    leaves_nothing,
)
from tilewright.runtime.plan_executor.record_steps import Resources, StepRecorder
from tilewright.runtime.recorder import Recorder

N, M = symbol("N", 0), symbol("M", 0)


def plan_of(minimum: int = 0, maximum: int | None = None) -> Plan:
    """x f32[N, M] -> y f32[N, M - 2]; N and M agree where the model says so."""
    return Plan(
        "sizes",
        (("x", 0),),
        (("y", 1),),
        (Dimension("N", 0, 0, minimum, maximum), Dimension("M", 0, 1)),
        (Storage("input", 4 * N * M), Storage("output", 4 * N * (M - 2))),
        (Entry(0, dtypes.f32, (N, M)), Entry(1, dtypes.f32, (N, M - 2))),
        (),
    )


def steps(plan: Plan, **env: int) -> StepRecorder:
    return StepRecorder(Resources(plan, None, (), None, None), env, Recorder())


@pytest.mark.parametrize(
    ("minimum", "maximum", "size", "message"),
    [
        (3, None, 2, r"dimension 'N' \(axis 0\) is 2, expected at least 3"),
        (0, 7, 8, r"dimension 'N' \(axis 0\) is 8, expected at most 7"),
        (2, None, 0, "is 0, expected at least 2"),
    ],
)
def test_dimensions_have_limits(
    minimum: int, maximum: int | None, size: int, message: str
) -> None:
    plan = plan_of(minimum, maximum)
    with pytest.raises(InputError, match=message) as caught:
        leaves_nothing(steps(plan, N=size, M=5))
    assert caught.value.location == "input 'x'"


@pytest.mark.parametrize(
    ("minimum", "size", "nothing"),
    [(0, 0, True), (1, 0, True), (0, 3, False), (1, 1, False)],
)
def test_no_row_is_no_work(minimum: int, size: int, *, nothing: bool) -> None:
    assert leaves_nothing(steps(plan_of(minimum), N=size, M=5)) is nothing


def test_an_extent_is_not_negative() -> None:
    check_sizes(steps(plan_of(), N=1, M=2))
    with pytest.raises(
        InputError,
        match=r"too small for this model: M - 2 is -1 for N = 1, M = 1|\(M - 2\) is -1",
    ):
        check_sizes(steps(plan_of(), N=1, M=1))


def test_sizes_that_must_agree_do() -> None:
    plan = replace(plan_of(), equalities=((N, M),))
    check_sizes(steps(plan, N=4, M=4))
    with pytest.raises(InputError, match="sizes do not agree: N is 4, M is 5"):
        check_sizes(steps(plan, N=4, M=5))


@pytest.mark.parametrize(("size", "is_told"), [(1, True), (4, False)])
def test_what_one_size_of_1_may_have_meant_is_told(size: int, *, is_told: bool) -> None:
    plan = replace(plan_of(), equalities=((N, M),))
    with pytest.raises(InputError, match="sizes do not agree") as caught:
        check_sizes(steps(plan, N=size, M=5))
    assert ("fix it when compiling (--input-shape)" in (caught.value.hint or "")) is is_told


def test_only_what_is_asked_for_is_looked_at() -> None:
    plan = replace(plan_of(), equalities=((N, M),))
    known = steps(plan, N=9, M=1)
    SizeChecks()(known)
    with pytest.raises(InputError, match="do not agree"):
        SizeChecks(plan.equalities)(known)
    with pytest.raises(InputError, match="too small"):
        SizeChecks((), open_extents(plan))(known)


def test_a_plan_without_outputs_that_vary_is_never_nothing() -> None:
    plan = dynamic_plan()
    assert not leaves_nothing(steps(plan, N=2))
