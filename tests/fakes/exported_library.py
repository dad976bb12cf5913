"""Exported libraries for tests: built with the C compiler of this machine, called through their C interface.

The structs are written down here again, from the generated header and not from `runtime.native.model_interface`: what
checks the runtime's reading of the interface is no copy of it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw


def c_compiler() -> list[str]:
    """The command of a C compiler, or the test is skipped."""
    for name in ("cc", "gcc", "clang"):
        if path := shutil.which(name):
            return [path]
    if importlib.util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "cc"]
    pytest.skip("no C compiler")


def export(model: tw.Model, path: Path, **options: Any) -> Path:
    """The model as a library."""
    c_compiler()
    model.build().export_library(path, **options)
    return path


class _Options(ctypes.Structure):
    _fields_ = (
        ("struct_bytes", ctypes.c_size_t),
        ("threads", ctypes.c_uint32),
        ("concurrency", ctypes.c_uint32),
        ("weights_path", ctypes.c_char_p),
        ("level", ctypes.c_char_p),
        ("workspace", ctypes.c_void_p),
        ("workspace_bytes", ctypes.c_size_t),
    )


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("rank", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("reserved", ctypes.c_uint16),
    )


_ALLOCATE = ctypes.CFUNCTYPE(
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_uint32,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.c_int32,
    ctypes.c_size_t,
)
_CONTEXT = 4711
_CODES = {"b": 6, "i": 0, "u": 1, "f": 2}


def described(arrays: Sequence[np.ndarray]) -> ctypes.Array[_Tensor]:
    """Arrays as the tensors of a header."""
    rows = [
        _Tensor(
            array.ctypes.data,
            (ctypes.c_int64 * max(array.ndim, 1))(*array.shape),
            array.ndim,
            _CODES[array.dtype.kind],
            8 * array.dtype.itemsize,
        )
        for array in arrays
    ]
    return (_Tensor * max(len(rows), 1))(*rows)


def _pointers(arrays: Sequence[np.ndarray]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * max(len(arrays), 1))(*(a.ctypes.data for a in arrays))


class LibraryError(Exception):
    """A function of the library failed; the first argument is the status."""


class CModel:
    """A model through the functions of its header."""

    def __init__(self, path: Path, name: str = "net", **options: object) -> None:
        self.library = ctypes.CDLL(str(path))
        self.name = name
        self.function("error").restype = ctypes.c_char_p
        self.function("level").restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p()
        known = _Options(struct_bytes=ctypes.sizeof(_Options), **options)
        self.check(self.function("create")(ctypes.byref(known), ctypes.byref(self.handle)))

    def function(self, name: str):
        return getattr(self.library, f"{self.name}_{name}")

    def check(self, status: int) -> None:
        if status:
            raise LibraryError(status, self.function("error")().decode())

    @property
    def level(self) -> str:
        return self.function("level")(self.handle).decode()

    def run(
        self,
        inputs: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        dims: Sequence[int] | None = None,
    ) -> None:
        """By pointers alone."""
        arrays = (_pointers(inputs), _pointers(outputs))
        if dims is None:
            self.check(self.function("run")(self.handle, *arrays))
        else:
            values = (ctypes.c_int64 * len(dims))(*dims)
            self.check(self.function("run_dims")(self.handle, values, *arrays))

    def prepare(self, dims: Sequence[int]) -> None:
        values = (ctypes.c_int64 * len(dims))(*dims)
        self.check(self.function("prepare")(self.handle, values))

    def workspace_bytes(self, dims: Sequence[int]) -> int:
        size = ctypes.c_size_t()
        values = (ctypes.c_int64 * len(dims))(*dims)
        self.check(
            self.function("workspace_bytes")(self.handle, values, ctypes.byref(size))
        )
        return size.value

    def output_shape(self, dims: Sequence[int], index: int, rank: int) -> tuple[int, ...]:
        shape = (ctypes.c_int64 * max(rank, 1))()
        values = (ctypes.c_int64 * len(dims))(*dims)
        self.check(self.function("output_shape")(self.handle, values, index, shape))
        return tuple(shape)[:rank]

    def run_tensors(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
    ) -> None:
        """With types and shapes."""
        self.check(
            self.function("run_tensors")(self.handle, described(inputs), described(outputs))
        )

    def run_allocating(
        self, inputs: Sequence[np.ndarray], dtypes: Sequence[object], *, gives: bool = True
    ) -> list[np.ndarray]:
        """Arrays that are made when the library says how large they are, or are not."""
        made: dict[int, np.ndarray] = {}

        @_ALLOCATE
        def allocate(context: int, output: int, shape: Any, rank: int, size: int):
            assert context == _CONTEXT
            assert output not in made
            if not gives:
                return None
            made[output] = np.full(tuple(shape[:rank]), 9, dtypes[output])
            assert made[output].nbytes == size
            return made[output].ctypes.data

        run = self.function("run_allocating")
        context = ctypes.c_void_p(_CONTEXT)
        self.check(run(self.handle, described(inputs), allocate, context))
        return [made[output] for output in range(len(dtypes))]

    def run_rows(
        self, inputs: ctypes.Array[_Tensor], outputs: Sequence[np.ndarray]
    ) -> None:
        """With descriptions of the inputs that may be wrong."""
        self.check(self.function("run_tensors")(self.handle, inputs, described(outputs)))

    def close(self) -> None:
        self.function("destroy")(self.handle)


def compile_and_run(
    source: str,
    folder: Path,
    *flags: str,
    timeout: int = 300,
    arguments: Sequence[str] = (),
) -> str:
    """What a C program prints that gets these arguments."""
    (folder / "program.c").write_text(source)
    command = [*c_compiler(), "-std=c11", "-O1", "program.c", *flags, "-o", "program"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr
    ran = subprocess.run(
        [str(folder / "program"), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
