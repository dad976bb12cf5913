"""Calls of whole models: from several threads at once, and with arrays of every make.

One small dynamic network, loaded from a file, through both engines.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilewright as tw
from tilewright.base.errors import DeviceError, InputError
from tilewright.runtime.session import Session

ENGINES = ("plan", "vm")
# What bytecode checks ends in the status of the instruction that found it.
REFUSAL = {"plan": InputError, "vm": (InputError, DeviceError)}
WIDTH = 6
by_engine = pytest.mark.parametrize("engine", ENGINES)


def reference(x: np.ndarray, b: np.ndarray, weights: np.ndarray) -> list[np.ndarray]:
    h = np.maximum(x @ weights + b, 0)
    return [h, np.ascontiguousarray(x.T), x]


def weights() -> np.ndarray:
    """Whole numbers, so that sums are exact in any order."""
    return np.random.default_rng(0).integers(-3, 4, (WIDTH, WIDTH)).astype(np.float32)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        net (float[N, 6] x, float[6] b) => (float[N, 6] y, float[6, N] t, float[N, 6] same) {
            m = MatMul (x, w)
            s = Add (m, b)
            y = Relu (s)
            t = Transpose <perm = [1, 0]> (x)
            same = Identity (x)
        }""")
    model.graph.initializer.append(numpy_helper.from_array(weights(), "w"))
    target = tmp_path_factory.mktemp("calls") / "net.vmfb"
    tw.compile(model, threads=2).save(target, sources=False)
    return target


def inputs(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.integers(-9, 10, (rows, WIDTH)).astype(np.float32)
    return x, random.integers(-9, 10, WIDTH).astype(np.float32)


def check(results: object, x: np.ndarray, b: np.ndarray) -> None:
    assert isinstance(results, tuple)
    for got, want in zip(results, reference(x, b, weights()), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work(0) … work(count - 1)` at once; what one of them raises is raised here."""
    failures: list[BaseException] = []
    start = threading.Barrier(count)

    def run(index: int) -> None:
        try:
            start.wait()
            work(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive(), "a call hangs"
    if failures:
        raise failures[0]


# --- threads ---------------------------------------------------------------------------------


@pytest.mark.thinned(3)
@by_engine
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_share_one_session(path: Path, engine: str, threads: int) -> None:
    """Sizes differ from call to call, so that bound plans and arenas change hands."""
    session = tw.load(path, engine=engine, threads=threads)

    def work(index: int) -> None:
        for turn in range(60):
            x, b = inputs((1, 3, 40, 257)[(turn + index) % 4], seed=100 * index + turn)
            check(session(x, b), x, b)

    in_threads(3, work)


@pytest.mark.thinned(2)
@by_engine
def test_threads_have_sessions_of_their_own(path: Path, engine: str) -> None:
    def work(index: int) -> None:
        for turn in range(6):
            session = tw.load(path, engine=engine, threads=2)
            for rows in (1, 70, 9):
                x, b = inputs(rows, seed=100 * index + turn)
                check(session(x, b), x, b)

    in_threads(3, work)


@by_engine
def test_a_wrong_call_in_one_thread_leaves_the_other_alone(path: Path, engine: str) -> None:
    session = tw.load(path, engine=engine, threads=2)

    def work(index: int) -> None:
        for turn in range(60):
            x, b = inputs(5 + turn % 3, seed=turn)
            if index == 0:
                check(session(x, b), x, b)
                continue
            with pytest.raises(InputError):
                session(x[:, :5], b)

    in_threads(2, work)


def test_results_of_threads_stay_as_they_were(path: Path) -> None:
    """No result shares memory with another call's, whichever thread made it."""
    session = tw.load(path, threads=2)
    kept: list[tuple[object, np.ndarray, np.ndarray]] = []

    def work(index: int) -> None:
        for turn in range(40):
            x, b = inputs(33, seed=100 * index + turn)
            kept.append((session(x, b), x, b))

    in_threads(2, work)
    for results, x, b in kept:
        check(results, x, b)


# --- arrays ----------------------------------------------------------------------------------


def misaligned(array: np.ndarray) -> np.ndarray:
    """The same numbers one byte off every boundary."""
    memory = np.zeros(array.nbytes + 1, np.uint8)
    view = memory[1:].view(array.dtype) if array.nbytes else array.reshape(-1)
    view = view.reshape(array.shape)
    view[...] = array
    return view


def read_only(array: np.ndarray) -> np.ndarray:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def every_second(array: np.ndarray) -> np.ndarray:
    wide = np.full((*array.shape[:-1], 2 * array.shape[-1]), np.nan, array.dtype)
    wide[..., ::2] = array
    return wide[..., ::2]


def backwards(array: np.ndarray) -> np.ndarray:
    """Negative strides along every axis."""
    turned = tuple(slice(None, None, -1) for _ in array.shape)
    return array[turned].copy()[turned]


class Matrix(np.ndarray):
    """A subclass of numpy's array."""


FORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "fortran": np.asfortranarray,
    "transposed": lambda a: a.T.copy().T,
    "every second": every_second,
    "backwards": backwards,
    "read-only": read_only,
    "misaligned": misaligned,
    "subclass": lambda a: a.view(Matrix),
    "part of a mapped buffer": lambda a: np.frombuffer(bytes(4) + a.tobytes(), a.dtype)[
        1:
    ].reshape(a.shape),
}


@pytest.mark.thinned(3)
@by_engine
@pytest.mark.parametrize("form", FORMS)
def test_arrays_of_every_layout_are_taken(path: Path, engine: str, form: str) -> None:
    session = tw.load(path, engine=engine, threads=1)
    for rows in (1, 2, 7, 64):
        x, b = inputs(rows)
        given, bias = FORMS[form](x), FORMS[form](b)
        before = given.copy(), bias.copy()
        check(session(given, bias), x, b)
        check(session(x=given, b=bias), x, b)
        np.testing.assert_array_equal(given, before[0])
        np.testing.assert_array_equal(bias, before[1])


@by_engine
def test_one_number_may_stand_for_many(path: Path, engine: str) -> None:
    """Strides of zero."""
    x, b = (
        np.broadcast_to(np.float32(2), (5, WIDTH)),
        np.broadcast_to(np.float32(-1), WIDTH),
    )
    check(tw.load(path, engine=engine)(x, b), np.array(x), np.array(b))


@by_engine
def test_a_size_of_zero_gives_empty_results(path: Path, engine: str) -> None:
    session: Session = tw.load(path, engine=engine)
    check(session(*inputs(0)), *inputs(0))
    check(session(*inputs(3)), *inputs(3))


@by_engine
def test_no_rows_give_no_rows(tmp_path: Path, engine: str) -> None:
    """A size of zero that the model states; sums of nothing are zero."""
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        net (float[0, 6] x, float[6] b) => (float[0, 6] y, float[6, 0] t, float[6] total) {
            y = Add (x, b)
            t = Transpose <perm = [1, 0]> (y)
            axes = Constant <value_ints = [0]> ()
            total = ReduceSum <keepdims = 0> (y, axes)
        }""")
    tw.compile(model).save(tmp_path / "net.vmfb")
    session: Session = tw.load(tmp_path / "net.vmfb", engine=engine)
    for given in (inputs(0), (np.zeros((0, 12), np.float32)[:, ::2], inputs(0)[1])):
        y, t, total = session(*given)
        assert (y.shape, t.shape) == ((0, WIDTH), (WIDTH, 0))
        np.testing.assert_array_equal(total, np.zeros(WIDTH))


@by_engine
@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((2, WIDTH), ">f4"),
        np.zeros((2, WIDTH), np.float64),
        np.zeros((2, WIDTH), np.int32),
        np.zeros((2, WIDTH, 1), np.float32),
        np.zeros((2, WIDTH + 1), np.float32),
        np.zeros((), np.float32),
        np.zeros((2, WIDTH), np.complex64),
        np.zeros((2, WIDTH), object),
        np.zeros((2, WIDTH), [("a", "f4")]),
    ],
    ids=lambda a: f"{a.dtype.str}{a.shape}",
)
def test_arrays_that_do_not_fit_are_named(path: Path, engine: str, bad: np.ndarray) -> None:
    session = tw.load(path, engine=engine)
    with pytest.raises(REFUSAL[engine]):
        session(bad, inputs(2)[1])
    check(session(*inputs(2)), *inputs(2))


@by_engine
def test_results_own_their_memory(path: Path, engine: str) -> None:
    """Also the one that is an input unchanged."""
    session = tw.load(path, engine=engine)
    x, b = inputs(4)
    results = session(x, b)
    for result in results:
        assert not np.shares_memory(result, x)
        result[...] = 7  # writable
    np.testing.assert_array_equal(x, inputs(4)[0])
    check(session(x, b), x, b)


@by_engine
def test_results_go_on_through_dlpack(path: Path, engine: str) -> None:
    session = tw.load(path, engine=engine)
    x, b = inputs(4)
    y, _, _ = session(x, b)
    again = np.from_dlpack(y)
    assert np.shares_memory(again, y)
    # What one model gives, another takes, through the protocol alone.
    check(session(OnlyDlpack(again), OnlyDlpack(b)), y, b)
    check(session(OnlyDlpack(backwards(x)), OnlyDlpack(every_second(b))), x, b)
    check(session(OnlyDlpack(np.asfortranarray(x)), b), x, b)


class OnlyDlpack:
    """An array of another library: nothing but the protocol."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: object) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def test_a_model_of_no_inputs_may_be_called_from_threads() -> None:
    graph = helper.make_graph(
        [helper.make_node("Exp", ["c"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [3])],
        [numpy_helper.from_array(np.zeros(3, np.float32), "c")],
    )
    opsets = [helper.make_opsetid("", 21)]
    model = tw.compile(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    in_threads(2, lambda _: np.testing.assert_array_equal(model(), np.ones(3)))
