"""Importing the runtime or the façade loads none of the compiler's packages."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "tilewright"
COMPILER_PACKAGES = {"llvmlite", "onnx", "torch"}
HEAVY = ("llvmlite", "onnx", "torch", "onnxruntime", "click", "rich", "tilewright.compiler")


def modules_after(statement: str) -> set[str]:
    program = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(finished.stdout.split())


@pytest.mark.parametrize(
    "module", ["tilewright.runtime", "tilewright.formats", "tilewright.base"]
)
def test_importing_it_loads_nothing_heavy(module: str) -> None:
    loaded = modules_after(f"import {module}")
    assert module in loaded
    assert sorted(loaded.intersection(HEAVY)) == []


def test_the_facade_is_lazy() -> None:
    loaded = modules_after("import tilewright")
    assert sorted(loaded.intersection(HEAVY)) == []


def test_loading_an_artifact_needs_no_compiler() -> None:
    loaded = modules_after("import tilewright; tilewright.load")
    assert sorted(loaded.intersection(HEAVY)) == []
