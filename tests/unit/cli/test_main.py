"""The command exits with what a verb says, and tells errors and warnings in one line."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from fakes import command_line
from tilewright import __main__ as cli_main
from tilewright import cli
from tilewright.base.errors import ModelError


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
    assert command_line.tilewright("coverage", models / "relu.onnx").code == 0
    assert command_line.tilewright("coverage", models / "unknown.onnx").code == 1
    assert command_line.tilewright("no-such-verb").code == 2


def test_an_error_is_one_message_with_a_hint_and_no_traceback(models: Path) -> None:
    finished = tilewright("compile", str(models / "unknown.onnx"))
    assert finished.returncode == 1
    assert finished.stderr.startswith("error: unknown.onnx: ")
    assert "\nhint: " in finished.stderr
    assert "Traceback" not in finished.stderr


def test_debug_shows_where_an_error_was_raised(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    with pytest.raises(ModelError):  # Python prints it with its traceback
        command_line.tilewright("compile", models / "unknown.onnx")


def test_files_that_the_system_opens_no_more_are_told_with_what_to_do(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(cli, "_expanded", none_left)
    done = command_line.tilewright("coverage", models / "relu.onnx")
    assert done.code == 1
    assert done.err == (
        "error: Too many open files\n"
        "hint: close files, or raise how many one process may have open (ulimit -n)\n"
    )


@pytest.mark.slow
def test_a_misspelt_setting_is_named() -> None:
    finished = tilewright("devices", TILEWRIGHT_JOB="1")
    assert "warning: no setting is called TILEWRIGHT_JOB (did you mean" in finished.stderr


def test_the_settings_for_watching_passes_work(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"TIMING": "1", "VERIFY": "1", "DUMP_DIR": str(tmp_path / "dump")}
    for name, value in settings.items():
        monkeypatch.setenv(f"TILEWRIGHT_{name}", value)
    finished = command_line.tilewright(
        "compile", models / "relu.onnx", "-o", tmp_path / "relu.vmfb"
    )
    assert finished.code == 0, finished.err
    assert "fuse-kernels" in finished.err
    assert (tmp_path / "dump" / "000-input.twir").read_text().startswith("graph @relu(")


@pytest.mark.slow
def test_the_core_can_be_left_out(models: Path) -> None:
    command = (
        "from tilewright.cli import main; from tilewright.runtime import native; "
        "print(native.IS_NATIVE, flush=True); main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", command, "run", str(models / "relu.onnx"), "--random"],
        capture_output=True, text=True, check=False, env={**os.environ, "TILEWRIGHT_NATIVE": "0"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("False\n")
    assert "2x3xf32=" in ran.stdout


SHADOWED = ("http", "json", "logging", "signal", "numpy", "click", "onnx")


@pytest.mark.slow
def test_modules_beside_a_model_are_not_imported(models: Path, tmp_path: Path) -> None:
    """`python -m` puts the current folder first, the command does not."""
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text("raise SystemExit(77)\n")
    command = (
        sys.executable,
        "-m",
        "tilewright",
        "coverage",
        str(models / "relu.onnx"),
    )
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_package_is_found_in_the_current_folder_where_it_lies(tmp_path: Path) -> None:
    """A copy of the sources runs from its folder: only a folder without the package is left out."""
    copied = tmp_path / "tilewright"
    copied.mkdir()
    source = Path(cli_main.__file__)
    (copied / "__init__.py").write_text("")
    (copied / "cli.py").write_text("def main(): print('mine')\n")
    (copied / "__main__.py").write_text(source.read_text())
    command = (sys.executable, "-m", "tilewright")
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "mine\n", done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="a folder that is in use stays")
def test_a_current_folder_that_was_removed_is_no_traceback(tmp_path: Path) -> None:
    code = f"import os, sys; os.chdir({str(tmp_path)!r}); os.rmdir({str(tmp_path)!r}); "
    code += "os.execv(sys.executable, [sys.executable, '-m', 'tilewright', '--version'])"
    done = subprocess.run(
        (sys.executable, "-c", code), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_before_the_verb_ends_as_one_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "prepare_streams", stop)
    monkeypatch.setattr(cli, "keep_interrupts", lambda: None)
    monkeypatch.setattr(cli, "answer_termination", lambda: None)
    monkeypatch.setattr(cli, "_end_at_signals", lambda: None)  # the test goes on
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 130
