"""LLVM code generator: kernel IR to freestanding ELF executables for CPUs.  See README.md."""

from tilewright.compiler.codegen.llvm.backend import LlvmBackend, assembly_text
from tilewright.compiler.codegen.llvm.compile import (
    CompiledKernel,
    compile_kernels,
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
    "link_executable",
    "llvm_identity",
]
