"""`tilewright compare` prints what it found and tells by its exit code."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.command_line import tilewright
from fakes.small_models import mlp, save


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(mlp(), tmp_path / "m.onnx")


def test_equal_outputs_are_a_table_and_success(model: Path) -> None:
    done = tilewright("compare", model)
    assert done.code == 0, done.err
    assert f"{model} against oracle: equal within tolerance" in done.out
    assert "tolerance" in done.out


def test_files_whose_graphs_have_one_name_are_told_apart(
    model: Path, tmp_path: Path
) -> None:
    other = save(mlp(), tmp_path / "other.onnx")
    done = tilewright("compare", model, other)
    assert f"{model} against {other}: equal within tolerance" in done.out


def test_a_difference_is_located_and_fails(model: Path) -> None:
    done = tilewright("compare", model, "x86_64-v2", "--tolerance", "1e-12", "--seed", 3)
    assert done.code == 1, done.out
    assert "first node that differs:" in done.out
    done = tilewright("compare", model, "O0", "--tolerance", "0", "--json")
    found = json.loads(done.out)
    assert found["equal"] is (done.code == 0)
    assert found["titles"][1] == "O0"


@pytest.mark.slow
def test_options_of_the_compilation_are_for_the_model(model: Path) -> None:
    assert tilewright("compare", model, "--target", "x86_64-v2", "--no-cache").code == 0
    assert tilewright("compare", model, "O0", "--no-index-checks").code == 0
    done = tilewright("compare", model, "nonsense")
    assert done.code == 1
    assert "known: oracle, onnxruntime, O0" in done.err


def test_inputs_come_by_name_too(tmp_path: Path, model: Path) -> None:
    (name,) = [spec.name for spec in tw.compile(model).inputs]
    x = np.ones([d if isinstance(d, int) else 2 for d in tw.compile(model).inputs[0].shape])
    np.save(tmp_path / "x.npy", x.astype(np.float32))
    for value in (f"@{tmp_path}/x.npy", f"{name}=@{tmp_path}/x.npy"):
        done = tilewright("compare", model, f"--input={value}")
        assert done.code == 0, done.err
    np.savez(tmp_path / "x.npz", x)
    for value in (f"@{tmp_path}/x.npz", f"{name}=@{tmp_path}/x.npz"):
        done = tilewright("compare", model, f"--input={value}")
        assert done.code == 1
        assert "float64" in done.err or "has no array" in done.err
    done = tilewright("compare", model, *[f"--input=@{tmp_path}/x.npy"] * 2)
    assert done.err.startswith("error: got 2 inputs, expected 1")
