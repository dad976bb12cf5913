"""LLVM code generator: kernel IR to freestanding ELF executables for CPUs.  See README.md."""

from tilewright.compiler.codegen.llvm.cache import ObjectCache
from tilewright.compiler.codegen.llvm.compile import (
    CompiledKernel,
    assembly_text,
    compile_kernels,
    link_executable,
)
from tilewright.compiler.codegen.llvm.options import Options

__all__ = ["CompiledKernel", "ObjectCache", "Options", "assembly_text", "compile_kernels", "link_executable"]
