"""Words of bits cut into units of fewer bits along one more axis, and units put together to words.

Emitted as ops.  What is not here: which types have which bits, and integers that are stored several to a byte
(`packed_integers`).  Called by front ends whose models see the elements of a tensor as those of another type.
"""

from __future__ import annotations

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor


def cut(e: NodeMaker, word: Tensor, bits: int, unit: int) -> Tensor:
    """[...] words of `bits` bits as [..., bits / unit] words whose lowest `unit` bits are a unit, the lowest first."""
    wide, places = e.unsqueeze(word, (word.rank,)), np.arange(0, bits, unit)
    shifts = e.constant(places.astype(word.dtype.numpy))
    mask = e.scalar((1 << unit) - 1, word.dtype)
    return e.op("bitwise_and", e.op("shift_right", wide, shifts), mask)


def joined(e: NodeMaker, units: Tensor, count: int, unit: int, dtype: DType) -> Tensor:
    """[..., count] units of `unit` bits, the lowest first, as [...] words of an unsigned type."""
    last = units.rank - 1
    shifts = e.constant((np.arange(count) * unit).astype(dtype.numpy))
    placed = e.op("shift_left", e.cast(units, dtype), shifts)
    parts = [e.squeeze(e.slice(placed, last, i, 1), (last,)) for i in range(count)]
    total = parts[0]
    for part in parts[1:]:
        total = e.op("bitwise_or", total, part)
    return total
