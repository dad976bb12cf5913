"""Picks the implementation: the C extension, or Python where it was not built.

Not here: either implementation.  Called by the front door of this package and by `recorder`.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final

from tilewright.base import knobs
from tilewright.base.errors import UserError
from tilewright.runtime.native.core_sources import expected_mark


def _find_extension() -> ModuleType | None:
    """The C core; one that was built but cannot be loaded is an error, not a reason to be slow."""
    if not knobs.NATIVE.get():
        return None
    try:
        extension = import_module("tilewright.runtime._native")
    except ModuleNotFoundError:
        return None
    check_core(getattr(extension, "SOURCES", None), expected_mark())
    return extension


def check_core(built_from: str | None, expected: str | None) -> None:
    """Refuse a core that was built from other sources than those beside this Python.

    What it would take for arguments and records is then not what it is given.

    Args:
        built_from: the mark that the core has; None: it is older than marks.
        expected: that of the sources; None: there are none to compare with.

    Raises: UserError.
    """
    if expected is None or built_from == expected:
        return
    raise UserError(
        "the C core was built from other sources than those of this Tilewright "
        f"(built from {built_from or 'older ones, without a mark'}, expected {expected})",
        location="tilewright.runtime._native",
        hint="build it again: 'make native' in the checkout, or 'pip install --force-reinstall' of the wheel",
    )


EXTENSION: Final = _find_extension()
IS_NATIVE: Final = EXTENSION is not None

if TYPE_CHECKING:
    from tilewright.runtime._native import (
        CodeImage,
        CommandList,
        Heap,
        Memory,
        PackedCall,
        Pool,
        RecordedCall,
        import_thunk,
        map_file,
        processor_data,
        tensor_capsule,
    )
else:
    _chosen = EXTENSION or import_module("tilewright.runtime.native.fallback")
    CodeImage = _chosen.CodeImage
    Heap = _chosen.Heap
    RecordedCall = _chosen.RecordedCall
    Memory = _chosen.Memory
    PackedCall = _chosen.PackedCall
    CommandList = _chosen.CommandList
    Pool = _chosen.Pool
    import_thunk = _chosen.import_thunk
    map_file = _chosen.map_file
    processor_data = _chosen.processor_data
    tensor_capsule = _chosen.tensor_capsule

__all__ = [
    "EXTENSION",
    "IS_NATIVE",
    "CodeImage",
    "CommandList",
    "Heap",
    "Memory",
    "PackedCall",
    "Pool",
    "RecordedCall",
    "import_thunk",
    "map_file",
    "processor_data",
    "tensor_capsule",
]
