"""Integers of fewer than 8 bits, several to a byte, as bytes.

Emitted as ops, so that tables of weights stay packed and only what is looked up is taken apart.  Called by front
ends whose models have such weights.
"""

from __future__ import annotations

from tilewright.base import dtypes
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor


def unpacked(e: NodeMaker, stored: Tensor, bits: int) -> Tensor:
    """[..., n] bytes as [..., n * 8 / bits] unsigned integers in u8, the lowest bits first."""
    if bits == 8:
        return stored
    mask, last = e.scalar((1 << bits) - 1, dtypes.u8), stored.rank
    parts = [
        e.op("shift_right", stored, e.scalar(shift, dtypes.u8)) if shift else stored
        for shift in range(0, 8, bits)
    ]
    # Of the highest bits nothing is left to be masked.
    masked = [*(e.op("bitwise_and", part, mask) for part in parts[:-1]), parts[-1]]
    whole = e.concat([e.unsqueeze(part, (last,)) for part in masked], last)
    return e.reshape(whole, (*stored.shape[:-1], stored.shape[-1] * (8 // bits)))
