"""The loop nests that numbers in few bits of a word mean.  Called by the tables."""

from __future__ import annotations

from tilewright.base.dtypes import f32, i32
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import AccessMode, Body, Buffer

_POWER = 1 << 23
"""A float of this size has its lowest bit for 1, so or-ing a small integer in adds it."""
_POWER_BITS = (127 + 23) << 23


def low_number() -> tuple[tuple[Buffer, ...], Body]:
    """`total +=` the lowest 4 bits of a word, less 8, as a float."""
    b = KernelBuilder("number")
    total = b.parameter("total", f32, (), AccessMode.READ_WRITE)
    word = b.parameter("word", i32, (1,))
    held = b.or_(b.and_(b.load(word, (0,)), 15), _POWER_BITS)
    b.accumulate("add", total, (), b.sub(b.bitcast(held, f32), float(_POWER + 8)))
    return (total, word), b.build().body


def top_byte(place: int) -> tuple[tuple[Buffer, ...], Body]:
    """`total +=` byte `place` of a word, 0 for the lowest, as its highest."""
    b = KernelBuilder("byte")
    total = b.parameter("total", i32, (), AccessMode.READ_WRITE)
    word = b.parameter("word", i32, (1,))
    moved = b.shl(b.load(word, (0,)), 24 - 8 * place)
    b.accumulate("add", total, (), b.and_(moved, -(1 << 24)))
    return (total, word), b.build().body
