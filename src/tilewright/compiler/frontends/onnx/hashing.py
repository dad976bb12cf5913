"""Rows for hashes of numbers: MurmurHash3, the form of 32 bits.

Source: onnxruntime's contrib operators (MurmurHash3); A. Appleby, MurmurHash3_x86_32.
"""

from __future__ import annotations

from typing import Final

from tilewright.base import dtypes
from tilewright.base.dtypes import u32
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.random_bits import rotated
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row

_WORDS: Final = {32: (0,), 64: (0, 32)}


def _mixed(e: NodeMaker, state: Tensor, word: Tensor) -> Tensor:
    """The state behind one more word of the key."""
    k = rotated(e, e.op("mul", word, e.scalar(0xCC9E2D51, u32)), 15)
    k = e.op("mul", k, e.scalar(0x1B873593, u32))
    state = rotated(e, e.op("bitwise_xor", state, k), 13)
    five = e.op("mul", state, e.scalar(5, u32))
    return e.op("add", five, e.scalar(0xE6546B64, u32))


def _finished(e: NodeMaker, state: Tensor) -> Tensor:
    """Every bit of the key reaches every bit of the hash."""
    for bits, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, None)):
        state = e.op("bitwise_xor", state, e.op("shift_right", state, e.scalar(bits, u32)))
        if factor is not None:
            state = e.op("mul", state, e.scalar(factor, u32))
    return state


def _murmur_hash(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    seed = call.integer("seed", 0) & 0xFFFFFFFF
    result = u32 if call.flag("positive", default=True) else dtypes.i32
    words = _WORDS.get(x.dtype.bits)
    if words is None:
        raise UnsupportedError(f"a hash of {x.type}, expected elements of 32 or 64 bits")
    whole = e.op("bitcast", x, dtype=u32 if len(words) == 1 else dtypes.u64)
    state = e.full(seed, u32, x.shape)
    for shift in words:
        part = whole
        if shift:
            part = e.op("shift_right", whole, e.scalar(shift, whole.dtype))
        state = _mixed(e, state, e.cast(part, u32))
    length = e.scalar(4 * len(words), u32)
    found = _finished(e, e.op("bitwise_xor", state, length))
    return found if result is u32 else e.op("bitcast", found, dtype=result)


ROWS: Final[tuple[Row, ...]] = (row("MurmurHash3", _murmur_hash, domain=MICROSOFT),)
