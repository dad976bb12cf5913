"""A plan as rows of tables: who binds which size, what waits for it, what steps refer to."""

from __future__ import annotations

from dataclasses import replace

from fakes.plans import block_plan, checking_plan, dynamic_plan, flow_plan, static_plan
from tilewright.base.symbolic import symbol
from tilewright.formats.plan import Step
from tilewright.formats.plan.program_rows import ProgramRows, StepKind, StorageKind

K = symbol("K", 0)


def test_a_plan_whose_inputs_decide_all_sizes_has_one_group() -> None:
    for plan in (dynamic_plan(), flow_plan()):
        rows = ProgramRows(plan)
        assert not rows.has_late_sizes
        assert rows.late_names == ()
        assert rows.late_sizes() == []
        assert set(rows.groups) == {0}


def test_who_binds_a_size_and_what_waits_for_it() -> None:
    rows = ProgramRows(block_plan())
    assert rows.has_late_sizes
    assert rows.late_names == ("K",)
    assert rows.late_sizes() == [(0, 1, 0, 3, "")] * 2  # each branch binds it
    assert rows.groups == (0, 0, 1, 0, 0, 1)
    assert (rows.group_of((3,)), rows.group_of((K + 1, 3))) == (0, 1)
    assert rows.steps()[3][1] == 0
    assert rows.steps()[8][1] == 1


def test_stretches_are_what_lies_between_decisions() -> None:
    rows = ProgramRows(block_plan())
    assert [row[:2] for row in rows.stretches] == [(2, 3), (7, 8), (10, 11)]

    def listed(first: object, count: object) -> list[int]:
        assert isinstance(first, int)
        assert isinstance(count, int)
        return rows.lists[first : first + count]

    assert [listed(*row[2:4]) for row in rows.stretches] == [[], [], [0]]
    assert [sorted(listed(*row[4:])) for row in rows.stretches] == [[0, 3], [0, 4], [2, 5]]
    assert [listed(*row[2:]) for row in rows.group_rows] == [[], [2]]


def test_expectations_are_counted_by_themselves() -> None:
    plan = block_plan()
    expect = Step("expect", "expect", "node 'x'", (), 0, dims=(K, 1, K, 2))
    steps = (*plan.steps[:10], expect, *plan.steps[10:], expect)
    rows = ProgramRows(replace(plan, steps=steps))
    assert (rows.steps()[10][1], rows.steps()[-1][1]) == (0, 2)
    assert [row[5] for row in rows.expectations()] == ["node 'x'"] * 4


def test_steps_say_where_their_arguments_and_constants_are() -> None:
    plan = static_plan()
    rows = ProgramRows(plan)
    assert rows.kernels == {"add": 0, "widen": 1}
    kinds = (StepKind.DISPATCH, StepKind.DISPATCH, StepKind.COPY)
    assert [row[:5] for row in rows.steps()] == [
        (kinds[0], 0, 0, 3, 1),
        (kinds[1], 1, 3, 2, 1),
        (kinds[2], 0, 5, 2, 1),
    ]
    assert rows.arguments() == [0, 1, 2, 4, 5, 6, 3]
    assert [row[0] for row in rows.storages()][:2] == [
        StorageKind.INPUT,
        StorageKind.CONSTANT,
    ]
    assert [row[-1] for row in rows.steps()] == [(2, 1, 1), (1, 3, 1), (1, 1, 1)]


def test_checks_come_in_their_order() -> None:
    plan = checking_plan()
    assert len(ProgramRows(plan).checks()) == len(plan.checks)
