"""Sources of kernels to one shared library, by a C compiler of the system.

One file per kernel, so that they are compiled side by side and those that were compiled before are found in
the cache.  Called by `backend`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tilewright.base.c_compiler.toolchain import find_toolchain, working_folder
from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.target import Target
from tilewright.compiler.backends.backend import CompiledKernel
from tilewright.compiler.printers.c_text.function import FLAGS
from tilewright.compiler.printers.c_text.library_tables import library_tables

LINK_FLAGS: Final = ("-lm",)
"""Where a machine has no instruction for it, C asks the system's library to round, and for a remainder."""
_TABLES: Final = "library_tables.c"


def compile_library(
    compiled: Sequence[CompiledKernel],
    name: str,
    target: Target,
    cache: CompilationCache | None,
) -> bytes:
    """The shared library of the kernels.

    Raises: UserError where there is no compiler for the target, with a hint how to get one, and for code that
        it rejects, with what it said.
    """
    toolchain = find_toolchain(target)
    sources = {f"{kernel.export.function}.c": kernel.source for kernel in compiled}
    sources[_TABLES] = library_tables(name, [kernel.export for kernel in compiled])
    with working_folder() as folder:
        _write(folder, sources)
        objects = toolchain.compile(list(sources), folder, FLAGS, cache=cache)
        library = folder / "library"
        toolchain.link_shared(library, [folder / o for o in objects], LINK_FLAGS)
        return library.read_bytes()


def assembly_text(source: str, target: Target) -> str:
    """What the compiler makes of a source, as assembly.  Raises: as `compile_library`."""
    toolchain = find_toolchain(target)
    with working_folder() as folder:
        _write(folder, {"kernel.c": source})
        (made,) = toolchain.compile(["kernel.c"], folder, [*FLAGS, "-S"])
        return (folder / made).read_text(encoding="utf-8")


def _write(folder: Path, sources: dict[str, str]) -> None:
    for file, text in sources.items():
        (folder / file).write_text(text, encoding="utf-8")
