"""Arrays at a chosen place, so that no test depends on where numpy happens to put them."""

from __future__ import annotations

import numpy as np

from tilewright.runtime.hal.local.heap_storage import ALIGNMENT_BYTES


def placed(array: np.ndarray, shift_bytes: int = 0) -> np.ndarray:
    """A copy that lies so far behind an address at which devices use memory in place."""
    storage = np.empty(array.nbytes + ALIGNMENT_BYTES + shift_bytes, np.uint8)
    start = -storage.ctypes.data % ALIGNMENT_BYTES + shift_bytes
    copy = storage[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
