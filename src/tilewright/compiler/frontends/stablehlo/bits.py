"""Rows for what is done to the bits of floats: other types of the same bits, order of all floats, precision.

Source: StableHLO specification, "bitcast_convert", "compare", "reduce_precision"; CHLO, "next_after";
IEEE 754-2019, 5.10 (totalOrder).
"""

from __future__ import annotations

from typing import Final, NamedTuple, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.bit_units import cut, joined
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.assumed_sizes import assumed_equal
from tilewright.compiler.frontends.stablehlo.call import (
    Call,
    element_dtype,
    part_of,
    real,
)
from tilewright.compiler.frontends.stablehlo.demands import (
    elements,
    kind_of,
    pointwise,
    takes,
)
from tilewright.compiler.frontends.stablehlo.elements import (
    bits_of,
    is_narrow,
    stored_dtype,
)
from tilewright.compiler.frontends.stablehlo.held import Complex, Held, dims_of, shape_of
from tilewright.compiler.frontends.stablehlo.narrow import wrapped
from tilewright.compiler.frontends.stablehlo.row import Row, row
from tilewright.compiler.frontends.stablehlo.tree import (
    ComplexType,
    Element,
    ScalarType,
    TensorType,
    Type,
)

_SIGNED: Final = {16: dtypes.i16, 32: dtypes.i32, 64: dtypes.i64}
_WORDS: Final = {4: dtypes.u4, 8: dtypes.u8, 16: dtypes.u16, 32: dtypes.u32, 64: dtypes.u64}
_MANTISSA: Final = {dtypes.f16: 10, dtypes.bf16: 7, dtypes.f32: 23, dtypes.f64: 52}


def _bitcast_convert(call: Call) -> Held:
    """Elements are cut into units of bits that both types are made of, and put together again."""
    operand, result = call.operation.operands[0].type, call.operation.results[0].type
    if operand == result:
        return call.held(0)
    e, before, after = call.maker, _element_of(operand), _element_of(result)
    if _is_plain(before) and _is_plain(after) and bits_of(before) == bits_of(after):
        return same_bits(e, call.tensor(0), element_dtype(result))
    unit = min(bits_of(_part_of(before)), bits_of(_part_of(after)))
    if not unit:
        raise UnsupportedError(f"the bits of {operand} as {result} are not supported")
    units = _units(e, call.held(0), before, unit)
    wanted = (*_shape_as(e, call.held(0), before, after), bits_of(after) // unit)
    return _assembled(e, e.reshape(units, wanted), after, unit)


def _is_plain(element: Element) -> bool:
    """Whether elements are held in as many bits as they have."""
    return (
        isinstance(element, ScalarType)
        and not is_narrow(element)
        and not element_dtype(element).is_bool
    )


def _shape_as(e: NodeMaker, held: Held, before: Element, after: Element) -> tuple[Dim, ...]:
    """The shape of the same bits as other elements: wider ones take up the last axis, narrower ones add one."""
    dims, wide, narrow = dims_of(held), bits_of(after), bits_of(before)
    if wide == narrow:
        return dims
    if wide < narrow:
        return (*dims, narrow // wide)
    if not dims or not assumed_equal(e, dims[-1], wide // narrow):
        raise ModelError(f"{list(dims)} elements of {before} are none of {after}")
    return dims[:-1]


def _element_of(type_: Type) -> Element:
    if not isinstance(type_, TensorType):
        raise ModelError(f"got {type_}, expected a tensor")
    return type_.element


def _part_of(element: Element) -> ScalarType:
    found = part_of(element)
    if not isinstance(found, ScalarType):
        raise ModelError(f"elements of type {element} have no bits")
    return found


def _units(e: NodeMaker, held: Held, element: Element, unit: int) -> Tensor:
    """The bits of every element as numbers of `unit` bits along one more axis, the lowest first."""
    part = _part_of(element)
    parts = [held.real, held.imaginary] if isinstance(held, Complex) else [real(held)]
    words = [_word(e, x, part) for x in parts]
    return e.concat([cut(e, word, bits_of(part), unit) for word in words], words[0].rank)


def _assembled(e: NodeMaker, units: Tensor, element: Element, unit: int) -> Held:
    """Elements whose units lie along the last axis."""
    part, last = _part_of(element), units.rank - 1
    bits = bits_of(part)
    each = bits // unit
    found: list[Tensor] = []
    (count,) = shape_of(units)[last:]
    for start in range(0, count, each):
        own = e.slice(units, last, start, each)
        total = joined(e, own, each, unit, _WORDS[_stored_bits(bits)])
        found.append(_of_word(e, total, part))
    return Complex(*found) if isinstance(element, ComplexType) else found[0]


def _stored_bits(bits: int) -> int:
    return next(n for n in _WORDS if n >= max(bits, 8))


def _word(e: NodeMaker, x: Tensor, element: ScalarType) -> Tensor:
    """The bits of elements as unsigned integers."""
    bits = bits_of(element)
    if element.name == "i1":
        return e.cast(x, dtypes.u8)
    if not is_narrow(element):
        return same_bits(e, x, _WORDS[bits])
    if x.dtype.is_float:
        stored = stored_dtype(element)
        assert stored is not None, "narrow floats have a type of ours"
        return e.cast(
            same_bits(e, e.cast(x, stored), _WORDS.get(bits, dtypes.u8)), dtypes.u8
        )
    word = same_bits(e, x, dtypes.u8)
    return e.op("bitwise_and", word, e.scalar((1 << bits) - 1, dtypes.u8))


def _of_word(e: NodeMaker, word: Tensor, element: ScalarType) -> Tensor:
    """Elements of their bits."""
    if element.name == "i1":
        return e.cast(word, dtypes.bool_)
    held = element_dtype(element)
    if not is_narrow(element):
        return same_bits(e, word, held)
    if held.is_float:
        stored = stored_dtype(element)
        assert stored is not None, "narrow floats have a type of ours"
        own = e.cast(word, _WORDS.get(stored.bits, word.dtype))
        return e.cast(same_bits(e, own, stored), held)
    return wrapped(e, same_bits(e, word, held), element)


def same_bits(e: NodeMaker, x: Tensor, dtype: DType) -> Tensor:
    """The elements of x as those of another type.  Raises: UnsupportedError for another width."""
    if x.dtype.bits != dtype.bits or x.dtype.is_bool or dtype.is_bool:
        raise UnsupportedError(f"the bits of {x.dtype} as {dtype} are not supported")
    return x if x.dtype is dtype else e.op("bitcast", x, dtype=dtype)


def total_order(e: NodeMaker, x: Tensor) -> Tensor:
    """Integers in the order of all floats: from NaN with a sign over -0 and 0 to NaN without one."""
    bits = same_bits(e, x, _SIGNED[x.dtype.bits])
    largest = e.scalar((1 << (x.dtype.bits - 1)) - 1, bits.dtype)
    below = e.op("less", bits, e.scalar(0, bits.dtype))
    return e.op("where", below, e.op("bitwise_xor", bits, largest), bits)


def _next_after(call: Call) -> Tensor:
    """The neighbour of x on the way to y: one more in magnitude, or one less."""
    e, x, y = call.maker, call.tensor(0), call.tensor(1)
    bits = same_bits(e, x, _SIGNED[x.dtype.bits])
    zero, one = e.scalar(0, x.dtype), e.scalar(1, bits.dtype)
    outward = e.op("equal", e.op("less", x, y), e.op("greater", x, zero))
    moved = e.op("where", outward, e.op("add", bits, one), e.op("sub", bits, one))
    sign = e.scalar(-(1 << (x.dtype.bits - 1)), bits.dtype)
    least = e.op("where", e.op("less", y, zero), e.op("bitwise_or", sign, one), one)
    moved = e.op("where", e.op("equal", x, zero), least, moved)
    found = e.op("where", e.op("equal", x, y), y, same_bits(e, moved, x.dtype))
    either = e.op("logical_or", e.op("is_nan", x), e.op("is_nan", y))
    return e.op("where", either, e.op("add", x, y), found)


@final
class _Format(NamedTuple):
    """How many bits of a float are its exponent and its mantissa."""

    exponent: int
    mantissa: int

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1


def _reduce_precision(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    kept = _Format(call.integer("exponent_bits"), call.integer("mantissa_bits"))
    if x.dtype not in _MANTISSA:
        raise ModelError(f"got {x.type}, expected floats")
    mantissa = _MANTISSA[x.dtype]
    own = _Format(x.dtype.bits - 1 - mantissa, mantissa)
    if kept.exponent < 1 or kept.mantissa < 0:
        raise ModelError(f"format e{kept.exponent}m{kept.mantissa} is none of a float")
    bits = same_bits(e, x, _WORDS[x.dtype.bits])
    if kept.mantissa < own.mantissa:
        bits = _rounded(e, bits, own.mantissa - kept.mantissa)
    if kept.exponent < own.exponent:
        bits = _in_range(e, bits, own, kept)
    # Without a mantissa there is no NaN: all bits of the exponent are infinity.
    special = x if kept.mantissa else e.scalar(np.inf, x.dtype)
    return e.op("where", e.op("is_nan", x), special, same_bits(e, bits, x.dtype))


def _rounded(e: NodeMaker, bits: Tensor, dropped: int) -> Tensor:
    """The last bits dropped, to the nearest, halves to even; a carry makes the exponent larger."""

    def number(value: int) -> Tensor:
        return e.scalar(value, bits.dtype)

    last = e.op("shift_right", bits, number(dropped))
    last = e.op("bitwise_and", last, number(1))
    half = e.op("add", last, number((1 << (dropped - 1)) - 1))
    rest = number((1 << bits.dtype.bits) - (1 << dropped))
    return e.op("bitwise_and", e.op("add", bits, half), rest)


def _in_range(e: NodeMaker, bits: Tensor, own: _Format, kept: _Format) -> Tensor:
    """Infinity for what is too large for an exponent, zero for what is too small."""

    def number(value: int) -> Tensor:
        return e.scalar(value, bits.dtype)

    field = ((1 << own.exponent) - 1) << own.mantissa
    exponent = e.op("bitwise_and", bits, number(field))
    sign = e.op("bitwise_and", bits, number(1 << (bits.dtype.bits - 1)))
    highest = number((own.bias + kept.bias) << own.mantissa)
    lowest = number((own.bias - kept.bias) << own.mantissa)
    infinite = e.op("bitwise_or", sign, number(field))
    found = e.op("where", e.op("greater", exponent, highest), infinite, bits)
    return e.op("where", e.op("less_equal", exponent, lowest), sign, found)


def _both_complex(call: Call) -> None:
    """Complex numbers have the bits of complex numbers only."""
    values = (*call.operation.operands, *call.operation.results)
    kinds = {kind_of(_element_of(value.type)) == "c" for value in values}
    if len(kinds) > 1:
        raise ModelError(
            "complex numbers have the bits of complex numbers only",
            hint="take them apart first, with stablehlo.real and stablehlo.imag",
        )


ROWS: Final[tuple[Row, ...]] = (
    row(
        "bitcast_convert",
        _bitcast_convert,
        keeps=True,
        demands=(takes(1), elements("bsufcqQ"), _both_complex),
    ),
    row("reduce_precision", _reduce_precision, pointwise=True, demands=pointwise(1, "fq")),
    row("chlo.next_after", _next_after, pointwise=True, demands=pointwise(2, "f")),
)
