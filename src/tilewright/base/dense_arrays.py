"""Arrays brought in order: dense, row-major, aligned, as kernels read them.

A copy may be much larger than what it is made of (one number that stands for all of them), so that there is
no memory for it is an answer in words.  Called where arrays of users meet an engine.
"""

from __future__ import annotations

import numpy as np

from tilewright.base.status import StatusCode, failure

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


def in_order(array: Array) -> Array:
    """The array, C-contiguous and aligned; a copy only where it is not (numpy's own would add an axis).

    Raises: DeviceError (RESOURCE_EXHAUSTED) where there is no memory for the copy.
    """
    try:
        dense = np.asarray(array, order="C")
        return dense if dense.flags.aligned else dense.copy()
    except MemoryError as error:
        raise failure(
            StatusCode.RESOURCE_EXHAUSTED,
            f"no memory for a dense copy of an array of shape {list(array.shape)}: {error}",
            hint="the array is strided: one of this size is made before the call",
        ) from error
