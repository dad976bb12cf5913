"""What the tests of the formats share: code made by LLVM, archives made by IREE."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes.llvm_objects import compile_ir

ARCHIVES = Path(__file__).resolve().parents[2] / "golden" / "archives"


@pytest.fixture(name="compile_ir")
def compile_ir_fixture() -> Callable[..., bytes]:
    return compile_ir


@pytest.fixture(params=sorted(path.name for path in ARCHIVES.glob("*.vmfb")))
def iree_archive(request: pytest.FixtureRequest) -> bytes:
    """Each module that IREE's compilers made."""
    return (ARCHIVES / request.param).read_bytes()


@pytest.fixture(params=sorted(path.name for path in ARCHIVES.glob("*.so")))
def iree_kernels(request: pytest.FixtureRequest) -> bytes:
    """Each embedded ELF that IREE's compilers made."""
    return (ARCHIVES / request.param).read_bytes()


@pytest.fixture
def iree_tool() -> Callable[..., str]:
    """Runs a tool of the IREE packages; skips where they are not installed."""

    def run(name: str, *arguments: str) -> str:
        beside = Path(sys.executable).parent  # of an environment that was not activated
        tool = shutil.which(name) or shutil.which(name, path=str(beside))
        if tool is None:
            pytest.skip(f"{name} is not installed (extra 'interop')")
        done = subprocess.run(
            [tool, *arguments], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
