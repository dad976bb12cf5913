"""Kernels to objects to one executable: the front of the LLVM backend.

    kernels → IR text → (cache) → objects → + library tables → one ELF image

Called by the pipeline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from tilewright.base.target import Target
from tilewright.compiler.codegen.llvm import machine
from tilewright.compiler.codegen.llvm.function import TRIPLES, KernelModule, emit_kernel
from tilewright.compiler.codegen.llvm.options import Options
from tilewright.compiler.kernel.ir import Kernel
from tilewright.formats.elf import link_shared
from tilewright.formats.executable import (
    LOCAL_MEMORY_PAGE_BYTES,
    ExportDecl,
    library_tables_ir,
)

Progress = Callable[[int, int, str], None]
"""Called with kernels done, kernels in all, and the name of the last one."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledKernel:
    """One kernel as object code.

    Attributes:
        object_bytes: a relocatable object that defines `export.function`.
        llvm_ir: what it was made of.
        seconds: time LLVM took; 0 when the cache had it.
    """

    name: str
    object_bytes: bytes
    llvm_ir: str
    export: ExportDecl
    seconds: float = 0.0


def export_of(module: KernelModule) -> ExportDecl:
    """The declaration of a kernel in the library's tables."""
    pages = -(-module.local_memory_bytes // LOCAL_MEMORY_PAGE_BYTES)
    return ExportDecl(
        name=module.name,
        symbol=module.symbol,
        constant_count=module.constant_count,
        binding_count=module.binding_count,
        local_memory_pages=pages,
    )


def compile_kernels(
    kernels: Sequence[Kernel],
    target: Target,
    *,
    options: Options | None = None,
    progress: Progress | None = None,
) -> tuple[CompiledKernel, ...]:
    """Object code for every kernel, equal ones compiled once.

    Args:
        kernels: machine-lowered kernels (`lowering.machine.lower`).
        target: the CPU.
        options: how LLVM is asked.
        progress: told after every kernel.
    """
    options = options or Options()
    compiled: list[CompiledKernel] = []
    for done, kernel in enumerate(kernels, 1):
        module = emit_kernel(kernel, target)
        code = machine.object_code(
            module.text, TRIPLES[target.arch], target.cpu, target.llvm_features, options.opt
        )
        compiled.append(
            CompiledKernel(
                name=module.name,
                object_bytes=code,
                llvm_ir=module.text,
                export=export_of(module),
            )
        )
        if progress is not None:
            progress(done, len(kernels), module.name)
    return tuple(compiled)


def link_executable(
    compiled: Sequence[CompiledKernel], name: str, target: Target
) -> bytes:
    """One embedded ELF image that exports `compiled` by ordinal, in their order."""
    triple = TRIPLES[target.arch]
    exports = [kernel.export for kernel in compiled]
    tables = f'target triple = "{triple}"\n' + library_tables_ir(name, exports)
    table_object = machine.object_code(tables, triple, target.cpu, target.llvm_features, 0)
    objects = {kernel.export.function: kernel.object_bytes for kernel in compiled}
    return link_shared(
        [*objects.values(), table_object],
        names=[*(f"kernel '{symbol}'" for symbol in objects), "library tables"],
        machine=target.arch,
    )
