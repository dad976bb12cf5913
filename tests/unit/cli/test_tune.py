"""`tilewright tune` says what it found, keeps it after Ctrl-C, and `compile` uses it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from unittest import mock

import pytest
from click.testing import CliRunner

from fakes.small_models import mlp, save
from tilewright.api.tune import KernelTuning, Tuning
from tilewright.cli import root
from tilewright.tuning import Tuner


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(save(mlp(), tmp_path / "m.onnx"))


FOUND = Tuning(
    store=Path("s.sqlite"),
    kernels=(
        KernelTuning("matmul_0", 3, 20, 2000.0, 1500.0, "contraction columns=32"),
        KernelTuning("relu_0", 1, 5, 100.0, 100.0, "pointwise"),
    ),
    before_ns=10_000.0,
    after_ns=8_500.0,
    dropped=1,
    tried=25,
    is_done=False,
    is_interrupted=False,
    is_checked=True,
)


def test_the_table_names_what_became_faster(model: str) -> None:
    with mock.patch("tilewright.api.tune.tune", return_value=FOUND):
        finished = CliRunner().invoke(root, ["tune", model, "--budget", "5m"])
    assert finished.exit_code == 0
    rows = [line.split() for line in finished.output.splitlines()]
    assert any(row[:2] == ["matmul_0", "3"] and "0.750" in row for row in rows)
    assert not any(row[:1] == ["relu_0"] for row in rows)
    assert "1 of 2 kernels became faster" in finished.output
    assert "1 kernel dropped" in finished.output
    assert "(0.850)" in finished.output


def test_a_budget_that_is_spent_before_a_try_is_said(model: str) -> None:
    found = dataclasses.replace(FOUND, kernels=(), tried=0, dropped=0)
    with mock.patch("tilewright.api.tune.tune", return_value=found):
        finished = CliRunner().invoke(root, ["tune", model])
    assert "try a longer one" in finished.output
    done = dataclasses.replace(found, is_done=True)
    with mock.patch("tilewright.api.tune.tune", return_value=done):
        assert "a longer one" not in CliRunner().invoke(root, ["tune", model]).output


def test_an_interrupt_prints_what_was_found_and_exits_with_130(model: str) -> None:
    found = dataclasses.replace(FOUND, is_interrupted=True, is_checked=False)
    with mock.patch("tilewright.api.tune.tune", return_value=found):
        finished = CliRunner().invoke(root, ["tune", model])
    assert finished.exit_code == 130
    assert "matmul_0" in finished.output
    assert "goes on from here" in finished.output


@pytest.mark.slow
def test_ctrl_c_while_searching_ends_in_the_check_of_the_model(
    model: str, tmp_path: Path
) -> None:
    store = str(tmp_path / "s.sqlite")
    with mock.patch.object(Tuner, "_turn", side_effect=KeyboardInterrupt):
        finished = CliRunner().invoke(
            root, ["tune", model, "--threads=1", "--store", store, "--json"]
        )
    assert finished.exit_code == 130
    said = json.loads(finished.output.splitlines()[0])
    assert (said["is_interrupted"], said["is_checked"]) == (True, True)
    assert said["before_ns"] > 0


@pytest.mark.slow
def test_a_named_store_is_used_by_compile_and_one_that_is_not_there_is_said(
    model: str, tmp_path: Path
) -> None:
    store, out = str(tmp_path / "s.sqlite"), str(tmp_path / "m.vmfb")
    arguments = ["tune", model, "--threads=1", "--budget=0.2s", "--store", store]
    assert CliRunner().invoke(root, arguments).exit_code == 0
    compiled = ["compile", model, "--threads=1", "-o", out, "--tuning-store"]
    assert CliRunner().invoke(root, [*compiled, store]).exit_code == 0
    missing = CliRunner().invoke(root, [*compiled, str(tmp_path / "none")])
    assert "there is no such store" in str(missing.exception)


@pytest.mark.parametrize("budget", ["soon", "-5s", "5d"])
def test_a_budget_that_is_none_is_said(model: str, budget: str) -> None:
    finished = CliRunner().invoke(root, ["tune", model, f"--budget={budget}"])
    assert "expected a time such as 60s" in str(finished.exception)
