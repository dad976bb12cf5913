"""Calls through plans: layouts are brought in order, what does not fit is named, bindings are kept.

The plans here have host steps and copies only, so nothing is compiled.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import InputError
from tilewright.base.symbolic import Dim, symbol
from tilewright.formats.plan import (
    Dimension,
    Entry,
    HostCall,
    Plan,
    Step,
    Storage,
    verify_plan,
)
from tilewright.runtime.plan_executor import PlanExecutor
from tilewright.runtime.plan_executor.executor import BOUND_PLAN_LIMIT

N = symbol("N", 1)


def plan_of(
    dtype: DType,
    shape: tuple[Dim, ...],
    *,
    op: str = "double",
    count: int = 1,
    dims: Sequence[Dimension] = (),
) -> Plan:
    """`count` inputs of one type, one output, one host step."""
    inputs = [Entry(i, dtype, shape) for i in range(count)]
    size = inputs[0].size_bytes
    plan = Plan(
        name="p",
        inputs=tuple((f"x{i}", i) for i in range(count)),
        outputs=(("y", count),),
        dims=tuple(dims),
        storages=(
            *(Storage("input", size, name=f"x{i}") for i in range(count)),
            Storage("output", size, name="y"),
        ),
        entries=(*inputs, Entry(count, dtype, shape)),
        steps=(
            Step(
                "host", op, op, tuple(range(count + 1)), 1,
                host=HostCall(count, tuple(range(count)), {"factor": 2}),
            ),
        ),
    )  # fmt: skip
    verify_plan(plan)
    return plan


def host_function(
    op: str, attributes: Mapping[str, object], operands: Sequence[np.ndarray | None]
) -> Sequence[np.ndarray]:
    """`double` repeats `or`/sum of its operands with the same bits of type."""
    first = operands[0]
    assert first is not None
    match op:
        case "double":
            return [
                (first + first).astype(first.dtype) if first.dtype != np.bool_ else first
            ]
        case "sum":
            total = first.copy()
            for other in operands[1:]:
                assert other is not None
                total += other
            return [total]
        case "fail":
            raise ValueError("the op itself failed")
        case _:
            raise KeyError(op)


def executor_of(plan: Plan) -> PlanExecutor:
    return PlanExecutor(plan, None, (), host_function=host_function)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_every_type_goes_in_and_comes_out(dtype: DType) -> None:
    x = np.array([[0, 1, 2], [3, 1, 0]]).astype(dtype.numpy)
    (y,) = executor_of(plan_of(dtype, (2, 3)))(x)
    assert y.dtype == dtype.numpy
    # As bytes: the type of scales has no zero, and numpy knows no equal NaN of it.
    assert y.tobytes() == host_function("double", {}, [x])[0].tobytes()


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(3,), (N,)], ids=["static", "open"])
def test_elements_of_another_type_are_never_taken_for_it(
    dtype: DType, shape: tuple[Dim, ...]
) -> None:
    """Not those of another size with the same letter, nor bits of the same size without one."""
    dims = () if shape == (3,) else (Dimension("N", 0, 0),)
    executor = executor_of(plan_of(dtype, shape, dims=dims))
    for other in dtypes.ALL:
        if other != dtype:
            with pytest.raises(InputError, match=rf"got {other}\[3\], expected {dtype}\["):
                executor(np.ones(3).astype(other.numpy))


def layouts(x: np.ndarray) -> dict[str, np.ndarray]:
    wide = np.zeros((4, 10), x.dtype)
    wide[::2, 1:9:3] = x
    backwards = np.ascontiguousarray(x[::-1, ::-1])
    read_only = x.copy()
    read_only.flags.writeable = False
    unaligned = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    unaligned[...] = x
    return {
        "fortran": np.asfortranarray(x),
        "strided": wide[::2, 1:9:3],
        "reversed": backwards[::-1, ::-1],
        "broadcast": np.broadcast_to(x[:1], (2, 3)),
        "read-only": read_only,
        "unaligned": unaligned,
        "subclass": x.view(np.matrix) if x.dtype.num < 256 else x,
    }


@pytest.mark.parametrize(
    "dtype", [dtypes.f32, dtypes.f16, dtypes.bf16, dtypes.i64, dtypes.u8]
)
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_every_layout_is_accepted(dtype: DType) -> None:
    executor = executor_of(plan_of(dtype, (2, 3)))
    for name, x in layouts(np.arange(6).reshape(2, 3).astype(dtype.numpy)).items():
        (y,) = executor(x)
        np.testing.assert_array_equal(y, np.asarray(x) + np.asarray(x), err_msg=name)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (1,), (3, 1, 2)])
def test_scalars_and_empty_tensors_are_tensors(shape: tuple[int, ...]) -> None:
    x = np.full(shape, 1.5, np.float32)
    (y,) = executor_of(plan_of(dtypes.f32, shape))(x)
    assert y.shape == shape
    np.testing.assert_array_equal(y, x + x)


def test_results_are_fresh_arrays_every_time() -> None:
    executor = executor_of(plan_of(dtypes.f32, (4,)))
    x = np.ones(4, np.float32)
    (first,) = executor(x)
    (second,) = executor(x)
    second[:] = 7
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, x + x)


@pytest.mark.parametrize(
    ("outputs", "text"),
    [
        ([], "got 0 outputs, expected 1: y"),
        (
            [np.zeros((2, 3), np.float32, order="F")],
            "output 'y': expected a dense array of",
        ),
        ([np.zeros((4, 3), np.float32)[::2]], "output 'y': expected a dense array of f32"),
        ([np.frombuffer(bytes(24), np.float32).reshape(2, 3)], "row-major order, for writ"),
        ([np.zeros((2, 3), np.float64)], r"got f64\[2, 3\], expected f32\[2, 3\]"),
        ([np.zeros((3, 2), np.float32)], r"got f32\[3, 2\], expected f32\[2, 3\]"),
    ],
)
def test_an_array_for_results_that_does_not_fit_is_named(
    outputs: list[np.ndarray], text: str
) -> None:
    executor = executor_of(plan_of(dtypes.f32, (2, 3)))
    with pytest.raises(InputError, match=text):
        executor.run_into([np.ones((2, 3), np.float32)], outputs)


def test_results_go_into_the_arrays_that_are_given() -> None:
    executor = executor_of(plan_of(dtypes.f32, (2, 3)))
    y, x = np.zeros((2, 3), np.float32), np.ones((2, 3), np.float32)
    (result,) = executor.run_into([x], [y])
    assert result is y
    assert (y == 2).all()
    (made,) = executor.run_into([x], [None])
    assert (made == 2).all()


def through_a_transient() -> Plan:
    """y = 2 * (2 * x)."""
    kinds = ("input", "transient", "output")
    plan = Plan(
        name="p",
        inputs=(("x", 0),),
        outputs=(("y", 2),),
        dims=(),
        storages=tuple(
            Storage(kind, 12, 0, 1, 0 if kind == "transient" else -1) for kind in kinds
        ),
        entries=tuple(Entry(i, dtypes.f32, (3,)) for i in range(3)),
        steps=tuple(
            Step("host", "s", "double", (i, i + 1), 1, host=HostCall(1, (0,)))
            for i in range(2)
        ),
        arena_bytes=64,
    )
    verify_plan(plan)
    return plan


def test_intermediate_tensors_have_a_place_in_every_kind_of_run() -> None:
    executor, x = executor_of(through_a_transient()), np.ones(3, np.float32)
    assert (executor(x)[0] == 4).all()
    assert (executor.run_into([x], [None])[0] == 4).all()
    assert [step.name for step, _ in executor.profile([x])] == ["s", "s"]
    stepper = executor.stepper([x])
    stepper.call(0)()
    assert (stepper.tensor(1) == 2).all()
    stepper.call(1)()
    assert (stepper.tensor(2) == 4).all()


def test_operands_of_host_functions_are_read_only() -> None:
    def careless(
        op: str, attributes: Mapping[str, object], operands: Sequence[np.ndarray | None]
    ) -> Sequence[np.ndarray]:
        assert operands[0] is not None
        operands[0][:] = 0
        return [operands[0]]

    executor = PlanExecutor(plan_of(dtypes.f32, (4,)), None, (), host_function=careless)
    with pytest.raises(ValueError, match="read-only"):
        executor(np.ones(4, np.float32))


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.zeros((2, 4), np.float32), "input 'x0': got f32[2, 4], expected f32[2, 3]"),
        (np.zeros(6, np.float32), "input 'x0': got f32[6], expected f32[2, 3]"),
        (
            np.zeros((2, 3), ">f4"),
            "input 'x0': got float32 of the other byte order [2, 3], expected f32[2, 3]",
        ),
        (np.zeros((2, 3), np.int32), "input 'x0': got i32[2, 3], expected f32[2, 3]"),
        (
            np.zeros((2, 3), ml_dtypes.bfloat16),
            "input 'x0': got bf16[2, 3], expected f32[2, 3]",
        ),
        (np.zeros((2, 3), object), "input 'x0': got object[2, 3], expected f32[2, 3]"),
    ],
)
def test_an_input_that_does_not_fit_is_named(array: np.ndarray, text: str) -> None:
    with pytest.raises(InputError) as caught:
        executor_of(plan_of(dtypes.f32, (2, 3)))(array)
    assert str(caught.value).splitlines()[0] == text


def test_the_wrong_number_of_inputs_lists_their_names() -> None:
    executor = executor_of(plan_of(dtypes.f32, (2,), op="sum", count=2))
    for count in (0, 1, 3):
        with pytest.raises(InputError) as caught:
            executor(*[np.zeros(2, np.float32)] * count)
        assert str(caught.value) == f"got {count} inputs, expected 2: x0, x1"
    with pytest.raises(InputError, match="got 0 inputs"):
        executor.profile([])


def test_an_error_of_a_step_is_not_blamed_on_the_inputs() -> None:
    executor = executor_of(plan_of(dtypes.f32, (2,), op="fail"))
    with pytest.raises(ValueError, match="the op itself failed"):
        executor(np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="the op itself failed"):
        executor(np.zeros((4,), np.float32)[::2])


# --- dynamic dimensions ----------------------------------------------------------------------

DYNAMIC = plan_of(dtypes.f32, (N, 3), op="sum", count=2, dims=[Dimension("N", 0, 0, 1, 50)])


def test_each_set_of_dimensions_is_bound_once_and_the_oldest_dropped() -> None:
    executor = executor_of(DYNAMIC)
    arrays = {n: np.full((n, 3), n, np.float32) for n in range(1, BOUND_PLAN_LIMIT + 3)}
    for n, x in arrays.items():
        (y,) = executor(x, x)
        np.testing.assert_array_equal(y, x + x, err_msg=str(n))
    newest = executor.bound_for([arrays[BOUND_PLAN_LIMIT]] * 2)
    assert executor.bound_for([arrays[BOUND_PLAN_LIMIT]] * 2) is newest
    assert len(executor._bound) == BOUND_PLAN_LIMIT
    assert (1,) not in executor._bound
    assert (3,) in executor._bound
    executor(arrays[3], arrays[3])  # used again: now the youngest
    executor(arrays[1], arrays[1])
    assert (3,) in executor._bound
    assert (4,) not in executor._bound


def test_a_call_of_the_shapes_before_it_asks_for_no_dimension(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executor = executor_of(DYNAMIC)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    executor(x, x)
    asked: list[tuple[int, ...]] = []
    bind = executor.bind

    def counted(dims: tuple[int, ...]) -> object:
        asked.append(dims)
        return bind(dims)

    monkeypatch.setattr(executor, "bind", counted)
    (y,) = executor(x, x)
    np.testing.assert_array_equal(y, x + x)
    assert not asked
    (y,) = executor(x[:1], x[:1])
    np.testing.assert_array_equal(y, x[:1] + x[:1])
    assert asked == [(1,)]


def test_what_fits_the_call_before_is_no_excuse_for_the_next() -> None:
    executor = executor_of(DYNAMIC)
    x = np.zeros((2, 3), np.float32)
    executor(x, x)
    with pytest.raises(InputError, match=r"got f64\[2, 3\]"):
        executor(x.astype(np.float64), x)
    with pytest.raises(InputError, match=r"got f32\[3, 3\]"):
        executor(x, np.zeros((3, 3), np.float32))


def test_the_dimensions_of_a_call_are_read_off_its_inputs() -> None:
    executor = executor_of(DYNAMIC)
    x = np.zeros((5, 3), np.float32)
    assert executor.dimensions_of([x, x]) == {"N": 5}


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ((2, 3), (4, 3), "input 'x1': got f32[4, 3], expected f32[N, 3] with N = 2"),
        ((2, 4), (2, 3), "input 'x0': got f32[2, 4], expected f32[N, 3] with N = 2"),
        ((2, 3), (2,), "input 'x1': got f32[2], expected f32[N, 3]"),
        ((), (2, 3), "input 'x0': got f32[], expected f32[N, 3]"),
        ((0, 3), (2, 3), "input 'x1': got f32[2, 3], expected f32[N, 3] with N = 0"),
        ((51, 3), (51, 3), "input 'x0': dimension 'N' (axis 0) is 51, expected at most 50"),
    ],
)
def test_sizes_that_do_not_agree_are_named(
    first: tuple[int, ...], second: tuple[int, ...], text: str
) -> None:
    with pytest.raises(InputError) as caught:
        executor_of(DYNAMIC)(np.zeros(first, np.float32), np.zeros(second, np.float32))
    assert str(caught.value) == text


@pytest.mark.parametrize("rows", [(5, 1), (1, 5)])
def test_an_open_axis_of_1_is_told_how_it_is_broadcast(rows: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="expected f32") as caught:
        executor_of(DYNAMIC)(*(np.zeros((n, 3), np.float32) for n in rows))
    assert caught.value.hint == (
        "an axis of 1 is broadcast where it is known to be 1: fix it when compiling (--input-shape)"
    )


def test_the_largest_size_that_is_allowed_runs() -> None:
    x = np.ones((50, 3), np.float32)
    (y,) = executor_of(DYNAMIC)(x, x)
    assert (y == 2).all()


def test_a_recording_is_told_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    executor, x = executor_of(DYNAMIC), np.ones((7, 3), np.float32)
    with caplog.at_level("INFO", "tilewright.runtime"):
        executor(x, x)
        executor(x, x)
    assert [record.getMessage() for record in caplog.records] == [
        "p: recorded 1 command for N = 7, 0 B of intermediate tensors"
    ]


def test_where_no_output_has_an_element_no_step_runs() -> None:
    executor = executor_of(DYNAMIC)
    x = np.zeros((0, 3), np.float32)
    (y,) = executor(x, x)
    assert (y.shape, y.dtype) == ((0, 3), np.float32)
    assert executor.profile([x, x]) == []


def test_a_size_of_0_does_not_pass_for_more_than_1() -> None:
    plan = plan_of(dtypes.f32, (N, 3), op="sum", count=2, dims=[Dimension("N", 0, 0, 2)])
    x = np.zeros((0, 3), np.float32)
    with pytest.raises(InputError, match=r"'N' \(axis 0\) is 0, expected at least 2"):
        executor_of(plan)(x, x)


def test_sizes_that_must_agree_are_compared_before_any_work() -> None:
    m = symbol("M")
    plan = Plan(
        name="p",
        inputs=(("x", 0), ("y", 1)),
        outputs=(),
        dims=(Dimension("N", 0, 0), Dimension("M", 1, 0)),
        storages=(Storage("input", 4 * N), Storage("input", 4 * m)),
        entries=(Entry(0, dtypes.f32, (N,)), Entry(1, dtypes.f32, (m,))),
        steps=(),
        equalities=((N + 1, m),),
    )
    verify_plan(plan)
    executor = executor_of(plan)
    assert executor(np.zeros(2, np.float32), np.zeros(3, np.float32)) == ()
    with pytest.raises(InputError, match=r"sizes do not agree: \(N \+ 1\) is 3, M is 4"):
        executor(np.zeros(2, np.float32), np.zeros(4, np.float32))


# --- several threads, profile ----------------------------------------------------------------


def test_calls_from_several_threads_do_not_mix() -> None:
    executor = executor_of(DYNAMIC)
    failures: list[str] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(50):
            x = random.standard_normal((int(random.integers(1, 40)), 3)).astype(np.float32)
            (y,) = executor(x, x)
            if not np.array_equal(y, x + x):
                failures.append(f"thread {seed}")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_profile_has_a_time_for_every_step() -> None:
    executor = executor_of(DYNAMIC)
    x = np.zeros((5, 3), np.float32)
    ((step, timing),) = executor.profile([x, x[::-1]])
    assert step is executor.plan.steps[0]
    assert timing.duration_ns > 0
    assert timing.begin_ns > 0
    assert timing.threads == ()  # the host's, which is no command of the pool
    with pytest.raises(InputError, match="input 'x1'"):
        executor.profile([x, x[:4]])


def test_a_profile_leaves_out_copies_of_nothing() -> None:
    plan = Plan(
        name="p",
        inputs=(("x", 0),),
        outputs=(("y", 1),),
        dims=(Dimension("N", 0, 0),),
        storages=(Storage("input", 4 * N), Storage("output", 4 * N)),
        entries=(Entry(0, dtypes.f32, (N,)), Entry(1, dtypes.f32, (N,))),
        steps=(Step("copy", "copy", "", (0, 1), 1),),
    )
    executor = executor_of(replace(plan, dims=(Dimension("N", 0, 0, 0),)))
    assert [s.kind for s, _ in executor.profile([np.ones(3, np.float32)])] == ["copy"]
    assert executor.profile([np.zeros(0, np.float32)]) == []
    (y,) = executor(np.zeros(0, np.float32))
    assert y.shape == (0,)


@pytest.mark.parametrize(
    "dtype", [dtypes.f32, dtypes.i64, dtypes.bf16], ids=lambda d: d.name
)
def test_steps_see_elements_where_their_type_may_lie(dtype: DType) -> None:
    """Compiled code counts on it; only what does not lie so is copied."""
    seen: list[tuple[int, bool]] = []

    def look(
        op: str, attributes: Mapping[str, object], operands: Sequence[np.ndarray | None]
    ) -> Sequence[np.ndarray]:
        assert operands[0] is not None
        seen.append((operands[0].ctypes.data, bool(operands[0].flags.aligned)))
        return [operands[0]]

    executor = PlanExecutor(plan_of(dtype, (3,)), None, (), host_function=look)
    at_home = np.array([1, 2, 3]).astype(dtype.numpy)
    astray = np.zeros(at_home.nbytes + 1, np.uint8)[1:].view(at_home.dtype)
    astray[...] = at_home
    for array in (at_home, astray):
        np.testing.assert_array_equal(executor(array)[0], at_home)
    assert [aligned for _, aligned in seen] == [True, True]
    assert seen[0][0] == at_home.ctypes.data
