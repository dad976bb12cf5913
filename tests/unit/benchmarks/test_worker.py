"""A worker answers the line protocol, checks numbers, and fails in words."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from figures.measure import Worker, WorkerError
from figures.worker import relative_error, thin, time_calls

pytest.importorskip("onnxruntime", reason="extra 'peers' is not installed")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])], "negate", [value], [result]
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    proto.ir_version = 8
    path = tmp_path / "negate.onnx"
    onnx.save(proto, path)
    x = np.array([1, -2, 3], np.float32)
    np.savez(path.with_suffix(".inputs.npz"), x=x)
    np.savez(path.with_suffix(".ref.npz"), o0=-x)
    return path


def one_core() -> tuple[int, ...]:
    return (min(os.sched_getaffinity(0)),)


def test_a_worker_checks_and_times_on_its_core(model: Path) -> None:
    before = os.sched_getaffinity(0)
    worker = Worker("onnxruntime", model, 1, one_core())
    try:
        assert os.sched_getaffinity(worker.process.pid) == set(one_core())
        assert os.sched_getaffinity(0) == before
        assert worker.ask(do="check") == {"error": 0.0}
        times = worker.ask(do="time", seconds=0.02)["times"]
        assert times == sorted(times)
        assert all(0 < value < 1 for value in times)
    finally:
        worker.close()


def test_what_a_contender_raises_arrives_as_text(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"onnxruntime: .*absent"):
        Worker("onnxruntime", tmp_path / "absent.onnx", 1, one_core())


@pytest.mark.parametrize(
    ("outputs", "error"),
    [
        ([np.array([-1, 2, -3], np.float32)], 0.0),
        ([np.array([1, 2, -3], np.float32)], 2 / 14**0.5),
        ([np.array([[-1, 2, -3]], np.float32)], float("inf")),
        ([np.array([np.nan, 2, -3], np.float32)], float("inf")),
        ([], float("inf")),
    ],
)
def test_the_error_is_relative_and_never_flatters(
    model: Path, outputs: list[np.ndarray], error: float
) -> None:
    assert relative_error(outputs, model) == pytest.approx(error)


def test_thinning_keeps_the_extremes_and_the_median() -> None:
    kept = thin([float(n) for n in range(10_001)], 501)
    assert (len(kept), kept[0], kept[250], kept[-1]) == (501, 0.0, 5000.0, 10_000.0)


def test_a_call_longer_than_the_budget_is_timed_once() -> None:
    calls: list[int] = []
    times = time_calls(lambda: calls.append(1), 0.0)
    assert len(times) == 1
    assert len(calls) == 4  # three to warm up
