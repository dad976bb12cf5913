"""Machine code of the host CPU as an executable: kernels with addresses.

Made by loaders, recorded by command buffers.  Not here: how code gets into memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from tilewright.runtime import native
from tilewright.runtime.hal.executable import Executable, FunctionInfo


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
