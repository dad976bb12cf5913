"""Blocks of IQ1, IQ2 and IQ3: an index of 8 to 11 bits stands for a row of 4 or 8 numbers of a table.

They come apart into the same form as all others (`block_form`): numbers of the tables are whole and small, signs are those
of the numbers, and what IQ1 adds to them, an eighth, makes whole numbers of eighths.

Source: ggml, `ggml-quants.c` (dequantize_row_iq*) and the block structures of `ggml-common.h`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tilewright.formats.gguf.block_form import (
    Blocks,
    Bytes,
    Floats,
    half,
    nibbles_in_turn,
    rows,
)
from tilewright.formats.gguf.grids import rows_of

_EIGHTH_BITS: Final = np.arange(8, dtype=np.uint8)
_PARITY: Final = np.array([n | n.bit_count() % 2 << 7 for n in range(128)], np.uint8)
"""Seven signs and the eighth, which makes their number even."""

Integers = npt.NDArray[np.int8]


def _words(raw: Bytes, begin: int, end: int, dtype: type[np.unsignedinteger[Any]]) -> Any:
    """Bytes of every block as words."""
    return np.ascontiguousarray(raw[..., begin:end]).view(dtype)


def _signed(numbers: Integers, signs: Bytes) -> Integers:
    """`[.., n, 8]` numbers with a sign for each bit of `[.., n]`."""
    bits = (signs[..., None] >> _EIGHTH_BITS & np.uint8(1)).astype(np.int8)
    return numbers * (np.int8(1) - np.int8(2) * bits)


def _quarters(raw: Bytes, steps: Any) -> Floats:
    """Scales of IQ2: an eighth of the block's, and quarters."""
    scaled = half(raw, 0) * (np.float32(0.5) + steps.astype(np.float32))
    return scaled * np.float32(0.25)


def _made(raw: Bytes, numbers: Integers, scale: Floats, group: int) -> Blocks:
    lead = raw.shape[:-2]
    return Blocks(rows(numbers, lead), rows(scale, lead), None, 0, group)


def iq2_xxs(raw: Bytes) -> Blocks:
    """Four indices of 8 bits, and a word of their signs and the scale."""
    words = _words(raw, 2, 66, np.uint32).reshape(*raw.shape[:-1], 8, 2)
    indices = np.ascontiguousarray(words[..., :1]).view(np.uint8)
    signs = _PARITY[words[..., 1:] >> np.arange(0, 28, 7, dtype=np.uint32) & 127]
    scale = _quarters(raw, words[..., 1] >> 28)
    return _made(raw, _signed(rows_of("IQ2_XXS")[indices], signs), scale, 32)


def iq2_xs(raw: Bytes) -> Blocks:
    """Words of 9 bits of index and 7 of signs."""
    words = _words(raw, 2, 66, np.uint16)
    scale = _quarters(raw, nibbles_in_turn(raw[..., 66:74]))
    numbers = _signed(rows_of("IQ2_XS")[words & 511], _PARITY[words >> 9])
    return _made(raw, numbers, scale, 16)


def iq2_s(raw: Bytes) -> Blocks:
    """Indices of 10 bits, the upper two apart, and all signs."""
    upper = raw[..., 66:74, None] >> np.arange(0, 8, 2, dtype=np.uint8) & np.uint8(3)
    upper = upper.reshape(*raw.shape[:-1], 32).astype(np.uint16)
    indices = raw[..., 2:34] | upper << np.uint16(8)
    scale = _quarters(raw, nibbles_in_turn(raw[..., 74:82]))
    return _made(raw, _signed(rows_of("IQ2_S")[indices], raw[..., 34:66]), scale, 16)


def iq3_xxs(raw: Bytes) -> Blocks:
    """Indices of 8 bits, then words of signs and scales."""
    words = _words(raw, 66, 98, np.uint32)
    signs = _PARITY[words[..., None] >> np.arange(0, 28, 7, dtype=np.uint32) & 127]
    steps = np.float32(0.5) + (words >> 28).astype(np.float32)
    scale = half(raw, 0) * steps * np.float32(0.5)
    numbers = rows_of("IQ3_XXS")[raw[..., 2:66]].reshape(*signs.shape, 8)
    return _made(raw, _signed(numbers, signs), scale, 32)


def iq3_s(raw: Bytes) -> Blocks:
    """Indices of 9 bits, the upper one apart, and all signs."""
    upper = np.unpackbits(raw[..., 66:74], axis=-1, bitorder="little").astype(np.uint16)
    numbers = rows_of("IQ3_S")[raw[..., 2:66] | upper << np.uint16(8)]
    signs = raw[..., 74:106]
    steps = np.uint8(1) + np.uint8(2) * nibbles_in_turn(raw[..., 106:110])
    scale = half(raw, 0) * steps.astype(np.float32)
    return _made(raw, _signed(numbers.reshape(*signs.shape, 8), signs), scale, 32)


def _in_eighths(indices: Any, is_less: Any) -> Integers:
    """Numbers of IQ1 and the eighth that is added or taken, times eight."""
    eighths = np.where(is_less, np.int8(-1), np.int8(1))
    return rows_of("IQ1_S")[indices] * np.int8(8) + eighths[..., None]


def iq1_s(raw: Bytes) -> Blocks:
    """Indices of 11 bits; words of their upper bits, a scale and what is added."""
    words = _words(raw, 34, 50, np.uint16)
    upper = words[..., None] >> np.arange(0, 12, 3, dtype=np.uint16) & np.uint16(7)
    low = raw[..., 2:34].reshape(upper.shape)
    is_less = (words & np.uint16(0x8000) != 0)[..., None]
    steps = (words >> 12 & np.uint16(7)) * np.uint16(2) + np.uint16(1)
    scale = half(raw, 0) * steps.astype(np.float32) * np.float32(0.125)
    numbers = _in_eighths(low | upper << np.uint16(8), np.broadcast_to(is_less, low.shape))
    return _made(raw, numbers, scale, 32)


def iq1_m(raw: Bytes) -> Blocks:
    """As IQ1_S with a scale for 16 and a sign for 8 numbers; the block's scale is in pieces."""
    words = _words(raw, 48, 56, np.uint16)
    pieces = words >> np.uint16(12) << np.arange(0, 16, 4, dtype=np.uint16)
    whole = np.bitwise_or.reduce(pieces, axis=-1, keepdims=True).astype(np.uint16)
    steps = words[..., None] >> np.arange(0, 12, 3, dtype=np.uint16) & np.uint16(7)
    steps = steps.reshape(*raw.shape[:-1], 16) * np.uint16(2) + np.uint16(1)
    block = whole.view(np.float16).astype(np.float32)
    scale = block * steps.astype(np.float32) * np.float32(0.125)
    four = nibbles_in_turn(raw[..., 32:48])
    indices = raw[..., :32] | (four & np.uint8(7)).astype(np.uint16) << np.uint16(8)
    return _made(raw, _in_eighths(indices, four & np.uint8(8) != 0), scale, 16)
