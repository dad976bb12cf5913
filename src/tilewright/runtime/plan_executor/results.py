"""The arrays that calls return: large ones lie in blocks of the device's heap.

An array of the C library of that size is pages fresh from the system, zeroed when each is first touched and given
back with the array; a decoder that returns its caches spends a tenth of a call or more on that.  Blocks of the heap
that nobody holds any more hold the results of later calls.  Called by `binding` and `executor`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, cast

import numpy as np

from tilewright.runtime import native
from tilewright.runtime.plan_executor.tensors import Array

_LEAST_BYTES: Final = 128 << 10
"""Smaller arrays stay in the C library's own heap, which does not give them back to the system."""


def result_array(
    heap: native.Heap | None, shape: Sequence[int], dtype: np.dtype[np.generic]
) -> Array:
    """A dense array with undefined contents that nobody else sees.

    It holds its block, as does every view of it; the block goes back with the last of them.  A heap with a cap
    gives none: its caller counts outputs only until the call returns.
    """
    size_bytes = math.prod(shape) * dtype.itemsize
    if heap is None or heap.capacity_bytes is not None or size_bytes < _LEAST_BYTES:
        return np.empty(shape, dtype)
    block = heap.lease(size_bytes, native.MemoryUse.TRANSIENT)
    return cast("Array", np.ndarray(shape, dtype, memoryview(block)))
