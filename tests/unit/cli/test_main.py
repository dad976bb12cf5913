"""The command exits with what a verb says, and tells errors and warnings in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper


def tilewright(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tilewright", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **variables},
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`relu.onnx`, `unknown.onnx` (an operator nobody knows), `slow.onnx` (no kernel)."""
    folder = tmp_path_factory.mktemp("models")
    for name, op in (("relu", "Relu"), ("unknown", "NoSuchOperator"), ("slow", "NonZero")):
        result = TensorProto.INT64 if op == "NonZero" else TensorProto.FLOAT
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
        y = helper.make_tensor_value_info("y", result, None)
        graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], name, [x], [y])
        opsets = [helper.make_opsetid("", 21)]
        onnx.save(helper.make_model(graph, opset_imports=opsets), folder / f"{name}.onnx")
    return folder


def test_help_lists_every_verb() -> None:
    finished = tilewright("--help")
    assert finished.returncode == 0
    for verb in ("compile", "run", "bench", "inspect", "coverage", "devices"):
        assert f"  {verb} " in finished.stdout


def test_what_a_verb_refuses_is_the_exit_code(models: Path) -> None:
    assert tilewright("coverage", str(models / "relu.onnx")).returncode == 0
    assert tilewright("coverage", str(models / "unknown.onnx")).returncode == 1
    assert tilewright("no-such-verb").returncode == 2


def test_an_error_is_one_message_with_a_hint_and_no_traceback(models: Path) -> None:
    finished = tilewright("compile", str(models / "unknown.onnx"))
    assert finished.returncode == 1
    assert finished.stderr.startswith("error: unknown.onnx: ")
    assert "\nhint: " in finished.stderr
    assert "Traceback" not in finished.stderr


def test_debug_shows_where_an_error_was_raised(models: Path) -> None:
    finished = tilewright("compile", str(models / "unknown.onnx"), TILEWRIGHT_DEBUG="1")
    assert finished.returncode == 1
    assert "Traceback" in finished.stderr


def test_a_misspelt_setting_is_named() -> None:
    finished = tilewright("devices", TILEWRIGHT_JOB="1")
    assert "warning: no setting is called TILEWRIGHT_JOB (did you mean" in finished.stderr


def test_the_settings_for_watching_passes_work(models: Path, tmp_path: Path) -> None:
    finished = tilewright(
        "compile", str(models / "relu.onnx"), "-o", str(tmp_path / "relu.vmfb"),
        TILEWRIGHT_TIMING="1", TILEWRIGHT_VERIFY="1", TILEWRIGHT_DUMP_DIR=str(tmp_path / "dump"),
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    assert "fuse-kernels" in finished.stderr
    assert (tmp_path / "dump" / "000-input.twir").read_text().startswith("graph @relu(")


def test_the_core_can_be_left_out(models: Path) -> None:
    command = "from tilewright.runtime import native; print(native.IS_NATIVE)"
    finished = subprocess.run(
        [sys.executable, "-c", command],
        capture_output=True, text=True, check=True, env={**os.environ, "TILEWRIGHT_NATIVE": "0"},
    )  # fmt: skip
    assert finished.stdout == "False\n"
    ran = tilewright("run", str(models / "relu.onnx"), "--random", TILEWRIGHT_NATIVE="0")
    assert ran.returncode == 0, ran.stderr
    assert "2x3xf32=" in ran.stdout
