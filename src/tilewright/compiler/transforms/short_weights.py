"""Weights of f32 whose values 16 bits hold, as what they were before somebody made them wider.

Models are trained and stored in 16 bits and then exported in f32: every value has digits to spare.  Where few rows are
multiplied memory decides, and a kernel that widens what it reads has the same bits in half of the time.  Not here: rounding, which is a
decision of the user's (`round_contractions`).  Called by `pack_matmul`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.base.dtypes import DType, bf16, f16, f32
from tilewright.compiler.graph.ir import Value
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.passes import Emitter
from tilewright.compiler.transforms.matching import constant_of

SHORT: Final = {"halves": f16, "brain_floats": bf16}
"""The types of 16 bits by what a machine must have to widen them in a step or two."""
TALL_TILES: Final = "tall_tiles"
"""What machines have whose tiles have so many rows that widening a panel in each takes no time."""
_SAMPLE: Final = 4096
"""Elements that are looked at first: of weights that need f32, hardly any hundred do not."""


def short_weights(value: Value, products: frozenset[str], emit: Emitter) -> Value:
    """A constant of f32 in 16 bits that machines with these `products` widen, if that keeps every value; else the value as it is."""
    array = constant_of(value) if value.type.dtype is f32 else None
    if array is None:
        return value
    for name, dtype in SHORT.items():
        if name in products and _holds(dtype, array):
            return emit.cast(
                value, dtype
            )  # of one constant, so that products that share it share panels
    return value


def _holds(dtype: DType, array: Array) -> bool:
    """Whether every value of an array is one of `dtype`; NaN has too many forms to be."""
    flat = array.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore"):
        for part in (flat[:_SAMPLE], flat):
            if not np.array_equal(part.astype(dtype.numpy).astype(np.float32), part):
                return False
    return True
