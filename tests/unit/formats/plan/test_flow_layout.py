"""Where a plan is cut: at what the host reads, and at the ways past that, not at other loops and branches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.plans import block_plan, flow_plan
from tilewright.base import dtypes
from tilewright.base.symbolic import symbol
from tilewright.formats.plan import Entry, Plan, SizeRange, Step, Storage
from tilewright.formats.plan.flow_layout import FROM_INPUTS, FlowLayout, find_cuts

S, T = symbol("S", 0), symbol("T", 0)


_KINDS = {
    "c": "copy",
    "r": "read",
    "a": "allocate",
    ":": "label",
    "b": "branch",
    "j": "jump",
}


def steps_of(text: str) -> tuple[Step, ...]:
    """Steps by letter: `c` copies, `r` reads, `a` allocates, `:` is a label, `b3` branches and `j3` jumps to step 3."""
    found: list[Step] = []
    for word in text.split():
        kind = _KINDS[word[0]]
        goto = int(word[1:]) if len(word) > 1 else -1
        sizes = (SizeRange("S"),) if kind == "read" else ()
        found.append(Step(kind, kind, "", (), 0, goto=goto, sizes=sizes))
    return tuple(found)


@pytest.mark.parametrize(
    ("text", "cuts"),
    [
        ("c c c", set()),
        ("c r c", {1}),
        ("c a c", {1}),
        # A loop, before what is read and behind it.
        (": c b5 c j0 : r", {6}),
        ("r : c b6 c j1 :", {0}),
        # What is read in a loop cuts it, with its label and every way.
        ("c : c b7 r c j1 : c", {1, 3, 4, 6, 7}),
        # The loop inside, without a read, stays whole.
        (": b10 r : c b8 c j3 : j0 :", {0, 1, 2, 9, 10}),
        # Branches around a read, and beside it.
        ("b4 r c j5 : : b9 c j10 : :", {0, 1, 3, 4, 5}),
        # A way that ends where another one must be cut.
        ("b3 c c : r j3", {0, 3, 4, 5}),
    ],
)
def test_cuts(text: str, cuts: set[int]) -> None:
    assert find_cuts(steps_of(text)) == cuts


def reading_plan() -> Plan:
    """`flow_plan` behind a read, which sizes a transient."""
    plan = flow_plan()
    storages = (*plan.storages, Storage("transient", 8 * S, 0, 8, name="late"))
    entries = (
        *plan.entries,
        Entry(5, dtypes.f32, (S, 2)),
        Entry(5, dtypes.f32, (2,), 8 * T),
    )
    moved = tuple(replace(s, goto=s.goto + 1 if s.goto >= 0 else -1) for s in plan.steps)
    read = Step("read", "read", "", (1,), 0, sizes=(SizeRange("S"),))
    late = Step("copy", "copy", "", (7, 3), 1)
    return replace(plan, storages=storages, entries=entries, steps=(read, *moved, late))


def test_a_run_knows_what_it_uses_and_depends_on() -> None:
    layout = FlowLayout(reading_plan())
    (run,) = layout.runs.values()
    assert (run.start, run.stop) == (1, 9)
    assert set(run.storages) == {0, 1, 2, 3, 4, 5}
    assert run.symbols == ("S", "T")


def test_a_storage_belongs_to_the_read_of_its_last_size() -> None:
    layout = FlowLayout(reading_plan())
    assert layout.groups == (*[FROM_INPUTS] * 5, 0)
    assert layout.group_symbols == {FROM_INPUTS: (), 0: ("S",)}


def test_a_plan_that_reads_nothing_is_one_run() -> None:
    (run,) = FlowLayout(flow_plan()).runs.values()
    assert (run.start, run.stop) == (0, 7)


def test_sizes_are_looked_at_where_the_last_of_them_is_known() -> None:
    """A size that was read in a trip before is none of this one."""
    plan = reading_plan()
    reads = [
        Step("read", "read", "", (1,), 0, sizes=(SizeRange(name),)) for name in ("S", "T")
    ]
    entries = (*plan.entries, Entry(0, dtypes.f32, (S - 2, 2)))
    plan = replace(plan, steps=(*reads, *plan.steps[1:]), entries=entries)
    layout = FlowLayout(replace(plan, equalities=((T, S + 1), (S, 3 * S))))
    assert layout.conditions[0].equalities == ((S, 3 * S),)
    assert layout.conditions[0].extents == (S - 2,)
    assert layout.conditions[1].equalities == ((T, S + 1),)


def test_a_size_that_several_steps_bind_belongs_to_the_first() -> None:
    plan = block_plan()
    layout = FlowLayout(plan)
    assert layout.groups_of(["K"]) == (3,)
    assert [layout.groups[i] for i in (0, 2, 5)] == [FROM_INPUTS, 3, 3]
    assert layout.group_symbols == {FROM_INPUTS: (), 3: ("K",)}
    assert layout.blocks_of == {"K": (5,)}
