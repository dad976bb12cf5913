"""Write conversions of 8-bit floats and 4-bit integers as arithmetic on their bits.

    cast<f32>(x: f8e4m3fn)   ->   bitcast<f32>((bits(x) & 0x7f) << 20) * 2**120, with the sign of x

No processor knows these types, and no printer has to.  Floats go through f32: they are rounded to
nearest even once; what is too large becomes infinity, or NaN where the type has none.  4-bit
integers lie in the low half of a byte each; integers wrap, floats saturate.  Requires nothing.
Ensures: every cast is between types that machines have.  Called by `machine`.

Source: OCP 8-bit Floating Point Specification (OFP8) 1.0; ONNX Cast, opset 25.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType, f32, i8, i32, u8
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel.ir import Cast, Expression, Kernel
from tilewright.compiler.kernel.rewrite import map_body, with_body

E = e.Expressions

_F32_MANTISSA: Final = 23
_F32_BIAS: Final = 127
_F32_INFINITY: Final = 0x7F800000
_F32_NAN: Final = 0x7FC00000


@final
@dataclass(frozen=True, slots=True)
class _Small:
    """An 8-bit float: sign, exponent, mantissa.

    Attributes:
        overflow: the bits that too large numbers become.
        nan: the bits of NaN.
        infinite: whether `overflow` is infinity.
    """

    mantissa: int
    bias: int
    overflow: int
    nan: int
    infinite: bool

    @property
    def shift(self) -> int:
        """From its bits to those of an f32."""
        return _F32_MANTISSA - self.mantissa


_SMALL: Final = {
    dtypes.f8e4m3fn: _Small(3, 7, 0x7F, 0x7F, infinite=False),
    dtypes.f8e5m2: _Small(2, 15, 0x7C, 0x7E, infinite=True),
}
_HALF_BYTES: Final = {dtypes.i4: i8, dtypes.u4: u8}


def expand_casts(kernel: Kernel) -> Kernel:
    """The kernel with every cast from or to a small type written out."""
    return with_body(kernel, map_body(kernel.body, expression=_expanded))


def _expanded(value: Expression) -> Expression:
    if not isinstance(value, Cast):
        return value
    x, target = value.operand, value.dtype
    if x.dtype in _SMALL:
        x = _widened(x, _SMALL[x.dtype])
    elif x.dtype in _HALF_BYTES:
        x = _whole(x)
    if target in _SMALL:
        return _narrowed(E.cast(x, f32), target)
    if target in _HALF_BYTES:
        return _halved(x, target)
    return E.cast(x, target)


def _widened(x: Expression, small: _Small) -> Expression:
    """The f32 of the same value."""
    bits = E.cast(E.bitcast(x, u8), i32)
    magnitude = E.and_(bits, 0x7F)
    sign = E.shl(E.and_(bits, 0x80), 24)
    # Exact for subnormals, too: the product moves the exponent.
    scale = 2.0 ** (_F32_BIAS - small.bias)
    number = E.mul(E.bitcast(E.shl(magnitude, small.shift), f32), scale)
    wide = E.bitcast(number, i32)
    if small.infinite:
        wide = E.select(E.eq(magnitude, small.overflow), _F32_INFINITY, wide)
        is_nan = E.gt(magnitude, small.overflow)
    else:
        is_nan = E.eq(magnitude, small.nan)
    return E.bitcast(E.or_(E.select(is_nan, _F32_NAN, wide), sign), f32)


def _narrowed(x: Expression, dtype: DType) -> Expression:
    """The 8-bit float nearest to an f32, even on ties."""
    small = _SMALL[dtype]
    bits = E.bitcast(x, i32)
    magnitude = E.and_(bits, 0x7FFFFFFF)
    sign = E.and_(E.shr(bits, 24), 0x80)
    # Infinity is the largest magnitude that counts; adding half a unit cannot overflow there.
    finite = E.min(magnitude, _F32_INFINITY)
    odd = E.and_(E.shr(finite, small.shift), 1)
    rounded = E.add(E.add(finite, (1 << (small.shift - 1)) - 1), odd)
    moved = E.sub(E.shr(rounded, small.shift), (_F32_BIAS - small.bias) << small.mantissa)
    # Below the normal numbers one unit is fixed: that of a float so large that adding rounds.
    least = _F32_BIAS - small.bias + 1
    unit = 2.0 ** (_F32_MANTISSA + 1 - small.bias - small.mantissa)
    magic = E.const(unit, f32)
    fixed = E.sub(
        E.bitcast(E.add(E.bitcast(finite, f32), magic), i32), E.bitcast(magic, i32)
    )
    tiny = E.lt(finite, least << _F32_MANTISSA)
    result = E.min(E.select(tiny, fixed, moved), small.overflow)
    result = E.select(E.gt(magnitude, _F32_INFINITY), small.nan, result)
    return E.bitcast(E.cast(E.or_(result, sign), u8), dtype)


def _whole(x: Expression) -> Expression:
    """The integer in the low half of a byte, in a whole byte."""
    byte = E.bitcast(x, _HALF_BYTES[x.dtype])
    if x.dtype.is_signed:
        return E.shr(E.shl(byte, 4), 4)
    return E.and_(byte, 15)


def _halved(x: Expression, dtype: DType) -> Expression:
    if x.dtype.is_float:
        low, high = (-8, 7) if dtype.is_signed else (0, 15)
        x = E.min(E.max(E.cast(x, i32), low), high)
    byte = _HALF_BYTES[dtype]
    return E.bitcast(E.and_(E.cast(x, byte), 15), dtype)
