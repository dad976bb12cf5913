"""What a plan says of a call: who reads what of whom, and where it lies."""

from __future__ import annotations

import tilewright as tw
from fakes.small_models import mlp
from tilewright.api.report.plan_reader import PlanReader, places_of
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import symbol
from tilewright.formats.plan import Dimension, Entry, Plan, Step, Storage

N = symbol("n")


def concatenation() -> Plan:
    """Two halves of one storage come from two steps, a third reads all of it, a fourth writes it anew."""
    storages = (
        Storage("input", 16 * N),
        Storage("output", 16 * N, first=4, last=4),
        Storage("transient", 32 * N, first=0, last=4, name="whole"),
        Storage("constant", 16, offset_bytes=0),
        Storage("transient", 32 * N, first=2, last=2, name="scratch"),
    )
    entries = (
        Entry(0, f32, (N, 4)),
        Entry(2, f32, (N, 4)),
        Entry(2, f32, (N, 4), 16 * N),
        Entry(2, f32, (2 * N, 4)),
        Entry(1, f32, (N, 4)),
        Entry(3, f32, (4,)),
        Entry(4, f32, (2 * N, 4)),
    )
    steps = (
        Step("dispatch", "a", "a", (0, 1), 1),
        Step("dispatch", "b", "b", (0, 5, 2), 1, flops=4 * N),
        Step("dispatch", "c", "c", (3, 6), 1),
        Step("dispatch", "d", "d", (3,), 1),
        Step("dispatch", "e", "e", (3, 4), 1),
    )
    return Plan(
        "p", (("x", 0),), (("y", 4),), (Dimension("n", 0, 0),), storages, entries, steps
    )


def test_edges_follow_bytes_not_storages() -> None:
    plan = concatenation()
    reader = PlanReader(plan, {"n": 3})
    places = places_of(plan, plan.steps)
    assert places is not None
    found = {(e.source, e.target): e.tensor.text for e in reader.edges(places)}
    assert found == {
        (-1, 0): "f32[3, 4]",
        (-1, 1): "f32[3, 4]",
        (0, 2): "f32[6, 4]",
        (1, 2): "f32[6, 4]",
        (3, 4): "f32[6, 4]",
        (4, -1): "f32[3, 4]",
    }


def test_constants_are_told_apart_and_sizes_are_those_of_the_call() -> None:
    plan = concatenation()
    reader = PlanReader(plan, {"n": 3})
    operands, constants, results = reader.tensors(plan.steps[1])
    assert [t.text for t in operands] == ["f32[3, 4]"]
    assert [t.text for t in constants] == ["f32[4]"]
    assert [(t.text, t.size_bytes) for t in results] == [("f32[3, 4]", 48)]
    assert reader.row(plan.steps[1], 6).flops == 12


def test_an_arena_that_depends_on_the_call_is_packed_as_the_executor_does() -> None:
    plan = concatenation()
    places = places_of(plan, plan.steps)
    assert places is not None
    memory = PlanReader(plan, {"n": 4}).memory(places)
    assert memory.peak_bytes == 256
    assert memory.arena_bytes == 256
    assert memory.weights_bytes == 16
    assert {(i.name, i.first, i.last, i.size_bytes) for i in memory.lifetimes} == {
        ("whole", 0, 4, 128),
        ("scratch", 2, 2, 128),
    }
    offsets = {i.name: i.offset for i in memory.lifetimes}
    assert sorted(offsets.values()) == [0, 128]


def test_steps_that_did_not_run_are_left_out_and_others_are_no_plan() -> None:
    plan = concatenation()
    taken = [plan.steps[0], *plan.steps[2:]]
    places = places_of(plan, taken)
    assert places == {0: 0, 2: 1, 3: 2, 4: 3}
    memory = PlanReader(plan, {"n": 1}).memory(places)
    assert {(i.name, i.first, i.last) for i in memory.lifetimes} == {
        ("whole", 0, 3),
        ("scratch", 1, 1),
    }
    assert places_of(plan, [Step("dispatch", "a", "a", (0, 1), 1)]) is None


def test_the_arena_is_the_one_that_the_executor_takes() -> None:
    session = tw.compile(mlp("batch"), jobs=1).session
    assert session.variant is not None
    plan = session.variant.plan
    places = places_of(plan, plan.steps)
    assert places is not None
    memory = PlanReader(plan, {"batch": 7}).memory(places)
    for lifetime in memory.lifetimes:
        assert 0 <= lifetime.offset <= memory.arena_bytes - lifetime.size_bytes
        assert 0 <= lifetime.first <= lifetime.last < len(plan.steps)
    assert memory.peak_bytes <= memory.arena_bytes
