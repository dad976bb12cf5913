"""CPUs through LLVM, as a back end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, final

from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.record import field, record
from tilewright.base.target import Target
from tilewright.compiler.backends.backend import (
    Backend,
    CompiledKernel,
    Progress,
    Stage,
)
from tilewright.compiler.backends.cpu import compile as llvm
from tilewright.compiler.backends.cpu.options import Options
from tilewright.compiler.backends.cpu.version import llvm_identity
from tilewright.compiler.backends.lane_backend import LaneBackend
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.printers.llvm_text.module import KernelModule


@final
@record
class CpuBackend(LaneBackend):
    """Machine code for CPUs, made by LLVM without any other tool."""

    options: Options = field(default_factory=Options)

    @property
    def name(self) -> str:
        return "cpu"

    @property
    def language(self) -> str:
        return "llvm"

    @property
    def text_forms(self) -> tuple[str, ...]:
        return ("ll", "s")

    def identity(self, target: Target) -> str:
        del target
        return f"{self.options!r} {llvm_identity()}"

    def stages(self, target: Target) -> tuple[Stage, ...]:
        # Where a cache holds all kernels of a model, none goes through them.
        from tilewright.compiler.backends.cpu.stages import stages_of  # noqa: PLC0415

        return stages_of(target)

    def generate(
        self,
        kernels: Iterable[Kernel],
        target: Target,
        *,
        jobs: int = 1,
        cache: CompilationCache | None = None,
        progress: Progress | None = None,
    ) -> tuple[CompiledKernel, ...]:
        """LLVM works on the first kernels while further ones are made."""

        def write(kernel: Kernel) -> KernelModule:
            from tilewright.compiler.backends.cpu.stages import write_kernel  # noqa: PLC0415

            return write_kernel(kernel, target)

        return llvm.compile_kernels(
            kernels,
            write,
            target,
            jobs=jobs,
            cache=cache,
            progress=progress,
            options=self.options,
        )

    def image_format(self, target: Target) -> str:
        return f"embedded-elf-{target.arch}"

    def link(
        self,
        compiled: Sequence[CompiledKernel],
        name: str,
        target: Target,
        *,
        cache: CompilationCache | None = None,
    ) -> bytes:
        return llvm.link_executable(compiled, name, target, cache=cache)

    def objects(
        self,
        compiled: Sequence[CompiledKernel],
        target: Target,
        *,
        cache: CompilationCache | None = None,
    ) -> tuple[CompiledKernel, ...]:
        return llvm.for_system(compiled, target, cache=cache)

    def assembly(self, source: str, target: Target, *, name: str = "module") -> str:
        return llvm.assembly_text(source, target, self.options, name=name)

    def joined_text(
        self, kernels: Sequence[tuple[CompiledKernel, Target]], form: str
    ) -> str:
        return llvm.joined_text(kernels, "module" if form == "ll" else "assembly")


BACKEND: Final[Backend] = CpuBackend()
