"""Weights of f32 whose values 16 bits hold, as what they were before somebody made them wider.

Models are trained and stored in 16 bits and then exported in f32: every value has digits to spare.  Where few rows are
multiplied memory decides, and a kernel that widens what it reads has the same bits in half of the time.  Not here: rounding, which is a
decision of the user's (`round_contractions`).  Called by `pack_matmul`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np

from tilewright.base.dtypes import DType, f32
from tilewright.base.record import record
from tilewright.compiler.graph.ir import Value
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.passes import Emitter
from tilewright.compiler.transforms.matching import constant_of

_SAMPLE: Final = 4096
"""Elements that are looked at first: of weights that need f32, hardly any hundred do not."""


@final
@record
class ShortWeights:
    """What a machine reads in 16 bits and widens.

    Attributes:
        dtypes: floats of 16 bits, the preferred first.
        with_open_rows: also where a call decides how many rows are multiplied, for tiles of many rows take no time to widen.
    """

    dtypes: tuple[DType, ...] = ()
    with_open_rows: bool = False


ALL_WIDE: Final = ShortWeights()


def short_weights(value: Value, dtypes: Sequence[DType], emit: Emitter) -> Value:
    """A constant of f32 in the first of these types of 16 bits that keeps every value; else the value as it is."""
    array = constant_of(value) if value.type.dtype is f32 else None
    if array is None:
        return value
    for dtype in dtypes:
        if _holds(dtype, array):
            # Of one constant, so that products that share it share panels.
            return emit.cast(value, dtype)
    return value


def _holds(dtype: DType, array: Array) -> bool:
    """Whether every value of an array is one of `dtype`; NaN has too many forms to be."""
    # Neither makes a copy of an array that lies in another order.
    with np.errstate(over="ignore", invalid="ignore"):
        for part in (array.flat[:_SAMPLE], array):
            if not np.array_equal(part.astype(dtype.numpy).astype(np.float32), part):
                return False
    return True
