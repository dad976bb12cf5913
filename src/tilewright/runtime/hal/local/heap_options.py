"""Options of a device URI that bound the memory of a local device: `?memory=512M&pool=64M`.

Called by the drivers of the host CPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tilewright.base.errors import UserError
from tilewright.runtime.hal.local.heap_allocator import HeapAllocator

HEAP_OPTIONS: Final = ("memory", "pool")
_SCALE: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def create_heap(options: Mapping[str, str]) -> HeapAllocator:
    """A heap as the options want it.

    Args:
        options: `memory`, the bytes that may be in use and kept for reuse together, by buffers and
            by calls; `pool`, the bytes that are kept for reuse at most.
    Raises: UserError for what is no size.
    """
    capacity = options.get("memory")
    kept = options.get("pool")
    return HeapAllocator(
        None if kept is None else _size("pool", kept),
        None if capacity is None else _size("memory", capacity),
    )


def _size(option: str, text: str) -> int:
    match = re.fullmatch(r"\s*([0-9]+)\s*([KMG]?)(i?B)?\s*", text, re.IGNORECASE)
    if match is None:
        raise UserError(
            f"got '{text}', expected a size like 4096, 512M or 2G",
            location=f"device option '{option}'",
        )
    return int(match[1]) * _SCALE[match[2].upper()]
