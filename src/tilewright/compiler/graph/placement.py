"""Where the elements of constants lie in memory.

Vectors that straddle two cache lines cost two reads; with vectors as wide as a line, all of them would.  Called by
folding, and by oracles whose results are weights, which else would be copied once more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.compiler.graph.schema import Array

LINE_BYTES: Final = 64
"""A cache line, and the widest vector, of the machines we make code for."""


def empty_at_line(shape: Sequence[int], dtype: np.dtype) -> Array:
    """Room for an array that begins where a cache line does."""
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + LINE_BYTES, np.uint8)
    start = -room.ctypes.data % LINE_BYTES
    return room[start : start + size].view(dtype).reshape(shape)
