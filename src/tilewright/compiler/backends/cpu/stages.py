"""The stages from a scheduled kernel to LLVM IR.

Not here: what LLVM makes of the text (`compile`).  Loaded when a kernel is first written: forty modules belong to it.
Called by `backend`.
"""

from __future__ import annotations

from tilewright.base.target import Target
from tilewright.compiler.backends.backend import Stage, lowering_stage, route
from tilewright.compiler.backends.lane_stages import lane_stages
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.lowering.math.pieces import Means
from tilewright.compiler.lowering.multiply_quotients import multiply_quotients
from tilewright.compiler.printers.llvm_text.function import emit_kernel
from tilewright.compiler.printers.llvm_text.module import KernelModule


def stages_of(target: Target) -> tuple[Stage, ...]:
    """Scheduled kernel → kernel of scalars and lanes → LLVM IR."""
    quotients = lowering_stage(
        "multiply-quotients",
        "what is rounded to a short integer is not divided",
        multiply_quotients,
    )
    return (
        *lane_stages(target, Means.of(target), after_fma=[quotients]),
        Stage(
            "llvm",
            "LLVM IR as the instruction selector wants it",
            lambda kernel: emit_kernel(kernel, target),
            _text,
        ),
    )


def write_kernel(kernel: Kernel, target: Target) -> KernelModule:
    """A scheduled kernel as LLVM IR."""
    return route(stages_of(target), kernel)


def _text(module: KernelModule) -> str:
    return module.text
