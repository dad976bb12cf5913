"""What `coverage` says of a model before any work is what becomes of it: over two hundred models of all formats.

What it calls supported compiles and runs, what it calls unsupported is refused for the same reasons, and the
operators that it says run on the host are those that do.  `slow` takes a sample, `make test-nightly` all.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest

import tilewright as tw
import tilewright.onnx_backend as onnx_backend
from fakes.models_of_all_formats import Sample, samples
from fakes.native_kernel import needs_x86
from tilewright.api.model import Model
from tilewright.base import symbolic
from tilewright.base.errors import InputError, ModelError
from tilewright.compiler.frontends.kit.coverage import CoverageReport, Status
from tilewright.compiler.frontends.kit.problems import SHOWN
from tilewright.compiler.program.ir import HostCall
from tilewright.formats.tensor_spec import TensorSpec

pytestmark = [needs_x86, pytest.mark.filterwarnings("ignore")]
SAMPLES = samples()
NAMES = [
    pytest.param(n, marks=pytest.mark.needs_torch if n.startswith("torch") else ())
    for n in SAMPLES
]
STRIDE = 26


def check(sample: Sample) -> None:
    options = sample.options()
    report = tw.coverage(sample.source(), **options)
    quick = tw.coverage(sample.source(), **options, quick=True)
    assert quick.problems == report.problems
    try:
        model = tw.compile(sample.source(), **options, threads=1, jobs=1)
    except ModelError as error:
        if report.needs_host:
            check_host(sample, report, error)
        else:
            check_refusal(report, error)
        return
    assert not report.needs_host
    assert report.supported, [str(p) for p in report.problems]
    assert {r.status for r in report.rows} & {Status.UNSUPPORTED} == set()
    assert on_host_as_said(report) == on_host(model)
    check_call(model, sample)


def check_refusal(report: CoverageReport, error: ModelError) -> None:
    """The same reasons, and rows that say so of the operators they are about."""
    assert not report.supported, f"called supported, but: {error}"
    named = {p.op_type for p in report.problems if p.op_type}
    rows = {r.op_type for r in report.rows if r.status is Status.UNSUPPORTED}
    assert named <= rows
    for problem in report.problems[:SHOWN]:
        assert problem.reason in str(error)
        assert problem.node in str(error) or len(report.problems) > 3


def check_host(sample: Sample, report: CoverageReport, error: ModelError) -> None:
    """It runs as the refusal says, on the inputs it comes with."""
    assert report.supported, [str(p) for p in report.problems]
    assert "tilewright.onnx_backend.prepare(model)" in str(error)
    source, given = sample.source(), sample.inputs()
    proto = source if isinstance(source, onnx.ModelProto) else onnx.load(source)
    prepared = onnx_backend.prepare(proto, threads=1, jobs=1)
    if given is not None:
        assert len(prepared.run(given)) == len(proto.graph.output)


def on_host(model: Model) -> set[str]:
    """The ops that run on the host, as the program of the model says."""
    (part,) = model.compiled.parts
    return {step.op for step in part.program.steps if isinstance(step, HostCall)}


def on_host_as_said(report: CoverageReport) -> set[str]:
    texts = [reason.text for row in report.rows for reason in row.reasons]
    return {m[1] for text in texts if (m := re.match(r"op '(\w+)' has no kernel", text))}


def check_call(model: Model, sample: Sample) -> None:
    """It runs: on the inputs it comes with, or on zeros, which are in every range."""
    if "args" in sample.options():
        model(*sample.options()["args"])
        return
    given = sample.inputs()
    inputs = (
        [given[v.name] for v in model.inputs] if given is not None else zeros(model.inputs)
    )
    # Sizes of nothing may be refused at the call, where something would be left to do.
    is_empty = any(array.size == 0 for array in inputs)
    with contextlib.nullcontext() if not is_empty else contextlib.suppress(InputError):
        check_results(model, inputs)


def check_results(model: Model, inputs: Sequence[np.ndarray]) -> None:
    results = model.session(*inputs)
    listed = results if isinstance(results, tuple) else (results,)
    assert len(listed) == len(model.outputs)


def zeros(inputs: Sequence[TensorSpec]) -> list[np.ndarray]:
    names = {s.name for _, _, shape in inputs for d in shape for s in symbolic.symbols(d)}
    dims: Mapping[str, int] = dict.fromkeys(names, 3)
    return [
        np.zeros([symbolic.evaluate(d, dims) for d in shape], dtype.numpy)
        for _, dtype, shape in inputs
    ]


def test_there_are_two_hundred_models_of_all_formats() -> None:
    formats = {name.split()[0] for name in SAMPLES}
    assert {"onnx", "flow", "network", "light", "stablehlo", "gguf"} <= formats
    assert len(SAMPLES) >= 200


@pytest.mark.sampled(STRIDE)
@pytest.mark.parametrize("name", NAMES)
def test_what_coverage_says_of_a_model_is_true(name: str) -> None:
    check(SAMPLES[name])
