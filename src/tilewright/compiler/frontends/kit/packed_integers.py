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
    byte = e.scalar(0xF, dtypes.u8), e.scalar(4, dtypes.u8)
    low = e.op("bitwise_and", stored, byte[0])
    high = e.op("shift_right", stored, byte[1])
    last = stored.rank
    both = e.concat([e.unsqueeze(low, (last,)), e.unsqueeze(high, (last,))], last)
    return e.reshape(both, (*stored.shape[:-1], stored.shape[-1] * 2))
