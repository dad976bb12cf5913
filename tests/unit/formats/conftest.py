"""What the tests of the formats share: code made by LLVM, archives made by IREE."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import llvmlite.binding as llvm
import pytest

ARCHIVES = Path(__file__).resolve().parents[2] / "golden" / "archives"


@functools.cache
def _initialized() -> bool:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return True


def compile_ir(
    text: str,
    *,
    triple: str = "x86_64-unknown-unknown-eabi-elf",
    reloc: str = "pic",
    codemodel: str = "small",
    features: str = "",
) -> bytes:
    """LLVM IR text to a relocatable object."""
    assert _initialized()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        features=features, opt=2, reloc=reloc, codemodel=codemodel
    )
    module = llvm.parse_assembly(text)
    module.triple = triple
    module.data_layout = str(machine.target_data)
    return bytes(machine.emit_object(module))


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
