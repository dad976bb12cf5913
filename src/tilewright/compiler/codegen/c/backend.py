"""The portable C backend as stages, and its products as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from tilewright.base.target import Target
from tilewright.compiler.codegen.backend import Stage
from tilewright.compiler.codegen.c.function import emit_kernel, file_text
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.lowering import machine
from tilewright.compiler.lowering.math.pieces import Means


@final
@dataclass(frozen=True, slots=True)
class CBackend:
    """Code for any CPU that has a C compiler."""

    @property
    def name(self) -> str:
        """How people call the backend."""
        return "c"

    def stages(self, target: Target) -> tuple[Stage, ...]:
        """Scheduled kernel → machine kernel → C."""
        return (
            Stage(
                "machine",
                "linear indices, lanes, copies instead of loops",
                lambda kernel: lower(kernel, target),
                kernel_text,
            ),
            Stage(
                "c",
                "C with vector extensions",
                lambda kernel: emit_kernel(kernel, target),
                lambda function: file_text([function], target),
            ),
        )


def lower(kernel: Kernel, target: Target) -> Kernel:
    """The machine kernel that `emit_kernel` prints."""
    return machine.lower(kernel, target, Means(target.has_fma, 0))
