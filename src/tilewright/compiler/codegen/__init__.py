"""Code generators: kernels in, bytes of a target's executable out.  One folder per target.

A backend is an ordered tuple of named stages; each stage's product can be looked at, written to a file
and tested alone.  Siblings never meet: what two backends share lives in `lowering`.  Called by the
pipeline.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tilewright.base.compilation_cache import CompilationCache
    from tilewright.compiler.codegen.backend import Backend, Stage, show

__all__ = ["Backend", "CompilationCache", "Stage", "show"]

# At first use: a worker process needs none of it, and starts in a quarter of the time without.
_HOMES: Final = {
    "Backend": f"{__name__}.backend",
    "CompilationCache": "tilewright.base.compilation_cache",
    "Stage": f"{__name__}.backend",
    "show": f"{__name__}.backend",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)
