"""How a kernel's local arrays are written: as a variable, as an array of vectors, or as one of elements.

A tile whose every access is a whole vector reads best, and is kept in registers best, as an array of vectors.
Called by `function`.
"""

from __future__ import annotations

import math

from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel.ir import Buffer, Expression, Kernel, Space
from tilewright.compiler.kernel.rewrite import loads, stores


def vector_lanes(kernel: Kernel) -> dict[Buffer, int]:
    """The lanes of each local array that is made of whole vectors; 1 for one of a single element."""
    lanes: dict[Buffer, set[int]] = {
        buffer: set() for buffer in kernel.locals if buffer.space is Space.REGISTER
    }
    for load in loads(kernel.body):
        if load.buffer in lanes:
            unit = _unit(load.buffer, load.indices[0], load.lanes, load.stride, load.mask)
            lanes[load.buffer].add(unit)
    for store in stores(kernel.body):
        if store.buffer in lanes:
            count = store.value.lanes
            unit = _unit(store.buffer, store.indices[0], count, store.stride, store.mask)
            lanes[store.buffer].add(unit)
    units = {buffer: found.pop() for buffer, found in lanes.items() if len(found) == 1}
    return {buffer: unit for buffer, unit in units.items() if unit}


def element_count(buffer: Buffer) -> int:
    """Elements of a local array as far as they are known."""
    return math.prod(extent for extent in buffer.shape if isinstance(extent, int))


def _unit(
    buffer: Buffer, dim: Dim, lanes: int, stride: int, mask: Expression | None
) -> int:
    """The lanes of an access to a whole vector, or to the only element; 0 for any other."""
    count = element_count(buffer)
    if not isinstance(dim, int) or not 0 <= dim <= count - lanes or buffer.dtype.is_bool:
        return 0
    if lanes == 1:
        return int(count == 1 and mask is None)
    return lanes if stride == 1 and dim % lanes == 0 == count % lanes else 0
