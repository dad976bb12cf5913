"""Small whole networks in every type: compiled, saved, loaded, run by both engines, compared.

Judges: the graph evaluator in the same type; onnxruntime where it has the type, else on the same
weights in f32.  The default run keeps two of the types, `slow` takes them all, at three sizes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tilewright as tw
from fakes.small_networks import INTEGERS, NETWORKS, control, inputs_of, integers, quantized
from tilewright.base import dtypes
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

SIZES = {"batch": 3, "length": 7, "n": 3}
MORE_SIZES = ({"batch": 1, "length": 1, "n": 1}, {"batch": 2, "length": 33, "n": 18})
# Error allowed relative to the largest element of an output.
FROM_EVALUATOR = {"f32": 2e-6, "f16": 2e-3, "bf16": 1.6e-2, "f64": 1e-13}
FROM_ONNXRUNTIME = {"f32": 2e-6, "f16": 4e-3, "bf16": 6e-2, "f64": 2e-6}
DEFAULT = {("attention", "f16"), ("convolutions", "bf16")}


def everything() -> list[object]:
    """Every network in every type; those of the default run are not slow."""
    return [
        pytest.param(
            name, dtype, marks=[] if (name, dtype) in DEFAULT else [pytest.mark.slow]
        )
        for name in NETWORKS
        for dtype in FROM_EVALUATOR
    ]


def error(actual: np.ndarray, expected: np.ndarray) -> float:
    wide = expected.astype(np.float64)
    largest = np.abs(wide).max(initial=1e-30)
    return float(np.abs(actual.astype(np.float64) - wide).max(initial=0) / largest)


def listed(results: object) -> list[np.ndarray]:
    return list(results) if isinstance(results, tuple) else [np.asarray(results)]


def run_onnxruntime(
    model: onnx.ModelProto, feeds: dict[str, np.ndarray]
) -> list[np.ndarray] | None:
    """What onnxruntime computes; None where it has no kernel for the type."""
    runtime = pytest.importorskip("onnxruntime")
    states = pytest.importorskip("onnxruntime.capi.onnxruntime_pybind11_state")
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    try:
        session = runtime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return session.run(None, feeds)
    except (states.NotImplemented, states.RuntimeException):
        return None


class Compiled:
    """A model through the whole compiler and both engines of a loaded file."""

    def __init__(self, model: onnx.ModelProto, folder: Path, opt_level: int = 2) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ops that run on the host
            self.model = tw.compile(model, opt_level=opt_level, threads=2)
        path = folder / "network.vmfb"
        self.model.save(path, sources=False)
        self.sessions = [
            tw.load(path, engine=engine, threads=1) for engine in ("plan", "vm")
        ]

    def __call__(self, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        results = listed(self.model(feeds))
        for session in self.sessions:
            for again, got in zip(listed(session(feeds)), results, strict=True):
                np.testing.assert_array_equal(again, got)
        return results


def check(
    model: onnx.ModelProto,
    run: Callable[[dict[str, np.ndarray]], list[np.ndarray]],
    feeds: dict[str, np.ndarray],
    tolerance: float,
) -> list[np.ndarray]:
    """Compare with the evaluator: exact but for floats."""
    expected = evaluate(load(model), list(feeds.values()))
    results = run(feeds)
    compare(results, expected, tolerance)
    return results


def compare(
    results: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float
) -> None:
    assert len(results) == len(expected)
    for position, (got, want) in enumerate(zip(results, expected, strict=True)):
        assert got.dtype == want.dtype
        assert got.shape == want.shape
        if dtypes.from_numpy(want.dtype).is_float:
            assert error(got, want) <= tolerance, f"output {position}"
        else:
            np.testing.assert_array_equal(got, want, err_msg=f"output {position}")


@pytest.mark.sampled(9)
@pytest.mark.parametrize(("name", "dtype"), everything())
def test_a_network_computes_the_same_in_every_type(
    name: str, dtype: str, tmp_path: Path
) -> None:
    model = NETWORKS[name](dtypes.parse(dtype))
    feeds = inputs_of(model, SIZES)
    compiled = Compiled(model, tmp_path)
    results = check(model, compiled, feeds, FROM_EVALUATOR[dtype])
    judged = run_onnxruntime(model, feeds)
    if judged is None:
        # The same numbers in f32: what our types cost is rounding, nothing else.
        wide = NETWORKS[name](dtypes.f32)
        _copy_weights(model, wide)
        judged = run_onnxruntime(wide, {n: a.astype(np.float32) for n, a in feeds.items()})
        assert judged is not None
    for got, want in zip(results, judged, strict=True):
        assert error(got, want) <= FROM_ONNXRUNTIME[dtype]


def _copy_weights(source: onnx.ModelProto, target: onnx.ModelProto) -> None:
    for narrow, wide in zip(
        source.graph.initializer, target.graph.initializer, strict=True
    ):
        array = numpy_helper.to_array(narrow)
        if array.dtype != numpy_helper.to_array(wide).dtype:
            array = array.astype(np.float32)
        wide.CopyFrom(numpy_helper.from_array(array, wide.name))


@pytest.mark.sampled(23)
@pytest.mark.parametrize("opt_level", [0, 1, 2])
@pytest.mark.parametrize("dtype", FROM_EVALUATOR)
@pytest.mark.parametrize("name", NETWORKS)
def test_one_compilation_of_a_network_serves_every_size(
    name: str, dtype: str, opt_level: int, tmp_path: Path
) -> None:
    model = NETWORKS[name](dtypes.parse(dtype))
    compiled = Compiled(model, tmp_path, opt_level)
    for sizes in MORE_SIZES:
        check(model, compiled, inputs_of(model, sizes), FROM_EVALUATOR[dtype])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_exact_and_wrap_as_onnxruntime_wraps_them(
    dtype: str, tmp_path: Path
) -> None:
    model = integers(dtypes.parse(dtype))
    compiled = Compiled(model, tmp_path)
    for sizes in (SIZES, *MORE_SIZES):
        feeds = inputs_of(model, sizes)
        results = check(model, compiled, feeds, FROM_EVALUATOR["f32"])
        judged = run_onnxruntime(model, feeds)
        if judged is not None:
            compare(results, judged, FROM_EVALUATOR["f32"])


@pytest.mark.slow
def test_a_quantized_network_gives_the_integers_onnxruntime_gives(tmp_path: Path) -> None:
    model = quantized()
    compiled = Compiled(model, tmp_path)
    feeds = inputs_of(model, SIZES)
    results = check(model, compiled, feeds, FROM_EVALUATOR["f32"])
    judged = run_onnxruntime(model, feeds)
    assert judged is not None
    compare(results, judged, FROM_EVALUATOR["f32"])


@pytest.mark.parametrize("flag", [True, False])
def test_control_flow_and_host_ops_compute_what_onnxruntime_computes(
    flag: bool, tmp_path: Path
) -> None:
    model = control()
    compiled = Compiled(model, tmp_path)
    feeds = inputs_of(model, SIZES) | {"flag": np.asarray(flag)}
    results = check(model, compiled, feeds, FROM_EVALUATOR["f32"])
    judged = run_onnxruntime(model, feeds)
    assert judged is not None
    compare(results, judged, FROM_EVALUATOR["f32"])
