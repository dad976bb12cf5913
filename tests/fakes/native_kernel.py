"""Runs kernels as machine code inside the test process, without the runtime.

What it is: kernel IR → the LLVM backend → ELF image → mapped memory → calls of one workgroup after
the other, and a comparison with the kernel evaluator.
What it is not: the loader of the product (`runtime.loaders`).
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from fakes.lowered import lower
from tilewright.base import symbolic
from tilewright.base.target import Target
from tilewright.compiler.backends.cpu.backend import BACKEND
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.grid import grid_extents
from tilewright.compiler.kernel.ir import Kernel
from tilewright.formats.elf import parse_image
from tilewright.formats.executable import (
    DISPATCH_STATE,
    LIBRARY,
    LOCAL_MEMORY_PAGE_BYTES,
    QUERY_FUNCTION,
    WORKGROUP_STATE,
)

RUNS_HERE = platform.machine() == "x86_64" and sys.platform == "linux"
needs_x86 = pytest.mark.skipif(not RUNS_HERE, reason="runs x86-64 code in the process")

_libc = ctypes.CDLL(None, use_errno=True)
KernelFunction = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)
_Query = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p)


def targets_here() -> list[Target]:
    """The host and the x86-64 levels that run on it."""
    host = Target.host()
    levels = [Target.level(name) for name in ("v2", "v3", "v4")]
    return [host, *(level for level in levels if level.features <= host.features)]


def targets_apart() -> list[Target]:
    """Of these, not the level that the host is: its code is the host's but for a few instructions."""
    host, *levels = targets_here()
    return [host, *levels[:-1]]


class CalledKernel:
    """One kernel, ready to be called.

    Attributes:
        function: the address of its code, by the kernel ABI.
        local_bytes: memory that each workgroup is given.
    """

    kernel: Kernel
    function: KernelFunction
    local_bytes: int

    def __call__(
        self, arrays: Sequence[np.ndarray], dims: Mapping[str, int] | None = None
    ) -> None:
        """Run every workgroup on an array for each parameter, results too; those appear in theirs."""
        assert len(arrays) == len(self.kernel.parameters), "an array for each parameter"
        dims = dims or {}
        constants = np.array([dims[s.name] for s in self.kernel.dims] or [0], np.uint32)
        pointers = np.array([a.ctypes.data for a in arrays] or [0], np.uint64)
        lengths = np.array([a.nbytes for a in arrays] or [0], np.uint64)
        counts = [symbolic.evaluate(e, dims) for e in grid_extents(self.kernel)]
        state = np.zeros((), DISPATCH_STATE.dtype)
        state["constant_count"], state["binding_count"] = len(self.kernel.dims), len(arrays)
        for axis, count in zip("xyz", counts, strict=True):
            state[f"workgroup_count_{axis}"] = count
        state["constants"] = constants.ctypes.data
        state["binding_pointers"] = pointers.ctypes.data
        state["binding_lengths"] = lengths.ctypes.data
        local = np.full(self.local_bytes + 64, 0xAA, np.uint8)
        group = np.zeros((), WORKGROUP_STATE.dtype)
        group["local_memory"] = (local.ctypes.data + 63) & -64
        group["local_memory_size"] = self.local_bytes
        environment = np.zeros(256, np.uint8)
        for z in range(counts[2]):
            for y in range(counts[1]):
                for x in range(counts[0]):
                    group["workgroup_id_x"], group["workgroup_id_y"] = x, y
                    group["workgroup_id_z"] = z
                    status = self.function(
                        environment.ctypes.data, state.ctypes.data, group.ctypes.data
                    )
                    assert status == 0


class NativeKernel(CalledKernel):
    """A kernel as machine code by LLVM."""

    def __init__(self, kernel: Kernel, target: Target | None = None):
        self.target = target or Target.host()
        self.kernel = lower(kernel, self.target)
        (self.compiled,) = BACKEND.generate([kernel], self.target)
        pages = self.compiled.export.local_memory_pages
        self.local_bytes = pages * LOCAL_MEMORY_PAGE_BYTES
        self.image = BACKEND.link([self.compiled], "test", self.target)
        self.function = self._load()

    def _load(self):
        image = parse_image(self.image)
        start, size = image.span
        self.memory = mmap.mmap(-1, size)
        bias = ctypes.addressof(ctypes.c_char.from_buffer(self.memory)) - start
        for segment in image.segments:
            data = image.contents(segment)
            at = segment.address - start
            self.memory[at : at + len(data)] = bytes(data)
        for patch in image.patches(bias):
            ctypes.c_uint64.from_address(patch.address).value = patch.value
        for segment in image.segments:
            first = (bias + segment.address) & -4096
            end = bias + segment.address + segment.memory_bytes
            rights = 1 | (2 if segment.writable else 0) | (4 if segment.executable else 0)
            length = (end - first + 4095) & -4096
            assert (
                _libc.mprotect(ctypes.c_void_p(first), ctypes.c_size_t(length), rights) == 0
            )
        query = _Query(bias + image.symbols[QUERY_FUNCTION])
        library = query(6, None)
        table = ctypes.c_uint64.from_address(
            library + LIBRARY.offset("export_functions")
        ).value
        return KernelFunction(ctypes.c_uint64.from_address(table).value)


def run_both(
    kernel: Kernel,
    arrays: Sequence[np.ndarray],
    dims: Mapping[str, int] | None = None,
    *,
    target: Target | None = None,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The arrays after the machine code, and after the evaluator on the kernel as given."""
    native = [guarded(a) for a in arrays]
    NativeKernel(kernel, target)(native, dims)
    expected = [a.copy() for a in arrays]
    evaluate(kernel, expected, dims)
    return native, expected


def guarded(array: np.ndarray) -> np.ndarray:
    """A copy that ends where an unmapped page begins: reading past the end crashes."""
    size = max(array.nbytes, 1)
    pages = -(-size // 4096)
    memory = mmap.mmap(-1, (pages + 1) * 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    assert _libc.mprotect(ctypes.c_void_p(address + pages * 4096), 4096, 0) == 0
    start = pages * 4096 - array.nbytes
    view = np.frombuffer(memory, array.dtype, array.size, start).reshape(array.shape)
    view[...] = array
    return view


def assert_same(
    kernel: Kernel,
    arrays: Sequence[np.ndarray],
    dims: Mapping[str, int] | None = None,
    *,
    target: Target | None = None,
    relative: float = 0.0,
) -> None:
    """Machine code and evaluator agree: bit for bit, or to a relative error."""
    native, expected = run_both(kernel, arrays, dims, target=target)
    for position, (got, want) in enumerate(zip(native, expected, strict=True)):
        name = f"parameter '{kernel.parameters[position].buffer.name}'"
        if relative and np.issubdtype(want.dtype, np.floating):
            np.testing.assert_allclose(
                got, want, rtol=relative, atol=relative, err_msg=name
            )
        elif want.dtype.kind in "fV":
            with np.errstate(invalid="ignore"):
                same = (got == want) | ((got != got) & (want != want))
            assert bool(np.all(same)), f"{name}: {got[~same][:4]} for {want[~same][:4]}"
        else:
            np.testing.assert_array_equal(got, want, err_msg=name)
