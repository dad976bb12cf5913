"""LLVM code generator: kernel IR to freestanding ELF executables for CPUs.  See README.md."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tilewright.compiler.codegen.llvm.backend import LlvmBackend
    from tilewright.compiler.codegen.llvm.compile import (
        CompiledKernel,
        assembly_text,
        compile_kernels,
        for_system,
        joined_text,
        link_executable,
    )
    from tilewright.compiler.codegen.llvm.options import Options
    from tilewright.compiler.codegen.llvm.version import llvm_identity

__all__ = [
    "CompiledKernel",
    "LlvmBackend",
    "Options",
    "assembly_text",
    "compile_kernels",
    "for_system",
    "joined_text",
    "link_executable",
    "llvm_identity",
]

# At first use: a worker process needs none of it, and starts in a quarter of the time without.
_HOMES: Final = {
    "CompiledKernel": "compile",
    "LlvmBackend": "backend",
    "Options": "options",
    "assembly_text": "compile",
    "compile_kernels": "compile",
    "for_system": "compile",
    "joined_text": "compile",
    "link_executable": "compile",
    "llvm_identity": "version",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
