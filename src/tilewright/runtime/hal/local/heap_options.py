"""Options of a device URI that bound the memory of a local device: `?memory=512M&pool=64M`.

Called by the drivers of the host CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tilewright.base.errors import UserError
from tilewright.base.knobs import parse_size
from tilewright.runtime.hal.local.heap_allocator import HeapAllocator

HEAP_OPTIONS: Final = ("memory", "pool")
_LARGEST: Final = (1 << 63) - 1


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
        None if kept is None else _size("pool", kept, least=0),
        None if capacity is None else _size("memory", capacity, least=1),
    )


def _size(option: str, text: str, *, least: int) -> int:
    where = f"device option '{option}'"
    try:
        size = parse_size(text)
    except ValueError as error:
        raise UserError(f"got '{text:.80}', expected {error}", location=where) from error
    if not least <= size <= _LARGEST:
        raise UserError(
            f"got '{text}', expected {least} to {_LARGEST} bytes", location=where
        )
    return size
