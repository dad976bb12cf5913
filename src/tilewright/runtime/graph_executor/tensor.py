"""What executors give: numpy arrays with the methods that TVM's have."""

from __future__ import annotations

from typing import final

import numpy as np

from tilewright.base.foreign_tensors import unmasked
from tilewright.runtime.plan_executor.tensors import Array


@final
class Tensor(np.ndarray):
    """A view of an executor's memory: a numpy array, which DLPack passes on without a copy.

    The next run may write it again; `numpy()` gives a copy that stays.
    """

    def numpy(self) -> Array:
        """A copy, as a plain array."""
        return np.array(self, copy=True, subok=False)

    def copyfrom(self, source: object) -> Tensor:
        """Copy an array of the same shape into it.  Raises: InputError for elements below a mask."""
        np.copyto(self, unmasked(source), casting="same_kind")
        return self

    def copyto(self, target: Array) -> Array:
        """Copy it into an array of the same shape."""
        np.copyto(target, self)
        return target


def tensor(array: Array) -> Tensor:
    """The same memory as a `Tensor`."""
    return array.view(Tensor)
