"""Runs kernels that the C backend wrote, compiled by the system's compiler, inside the test process."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from fakes.native_kernel import CalledKernel, KernelFunction
from fakes.native_library import LoadedCode
from tilewright.base.target import Target
from tilewright.compiler.backends.backend import lower, route
from tilewright.compiler.backends.c.backend import BACKEND
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.printers.c_text.function import (
    FLAGS,
    CFunction,
    file_text,
)

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
_FLAGS = (
    "-O1",
    "-std=gnu11",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-psabi",
    "-shared",
    "-fPIC",
)
# What the loader of the product gives a kernel: nothing that C reads.
_ENVIRONMENT = ctypes.create_string_buffer(256)


def compile_c(text: str) -> ctypes.CDLL:
    """A file of kernels as a library in this process."""
    with tempfile.TemporaryDirectory() as name:
        source, library = Path(name, "kernels.c"), Path(name, "kernels.so")
        source.write_text(text)
        arguments = [*FLAGS, str(source), "-o", str(library), "-lm"]
        done = subprocess.run(
            ["cc", *_FLAGS, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{done.stderr}\n{text}"
        return ctypes.CDLL(str(library))


def write_c(kernels: Sequence[Kernel], target: Target) -> list[CFunction]:
    """Scheduled kernels in C."""
    return [route(BACKEND.stages(target), kernel) for kernel in kernels]


def load_c(kernels: Sequence[Kernel], target: Target) -> LoadedCode:
    """Scheduled kernels through C and the system's compiler."""
    written = write_c(kernels, target)
    library = compile_c(file_text(written, target))
    pointers = [ctypes.cast(getattr(library, w.symbol), ctypes.c_void_p) for w in written]
    return LoadedCode(
        [pointer.value or 0 for pointer in pointers],
        [w.local_memory_bytes for w in written],
        ctypes.addressof(_ENVIRONMENT),
        library,
    )


class CKernel(CalledKernel):
    """A kernel in C, ready to be called."""

    def __init__(self, kernel: Kernel, target: Target) -> None:
        self.kernel = lower(BACKEND, kernel, target)
        self.written = route(BACKEND.stages(target), kernel)
        self.local_bytes = self.written.local_memory_bytes
        self.text = file_text([self.written], target)
        self.library = compile_c(self.text)
        self.function = KernelFunction((self.written.symbol, self.library))
