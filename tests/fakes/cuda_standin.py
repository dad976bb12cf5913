"""The stand-in for NVIDIA's driver library, built from `libcuda/` and steered from tests.

What it is: a C library with the driver's interface, whose GPU is the host (see `standin.h`).
What it is not: a model of a GPU's speed, or of PTX: kernels run by name, unknown ones are recorded.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCES = Path(__file__).parent / "libcuda"
KINDS = ("context", "stream", "event", "pool", "module", "graph", "graph exec", "memory")
LAUNCH_FAILED, OUT_OF_MEMORY, UNKNOWN = 719, 2, 999


def compiler() -> list[str] | None:
    """A C compiler: the system's, else the one in the package `ziglang`."""
    found = shutil.which("cc")
    if found is not None:
        return [found]
    if importlib.util.find_spec("ziglang") is None:
        return None
    return [sys.executable, "-m", "ziglang", "cc"]


@functools.cache
def library_path() -> str:
    """Where the built library lies; built now if its sources have changed since."""
    return build_library("libcuda", SOURCES)


def build_library(name: str, folder: Path, *libraries: str) -> str:
    """Build a stand-in from the C sources in a folder, linked to others; where it lies."""
    command = compiler()
    if command is None:
        pytest.skip("no C compiler: neither cc nor the package ziglang")
    sources = sorted(folder.glob("*.[ch]"))
    words = [*(path.read_bytes() for path in sources), *map(os.fsencode, libraries)]
    digest = hashlib.sha256(b"".join(words)).hexdigest()
    folder = Path(tempfile.gettempdir()) / f"tilewright-libcuda-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    target = folder / f"{name}-{digest[:16]}.so"
    if not target.exists():
        files = [str(path) for path in sources if path.suffix == ".c"]
        built = folder / f"{target.stem}-{os.getpid()}"
        flags = [
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-O1",
            "-g",
            "-fPIC",
            "-shared",
            "-pthread",
            "-fwrapv",
        ]
        line = [*command, *flags, *files, *libraries, "-o", str(built)]
        subprocess.run(line, check=True)
        built.replace(target)
    return str(target)


class LaunchRecord(NamedTuple):
    """A launch as the GPU got it."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    parameters: bytes
    in_graph: bool


class _Record(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 128),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("parameter_bytes", ctypes.c_uint),
        ("in_graph", ctypes.c_uint),
        ("parameters", ctypes.c_ubyte * 256),
    )


class StandIn:
    """Steers the library and asks it what happened."""

    def __init__(self) -> None:
        self.path = library_path()
        self._library = ctypes.CDLL(self.path)
        self._library.standin_reset()
        self._library.standin_forget_launches()

    def fail(self, function: str, nth: int = 1, result: int = UNKNOWN) -> None:
        """Let the nth call from now fail."""
        self._library.standin_fail(function.encode(), nth, result)

    def fail_operation(
        self, subject: str, nth: int = 1, result: int = LAUNCH_FAILED
    ) -> None:
        """Let the nth kernel, copy, fill or graph fail when the GPU runs it."""
        self._library.standin_fail_operation(subject.encode(), nth, result)

    def hide(self, function: str) -> None:
        """Be a driver without this function."""
        self._library.standin_hide(function.encode())

    def calls(self, function: str) -> int:
        return self._library.standin_calls(function.encode())

    def abandon(self) -> None:
        """Forget what was not given back."""
        self._library.standin_abandon()
        self._library.standin_reset()

    def configure(
        self,
        *,
        jitter_us: int = 0,
        managed: bool = True,
        pools: bool = True,
        version: int = 12040,
        seed: int = 1,
    ) -> None:
        self._library.standin_configure(jitter_us, managed, pools, version, seed)

    @property
    def complaints(self) -> list[str]:
        """Wrong use: of freed memory, of another context, leaks."""
        text = ctypes.create_string_buffer(1 << 14)
        self._library.standin_complaints(text, len(text))
        return text.value.decode().splitlines()

    @property
    def live(self) -> dict[str, int]:
        """What was made and not given back, by kind."""
        counts = {kind: self._library.standin_live(i) for i, kind in enumerate(KINDS)}
        return {kind: count for kind, count in counts.items() if count}

    def wait_until_all_is_back(self, seconds: float = 5) -> dict[str, int]:
        """What was not given back once nobody refers to it and all threads had time to end."""
        deadline = time.monotonic() + seconds
        while self.live and time.monotonic() < deadline:
            gc.collect()  # each time: the last thread may leave a cycle behind
            time.sleep(0.01)
        return self.live

    @property
    def launches(self) -> Sequence[LaunchRecord]:
        """Every launch that ran, in order."""
        return [self._launch(i) for i in range(self._library.standin_launches())]

    def _launch(self, index: int) -> LaunchRecord:
        record = _Record()
        assert self._library.standin_launch(index, ctypes.byref(record))
        return LaunchRecord(
            record.name.decode(),
            tuple(record.grid),
            tuple(record.block),
            record.shared_bytes,
            bytes(record.parameters[: record.parameter_bytes]),
            bool(record.in_graph),
        )
