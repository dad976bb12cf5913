"""Why a model takes as long as it does: the call, the causes, the kernels."""

from __future__ import annotations

import json
import re
from dataclasses import asdict

import numpy as np
import pytest

import tilewright as tw
from fakes.small_models import mlp, with_host_op
from tilewright.api.profiling import KernelRow
from tilewright.api.profiling.causes import Cause, Observation, findings_of
from tilewright.api.profiling.explanation import Explanation
from tilewright.api.profiling.roofline import Roofline
from tilewright.base.diagnostics import TilewrightWarning
from tilewright.base.errors import InputError, UserError
from tilewright.base.outcome import Outcome

LIMITS = Roofline(4, 100e9, 10e9)


def seen(time_ns: int, flops: int) -> Observation:
    row = KernelRow("k", 1, flops, 0, time_ns, Outcome.TILED, ("node",))
    return Observation(row=row, pieces=8, came=4, busy=0.95)


BUSY = seen(1_000_000, 90_000_000)
BELOW = seen(1_000_000, 30_000_000)


def explanation(*seen: Observation, **changes: int) -> Explanation:
    times = {"call_ns": 9_000_000, "best_call_ns": 1, "steps_ns": 1, "best_ns": 1} | changes
    found = findings_of(seen, LIMITS, model="m.onnx", dims={})
    return Explanation(
        model="m.onnx", threads=4, calls=5, dims={"n": 2}, limits=LIMITS, findings=found, **times
    )  # fmt: skip


def test_the_text_begins_with_the_call_and_sums_causes_up() -> None:
    small = seen(1_000, 90_000)
    found = explanation(BELOW, BUSY, small, steps_ns=2_001_000, best_ns=2_001_000)
    text = str(found)
    assert text.startswith("m.onnx: 9.00 ms a call on 4 threads, n = 2\n")
    assert re.search(r"1\.30 ms if all were at their limits \(limits: \d+ GFLOP/s, ", text)
    assert "50.0 %  below all its limits (1 kernel, 700.00 µs to be won at most)" in text
    assert "1. k: 1.00 ms in 1 run, 50.0 % of all steps (node)" in text
    assert "3. k" not in text  # a thousandth of the time
    assert text.endswith("1 kernel more: 0.0 % of all steps")
    assert "around its steps" not in text
    assert "does other things" not in text


def test_it_says_when_the_call_or_the_machine_is_the_matter() -> None:
    around = explanation(
        BELOW, best_call_ns=3_000_000, steps_ns=1_000_000, best_ns=1_000_000
    )
    assert "2.00 ms of a call are around its steps" in str(around)
    restless = explanation(BELOW, steps_ns=2_000_000, best_ns=1_000_000)
    assert "steps took 2.0 times as long as the shortest" in str(restless)


@pytest.mark.slow
def test_a_model_is_explained_by_its_kernels() -> None:
    found = tw.explain(mlp("batch"), dims={"batch": 3}, calls=2, threads=1)
    assert found.dims == {"batch": 3}
    assert found.findings
    assert sum(finding.share for finding in found.findings) == pytest.approx(1.0)
    assert found.steps_ns == sum(finding.time_ns for finding in found.findings)
    assert found.at_limits_ns <= found.steps_ns
    assert all(finding.nodes for finding in found.findings)
    json.dumps(asdict(found))


@pytest.mark.slow
def test_what_runs_on_the_host_is_said() -> None:
    with pytest.warns(TilewrightWarning):
        model = tw.compile(with_host_op(), threads=1)
    found = model.explain(calls=1)
    assert Cause.HOST in {finding.cause for finding in found.findings}


def test_wrong_options_and_inputs_are_refused_by_name() -> None:
    model = tw.compile(mlp(), threads=1)
    with pytest.raises(UserError, match="calls"):
        model.explain(calls=0)
    with pytest.raises(InputError, match="got f32\\[1\\]"):
        tw.explain(model.session, [np.ones(1, np.float32)])
