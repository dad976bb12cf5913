"""Machine code of the host CPU as an executable: kernels with addresses.

Made by loaders, called by recorded plans.  Not here: how code gets into memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from tilewright.formats.executable import FLAG_KEEPS_DENORMALS
from tilewright.runtime import native
from tilewright.runtime.hal.executable import Executable, FunctionInfo
from tilewright.runtime.recorder import Recorder


@final
class LocalExecutable(Executable):
    """Kernels in memory.

    Ownership: `owner` keeps the code mapped.

    Args:
        exports: the kernels, by ordinal.
        environment: what every call gets.
        owner: whatever keeps the code.
        has_counts: whether the exports say how many constants and bindings they take.
    """

    __slots__ = ("_functions", "environment", "exports", "owner")

    def __init__(
        self,
        exports: Sequence[native.Export],
        environment: native.Memory,
        owner: object,
        *,
        has_counts: bool = True,
    ) -> None:
        self.exports: tuple[native.Export, ...] = tuple(exports)
        self.environment: native.Memory = environment
        self.owner: object = owner
        self._functions: tuple[FunctionInfo, ...] = tuple(
            FunctionInfo(
                name=export.name,
                constant_count=export.constant_count,
                binding_count=export.binding_count if has_counts else -1,
                workgroup_size=export.workgroup_size,
            )
            for export in self.exports
        )

    @property
    def functions(self) -> tuple[FunctionInfo, ...]:
        return self._functions

    def record(
        self,
        recorder: Recorder,
        function: int,
        bindings: Sequence[tuple[int, int, int]],
        workgroup_count: tuple[int, int, int],
        constants: Sequence[int],
        *,
        barrier: bool = True,
        is_inline: bool = False,
    ) -> None:
        """Add a dispatch to a plan, which keeps the executable.

        Args:
            recorder: of the plan.
            function: ordinal of the kernel.
            bindings: ranges of plan slots.
            workgroup_count: the grid.
            constants: push constants, u32.
            barrier: whether it waits for what was recorded before.
            is_inline: it runs as the caller's thread is, which IREE's inline HAL leaves alone; all
                other kernels have denormals taken as zero unless they are marked.
        """
        export = self.exports[function]
        size_x, size_y, size_z = export.workgroup_size
        keeps_denormals = is_inline or bool(export.flags & FLAG_KEEPS_DENORMALS)
        recorder.dispatch(
            export.function,
            bindings,
            workgroup_count,
            constants=constants,
            environment=self.environment.address,
            workgroup_size=(max(size_x, 1), max(size_y, 1), max(size_z, 1)),
            local_memory_bytes=export.local_memory_bytes,
            barrier=barrier,
            flushes_denormals=not keeps_denormals,
            name=export.name,
        )
        recorder.keep(self)
