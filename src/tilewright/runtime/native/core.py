"""Picks the implementation: the C extension, or Python where it was not built.

Not here: either implementation.  Called by the front door of this package and by `plan_builder`.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Final

from tilewright.runtime.native import fallback

EXTENSION: Final[ModuleType | None]
try:
    from tilewright.runtime import _native
except ImportError:
    EXTENSION = None
else:
    EXTENSION = _native

FALLBACK: Final[ModuleType] = fallback
IS_NATIVE: Final = EXTENSION is not None

if TYPE_CHECKING:
    from tilewright.runtime._native import (
        CodeImage,
        Invocation,
        Memory,
        Plan,
        Pool,
        map_file,
        processor_data,
    )
else:
    _chosen = FALLBACK if EXTENSION is None else EXTENSION
    CodeImage = _chosen.CodeImage
    Invocation = _chosen.Invocation
    Memory = _chosen.Memory
    Plan = _chosen.Plan
    Pool = _chosen.Pool
    map_file = _chosen.map_file
    processor_data = _chosen.processor_data

__all__ = [
    "EXTENSION",
    "FALLBACK",
    "IS_NATIVE",
    "CodeImage",
    "Invocation",
    "Memory",
    "Plan",
    "Pool",
    "map_file",
    "processor_data",
]
