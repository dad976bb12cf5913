"""What is wrong with a plan is said before anybody runs it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.complaints import complaint_of
from fakes.plans import block_plan, checking_plan, dynamic_plan, flow_plan, static_plan
from tilewright.base import dtypes
from tilewright.base.errors import ArchiveError
from tilewright.base.symbolic import symbol
from tilewright.formats.plan import (
    Dimension,
    Entry,
    HostCall,
    Plan,
    SizeRange,
    Step,
    Storage,
    from_json,
    operands_of,
    results_of,
    to_json,
    verify_plan,
)


def changed(row: str, index: int, **values: Any) -> Callable[[Plan], Plan]:
    """A plan with fields of one storage, entry or step replaced."""

    def edit(plan: Plan) -> Plan:
        rows = list(getattr(plan, row))
        rows[index] = replace(rows[index], **values)
        return replace(plan, **{row: tuple(rows)})

    return edit


def test_the_plans_of_these_tests_are_valid() -> None:
    assert complaint_of(verify_plan, static_plan()) == ""
    assert complaint_of(verify_plan, dynamic_plan()) == ""


def test_steps_say_what_they_read_and_write() -> None:
    step = static_plan().steps[0]
    assert operands_of(step) == (0, 1)
    assert results_of(step) == (2,)


STATIC: list[tuple[Callable[[Plan], Plan], str]] = [
    (changed("storages", 0, kind="secret"), "storage 0 ('x'): unknown kind 'secret'"),
    (changed("storages", 1, size_bytes=-16), "storage 1 ('w'): size is negative"),
    (changed("storages", 2, first=2, last=1), "storage 2 ('sum'): bad lifetime"),
    (changed("entries", 0, storage=9), "storage of an entry out of range"),
    (changed("entries", 0, storage=-1), "storage of an entry out of range"),
    (changed("entries", 0, shape=(1,) * 65), "entry 0: too many axes"),
    (changed("entries", 0, shape=(-4, -1)), "entry 0: dimension is negative"),
    (changed("entries", 6, offset_bytes=-1), "entry 6: offset is negative"),
    (changed("entries", 6, offset_bytes=20), "entry 6: past its storage"),
    (changed("entries", 0, shape=(5,)), "entry 0: past its storage"),
    (lambda p: replace(p, inputs=(("x", 99),)), "input entry out of range"),
    (lambda p: replace(p, inputs=(("x", 2),)), "inputs and storages of that kind differ"),
    (lambda p: replace(p, inputs=()), "inputs and storages of that kind differ"),
    (lambda p: replace(p, outputs=(("y", 3), ("z", 3))), "two outputs share a storage"),
    (lambda p: replace(p, dims=(Dimension("N", 3, 0),)), "dimension 'N': no input 3"),
    (lambda p: replace(p, dims=(Dimension("N", 0, 1),)), "dimension 'N': no axis 1"),
    (lambda p: replace(p, dims=(Dimension("N", 0, 0, -1),)), "dimension 'N': negative minimum"),
    (lambda p: replace(p, dims=(Dimension("N", 0, 0),) * 2), "a dimension is listed twice"),
    (changed("entries", 0, shape=(symbol("N"),)), "dimensions ['N'] have no value"),
    (changed("steps", 0, grid=(symbol("M"), 1, 1)), "dimensions ['M'] have no value"),
    (changed("storages", 0, size_bytes=1 << 31), "input 'x': does not fill its storage"),
    (changed("storages", 3, size_bytes=1 << 40), "output 'y': does not fill its storage"),
    (changed("entries", 3, shape=(1,)), "output 'y': does not fill its storage"),
    (changed("steps", 0, kind="leap"), "step 'add': unknown kind 'leap'"),
    (changed("steps", 0, arguments=(0, 1, 42)), "step 'add': argument out of range"),
    (changed("steps", 0, result_count=4), "step 'add': bad result count"),
    (changed("steps", 0, result_count=-1), "step 'add': bad result count"),
    (changed("steps", 0, bytes_moved=symbol("K")), "dimensions ['K'] have no value"),
    (changed("steps", 0, grid=(-1, 1, 1)), "step 'add': grid is negative"),
    (changed("steps", 0, arguments=(1, 2, 0)), "step 'add': writes input 'x'"),
    (changed("steps", 0, arguments=(0, 2, 1)), "step 'add': writes constant 'w'"),
    (changed("steps", 0, arguments=(0, 5, 2)), "step 'add': uses 'wide' outside its lifetime"),
    (changed("steps", 0, host=HostCall(0, ())), "step 'add': host call"),
    (changed("steps", 2, arguments=(6,)), "step 'copy': not 1 -> 1"),
    (changed("steps", 2, arguments=(5, 3)), "step 'copy': sizes differ"),
    (changed("steps", 2, arguments=(6, 6)), "step 'copy': copies onto itself"),
    (changed("storages", 2, offset_bytes=-1), "transient 'sum': past the arena"),
    (changed("storages", 4, offset_bytes=120), "transient 'wide': past the arena"),
    (changed("storages", 4, offset_bytes=8), "two transients overlap while both are alive"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "message"), STATIC, ids=[m for _, m in STATIC])
def test_what_is_wrong_is_named(edit: Callable[[Plan], Plan], message: str) -> None:
    with pytest.raises(ArchiveError) as caught:
        verify_plan(edit(static_plan()))
    assert str(caught.value) == f"plan: {message}"


def record_at(offset: int, shape: tuple[int, ...]) -> Callable[[Plan], Plan]:
    """A plan with another tensor in the storage of its checks."""
    entry = Entry(5, dtypes.i64, shape, offset)
    return lambda plan: replace(plan, entries=(*plan.entries, entry))


def test_a_record_may_be_seen_whole_or_in_part() -> None:
    for shape in ((), (8,)):
        assert complaint_of(verify_plan, record_at(0, shape)(checking_plan())) == ""


CHECKING: list[tuple[Callable[[Plan], Plan], str]] = [
    (lambda p: replace(p, check_storage=9), "storage of the checks out of range"),
    (lambda p: replace(p, check_storage=-1), "storage of the checks out of range"),
    (lambda p: replace(p, checks=p.checks * 2), "storage of the checks: not 128 bytes of kind 'transient'"),
    (lambda p: replace(p, check_storage=2), "storage of the checks: not 64 bytes of kind 'transient'"),
    (changed("storages", 5, last=1), "storage of the checks: ends too early"),
    (changed("checks", 0, size=symbol("N")), "dimensions ['N'] have no value"),
    (record_at(8, (7,)), "entry 7: is no record of a check"),
    (record_at(64, (0,)), "entry 7: is no record of a check"),
]  # fmt: skip


@pytest.mark.parametrize(("edit", "message"), CHECKING, ids=[m for _, m in CHECKING])
def test_what_is_wrong_with_checks_of_indices_is_named(
    edit: Callable[[Plan], Plan], message: str
) -> None:
    verify_plan(checking_plan())
    with pytest.raises(ArchiveError) as caught:
        verify_plan(edit(checking_plan()))
    assert str(caught.value) == f"plan: {message}"


def test_records_of_checks_lie_in_memory_of_the_call() -> None:
    plan = checking_plan()
    weights = replace(plan.storages[5], kind="constant", offset_bytes=64)
    with pytest.raises(ArchiveError, match="not 64 bytes of kind 'transient'"):
        verify_plan(replace(plan, storages=(*plan.storages[:5], weights)))


def test_a_step_may_have_no_result() -> None:
    assert (
        complaint_of(verify_plan, changed("steps", 0, result_count=0)(static_plan())) == ""
    )


DYNAMIC: list[tuple[Callable[[Plan], Plan], str]] = [
    (changed("steps", 1, host=None), "step 'resize': host call"),
    (changed("steps", 1, host=HostCall(-1, ())), "step 'resize': bad operand count"),
    (changed("steps", 1, host=HostCall(4, (0, 4))), "step 'resize': operand out of range"),
    (
        changed("steps", 1, host=HostCall(4, (1, 1))),
        "step 'resize': operands do not match the call",
    ),
    (
        changed("steps", 1, host=HostCall(4, (1,))),
        "step 'resize': operands do not match the call",
    ),
    (lambda p: replace(p, dims=()), "dimensions ['N'] have no value"),
    (lambda p: replace(p, inputs=(("x", 0), ("x", 3))), "two inputs have one name"),
    (changed("entries", 0, shape=(4,)), "input 'x': does not fill its storage"),
]


@pytest.mark.parametrize(("edit", "message"), DYNAMIC, ids=[m for _, m in DYNAMIC])
def test_what_is_wrong_with_host_calls_and_dimensions_is_named(
    edit: Callable[[Plan], Plan], message: str
) -> None:
    with pytest.raises(ArchiveError) as caught:
        verify_plan(edit(dynamic_plan()))
    assert str(caught.value) == f"plan: {message}"


def calling(**fields: Any) -> Plan:
    """The static plan with its first step a call of a packed function."""
    plan = changed("steps", 0, kind="call", target="ext.add", grid=(1, 1, 1))(static_plan())
    return changed("steps", 0, **fields)(plan)


def test_a_step_may_call_a_packed_function() -> None:
    assert complaint_of(verify_plan, calling()) == ""


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"target": ""}, "step 'add': '' is no symbol"),
        ({"target": "a\0b"}, "step 'add': 'a\0b' is no symbol"),
        ({"target": "ä"}, "step 'add': 'ä' is no symbol"),
        ({"target": "a" * 4097}, f"step 'add': '{'a' * 4097}' is no symbol"),
        ({"grid": (2, 1, 1)}, "step 'add': has a grid or dimensions"),
        ({"dims": (7,)}, "step 'add': has a grid or dimensions"),
        ({"host": HostCall(2, (0, 1))}, "step 'add': host call"),
        ({"arguments": (1, 2, 0)}, "step 'add': writes input 'x'"),
    ],
)
def test_what_is_wrong_with_a_call_is_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ArchiveError) as caught:
        verify_plan(calling(**fields))
    assert str(caught.value) == f"plan: {message}"


def test_tensors_that_never_live_together_may_share_bytes() -> None:
    plan = changed("storages", 2, last=0)(static_plan())
    plan = changed("storages", 4, offset_bytes=0)(plan)
    plan = changed("steps", 1, arguments=(0, 5))(plan)
    assert complaint_of(verify_plan, plan) == ""


blocks = st.lists(
    st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(0, 9), st.integers(0, 4)),
    max_size=8,
)


@given(blocks)
def test_overlaps_are_found_exactly(rows: list[tuple[int, int, int, int]]) -> None:
    storages = [
        Storage("transient", size, first, first + length, offset)
        for first, length, offset, size in rows
    ]
    overlap = any(
        a.first <= b.last
        and b.first <= a.last
        and max(a.offset_bytes, b.offset_bytes)
        < min(
            a.offset_bytes + int(str(a.size_bytes)), b.offset_bytes + int(str(b.size_bytes))
        )
        for i, a in enumerate(storages)
        for b in storages[:i]
    )
    plan = Plan("p", (), (), (), tuple(storages), (), (), arena_bytes=16)
    if overlap:
        with pytest.raises(ArchiveError, match="overlap"):
            verify_plan(plan)
    else:
        verify_plan(plan)


def test_entries_and_plans_are_plain_data() -> None:
    entry = Entry(0, dtypes.i4, (3, 5))
    assert entry.size_bytes == 15
    assert Entry(0, dtypes.f32, (symbol("N"), 2)).size_bytes == 8 * symbol("N")
    assert static_plan().is_static
    assert not dynamic_plan().is_static
    assert dataclasses.replace(static_plan()) == static_plan()
    assert Step("copy", "c", "", (0, 1), 1).barrier


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (changed("steps", 0, arguments=(1, 0, 0, 4)), "step 'row': not 2 -> 1"),
        (changed("steps", 0, arguments=(2, 0, 4)), "step 'row': does not read 8 bytes"),
        (changed("steps", 0, arguments=(1, 4, 4)), "step 'row': bad table"),
        (
            changed("entries", 0, shape=(symbol("N", 1), 2)),
            "dimensions ['N'] have no value",
        ),
        (changed("entries", 4, shape=(1,)), "step 'row': not a row of its table"),
        (changed("entries", 0, shape=(5,)), "input 'x': does not fill its storage"),
        (changed("storages", 4, kind="transient"), "step 'row': writes transient 'picked'"),
        (changed("steps", 2, arguments=(3, 4)), "step 'copy': writes row 'picked'"),
        (changed("steps", 1, goto=5), "step 'branch': bad target"),
        (changed("steps", 3, goto=-1), "step 'jump': bad target"),
        (changed("steps", 1, arguments=(1,)), "step 'branch': does not read 1 bytes"),
        (changed("steps", 4, arguments=(2,)), "step 'else': not 0 -> 0"),
    ],
)
def test_what_steps_of_control_flow_must_not_do_is_refused(
    change: Callable[[Plan], Plan], complaint: str
) -> None:
    assert complaint_of(verify_plan, flow_plan()) == ""
    assert complaint in complaint_of(verify_plan, change(flow_plan()))


def endless(plan: Plan) -> Plan:
    """The plan with a circle for its second branch."""
    circle = Step("jump", "again", "", (), 0, goto=4)
    return replace(plan, steps=(*plan.steps[:5], circle, plan.steps[6]))


def test_a_circle_that_no_way_leads_out_of_is_refused() -> None:
    assert complaint_of(verify_plan, endless(flow_plan())) == (
        "plan: step 'else': no way leads from here to the end"
    )


def test_a_circle_that_nothing_leads_to_is_no_matter() -> None:
    plan = endless(flow_plan())
    straight = replace(
        plan.steps[1], kind="copy", arguments=(4, 3), result_count=1, goto=-1
    )
    plan = replace(plan, steps=(plan.steps[0], straight, *plan.steps[2:]))
    assert complaint_of(verify_plan, plan) == ""


def test_a_loop_that_a_condition_ends_is_taken() -> None:
    steps = list(flow_plan().steps)
    steps[1] = replace(steps[1], goto=6)
    steps[3] = replace(steps[3], goto=0)
    steps[0] = Step("label", "loop", "", (), 0)
    steps[2] = replace(steps[2], arguments=(5, 3))
    assert complaint_of(verify_plan, replace(flow_plan(), steps=tuple(steps))) == ""


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (changed("steps", 1, arguments=(5, 3)), "step 'allocate': not 0 -> 1"),
        (changed("steps", 1, arguments=(2,)), "step 'allocate': writes output"),
        (changed("steps", 3, arguments=(0, 5)), "step 'rebind': moves what is no block"),
        (changed("steps", 3, result_count=0), "step 'rebind': not 0 -> 0"),
        (changed("steps", 3, arguments=(3, 4, 5, 5), result_count=2), "one block twice"),
        (changed("steps", 3, dims=()), "step 'rebind': not 1 -> 1"),
        (changed("steps", 3, sizes=()), "step 'rebind': bad sizes"),
        (changed("steps", 3, dims=(symbol("Q"),)), "dimensions ['Q'] have no value"),
        (changed("steps", 2, sizes=(SizeRange("K"),)), "step 'copy': bad sizes"),
    ],
)
def test_what_steps_must_not_do_with_memory_that_changes_hands_is_refused(
    change: Callable[[Plan], Plan], complaint: str
) -> None:
    assert complaint_of(verify_plan, block_plan()) == ""
    assert complaint in complaint_of(verify_plan, change(block_plan()))


def test_sizes_are_expected_in_pairs() -> None:
    plan = block_plan()
    for dims, complaint in (((1, 1), ""), ((1,), "step 'e': compares no pairs")):
        step = Step("expect", "e", "", (), 0, dims=dims)
        changed_plan = replace(plan, steps=(*plan.steps, step))
        assert complaint in complaint_of(verify_plan, changed_plan)
        assert bool(complaint) == bool(complaint_of(verify_plan, changed_plan))


def test_a_plan_in_which_memory_changes_hands_has_a_version_of_its_own() -> None:
    data = to_json(block_plan())
    assert b'"version":[1,6]' in data.replace(b" ", b"")
    assert from_json(data) == block_plan()
