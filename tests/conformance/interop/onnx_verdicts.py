"""ONNX's cases compared one by one: a verdict each, recorded for the page of compatibility.

What it is: the suites that the two tests of ONNX's cases share, and `judge`.  Run as a script, the
file compares as many cases as asked for, tests or not, and prints a table::

    PYTHONPATH=tests python -m conformance.interop.onnx_verdicts onnx-vmvx --count 400
    PYTHONPATH=tests python -m conformance.interop.onnx_verdicts onnx-llvm-cpu --left

What it is not: a list of what must pass; what IREE refuses, it refuses.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.interop import onnx_cases
from conformance.interop.agreement import Verdict, compare
from conformance.interop.evidence import record, recorded, seen
from conformance.interop.onnx_cases import Target


@dataclass(frozen=True)
class Suite:
    """Cases for one target; `undefined` gives what lies in memory by chance, with the reason."""

    name: str
    target: Target
    kinds: tuple[str, ...]
    undefined: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        """Of all its cases."""
        return onnx_cases.names(self.kinds)


_READS_BEYOND = "reads beyond its operand: indices are clamped from below only"
NODES = Suite(
    "onnx-llvm-cpu",
    onnx_cases.LLVM_CPU,
    ("node",),
    {"test_gridsample_zeros_padding": _READS_BEYOND},
)
OTHERS = Suite("onnx-others-llvm-cpu", onnx_cases.LLVM_CPU, onnx_cases.OTHER_KINDS, {})
NODES_ON_VMVX = Suite("onnx-vmvx", onnx_cases.VMVX, ("node",), {})
SUITES = {suite.name: suite for suite in (NODES, OTHERS, NODES_ON_VMVX)}


def judge(suite: Suite, name: str, folder: Path) -> Verdict:
    """The first data set that is not equal, or the last one; `folder` is for files in between."""
    built = onnx_cases.compile_case(name, suite.target)
    if built.archive is None:
        verdict = Verdict("refused", built.refusal)
    elif name in suite.undefined:
        verdict = Verdict("undefined", suite.undefined[name])
    else:
        verdict = _compare_all(built.archive, built.inputs, folder)
    record(suite.name, name, verdict, built.archive)
    return verdict


def check(suite: Suite, name: str, folder: Path) -> None:
    """Fail where we give other bits; skip what cannot be compared."""
    verdict = judge(suite, name, folder)
    if verdict.outcome in ("refused", "not run by IREE", "undefined"):
        pytest.skip(f"{verdict.outcome}: {verdict.detail[:200]}")
    assert verdict.outcome == "equal", verdict.detail


def sample(suite: Suite, count: int) -> tuple[str, ...]:
    """Of those that IREE compiled and ran when the table was written, spread over the names."""
    rows = recorded().get(suite.name, {})
    found = [name for name, row in rows.items() if row["outcome"] == "equal"]
    return onnx_cases.sample(found or suite.names, count)


def _compare_all(
    archive: Path, data_sets: Sequence[Sequence[object]], folder: Path
) -> Verdict:
    verdict = Verdict("equal")
    for inputs in data_sets:
        verdict = compare(archive, inputs, folder)
        if verdict.outcome != "equal":
            break
    return verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("suite", choices=SUITES)
    parser.add_argument("names", nargs="*", help="cases; default: all of the suite")
    parser.add_argument("--count", type=int, help="an even sample of so many")
    parser.add_argument("--left", action="store_true", help="those without a verdict only")
    arguments = parser.parse_args()
    suite = SUITES[arguments.suite]
    names = tuple(arguments.names) or suite.names
    if arguments.left:
        names = tuple(name for name in names if not seen(suite.name, name))
    names = onnx_cases.sample(names, arguments.count or len(names))
    outcomes: Counter[str] = Counter()
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            verdict = judge(suite, name, Path(folder))
        outcomes[verdict.outcome] += 1
        detail = "" if verdict.outcome == "refused" else verdict.detail[:120]
        sys.stdout.write(f"{verdict.outcome:16} {name} {detail}\n")
        sys.stdout.flush()
    table = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    sys.stdout.write(f"{len(names)} cases: {table}\n")


if __name__ == "__main__":
    main()
