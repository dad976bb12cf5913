"""Kernels as objects that a linker of the target's system takes, under names that nobody else has.

A kernel's symbol is made of its content, so two models, or two levels of one, may have the same name
for code that differs or that comes twice.  Here each gets a new one, made of whose it is: as long as
the old, so it is written over the old one in the object's table of names, whatever the format, and no
kernel is compiled anew for it.  Called by exports.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.errors import InternalError
from tilewright.base.target import Target
from tilewright.compiler.backends.backend import CompiledKernel
from tilewright.compiler.backends.registry import backend_of


def kernel_objects(
    compiled: Sequence[CompiledKernel],
    target: Target,
    owner: str,
    *,
    cache: CompilationCache | None = None,
) -> tuple[CompiledKernel, ...]:
    """The kernels, each with an object in the format of the target's system and a symbol of its own.

    Kernels that shared an object share it still; their sources have the new names, too.  Of a back end that
    makes none they stay without.

    Args:
        compiled: kernels for `target`.
        target: what they are for; its system says the format: ELF, Mach-O or COFF.
        owner: whose they are: the model and the level; the same gives the same symbols again.
        cache: objects made before.

    Raises: InternalError, TargetError as `Backend.generate`.
    """
    made = backend_of(target).objects(compiled, target, cache=cache)
    return tuple(_renamed(kernel, owner) for kernel in made)


def _renamed(kernel: CompiledKernel, owner: str) -> CompiledKernel:
    old = kernel.export.function
    new = _symbol_for(owner, old)
    if kernel.object_bytes and old.encode() not in kernel.object_bytes:
        raise InternalError(f"an object does not name '{old}', which it defines")
    return replace(
        kernel,
        # Wherever the format repeats it.
        object_bytes=kernel.object_bytes.replace(old.encode(), new.encode()),
        source=kernel.source.replace(old, new),
        export=replace(kernel.export, symbol=new),
    )


def _symbol_for(owner: str, symbol: str) -> str:
    """A name as long as `symbol`, of the same form: `tw_` and digits of a digest."""
    head = symbol[: symbol.index("_") + 1]
    digest = hashlib.sha256(f"{owner}\0{symbol}".encode()).hexdigest()
    return head + digest[: len(symbol) - len(head)]
