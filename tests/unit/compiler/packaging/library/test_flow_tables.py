"""What a library's tables say of sizes that data decides."""

from __future__ import annotations

from dataclasses import replace

from fakes.plans import block_plan, dynamic_plan, flow_plan
from tilewright.base.symbolic import symbol
from tilewright.compiler.packaging.library.flow_tables import FlowTables
from tilewright.formats.plan import Step

K = symbol("K", 0)


def test_a_plan_whose_inputs_decide_all_sizes_has_no_tables() -> None:
    for plan in (dynamic_plan(), flow_plan()):
        tables = FlowTables(plan)
        assert not tables.is_needed
        assert tables.tables() == ()
        assert tables.late_names == ()
        assert set(tables.groups) == {0}


def test_who_binds_a_size_and_what_waits_for_it() -> None:
    tables = FlowTables(block_plan())
    rows = {name: rows for name, _, rows in tables.tables()}
    assert tables.is_needed
    assert tables.late_names == ("K",)
    assert rows["late_sizes"] == ['{0, 1, 0, 3, ""}'] * 2  # each branch binds it
    assert tables.groups == (0, 0, 1, 0, 0, 1)
    assert (tables.group_of((3,)), tables.group_of((K + 1, 3))) == (0, 1)
    assert list(tables.firsts())[3:5] == [0, 1]
    assert list(tables.firsts())[8] == 1


def test_stretches_are_what_lies_between_decisions() -> None:
    tables = FlowTables(block_plan())
    rows = {name: rows for name, _, rows in tables.tables()}
    stretches = [list(map(int, row[1:-1].split(", "))) for row in rows["stretches"]]
    assert [row[:2] for row in stretches] == [[2, 3], [7, 8], [10, 11]]

    def listed(first: int, count: int) -> list[int]:
        return tables.lists[first : first + count]

    assert [listed(*row[2:4]) for row in stretches] == [[], [], [0]]
    assert [sorted(listed(*row[4:])) for row in stretches] == [[0, 3], [0, 4], [2, 5]]
    groups = [list(map(int, row[1:-1].split(", "))) for row in rows["groups"]]
    assert [listed(*row[2:]) for row in groups] == [[], [2]]


def test_expectations_are_counted_by_themselves() -> None:
    plan = block_plan()
    expect = Step("expect", "expect", "node 'x'", (), 0, dims=(K, 1, K, 2))
    steps = (*plan.steps[:10], expect, *plan.steps[10:], expect)
    firsts = list(FlowTables(replace(plan, steps=steps)).firsts())
    assert (firsts[10], firsts[-1]) == (0, 2)
