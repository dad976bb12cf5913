"""ONNX's cases, compiled by IREE to machine code, give here the bits that IREE's runtime gives.

The compiler decides what is in: a case that it, or its own runtime, refuses is skipped.  The sample
is among the slow tests, all of them are nightly.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.interop.onnx_verdicts import NODES, OTHERS, Suite, check, sample
from conformance.interop.toolchain import needs_iree

pytestmark = [needs_iree, pytest.mark.slow]
SAMPLE = [
    (suite, name) for suite, n in ((NODES, 12), (OTHERS, 3)) for name in sample(suite, n)
]
EVERY = [(suite, name) for suite in (NODES, OTHERS) for name in suite.names]


def name_of(value: object) -> str:
    """How a parameter shows in the name of a test."""
    return value.name if isinstance(value, Suite) else str(value)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("suite", "name"), SAMPLE, ids=name_of)
def test_a_sample_gives_the_same_bits(suite: Suite, name: str, tmp_path: Path) -> None:
    check(suite, name, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize(("suite", "name"), EVERY, ids=name_of)
def test_every_case_gives_the_same_bits(suite: Suite, name: str, tmp_path: Path) -> None:
    check(suite, name, tmp_path)
