"""Examples that take arguments say which, and name a model that is not there in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
WITH_MODELS = ["01_sentence_similarity.py", "04_profile.py", "11_language_model.py"]


def run(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / name), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("name", WITH_MODELS)
def test_help_and_a_missing_model_are_no_tracebacks(name: str) -> None:
    done = run(name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: {name}")
    done = run(name, "missing.onnx")
    assert done.returncode == 2
    assert f"{name}: error: there is no missing.onnx" in done.stderr
