"""Kernels compiled from kernels.c, and both implementations of the core under the same tests."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from tilewright.runtime import native
from tilewright.runtime.native import fallback

HERE: Final = Path(__file__).resolve().parent
NATIVE: Final = HERE.parents[3] / "native"
KERNELS: Final = ("add", "mark", "report", "fail", "linger", "meet")


def find_compiler() -> list[str] | None:
    """The command of a C compiler, if this machine has one."""
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return [path]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    return None


@pytest.fixture(scope="session")
def compiler() -> list[str]:
    """A C compiler, or the test is skipped."""
    found = find_compiler()
    if found is None:
        pytest.skip("no C compiler")
    return found


@pytest.fixture(scope="session")
def kernel_library(compiler: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kernels.c as a shared library."""
    library = tmp_path_factory.mktemp("kernels") / "kernels.so"
    subprocess.run(
        [
            *(
                *compiler,
                "-std=gnu11",
                "-O1",
                "-shared",
                "-fPIC",
                f"-I{NATIVE / 'include'}",
            ),
            *(str(HERE / "kernels.c"), "-o", str(library)),
        ],
        check=True,
        timeout=120,
    )
    return library


@pytest.fixture(scope="session")
def kernels(kernel_library: Path) -> Mapping[str, int]:
    """Address of each kernel."""
    library = ctypes.CDLL(str(kernel_library))
    return {
        name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        for name in KERNELS
    }


@pytest.fixture(params=["extension", "fallback"])
def core(request: pytest.FixtureRequest) -> ModuleType:
    """One implementation of the core after the other."""
    if request.param == "fallback":
        return fallback
    if native.EXTENSION is None:
        pytest.skip("the C core is not built")
    return native.EXTENSION


@pytest.fixture
def extension() -> ModuleType:
    """The C core, for what only it does."""
    if native.EXTENSION is None:
        pytest.skip("the C core is not built")
    return native.EXTENSION


@pytest.fixture
def run_script(
    kernel_library: Path,
) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start a Python program with the kernels at hand, for what must not happen in this process."""
    preamble = (
        "import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'  # only our own threads\n"
        "import ctypes, os, signal, sys, threading, time\n"
        "import numpy as np\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # not so in background jobs\n"
        "from tilewright.runtime import native\n"
        "from tilewright.runtime.recorder import Recorder\n"
        "from tilewright.runtime.native import fallback\n"
        f"library = ctypes.CDLL({str(kernel_library)!r})\n"
        "address = lambda name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value\n"
    )

    with ExitStack() as started:

        def start(script: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-c", preamble + script],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            # A test that fails leaves no process and no open pipe to the next one.
            started.enter_context(process)
            started.callback(process.kill)
            return process

        yield start
