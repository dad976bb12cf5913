"""Write conversions of floats of a byte or less and of 2- and 4-bit integers as arithmetic on their bits.

    cast<f32>(x: f8e4m3fn)   ->   bitcast<f32>((bits(x) & 0x7f) << 20) * 2**120, with the sign of x

No processor knows these types, and no printer has to.  Floats go through f32: they are rounded to
nearest even once; what is too large becomes infinity, or NaN where the type has none, or the largest
number where it has neither.  Types of less than a byte lie in its low bits; integers wrap, floats
saturate.  Requires nothing.
Ensures: every cast is between types that machines have.  Called by `machine`.

Source: OCP 8-bit Floating Point Specification (OFP8) 1.0; OCP Microscaling Formats (MX) 1.0; ONNX Cast, opset 25.
"""

from __future__ import annotations

from typing import Final, final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType, f32, i8, i32, u8
from tilewright.base.record import record
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel.ir import Cast, Expression, Kernel
from tilewright.compiler.kernel.rewrite import map_body, with_body

E = e.Expressions

_F32_MANTISSA: Final = 23
_F32_BIAS: Final = 127
_F32_INFINITY: Final = 0x7F800000
_F32_NAN: Final = 0x7FC00000


@final
@record
class _Small:
    """A small float: sign, exponent, mantissa.

    Attributes:
        overflow: the bits that too large numbers become.
        nan: the bits of NaN, or of what stands for it.
        infinite: whether `overflow` is infinity.
        sign: the bit of the sign.
        one_zero: whether -0 is not a number of its own; NaN then has its bits.
    """

    mantissa: int
    bias: int
    overflow: int
    nan: int
    infinite: bool
    sign: int = 0x80
    one_zero: bool = False

    @property
    def shift(self) -> int:
        """From its bits to those of an f32."""
        return _F32_MANTISSA - self.mantissa

    @property
    def sign_shift(self) -> int:
        """From the bit of its sign to that of an f32."""
        return 32 - self.sign.bit_length()

    @property
    def has_nan(self) -> bool:
        return self.sign == 0x80


_SMALL: Final = {
    dtypes.f8e4m3fn: _Small(3, 7, 0x7F, 0x7F, infinite=False),
    dtypes.f8e5m2: _Small(2, 15, 0x7C, 0x7E, infinite=True),
    dtypes.f8e4m3fnuz: _Small(3, 8, 0x80, 0x80, infinite=False, one_zero=True),
    dtypes.f8e5m2fnuz: _Small(2, 16, 0x80, 0x80, infinite=False, one_zero=True),
    dtypes.f8e4m3b11fnuz: _Small(3, 11, 0x80, 0x80, infinite=False, one_zero=True),
    dtypes.f8e4m3: _Small(3, 7, 0x78, 0x7C, infinite=True),
    dtypes.f8e3m4: _Small(4, 3, 0x70, 0x78, infinite=True),
    # NaN becomes the zero of the other sign, as in ml_dtypes.
    dtypes.f6e2m3fn: _Small(3, 1, 0x1F, 0x20, infinite=False, sign=0x20),
    dtypes.f6e3m2fn: _Small(2, 3, 0x1F, 0x20, infinite=False, sign=0x20),
    dtypes.f4e2m1fn: _Small(1, 1, 0x07, 0x08, infinite=False, sign=0x08),
}
_BYTES: Final = {t: i8 if t.is_signed else u8 for t in dtypes.SMALL_INTEGERS}


def expand_casts(kernel: Kernel) -> Kernel:
    """The kernel with every cast from or to a small type written out."""
    return with_body(kernel, map_body(kernel.body, expression=_expanded))


def _expanded(value: Expression) -> Expression:
    if not isinstance(value, Cast):
        return value
    x, target = value.operand, value.dtype
    if x.dtype in _SMALL:
        x = _widened(x, _SMALL[x.dtype])
    elif x.dtype is dtypes.f8e8m0fnu:
        x = _power(x)
    elif x.dtype in _BYTES:
        x = _whole(x)
    if target in _SMALL:
        return _narrowed(E.cast(x, f32), target)
    if target is dtypes.f8e8m0fnu:
        return _exponent(E.cast(x, f32))
    if target in _BYTES:
        return _shortened(x, target)
    return E.cast(x, target)


def _widened(x: Expression, small: _Small) -> Expression:
    """The f32 of the same value."""
    bits = E.cast(E.bitcast(x, u8), i32)
    magnitude = E.and_(bits, small.sign - 1)
    sign = E.shl(E.and_(bits, small.sign), small.sign_shift)
    # Exact for subnormals, too: the product moves the exponent.
    scale = 2.0 ** (_F32_BIAS - small.bias)
    number = E.mul(E.bitcast(E.shl(magnitude, small.shift), f32), scale)
    wide = E.bitcast(number, i32)
    if small.one_zero:
        wide = E.select(E.eq(bits, small.nan), _F32_NAN, wide)
    elif small.infinite:
        wide = E.select(E.eq(magnitude, small.overflow), _F32_INFINITY, wide)
        wide = E.select(E.gt(magnitude, small.overflow), _F32_NAN, wide)
    elif small.has_nan:
        wide = E.select(E.eq(magnitude, small.nan), _F32_NAN, wide)
    return E.bitcast(E.or_(wide, sign), f32)


def _narrowed(x: Expression, dtype: DType) -> Expression:
    """The small float nearest to an f32, even on ties."""
    small = _SMALL[dtype]
    bits = E.bitcast(x, i32)
    magnitude = E.and_(bits, 0x7FFFFFFF)
    sign = E.and_(E.shr(bits, small.sign_shift), small.sign)
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
    is_nan = E.gt(magnitude, _F32_INFINITY)
    if small.one_zero:
        # The bits of -0 are those of NaN: what rounds to zero has no sign, what is too large is NaN.
        sign = E.select(E.eq(result, 0), 0, sign)
        whole = E.select(E.eq(result, small.overflow), small.nan, E.or_(result, sign))
        return _stored(E.select(is_nan, small.nan, whole), dtype)
    return _stored(E.xor(E.select(is_nan, small.nan, result), sign), dtype)


def _stored(bits: Expression, dtype: DType) -> Expression:
    return E.bitcast(E.cast(bits, u8), dtype)


def _power(x: Expression) -> Expression:
    """The power of two that an exponent alone stands for; the least one is subnormal in f32."""
    exponent = E.cast(E.bitcast(x, u8), i32)
    bits = E.select(E.eq(exponent, 0), 1 << 22, E.shl(exponent, _F32_MANTISSA))
    return E.bitcast(E.select(E.eq(exponent, 0xFF), _F32_NAN, bits), f32)


def _exponent(x: Expression) -> Expression:
    """The exponent nearest to an f32, the larger one on ties; NaN for what is not positive and finite."""
    bits = E.bitcast(x, i32)
    half = E.select(E.lt(bits, 1 << _F32_MANTISSA), E.const((1 << 22) - 1, i32), 1 << 22)
    finite = E.min(E.max(bits, 0), _F32_INFINITY)
    rounded = E.shr(E.add(finite, half), _F32_MANTISSA)
    return _stored(E.select(E.le(bits, 0), 0xFF, rounded), dtypes.f8e8m0fnu)


def _whole(x: Expression) -> Expression:
    """The integer in the low bits of a byte, in a whole byte."""
    byte = E.bitcast(x, _BYTES[x.dtype])
    if x.dtype.is_signed:
        unused = 8 - x.dtype.bits
        return E.shr(E.shl(byte, unused), unused)
    return E.and_(byte, (1 << x.dtype.bits) - 1)


def _shortened(x: Expression, dtype: DType) -> Expression:
    mask = (1 << dtype.bits) - 1
    if x.dtype.is_float:
        low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
        x = E.min(E.max(E.cast(x, i32), low), low + mask)
    return E.bitcast(E.and_(E.cast(x, _BYTES[dtype]), mask), dtype)
