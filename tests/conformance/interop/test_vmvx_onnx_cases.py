"""ONNX's node cases, compiled by IREE to bytecode, give here the bits that IREE's runtime gives.

The compiler decides what is in: a case that it, or its own runtime, refuses is skipped.  Run as a
script, the file compares as many cases as asked for and prints a table.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from conformance.interop import onnx_cases
from conformance.interop.agreement import Verdict, compare
from conformance.interop.evidence import record, recorded
from conformance.interop.toolchain import needs_iree

pytestmark = [needs_iree, pytest.mark.slow]
SUITE = "onnx-vmvx"
SAMPLE_SIZE = 20
NIGHTLY_SIZE = 400  # of which IREE compiles and runs more than half


def judge(name: str, folder: Path) -> Verdict:
    """The first data set that is not equal, or the last one."""
    built = onnx_cases.compile_case(name, onnx_cases.VMVX)
    verdict = Verdict("refused", built.refusal)
    if built.archive is not None:
        for case in built.data_sets:
            verdict = compare(built.archive, list(case.inputs.values()), folder)
            if verdict.outcome != "equal":
                break
    record(SUITE, name, verdict, built.archive)
    return verdict


def check(name: str, folder: Path) -> None:
    verdict = judge(name, folder)
    if verdict.outcome in ("refused", "not run by IREE"):
        pytest.skip(f"{verdict.outcome}: {verdict.detail[:200]}")
    assert verdict.outcome == "equal", verdict.detail


def sample() -> tuple[str, ...]:
    """Of those that IREE compiled and ran when the table was written, spread over the names."""
    found = [n for n, row in recorded().get(SUITE, {}).items() if row["outcome"] == "equal"]
    return onnx_cases.sample(found or onnx_cases.names(), SAMPLE_SIZE)


@pytest.mark.parametrize("name", sample())
def test_a_sample_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


@pytest.mark.parametrize("name", onnx_cases.sample(onnx_cases.names(), NIGHTLY_SIZE))
def test_many_cases_give_the_same_bits(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases; default: an even sample")
    parser.add_argument("--count", type=int, default=NIGHTLY_SIZE)
    arguments = parser.parse_args()
    names = arguments.names or onnx_cases.sample(onnx_cases.names(), arguments.count)
    outcomes: Counter[str] = Counter()
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            verdict = judge(name, Path(folder))
        outcomes[verdict.outcome] += 1
        detail = "" if verdict.outcome == "refused" else verdict.detail[:120]
        sys.stdout.write(f"{verdict.outcome:16} {name} {detail}\n")
        sys.stdout.flush()
    table = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    sys.stdout.write(f"{len(names)} cases: {table}\n")


if __name__ == "__main__":
    main()
