"""Calls whose sizes data decides: recorded once per size, in memory that fits, with the errors of a call."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes.graphs import parse
from fakes.plans import block_plan, flow_plan
from tilewright.base import dtypes
from tilewright.base.errors import ArchiveError, DeviceError, InputError
from tilewright.base.symbolic import symbol
from tilewright.formats.plan import Entry, Plan, SizeRange, Step, Storage
from tilewright.runtime.plan_executor import flow
from tilewright.runtime.plan_executor.executor import PlanExecutor

S = symbol("S", 0)
X = np.arange(6, dtype=np.float32).reshape(3, 2)
LOOP = """graph @g<S: 0..8>(%n: i64[1], %x: f32[8]) {
  bind_sizes(%n) {sizes = [S]}
  %y: f32[S] = slice(%x) {axes = [0], sizes = [S], starts = [0], steps = [1]}
  %zero: i64[] = constant {value = i64[] [0]}
  %t: i64[], %z: f32[S] = while(%zero, %y) {carried = 2}
    graph @go(%i: i64[], %p: f32[S]) {
      %three: i64[] = constant {value = i64[] [3]}
      %c: bool[] = less(%i, %three)
      return %c
    }
    graph @body(%i: i64[], %p: f32[S]) {
      %one: i64[] = constant {value = i64[] [1]}
      %j: i64[] = add(%i, %one)
      %q: f32[S] = add(%p, %p)
      return %j, %q
    }
  return %z
}"""

APPEND = """graph @g<S: 1..6>(%n: i64[1], %past: f32[6, 3], %places: i64[1, 3], %new: f32[1, 3]) {
  bind_sizes(%n) {sizes = [S]}
  %y: f32[6, 3] = scatter_elements(%past, %places, %new) {axis = 0}
  %z: f32[S, 3] = slice(%y) {axes = [0], sizes = [S], starts = [0], steps = [1]}
  %d: f32[S, 3] = add(%z, %z)
  return %d, %y
}"""


def reading_plan() -> Plan:
    """The first S rows of x, through a transient; S is the i64 of the call, then rows as `flow_plan` has them."""
    plan = flow_plan()
    storages = (
        *plan.storages[:3],
        Storage("output", 8 * S),
        plan.storages[4],
        Storage("transient", 8 * S, 1, 2, name="late"),
    )
    rows = {"dtype": dtypes.f32, "shape": (S, 2)}
    entries = (
        *plan.entries[:3],
        Entry(3, **rows),
        plan.entries[4],
        Entry(0, **rows),
        Entry(5, **rows),
    )
    read = Step("read", "read", "node 'r'", (1,), 0, sizes=(SizeRange("S", 1, 3),))
    steps = (read, Step("copy", "a", "", (5, 6), 1), Step("copy", "b", "", (6, 3), 1))
    return replace(plan, storages=storages, entries=entries, steps=steps, arena_bytes=-1)


@pytest.fixture(autouse=True, params=["native", "python"])
def walker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who walks the steps: the C core, or Python."""
    if request.param == "python":
        monkeypatch.setattr(flow, "native_flow", lambda *_: None)


def ask(executor: PlanExecutor, size: int) -> np.ndarray:
    (y,) = executor(X, np.array(size), np.array(True))
    return y


def test_results_have_the_size_that_was_read() -> None:
    executor = PlanExecutor(reading_plan(), None, [])
    for size in (1, 3, 2, 3):
        np.testing.assert_array_equal(ask(executor, size), X[:size])


def test_a_size_out_of_its_range_names_the_node() -> None:
    executor = PlanExecutor(reading_plan(), None, [])
    for size, message in (
        (0, "size 0, expected at least 1"),
        (4, "size 4, expected at most 3"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            ask(executor, size)
        assert caught.value.location == "node 'r'"


def test_results_go_where_the_caller_says() -> None:
    executor = PlanExecutor(reading_plan(), None, [])
    out = np.zeros((2, 2), np.float32)
    inputs = [X, np.array(2), np.array(True)]
    (y,) = executor.run_into(inputs, [out])
    assert y is out
    np.testing.assert_array_equal(out, X[:2])
    with pytest.raises(InputError, match=r"output 'y': got .*, expected"):
        executor.run_into([X, np.array(3), np.array(True)], [out])
    with pytest.raises(InputError, match="got 0 outputs, expected 1"):
        executor.run_into(inputs, [])


def test_an_output_may_be_the_memory_of_an_input() -> None:
    executor = PlanExecutor(reading_plan(), None, [])
    x = X.copy()
    executor.run_into([x, np.array(2), np.array(True)], [x[1:]])
    np.testing.assert_array_equal(x, X[[0, 0, 1]])


def test_a_prepared_call_reads_its_sizes_each_time() -> None:
    executor = PlanExecutor(reading_plan(), None, [])
    size = np.array(2)
    call = executor.prepare([X, size, np.array(True)], [None])
    assert call.outputs == (None,)
    for count in (2, 3, 1, 3):
        size[...] = count
        (y,) = call()
        np.testing.assert_array_equal(y, X[:count])
    size[...] = 4
    with pytest.raises(InputError, match="size 4, expected at most 3"):
        call()


def test_a_prepared_call_takes_arrays_for_results() -> None:
    executor = PlanExecutor(reading_plan(), None, [])
    size, out = np.array(2), np.zeros((2, 2), np.float32)
    call = executor.prepare([X, size, np.array(True)], [out])
    assert call()[0] is out
    np.testing.assert_array_equal(out, X[:2])
    size[...] = 1
    with pytest.raises(
        InputError, match=r"output 'y': got f32\[2, 2\], expected f32\[1, 2\]"
    ):
        call()
    x = X.copy()
    for inputs, outputs, message in (
        ([x, size, np.array(True)], [x[:2]], "input 'x': would be copied"),
        (
            [np.array(X, order="F"), size, np.array(True)],
            [out],
            "input 'x': would be copied",
        ),
        ([X, size, np.array(True)], [], "got 0 outputs, expected 1"),
    ):
        with pytest.raises(InputError, match=message):
            executor.prepare(inputs, outputs)


def test_results_whose_size_the_inputs_decide_are_the_same_arrays_in_each_prepared_call() -> (
    None
):
    plan = reading_plan()
    steps = (*plan.steps[:2], Step("copy", "b", "", (7, 8), 1))
    rest = {"dtype": dtypes.f32, "shape": (2,)}
    storages = (*plan.storages[:3], Storage("output", 8), *plan.storages[4:])
    entries = (
        *plan.entries[:3],
        Entry(3, **rest),
        *plan.entries[4:],
        Entry(5, **rest),
        Entry(3, **rest),
    )
    plan = replace(plan, steps=steps, storages=storages, entries=entries)
    x, size = X.copy(), np.array(2)
    call = PlanExecutor(plan, None, []).prepare([x, size, np.array(True)], [None])
    (y,) = call()
    np.testing.assert_array_equal(y, x[0])
    x[0] = 7
    size[...] = 1
    assert call()[0] is y is call.outputs[0]
    np.testing.assert_array_equal(y, [7, 7])


def test_an_array_that_cannot_take_a_result_is_refused() -> None:
    executor = PlanExecutor(reading_plan(), None, [])
    inputs = [X, np.array(2), np.array(True)]
    with pytest.raises(InputError, match="output 'y': expected a dense array"):
        executor.run_into(inputs, [np.zeros((2, 4), np.float32)[:, ::2]])


def test_a_size_is_used_behind_its_read_only() -> None:
    plan = reading_plan()
    late = replace(plan, steps=(plan.steps[1], plan.steps[0], plan.steps[2]))
    with pytest.raises(ArchiveError, match="size 'S' is used before it is read"):
        ask(PlanExecutor(late, None, []), 2)


def test_memory_is_used_behind_the_read_of_its_size_only() -> None:
    """Also by a step whose own part of it has a size that is known."""
    plan = reading_plan()
    entries = (*plan.entries, Entry(5, dtypes.f32, (0, 2)), Entry(3, dtypes.f32, (0, 2)))
    early = Step("copy", "early", "", (7, 8), 1)
    moved = (*plan.storages[:5], replace(plan.storages[5], first=0))
    late = replace(
        plan, storages=moved, entries=entries, steps=(early, *plan.steps[:2], plan.steps[2])
    )
    with pytest.raises(ArchiveError, match="is used before"):
        ask(PlanExecutor(late, None, []), 2)


def test_a_branch_reads_memory_behind_the_read_of_its_size_only() -> None:
    plan = reading_plan()
    entries = (*plan.entries, Entry(5, dtypes.bool_, ()))
    flow_steps = (
        Step("branch", "early", "", (7,), 0, goto=2),
        plan.steps[0],
        Step("label", "end", "", (), 0),
    )
    storages = (*plan.storages[:5], replace(plan.storages[5], first=0))
    early = replace(
        plan, storages=storages, entries=entries, steps=(*flow_steps, *plan.steps[1:])
    )
    with pytest.raises(ArchiveError, match="is used before"):
        ask(PlanExecutor(early, None, []), 2)


@pytest.mark.parametrize("size", [1 << 40, 1 << 62])
def test_a_size_beyond_all_memory_is_told(size: int) -> None:
    plan = reading_plan()
    read = replace(plan.steps[0], sizes=(SizeRange("S", 0, None),))
    executor = PlanExecutor(replace(plan, steps=(read, *plan.steps[1:])), None, [])
    told = "no memory for [0-9]+ bytes|needs [0-9]+ bytes|too large for this model: for S"
    with pytest.raises((DeviceError, InputError), match=told):
        ask(executor, size)


def test_recorded_sizes_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "RECORDED_LIMIT", 1)
    monkeypatch.setattr(flow, "COMMAND_LIMIT", 3)
    executor = PlanExecutor(reading_plan(), None, [])
    for size in (1, 2, 3, 2, 1):
        np.testing.assert_array_equal(ask(executor, size), X[:size])


def test_calls_of_several_threads_are_independent() -> None:
    executor = PlanExecutor(reading_plan(), None, [])
    wrong: list[int] = []

    def work(size: int) -> None:
        wrong.extend(
            size for _ in range(50) if not np.array_equal(ask(executor, size), X[:size])
        )

    threads = [threading.Thread(target=work, args=(1 + i % 3,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_loop_runs_over_sizes_that_were_read_before_it() -> None:
    model = tw.compile(parse(LOOP))
    x = np.arange(8, dtype=np.float32)
    for size in (0, 1, 8, 3):
        np.testing.assert_array_equal(model(np.array([size]), x), 8 * x[:size])


def test_memory_goes_from_a_branch_to_whoever_reads_it() -> None:
    executor = PlanExecutor(block_plan(), None, [])
    for one in (True, False, False, True):
        (y,) = executor(X, np.array(one))
        np.testing.assert_array_equal(y, X[:1] if one else X)


def without_step(plan: Plan, index: int, **changes: object) -> Plan:
    """The plan with a label in place of a step, or with that step changed."""
    other = (
        replace(plan.steps[index], **changes) if changes else Step("label", "x", "", (), 0)
    )
    steps = (*plan.steps[:index], other, *plan.steps[index + 1 :])
    return replace(plan, steps=steps)


@pytest.mark.parametrize(
    ("plan", "error", "message"),
    [
        (without_step(block_plan(), 1), ArchiveError, "used before it is there"),
        (without_step(block_plan(), 3), ArchiveError, "used before it is (there|read)"),
        # It says that there are more rows than there is memory.
        (without_step(block_plan(), 3, dims=(2,)), ArchiveError, "larger than its memory"),
        (
            without_step(block_plan(), 3, dims=(4,)),
            InputError,
            "size 4, expected at most 3",
        ),
        (
            without_step(block_plan(), 3, dims=(symbol("K", 0),)),
            ArchiveError,
            "'K' is used",
        ),
    ],
)
def test_a_plan_that_lies_about_memory_is_refused(
    plan: Plan, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        PlanExecutor(plan, None, [])(X, np.array(True))


def test_a_profile_says_what_sizes_were_in_the_call() -> None:
    executor = PlanExecutor(reading_plan(), None, [])
    for size in (2, 3):
        rows = executor.profile([X, np.array(size), np.array(True)])
        assert [step.kind for step, _ in rows] == ["copy", "copy"]
        assert [step.bytes_moved for step, _ in rows] == [2 * 8 * size] * 2


def test_a_size_that_stays_waits_for_one_that_does_not() -> None:
    """Two sizes are read in each trip, of which one changes: what depends on both is placed, and looked at, anew."""
    model = tw.compile(
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["" : 18]>
            agraph (int64 n, float[N] x, int64 k) => (float[R] y) {
              c = Constant<value: tensor = bool {1}>()
              zero = Constant<value: tensor = int64 {0}>()
              one = Constant<value: tensor = int64 {1}>()
              col = Constant<value_ints = [-1, 1]>()
              row = Constant<value_ints = [1, -1]>()
              start = Constant<value: tensor = float {0}>()
              e, y = Loop(n, c, start) <body = b (int64 i, bool go, float s) => (bool on, float t, float o) {
                on = Identity(go)
                f = Cast<to = 1>(i)
                keep = Greater(x, f)
                some = Compress(x, keep)
                steps = Range(zero, k, one)
                g = Cast<to = 1>(steps)
                p = Reshape(some, col)
                q = Reshape(g, row)
                both = MatMul(p, q)
                d = ReduceSum<keepdims = 0>(both)
                t = Add(s, d)
                o = Identity(d)
              }>
            }"""
        ),
        threads=1,
    )
    x = np.arange(9, dtype=np.float32)
    for k in (3, 0, 4):
        wanted = [x[x > i].sum() * np.arange(k).sum() for i in range(300)]
        found = np.asarray(model(np.array(300), x, np.array(k)))
        np.testing.assert_allclose(found, np.array(wanted, np.float32), rtol=1e-6)


def test_an_input_is_updated_in_place_where_data_decides_sizes() -> None:
    """As in mixtures of experts, whose caches are appended to: nothing is copied for a call."""
    executor = tw.compile(parse(APPEND)).session.executor
    assert isinstance(executor, PlanExecutor)
    past, count = np.zeros((6, 3), np.float32), np.array([1])
    places, new = np.zeros((1, 3), np.int64), np.ones((1, 3), np.float32)
    call = executor.prepare([count, past, places, new], [None, past])
    for row in range(3):
        count[0], places[...], new[...] = row + 1, row, row + 1
        doubled, updated = call()
        assert updated is past
        assert doubled[:, 0].tolist() == [2, 4, 6][: row + 1]
    places[...], new[...] = 5, 9
    doubled, updated = executor.run_into([np.array([6]), past, places, new], [None, past])
    assert updated is past
    assert past[:, 0].tolist() == [1, 2, 3, 0, 0, 9]
    assert doubled[:, 0].tolist() == [2, 4, 6, 0, 0, 18]
    other = past.copy()
    with pytest.raises(InputError, match="input 'new': would be copied"):
        executor.prepare([count, other, places, other[:1]], [None, other])
