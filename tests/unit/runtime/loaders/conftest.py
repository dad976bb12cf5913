"""Executable libraries and plugins compiled from C, in every way that the loaders must tell apart."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
INCLUDE = HERE.parents[3] / "native" / "include"
FREESTANDING = (
    *("-ffreestanding", "-nostdlib", "-fno-stack-protector", "-Wl,--hash-style=sysv"),
    *("-Wl,--build-id=none", "-fcf-protection=none", "-Wl,-z,noseparate-code"),
)
Build = Callable[..., bytes]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """`build(source, *flags)`: the bytes of a shared library; `freestanding=True` for images."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    command = [compiler] if compiler else [sys.executable, "-m", "ziglang", "cc"]
    if not compiler and not importlib.util.find_spec("ziglang"):
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("libraries")
    made: dict[tuple[object, ...], bytes] = {}

    def build(source: str, *flags: str, freestanding: bool = False) -> bytes:
        key = (source, flags, freestanding)
        if key not in made:
            path = folder / f"{len(made)}.so"
            options = [*(FREESTANDING if freestanding else ()), *flags]
            subprocess.run(
                [*command, "-std=gnu11", "-O1", "-shared", "-fPIC", f"-I{INCLUDE}", *options,
                 str(HERE / source), "-o", str(path)],
                check=True, capture_output=True, text=True, timeout=120,
            )  # fmt: skip
            made[key] = path.read_bytes()
        return made[key]

    return build
