"""Some thousand mutated kernel texts (`kernel_mutations.py`)."""

from __future__ import annotations

import pytest

from fuzz.harness import counts_of
from fuzz.kernel_mutations import run


@pytest.mark.slow
def test_mutated_kernels_are_refused_or_read() -> None:
    counts = counts_of(run("default", 0, 1000))
    assert counts["refused"] > 500
    assert counts["read"] > 20


@pytest.mark.nightly
def test_more_mutated_kernels() -> None:
    assert all(finding is None for _, finding in run("slow", 0, 20_000))
