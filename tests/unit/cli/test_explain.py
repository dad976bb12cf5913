"""`tilewright explain`: causes, kernels and what would help, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fakes.command_line import tilewright


@pytest.mark.slow
def test_every_kernel_has_a_reason_and_the_call_its_sum(mlp_onnx: Path) -> None:
    done = tilewright("explain", mlp_onnx, "--calls=2", "--threads=1", "--kernels=0")
    assert done.code == 0, done.err
    first, *rest = done.out.splitlines()
    assert first.startswith(f"{mlp_onnx}: ")
    assert "a call on 1 thread" in first
    assert any(line.startswith("1. ") for line in rest)
    assert any("→" in line for line in rest)


@pytest.mark.slow
def test_json_has_the_findings_of_an_artifact(mlp_vmfb: Path) -> None:
    done = tilewright("explain", mlp_vmfb, "--calls=1", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["model"] == str(mlp_vmfb)
    assert found["limits"]["flops"] > 0
    assert all(row["reason"] and row["time_ns"] > 0 for row in found["findings"])


@pytest.mark.slow
def test_sizes_and_the_number_of_kernels_are_those_asked_for(dynamic_onnx: Path) -> None:
    done = tilewright("explain", dynamic_onnx, "--dim=batch=3", "--calls=1", "--kernels=1")
    assert done.code == 0, done.err
    assert "batch = 3" in done.out
    assert "2. " not in done.out
    assert "more: " in done.out
