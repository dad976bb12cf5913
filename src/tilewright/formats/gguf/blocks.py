"""What quantised blocks mean: integers, a scale and perhaps a minimum of each group of them (`block_form`).

Every type comes apart into the same form, number = integer * scale + minimum; scales of 6 bits are multiplied
with that of their block, which is exact enough to be what ggml computes: one rounding in f32.  `dequantize` is
the oracle that products are compared with.

Source: ggml, `ggml-quants.c` (dequantize_row_*) and the block structures of `ggml-common.h`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilewright.base.errors import ArchiveError
from tilewright.formats.gguf.block_form import Blocks, Bytes, Floats, half, nibbles, rows
from tilewright.formats.gguf.lookup_blocks import (
    iq1_m,
    iq1_s,
    iq2_s,
    iq2_xs,
    iq2_xxs,
    iq3_s,
    iq3_xxs,
)
from tilewright.formats.gguf.reader import GgufFile, GgufTensor

_UNEVEN: Final = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8
)
"""What 4 bits of IQ4_NL and IQ4_XS stand for."""
_FLOATS_OF_FOUR: Final = np.array(
    [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8
)
"""Twice the numbers of E2M1."""


def _with_bits(raw: Bytes, low: Bytes, at: int) -> Bytes:
    """32 values of 4 bits with their fifth, which lie in 4 bytes of the block."""
    bits = np.unpackbits(raw[..., at : at + 4], axis=-1, bitorder="little")
    return low.reshape(bits.shape) | bits << np.uint8(4)


def _q4_0(raw: Bytes) -> Blocks:
    lead = raw.shape[:-2]
    values = rows(nibbles(raw[..., 2:]), lead)
    return Blocks(values, rows(half(raw, 0), lead), None, 8, 32)


def _q4_1(raw: Bytes) -> Blocks:
    lead = raw.shape[:-2]
    scale, minimum = (rows(half(raw, at), lead) for at in (0, 2))
    return Blocks(rows(nibbles(raw[..., 4:]), lead), scale, minimum, 0, 32)


def _q5_0(raw: Bytes) -> Blocks:
    lead = raw.shape[:-2]
    values = _with_bits(raw, nibbles(raw[..., 6:]), 2).astype(np.int8) - np.int8(16)
    return Blocks(rows(values, lead), rows(half(raw, 0), lead), None, 0, 32)


def _q5_1(raw: Bytes) -> Blocks:
    lead = raw.shape[:-2]
    scale, minimum = (rows(half(raw, at), lead) for at in (0, 2))
    values = _with_bits(raw, nibbles(raw[..., 8:]), 4).astype(np.int8)
    return Blocks(rows(values, lead), scale, minimum, 0, 32)


def _q8_0(raw: Bytes) -> Blocks:
    lead = raw.shape[:-2]
    values = rows(raw[..., 2:].view(np.int8), lead)
    return Blocks(values, rows(half(raw, 0), lead), None, 0, 32)


def _q2_k(raw: Bytes) -> Blocks:
    lead = raw.shape[:-2]
    scales, packed = raw[..., :16], raw[..., 16:80].reshape(*raw.shape[:-1], 2, 1, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    values = packed >> shifts & np.uint8(3)
    scale = half(raw, 80) * (scales & 0xF).astype(np.float32)
    minimum = -(half(raw, 82) * (scales >> 4).astype(np.float32))
    return Blocks(rows(values, lead), rows(scale, lead), rows(minimum, lead), 0, 16)


def _q3_k(raw: Bytes) -> Blocks:
    lead, shape = raw.shape[:-2], raw.shape[:-1]
    high = raw[..., :32].reshape(*shape, 1, 1, 32)
    packed = raw[..., 32:96].reshape(*shape, 2, 1, 32)
    low = packed >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & np.uint8(3)
    places = np.arange(8, dtype=np.uint8).reshape(2, 4, 1)
    # A third bit that is not set stands for 4 less; 4 is what stands for zero.
    values = low | (high >> places & np.uint8(1)) << np.uint8(2)
    six = raw[..., 96:108]
    lows = np.concatenate([six[..., :8] & 0xF, six[..., :8] >> 4], -1)
    highs = np.concatenate([six[..., 8:] >> (2 * i) & 3 for i in range(4)], -1)
    scale = (lows | highs << 4).astype(np.float32) - np.float32(32)
    scale = half(raw, 108) * scale
    return Blocks(rows(values, lead), rows(scale, lead), None, 4, 16)


def _six_bits(raw: Bytes) -> tuple[Floats, Floats]:
    """Scales and minima of the 8 groups of a block of Q4_K and Q5_K, each of 6 bits."""
    first, second, third = (raw[..., at : at + 4] for at in (4, 8, 12))
    scale = np.concatenate([first & 63, (third & 0xF) | (first >> 6) << 4], -1)
    minimum = np.concatenate([second & 63, (third >> 4) | (second >> 6) << 4], -1)
    scale = half(raw, 0) * scale.astype(np.float32)
    return scale, -(half(raw, 2) * minimum.astype(np.float32))


def _q4_k(raw: Bytes) -> Blocks:
    lead = raw.shape[:-2]
    scale, minimum = (rows(x, lead) for x in _six_bits(raw))
    packed = raw[..., 16:].reshape(*raw.shape[:-1], 4, 32)
    return Blocks(rows(nibbles(packed), lead), scale, minimum, 0, 32)


def _q5_k(raw: Bytes) -> Blocks:
    lead, shape = raw.shape[:-2], raw.shape[:-1]
    scale, minimum = (rows(x, lead) for x in _six_bits(raw))
    low = nibbles(raw[..., 48:].reshape(*shape, 4, 32))
    places = np.arange(8, dtype=np.uint8).reshape(4, 2, 1)
    bits = raw[..., 16:48].reshape(*shape, 1, 1, 32) >> places & np.uint8(1)
    values = (low | bits << np.uint8(4)).astype(np.int8)
    return Blocks(rows(values, lead), scale, minimum, 0, 32)


def _q6_k(raw: Bytes) -> Blocks:
    lead, shape = raw.shape[:-2], raw.shape[:-1]
    low = nibbles(raw[..., :128].reshape(*shape, 2, 64)).reshape(*shape, 2, 4, 32)
    places = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    high = raw[..., 128:192].reshape(*shape, 2, 1, 32) >> places & np.uint8(3)
    values = (low | high << np.uint8(4)).astype(np.int8) - np.int8(32)
    scale = half(raw, 208) * raw[..., 192:208].view(np.int8).astype(np.float32)
    return Blocks(rows(values, lead), rows(scale, lead), None, 0, 16)


def _iq4_nl(raw: Bytes) -> Blocks:
    lead = raw.shape[:-2]
    values = rows(_UNEVEN[nibbles(raw[..., 2:])], lead)
    return Blocks(values, rows(half(raw, 0), lead), None, 0, 32)


def _iq4_xs(raw: Bytes) -> Blocks:
    lead, shape = raw.shape[:-2], raw.shape[:-1]
    low = nibbles(raw[..., 4:8]).swapaxes(-1, -2).reshape(*shape, 8)
    pairs = raw[..., 2:4, None] >> np.arange(0, 8, 2, dtype=np.uint8) & np.uint8(3)
    six = low | pairs.reshape(*shape, 8) << np.uint8(4)
    scale = half(raw, 0) * (six.astype(np.float32) - np.float32(32))
    values = _UNEVEN[nibbles(raw[..., 8:].reshape(*shape, 8, 16))]
    return Blocks(rows(values, lead), rows(scale, lead), None, 0, 32)


def _mxfp4(raw: Bytes) -> Blocks:
    lead = raw.shape[:-2]
    values = rows(_FLOATS_OF_FOUR[nibbles(raw[..., 1:])], lead)
    scale = np.ldexp(np.float32(1), raw[..., :1].astype(np.int32) - 128)
    return Blocks(values, rows(scale, lead), None, 0, 32)


def _nvfp4(raw: Bytes) -> Blocks:
    lead, shape = raw.shape[:-2], raw.shape[:-1]
    code = raw[..., :4].astype(np.int32)
    # An E4M3 without a sign, halved: integers are doubled.  Its last code would be no number, and is none.
    exponent, rest = code >> 3 & 15, code & 7
    mantissa = np.where(exponent > 0, rest + 8, rest) * (code != 0x7F)
    scale = np.ldexp(mantissa.astype(np.float32), np.maximum(exponent, 1) - 11)
    values = _FLOATS_OF_FOUR[nibbles(raw[..., 4:].reshape(*shape, 4, 8))]
    return Blocks(rows(values, lead), rows(scale, lead), None, 0, 16)


def _q1_0(raw: Bytes) -> Blocks:
    lead = raw.shape[:-2]
    bits = np.unpackbits(raw[..., 2:], axis=-1, bitorder="little").astype(np.int8)
    values = bits * np.int8(2) - np.int8(1)
    return Blocks(rows(values, lead), rows(half(raw, 0), lead), None, 0, 128)


def _q2_0(raw: Bytes) -> Blocks:
    lead = raw.shape[:-2]
    shifts = np.arange(0, 8, 2, dtype=np.uint8)
    values = (raw[..., 2:, None] >> shifts & np.uint8(3)).astype(np.int8) - np.int8(1)
    return Blocks(rows(values, lead), rows(half(raw, 0), lead), None, 0, 64)


def _digits(packed: Bytes, count: int) -> npt.NDArray[np.int8]:
    """`[.., n]` bytes as `[.., count, n]`: digits of base 3 behind the point, the first first, less one."""
    powers = 3 ** np.arange(count, dtype=np.uint8)[:, None]
    shifted = packed[..., None, :] * powers.astype(np.uint8)  # modulo 256
    return (shifted.astype(np.uint16) * 3 >> 8).astype(np.int8) - np.int8(1)


def _tq1_0(raw: Bytes) -> Blocks:
    lead, shape = raw.shape[:-2], raw.shape[:-1]
    parts = ((raw[..., :32], 5), (raw[..., 32:48], 5), (raw[..., 48:52], 4))
    values = np.concatenate(
        [_digits(packed, count).reshape(*shape, -1) for packed, count in parts], axis=-1
    )
    return Blocks(rows(values, lead), rows(half(raw, 52), lead), None, 0, 256)


def _tq2_0(raw: Bytes) -> Blocks:
    lead = raw.shape[:-2]
    packed = raw[..., :64].reshape(*raw.shape[:-1], 2, 1, 32)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    values = (packed >> shifts & np.uint8(3)).astype(np.int8) - np.int8(1)
    return Blocks(rows(values, lead), rows(half(raw, 64), lead), None, 0, 256)


DECODERS: Final[Mapping[str, Callable[[Bytes], Blocks]]] = {
    "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0,
    "Q2_K": _q2_k, "Q3_K": _q3_k, "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k,
    "IQ4_NL": _iq4_nl, "IQ4_XS": _iq4_xs, "MXFP4": _mxfp4, "NVFP4": _nvfp4,
    "IQ1_S": iq1_s, "IQ1_M": iq1_m, "IQ2_XXS": iq2_xxs, "IQ2_XS": iq2_xs, "IQ2_S": iq2_s,
    "IQ3_XXS": iq3_xxs, "IQ3_S": iq3_s, "Q1_0": _q1_0, "Q2_0": _q2_0, "TQ1_0": _tq1_0, "TQ2_0": _tq2_0,
}  # fmt: skip
"""By type: `[.., blocks of a row, bytes of a block] u8` taken apart."""

_PLAIN: Final[Mapping[str, npt.DTypeLike]] = {
    "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "F64": np.float64,
    "I8": np.int8, "I16": np.int16, "I32": np.int32, "I64": np.int64,
}  # fmt: skip


def decode(file: GgufFile, tensor: GgufTensor) -> Blocks | npt.NDArray[Any]:
    """A tensor as integers with scales; as an array in place where its elements stand one by one.

    Raises: ArchiveError for a type of blocks whose meaning is not known here.
    """
    raw, kind = file.bytes_of(tensor), tensor.type.name
    if kind in _PLAIN:
        return raw.reshape(-1).view(_PLAIN[kind]).reshape(tensor.shape)
    decoder = DECODERS.get(kind)
    if decoder is None:
        raise ArchiveError(
            f"blocks of type {kind} are not supported",
            location=f"{file.location}: tensor '{tensor.name}'",
            hint=f"known are {', '.join((*_PLAIN, *DECODERS))}",
        )
    with np.errstate(all="ignore"):  # files may have scales that are no numbers
        return decoder(raw)


def dequantize(file: GgufFile, tensor: GgufTensor) -> Floats:
    """The numbers of a tensor, as ggml makes them.  Raises: ArchiveError as `decode`."""
    found = decode(file, tensor)
    if not isinstance(found, Blocks):
        return found.astype(np.float32)
    whole = found.values.astype(np.float32) - np.float32(found.zero)
    with np.errstate(all="ignore"):
        numbers = whole.reshape(*found.scale.shape, found.group) * found.scale[..., None]
        if found.minimum is not None:
            numbers = numbers + found.minimum[..., None]
    return numbers.reshape(tensor.shape)
