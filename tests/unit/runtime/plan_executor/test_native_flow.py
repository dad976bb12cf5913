"""Calls that the C core walks: the same as Python's walk, and nothing that is not checked."""

from __future__ import annotations

import os
import re
import struct
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from fakes.plans import block_plan, flow_plan
from tilewright.base import dtypes
from tilewright.base.errors import ArchiveError, DeviceError, InputError
from tilewright.base.symbolic import symbol
from tilewright.formats.plan import Entry, Plan, SizeRange, Step, Storage
from tilewright.formats.plan.flow_layout import FlowLayout
from tilewright.runtime import native
from tilewright.runtime.native.flow_error import raise_flow_error
from tilewright.runtime.native.model_status import ModelStatus
from tilewright.runtime.plan_executor import flow
from tilewright.runtime.plan_executor.executor import PlanExecutor
from tilewright.runtime.plan_executor.native_flow import native_flow
from tilewright.runtime.plan_executor.program_tables import ProgramTables, program_tables
from tilewright.runtime.plan_executor.record_steps import Resources

pytestmark = pytest.mark.skipif(not native.IS_NATIVE, reason="needs the C core")
X = np.arange(6, dtype=np.float32).reshape(3, 2)


def growing_model() -> onnx.ModelProto:
    """`n` trips that each put a row behind all there is; and the sum of the places of what is not 0."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["goes"]),
            helper.make_node("Add", ["rows", "one"], ["more"]),
            helper.make_node("Concat", ["more", "x"], ["grown"], axis=0),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("rows", TensorProto.FLOAT, [None, 3]),
        ],
        [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("grown", TensorProto.FLOAT, [None, 3]),
        ],
        [numpy_helper.from_array(np.float32(1), "one")],
    )
    graph = helper.make_graph(
        [
            helper.make_node("Loop", ["n", "", "x"], ["y"], body=body),
            helper.make_node("NonZero", ["y"], ["places"]),
        ],
        "grow",
        [
            helper.make_tensor_value_info("n", TensorProto.INT64, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 3]),
            helper.make_tensor_value_info("places", TensorProto.INT64, [2, None]),
        ],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def grown(n: int, x: np.ndarray) -> np.ndarray:
    rows = x
    for _ in range(n):
        rows = np.concatenate([rows + 1, x])
    return rows


@pytest.fixture(scope="module")
def model() -> tw.Model:
    return tw.compile(growing_model())


@pytest.mark.slow
def test_rows_that_grow_are_those_of_numpy(model: tw.Model) -> None:
    for count, n in ((1, 0), (2, 1), (3, 40), (1, 7), (3, 40)):
        x = np.arange(3 * count, dtype=np.float32).reshape(count, 3) - 2
        y, places = model(np.array(n), x)
        np.testing.assert_array_equal(y, grown(n, x))
        np.testing.assert_array_equal(places, np.stack(np.nonzero(y)))


def test_python_walks_the_same_way(
    model: tw.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.ones((2, 3), np.float32)
    results = model(np.array(9), x)
    monkeypatch.setattr(flow, "native_flow", lambda *_: None)
    for ours, python in zip(
        results, tw.compile(growing_model())(np.array(9), x), strict=True
    ):
        np.testing.assert_array_equal(ours, python)


def test_calls_of_several_threads_are_independent(model: tw.Model) -> None:
    wrong: list[int] = []

    def run(seed: int) -> None:
        chance = np.random.default_rng(seed)
        for _ in range(30):
            n = int(chance.integers(0, 12))
            x = chance.standard_normal((int(chance.integers(1, 4)), 3)).astype(np.float32)
            y, _places = model(np.array(n), x)
            if not np.array_equal(y, grown(n, x)):
                wrong.append(n)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_more_recordings_than_are_kept(model: tw.Model) -> None:
    x = np.ones((1, 3), np.float32)
    y, _places = model(np.array(20_000), x)
    assert (y.shape, y[0, 0], y[-1, 0]) == ((20_001, 3), 20_001, 1)


def test_a_forked_child_calls_too(model: tw.Model) -> None:
    x = np.ones((1, 3), np.float32)
    model(np.array(3), x)
    child = os.fork()
    if child == 0:
        y, _places = model(np.array(4), x)
        os._exit(0 if np.array_equal(y, grown(4, x)) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


INTERRUPTED = """
import os, signal, sys, threading
import numpy as np
import tilewright as tw

model = tw.compile(sys.argv[1])
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    model(np.array(1 << 24), np.ones((1, 3), np.float32))
except KeyboardInterrupt:
    y, _places = model(np.array(2), np.ones((1, 3), np.float32))
    print("interrupted", len(y))
"""


@pytest.mark.slow
def test_a_call_can_be_interrupted(tmp_path: Path) -> None:
    onnx.save(growing_model(), tmp_path / "grow.onnx")
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "grow.onnx")],
        capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.stdout == "interrupted 3\n", done.stderr


def test_outputs_of_the_caller_are_filled() -> None:
    executor = PlanExecutor(block_plan(), None, [])
    y = np.zeros((1, 2), np.float32)
    (result,) = executor.run_into((X, np.array(True)), (y,))
    assert result is y
    np.testing.assert_array_equal(y, X[:1])
    with pytest.raises(InputError, match="expected f32"):
        executor.run_into((X, np.array(False)), (y,))


def test_the_heap_gets_back_what_calls_took() -> None:
    heap = native.Heap()
    executor = PlanExecutor(block_plan(), None, [], heap=heap)
    for one in (True, False):
        executor(X, np.array(one))
    assert heap.report()[:3] == (0, 0, 0)
    never = replace(
        block_plan().steps[3], kind="label", arguments=(), result_count=0, sizes=(), dims=()
    )
    broken = replace(
        block_plan(), steps=(*block_plan().steps[:3], never, *block_plan().steps[4:])
    )
    with pytest.raises(ArchiveError):
        PlanExecutor(broken, None, [], heap=heap)(X, np.array(True))
    assert heap.report()[:3] == (0, 0, 0)


def test_inputs_may_lie_anywhere() -> None:
    raw = np.zeros(25, np.uint8)[1:].view(np.float32).reshape(3, 2)
    raw[:] = X
    (y,) = PlanExecutor(block_plan(), None, [])(raw, np.array(False))
    np.testing.assert_array_equal(y, X)


def test_long_names_in_any_script_are_told() -> None:
    plan = block_plan()
    steps = tuple(
        replace(s, target="node '" + "é" * 700 + "'", sizes=(SizeRange("K", 9, 99),))
        if s.sizes
        else s
        for s in plan.steps
    )
    with pytest.raises(InputError, match="node"):
        PlanExecutor(replace(plan, steps=steps), None, [])(X, np.array(True))


# --- tables


def tables_of(plan: Plan) -> ProgramTables:
    return program_tables(FlowLayout(plan), {}, 0)


def test_tables_with_any_number_changed_are_refused_or_run() -> None:
    """Nothing that a table says leads out of it: places, counts, texts and kinds are looked at."""
    core = native.EXTENSION
    assert core is not None
    for plan in (block_plan(), flow_plan()):
        given = tables_of(plan)
        if not any(step.sizes for step in plan.steps):
            continue
        refused = made = 0
        for place, table in enumerate(given.tables):
            count = len(table) // 8
            numbers = list(struct.unpack(f"={count}q", table))
            for index in range(count):
                for other in (-1, 1 << 20, -(1 << 63), -(1 << 63) + 5, (1 << 62)):
                    changed = [*numbers[:index], other, *numbers[index + 1 :]]
                    packed = struct.pack(f"={count}q", *changed)
                    tables = (*given.tables[:place], packed, *given.tables[place + 1 :])
                    try:
                        core.FlowProgram(tables, given.texts, (), ())
                    except (ArchiveError, ValueError):
                        refused += 1
                    else:
                        made += 1
        assert refused > made > 0


def test_tables_of_another_shape_are_refused() -> None:
    core = native.EXTENSION
    assert core is not None
    given = tables_of(block_plan())
    with pytest.raises(ValueError, match="got 3 tables"):
        core.FlowProgram(given.tables[:3], given.texts, (), ())
    with pytest.raises(ArchiveError, match="its tables"):
        core.FlowProgram((given.tables[0][:-8], *given.tables[1:]), given.texts, (), ())
    with pytest.raises(ValueError, match="got 1 constants"):
        core.FlowProgram(given.tables, given.texts, (b"x",), ())
    program = core.FlowProgram(given.tables, given.texts, (), ())
    with pytest.raises(ValueError, match="got 0 inputs"):
        program.run(None, (), (), lambda *_: X)
    with pytest.raises(ValueError, match="input 0: buffer of 4 bytes"):
        program.run(None, (), (b"1234", b"1"), lambda *_: X)


def test_what_a_result_is_given_must_be_large_enough() -> None:
    core = native.EXTENSION
    assert core is not None
    given = tables_of(block_plan())
    program = core.FlowProgram(given.tables, given.texts, (), ())
    with pytest.raises(
        ValueError, match="output 0: buffer of 4 bytes, expected at least 24"
    ):
        program.run(None, (), (X, np.array(False)), lambda *_: np.zeros(1, np.float32))
    with pytest.raises(ZeroDivisionError):
        program.run(None, (), (X, np.array(False)), lambda *_: 1 // 0)


def test_numbers_beyond_the_core_are_left_to_python() -> None:
    plan = block_plan()
    steps = tuple(
        replace(s, sizes=(SizeRange("K", 0, 1 << 63),)) if s.sizes else s
        for s in plan.steps
    )
    for given, is_native in ((replace(plan, steps=steps), False), (plan, True)):
        resources = Resources(given, None, (), None, None)
        made = native_flow(resources, FlowLayout(given), native.Heap())
        assert (made is not None) == is_native


def test_both_walks_say_in_the_same_words_that_there_is_no_memory(
    model: tw.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.save(tmp_path / "grow.vmfb")

    def refused() -> tuple[str, str | None]:
        session = tw.load(tmp_path / "grow.vmfb", device="local-task://?memory=8K")
        with pytest.raises(DeviceError, match="are in use") as caught:
            session(np.array(400), np.ones((2, 3), np.float32))
        words, _, _ = caught.value.message.partition(" are in use")
        return re.sub(r"\d+", "%", words), caught.value.hint

    in_core = refused()
    monkeypatch.setattr(flow, "native_flow", lambda *_: None)
    assert in_core == refused()


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (ModelStatus.FAILED, native.KernelError(3, "add", 7)),
        (ModelStatus.NO_MEMORY, native.KernelError(3, "add", 0, 4096)),
        (ModelStatus.NO_MEMORY, native.KernelError(3, "add", 0, 4096, 10, 4100)),
    ],
)
def test_a_kernel_that_fails_is_told_alike_by_both_walks(
    status: int, error: native.KernelError
) -> None:
    """The texts of the core, as its source has them."""
    expected, text = error.for_user, f"kernel 'add': {error.reason}"
    source = (Path(__file__).parents[4] / "native/src/program/run.c").read_text()
    forms = re.sub(r"%(?:zu|[ud])", "%", source).replace("'%s'", "'add'")
    before, _, after = re.sub(r"\d+", "%", text).partition(": % of")
    assert before in forms
    assert after in forms
    if expected.hint:
        text += f"\nhint: {expected.hint}"
    with pytest.raises(DeviceError) as caught:
        raise_flow_error(status, text)
    assert str(caught.value) == str(expected)
    assert caught.value.hint == expected.hint


@pytest.mark.parametrize("walk", ["core", "python"])
@pytest.mark.parametrize("second", [(2, 3), (3, 2), (1, 3)])
def test_an_output_that_is_placed_twice_has_one_shape(
    monkeypatch: pytest.MonkeyPatch, walk: str, second: tuple[int, int]
) -> None:
    """As many bytes are not enough: the array was made for the first shape."""
    rows, columns = symbol("K", 0, 3), symbol("M", 0, 3)
    size = (SizeRange("K", 0, 3), SizeRange("M", 0, 3))
    storages = (
        Storage("input", 24),
        Storage("output", 4 * rows * columns),
        Storage("block", 24, name="first"),
        Storage("block", 24, name="second"),
        Storage("block", 4 * rows * columns, name="now"),
    )
    entries = (
        Entry(0, dtypes.f32, (3, 2)),
        Entry(1, dtypes.f32, (rows, columns)),
        Entry(2, dtypes.f32, (3, 2)),
        Entry(3, dtypes.f32, (3, 2)),
        Entry(4, dtypes.f32, (rows, columns)),
    )
    steps = tuple(
        step
        for entry, dims in ((2, (2, 3)), (3, second))
        for step in (
            Step("allocate", "allocate", "", (entry,), 1),
            Step("copy", "copy", "", (0, entry), 1),
            Step("rebind", "rebind", "", (entry, 4), 1, dims=dims, sizes=size),
            Step("copy", "copy", "", (4, 1), 1),
        )
    )
    plan = Plan("twice", (("x", 0),), (("y", 1),), (), storages, entries, steps)
    if walk == "python":
        monkeypatch.setattr(flow, "native_flow", lambda *_: None)
    executor = PlanExecutor(plan, None, [])
    if second == (2, 3):
        np.testing.assert_array_equal(executor(X)[0], X.reshape(2, 3))
        return
    with pytest.raises(ArchiveError, match="an output has two sizes"):
        executor(X)
