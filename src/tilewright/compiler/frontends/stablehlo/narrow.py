"""Elements of few bits: rounding what wider arithmetic gave to the type that the module states.

Integers wrap, and saturate where they come from floats; floats are rounded to the nearest, halves to even, and what is too large becomes what the
format has for it: an infinity, no number, or its largest number.

Source: StableHLO specification, "Types"; IEEE 754-2019, 4.3.1; OCP Microscaling Formats 1.0.
"""

from __future__ import annotations

from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.elements import (
    bits_of,
    dtype_of,
    is_narrow,
    stored_dtype,
)
from tilewright.compiler.frontends.stablehlo.held import Held
from tilewright.compiler.frontends.stablehlo.tree import ScalarType, TensorType, Type


def settled(e: NodeMaker, held: Held, type_: Type) -> Held:
    """A result as the elements of its type; what is not narrow stays as it is."""
    element = type_.element if isinstance(type_, TensorType) else type_
    if not isinstance(held, Tensor) or not isinstance(element, ScalarType):
        return held
    if not is_narrow(element):
        return held
    return rounded(e, held, element) if held.dtype.is_float else wrapped(e, held, element)


def wrapped(e: NodeMaker, x: Tensor, element: ScalarType) -> Tensor:
    """The low bits of integers, with the sign that they have then."""
    gone = x.dtype.bits - bits_of(element)
    if not x.dtype.is_signed:
        return e.op("bitwise_and", x, e.scalar((1 << bits_of(element)) - 1, x.dtype))
    places = e.scalar(gone, x.dtype)
    return e.op("shift_right", e.op("shift_left", x, places), places)


def saturated(e: NodeMaker, x: Tensor, type_: Type) -> Tensor:
    """Floats within the range of the integers of a type that they are about to become.

    Casts saturate at the range of the wider type that narrow integers are held in.
    """
    element = type_.element if isinstance(type_, TensorType) else type_
    if (
        not x.dtype.is_float
        or not isinstance(element, ScalarType)
        or not is_narrow(element)
    ):
        return x
    dtype = dtype_of(element)
    if dtype is None or dtype.is_float:
        return x
    low = -(1 << (bits_of(element) - 1)) if dtype.is_signed else 0
    high = low + (1 << bits_of(element)) - 1
    return e.op("min", e.op("max", x, e.scalar(low, x.dtype)), e.scalar(high, x.dtype))


def rounded(e: NodeMaker, x: Tensor, element: ScalarType) -> Tensor:
    """Floats in f32 whose values are those of a format."""
    stored = stored_dtype(element)
    assert stored is not None, "narrow floats have a type of ours"
    return e.cast(e.cast(x, stored), x.dtype)
