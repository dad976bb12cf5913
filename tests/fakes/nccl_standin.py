"""The stand-in for NVIDIA's library for collectives, built from `libnccl/` and steered from tests.

What it is: a C library with NCCL's interface, on the stand-in for the driver library: ranks are
streams of one process, whose jobs wait for each other.
What it is not: a model of NCCL's speed, its order of sums, or its network.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import time
from pathlib import Path

from fakes.cuda_standin import build_library
from fakes.cuda_standin import library_path as cuda_path

SOURCES = Path(__file__).parent / "libnccl"
UNHANDLED_CUDA_ERROR, SYSTEM_ERROR, REMOTE_ERROR = 1, 2, 6


@functools.cache
def library_path() -> str:
    """Where the built library lies; built now if its sources have changed since."""
    return build_library("libnccl", SOURCES, cuda_path())


class NcclStandIn:
    """Steers the library and asks it what happened; wrong use is told by the stand-in for CUDA."""

    def __init__(self, *, version: int = 22005, refuses_duplicates: bool = False) -> None:
        self.path = library_path()
        self._library = ctypes.CDLL(self.path)
        self._library.nccl_standin_reset(version, refuses_duplicates)

    def fail(self, function: str, nth: int = 1, result: int = SYSTEM_ERROR) -> None:
        """Let the nth call from now fail."""
        self._library.nccl_standin_fail(function.encode(), nth, result)

    def set_async_error(self, result: int) -> None:
        """Let every communicator say this of itself."""
        self._library.nccl_standin_set_async_error(result)

    def calls(self, function: str) -> int:
        return self._library.nccl_standin_calls(function.encode())

    def wait_until_all_is_back(self, seconds: float = 5) -> int:
        """How many communicators there are once nobody refers to them."""
        deadline = time.monotonic() + seconds
        while self._library.nccl_standin_live() and time.monotonic() < deadline:
            gc.collect()  # each time: the last thread may leave a cycle behind
            time.sleep(0.01)
        return self._library.nccl_standin_live()
