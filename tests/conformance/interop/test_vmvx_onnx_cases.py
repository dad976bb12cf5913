"""ONNX's node cases, compiled by IREE to bytecode, give here the bits that IREE's runtime gives.

The compiler decides what is in: a case that it, or its own runtime, refuses is skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.interop import onnx_cases
from conformance.interop.onnx_verdicts import NODES_ON_VMVX, check, sample
from conformance.interop.toolchain import needs_iree

pytestmark = [needs_iree, pytest.mark.slow]
SAMPLE_SIZE = 10
NIGHTLY_SIZE = 400  # of which IREE compiles and runs more than half


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", sample(NODES_ON_VMVX, SAMPLE_SIZE))
def test_a_sample_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    check(NODES_ON_VMVX, name, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", onnx_cases.sample(NODES_ON_VMVX.names, NIGHTLY_SIZE))
def test_many_cases_give_the_same_bits(name: str, tmp_path: Path) -> None:
    check(NODES_ON_VMVX, name, tmp_path)
