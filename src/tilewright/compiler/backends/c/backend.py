"""Portable C, as a back end: kernels as sources that any C compiler makes code of.

Nothing is compiled before somebody wants the code: sources are written where there is no compiler, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.target import Target
from tilewright.compiler.backends.backend import (
    Backend,
    CompiledKernel,
    Progress,
    Stage,
    export_of,
    lower,
    route,
)
from tilewright.compiler.backends.c.compile import assembly_text, compile_library
from tilewright.compiler.backends.lane_backend import LaneBackend
from tilewright.compiler.backends.lane_stages import lane_stages
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.lowering.math.pieces import Means
from tilewright.compiler.printers.c_text.function import CFunction, emit_kernel, file_text
from tilewright.formats.byte_view import LazyBytes

_SYSTEM_FORMATS: Final = {"linux": "elf", "macos": "dylib", "windows": "dll"}


@final
@dataclass(frozen=True, slots=True)
class CBackend(LaneBackend):
    """Sources in C, with vectors as extensions of GCC and Clang where the machine has them."""

    @property
    def name(self) -> str:
        return "c"

    @property
    def language(self) -> str:
        return "c"

    @property
    def text_forms(self) -> tuple[str, ...]:
        return ("s",)

    def identity(self, target: Target) -> str:
        del target
        return ""

    def stages(self, target: Target) -> tuple[Stage, ...]:
        """Scheduled kernel → kernel of scalars and lanes → C."""
        # No instruction of one machine alone has a name in C.
        return (
            *lane_stages(target, Means.of(target).without_scaling()),
            Stage(
                "c",
                "C with vector extensions",
                lambda kernel: emit_kernel(kernel, target),
                lambda function: file_text([function], target),
            ),
        )

    def generate(
        self,
        kernels: Iterable[Kernel],
        target: Target,
        *,
        jobs: int = 1,
        cache: CompilationCache | None = None,
        progress: Progress | None = None,
    ) -> tuple[CompiledKernel, ...]:
        """Sources alone: `link` has them compiled, for whoever wants to run them here."""
        del jobs, cache
        made: list[CompiledKernel] = []
        for kernel in kernels:
            start = time.perf_counter()
            function: CFunction = route(self.stages(target), kernel)
            made.append(
                CompiledKernel(
                    name=kernel.name,
                    source=file_text([function], target),
                    export=export_of(function),
                    seconds=time.perf_counter() - start,
                )
            )
            if progress is not None:
                progress(len(made), kernel.name)
        return tuple(made)

    def image_format(self, target: Target) -> str:
        return f"system-{_SYSTEM_FORMATS[target.os]}-{target.arch}"

    def link(
        self,
        compiled: Sequence[CompiledKernel],
        name: str,
        target: Target,
        *,
        cache: CompilationCache | None = None,
    ) -> LazyBytes:
        """A shared library of the system, compiled when its bytes are first asked for.

        Raises, then: UserError where there is no C compiler for the target.
        """
        kernels = tuple(compiled)
        return LazyBytes(lambda: compile_library(kernels, name, target, cache))

    def objects(
        self,
        compiled: Sequence[CompiledKernel],
        target: Target,
        *,
        cache: CompilationCache | None = None,
    ) -> tuple[CompiledKernel, ...]:
        del target, cache
        return tuple(compiled)

    def assembly(self, source: str, target: Target, *, name: str = "module") -> str:
        del name
        return assembly_text(source, target)

    def joined_text(
        self, kernels: Sequence[tuple[CompiledKernel, Target]], form: str
    ) -> str:
        assert form in self.text_forms, "the only one"
        texts = {k.export.function: (k.source, target) for k, target in kernels}
        return "\n".join(assembly_text(*each) for each in texts.values())


BACKEND: Final[Backend] = CBackend()


def source_file(kernels: Iterable[tuple[Kernel, str]], target: Target) -> str:
    """One file of scheduled kernels, each under the name that its function is to have."""
    written = (
        emit_kernel(lower(BACKEND, kernel, target), target, symbol)
        for kernel, symbol in kernels
    )
    return file_text(list(written), target)
