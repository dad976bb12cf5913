"""The LLVM backend as stages, and its products as text."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from tilewright.base.target import Target
from tilewright.compiler.codegen.backend import Stage
from tilewright.compiler.codegen.llvm.compile import (
    assembly_text,
    compile_module,
    link_executable,
)
from tilewright.compiler.codegen.llvm.function import emit_kernel
from tilewright.compiler.codegen.llvm.options import Options
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.lowering import machine


@final
@dataclass(frozen=True, slots=True)
class LlvmBackend:
    """CPU code through LLVM."""

    options: Options = field(default_factory=Options)

    @property
    def name(self) -> str:
        """How people call the backend."""
        return "llvm"

    def stages(self, target: Target) -> tuple[Stage, ...]:
        """Scheduled kernel → machine kernel → LLVM IR → object → executable."""
        options = self.options
        return (
            Stage(
                "machine",
                "linear indices, lanes, copies instead of loops",
                lambda kernel: machine.lower(kernel, target),
                kernel_text,
            ),
            Stage(
                "llvm",
                "LLVM IR",
                lambda kernel: emit_kernel(kernel, target),
                lambda module: module.text,
            ),
            Stage(
                "object",
                "relocatable object",
                lambda module: compile_module(module, target, options),
                lambda compiled: assembly_text(compiled.llvm_ir, target, options),
            ),
            Stage(
                "executable",
                "ELF image with the library tables",
                lambda compiled: link_executable([compiled], compiled.name, target),
                lambda image: f"{len(image)} bytes of ELF\n",
            ),
        )
