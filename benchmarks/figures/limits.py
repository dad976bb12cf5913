"""The machine's limits: FMA peak and streaming read, by a small C program.

What it is: builds ``limits.c`` once per machine with the system compiler and calls it.
What it is not: a model of the machine; nothing is computed from clock rates.
Who calls it: the worker process called "limits" (``worker.py``).
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import numpy as np

SOURCE: Final = Path(__file__).with_name("limits.c")
FLAGS: Final = (
    "-O3",
    "-march=native",
    "-ffp-contract=fast",
    "-shared",
    "-fPIC",
    "-pthread",
)
STREAM_BYTES: Final = 512 << 20


def build_library() -> Path:
    """Compile ``limits.c`` unless it was compiled with this text before."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise SystemExit("the benchmarks need a C compiler to measure the machine's limits")
    digest = hashlib.sha256(SOURCE.read_bytes() + " ".join(FLAGS).encode()).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"tilewright-limits-{digest}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "limits.so"
            subprocess.run([compiler, *FLAGS, str(SOURCE), "-o", str(made)], check=True)
            shutil.copy(made, target.with_suffix(".part"))
        target.with_suffix(".part").replace(target)
    return target


class Limits:
    """Measures the limits of the cores this process may use.

    Args:
        threads: How many threads measure at once.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.library = ctypes.CDLL(str(build_library()))
        self.library.tw_limit_fma.restype = ctypes.c_double
        self.library.tw_limit_tile.restype = ctypes.c_double
        self.library.tw_limit_read.restype = ctypes.c_double
        self.stream = np.ones(STREAM_BYTES // 4, np.uint32)

    def fma_flops(self, seconds: float) -> float:
        """Return f32 operations per second; a multiply-add counts as two."""
        return self.library.tw_limit_fma(
            ctypes.c_int(self.threads), ctypes.c_double(seconds)
        )

    def tile_flops(self, seconds: float) -> float:
        """Return the mean rate of a register tile whose operands are in the first level cache."""
        return self.library.tw_limit_tile(
            ctypes.c_int(self.threads), ctypes.c_double(seconds)
        )

    def read_bytes(self, seconds: float) -> float:
        """Return bytes per second when streaming from memory."""
        return self.library.tw_limit_read(
            ctypes.c_int(self.threads),
            ctypes.c_double(seconds),
            ctypes.c_void_p(self.stream.ctypes.data),
            ctypes.c_size_t(self.stream.nbytes),
        )
