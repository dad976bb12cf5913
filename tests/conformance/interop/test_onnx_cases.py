"""ONNX's node cases, compiled by IREE to machine code, give here the bits that IREE's runtime gives.

The compiler decides what is in: a case that it, or its own runtime, refuses is skipped.  The sample
is among the slow tests, all of them are a nightly target (Makefile).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.interop import onnx_cases
from conformance.interop.agreement import Verdict, compare
from conformance.interop.evidence import record, recorded
from conformance.interop.toolchain import needs_iree

pytestmark = [needs_iree, pytest.mark.slow]
SUITE = "onnx-llvm-cpu"
SAMPLE_SIZE = 24
# Cases whose code gives what lies in memory by chance, under either runtime.
UNDEFINED = {
    "test_gridsample_zeros_padding": "reads beyond its operand: indices are clamped from below only",
}


def sample() -> tuple[str, ...]:
    """Of those that IREE compiled and ran when the table was written, spread over the names."""
    found = [n for n, row in recorded().get(SUITE, {}).items() if row["outcome"] == "equal"]
    return onnx_cases.sample(found or onnx_cases.names(), SAMPLE_SIZE)


def check(name: str, folder: Path) -> None:
    built = onnx_cases.compile_case(name, onnx_cases.LLVM_CPU)
    if built.archive is None:
        record(SUITE, name, Verdict("refused", built.refusal))
        pytest.skip("IREE's importer or compiler refuses the model")
    if name in UNDEFINED:
        record(SUITE, name, Verdict("undefined", UNDEFINED[name]))
        pytest.skip("what the code computes is undefined")
    for case in built.data_sets:
        verdict = compare(built.archive, list(case.inputs.values()), folder)
        record(SUITE, name, verdict, built.archive)
        if verdict.outcome == "not run by IREE":
            pytest.skip("IREE's runtime cannot run what its compiler made")
        assert verdict.outcome == "equal", verdict.detail


@pytest.mark.parametrize("name", sample())
def test_a_sample_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


@pytest.mark.parametrize("name", onnx_cases.names())
def test_every_case_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)
