"""Many kernels in one executable, through the product's own schedule, linker, loader and plan.

What it is: naive kernels → schedule → lower → LLVM → one image → `load_embedded_elf` → a plan of one
dispatch each, run on guarded buffers, results and scratch poisoned.
What it is not: a program; memory planning and views are tested end to end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fakes.guarded_memory import Regions
from tilewright.base import symbolic
from tilewright.base.target import Target
from tilewright.compiler.backends.cpu.backend import BACKEND
from tilewright.compiler.kernel.grid import grid_extents
from tilewright.compiler.kernel.ir import AccessMode, Kernel
from tilewright.compiler.lowering.promote_scratch import promote_scratch
from tilewright.compiler.schedule import rules
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.runtime import native
from tilewright.runtime.loaders.embedded_elf import load_embedded_elf
from tilewright.runtime.recorder import Recorder


@dataclass(frozen=True)
class LoadedCode:
    """Where the code of each kernel begins, and how much memory it gets per workgroup.

    `owner` keeps it in memory.
    """

    functions: Sequence[int]
    local_bytes: Sequence[int]
    environment: int
    owner: object


CodeLoader = Callable[[Sequence[Kernel], Target], LoadedCode]
"""A code generator and what loads its code."""


def load_machine_code(kernels: Sequence[Kernel], target: Target) -> LoadedCode:
    """Scheduled kernels through LLVM and our own linker and loader."""
    compiled = BACKEND.generate(kernels, target)
    loaded = load_embedded_elf(BACKEND.link(compiled, "kernels", target))
    exports = [loaded.exports[kernel.name] for kernel in kernels]
    return LoadedCode(
        [export.function for export in exports],
        [export.local_memory_bytes for export in exports],
        loaded.environment.address,
        loaded,
    )


class NativeLibrary:
    """The scheduled code of `kernels`, called by position; `load` says by which code generator."""

    def __init__(
        self,
        kernels: Sequence[Kernel],
        target: Target,
        *,
        threads: int = 1,
        load: CodeLoader = load_machine_code,
    ) -> None:
        self.scheduled = [
            promote_scratch(
                rules.schedule(
                    replace(kernel, name=f"k{i}"), MachineModel.of(target), threads=threads
                )
            )
            for i, kernel in enumerate(kernels)
        ]
        self.loaded = load(self.scheduled, target)
        self._regions = Regions()

    def run(
        self,
        index: int,
        operands: Sequence[np.ndarray],
        results: Sequence[tuple[tuple[int, ...], np.dtype]],
        dims: Mapping[str, int] | None = None,
        *,
        at_end: bool = True,
        pool: native.Pool | None = None,
    ) -> list[np.ndarray]:
        """The results of one kernel; asserts that it touched nothing else."""
        kernel, dims = self.scheduled[index], dims or {}
        scratch = [
            (
                tuple(symbolic.evaluate(d, dims) for d in p.buffer.shape),
                p.buffer.dtype.numpy,
            )
            for p in kernel.parameters[len(operands) + len(results) :]
        ]
        poisoned = [poison(shape, dtype) for shape, dtype in (*results, *scratch)]
        arrays = [
            self._regions.place(position, array, at_end=at_end)
            for position, array in enumerate((*operands, *poisoned))
        ]
        self._plan(index, arrays, dims).run(pool, [a.ctypes.data for a in arrays])
        for position, parameter in enumerate(kernel.parameters):
            name = f"parameter {position} ({parameter.buffer})"
            assert self._regions.is_intact(position), f"wrote beside {name}"
            if parameter.access is AccessMode.READ:
                before, after = operands[position], arrays[position]
                assert before.tobytes() == after.tobytes(), f"wrote to {name}"
        first = len(operands)
        return [array.copy() for array in arrays[first : first + len(results)]]

    def _plan(
        self, index: int, arrays: Sequence[np.ndarray], dims: Mapping[str, int]
    ) -> native.CommandList:
        kernel, loaded = self.scheduled[index], self.loaded
        recorder = Recorder()
        bindings = [(recorder.slot(a.nbytes, writable=True), 0, a.nbytes) for a in arrays]
        x, y, z = (symbolic.evaluate(extent, dims) for extent in grid_extents(kernel))
        recorder.dispatch(
            loaded.functions[index],
            bindings,
            (x, y, z),
            constants=[dims[s.name] for s in kernel.dims],
            environment=loaded.environment,
            local_memory_bytes=loaded.local_bytes[index],
        )
        recorder.keep(self.loaded)
        return recorder.build()


def poison(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Elements that no result should hold: all bits set (NaN, -1, the largest number)."""
    array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8)[...] = 0xFF
    return array
