"""In what range the elements of a result lie, given those of the operands: the rules that rows name.

NaN has no place in a range: what is cast from a float keeps the bounds of the numbers.  The walk
over a graph is `transforms.value_ranges`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import cast

from tilewright.base import symbolic
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import UNKNOWN, Asked, Places, Range, Ranges


def is_at_least(left: Dim | None, right: Dim | None) -> bool:
    """Whether `left >= right` holds for every size."""
    if left is None or right is None:
        return False
    lowest = symbolic.bounds(left - right)[0]
    return lowest is not None and lowest >= 0


def limits(dtype: DType) -> tuple[int, int]:
    """The least and largest number of an integer type."""
    if dtype.is_signed:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def least(a: Dim | None, b: Dim | None) -> Dim | None:
    """The lesser of two bounds, None where sizes decide."""
    return a if is_at_least(b, a) else b if is_at_least(a, b) else None


def greatest(a: Dim | None, b: Dim | None) -> Dim | None:
    """The greater of two bounds, None where sizes decide."""
    return a if is_at_least(a, b) else b if is_at_least(b, a) else None


def first_known(*bounds: Dim | None) -> Dim | None:
    """The first bound that there is."""
    return next((bound for bound in bounds if bound is not None), None)


def union(found: Iterable[Range]) -> Range:
    """The range that holds all of them."""
    return reduce(lambda a, b: Range(least(a.low, b.low), greatest(a.high, b.high)), found)


# --- elements of operands --------------------------------------------------------------------


def same(asked: Asked) -> Range:
    """Elements of the first operand, or as good as those."""
    return asked.of(0)


def extreme(asked: Asked) -> Range:
    """One of the elements of the first operand, where there is one along every axis that goes."""
    (x, *_) = asked.operands
    assert x is not None
    axes = cast("tuple[int, ...]", asked.attributes["axes"]) or range(x.rank)
    is_filled = all(is_at_least(x.shape[axis], 1) for axis in axes)
    return asked.of(0) if is_filled else UNKNOWN


def moved(places: Places) -> Ranges:
    """Elements of the first operand, at `places`."""

    def rule(asked: Asked) -> Range:
        x = asked.operands[0]
        if asked.column is None or x is None or not x.rank:
            return asked.of(0)
        others = [symbolic.symbol(f"i{axis}") for axis in range(asked.result.rank - 1)]
        column = places(asked.attributes, x.shape, (*others, asked.column))[-1]
        return asked.of(0, column if isinstance(column, int) else None)

    return rule


def either(*operands: int) -> Ranges:
    """Elements of any of these operands."""
    return lambda asked: union(map(asked.of, operands))


def joined(asked: Asked) -> Range:
    """`concat`: a column of the last axis lies in one part."""
    last = asked.result.rank - 1
    if asked.column is None or cast("int", asked.attributes["axis"]) % (last + 1) != last:
        return union(map(asked.of, range(len(asked.operands))))
    column = asked.column
    for position, part in enumerate(asked.operands):
        width = None if part is None else part.shape[-1]
        if not isinstance(width, int):
            return UNKNOWN
        if column < width:
            return asked.of(position, column)
        column -= width
    return UNKNOWN


def padded(asked: Asked) -> Range:
    """`pad`: a constant border brings its value, another mode only what is there."""
    if asked.attributes["mode"] != "constant":
        return asked.of(0)
    return union((asked.of(0), asked.of(1) if _has(asked, 1) else Range(0, 0)))


# --- arithmetic ------------------------------------------------------------------------------


def total(asked: Asked) -> Range:
    """The sum of two operands."""
    return _unwrapped(asked, _sum(asked.of(0), asked.of(1)))


def difference(asked: Asked) -> Range:
    """The first operand less the second."""
    low, high = (None if bound is None else -bound for bound in asked.of(1))
    return _unwrapped(asked, _sum(asked.of(0), Range(high, low)))


def product(asked: Asked) -> Range:
    """The product of two operands that are not negative."""
    a, b = asked.of(0), asked.of(1)
    if not is_at_least(a.low, 0) or not is_at_least(b.low, 0):
        return UNKNOWN
    high = None if a.high is None or b.high is None else a.high * b.high
    return _unwrapped(asked, Range(0, high))


def remainder(asked: Asked) -> Range:
    """The remainder of whole numbers by a divisor that is positive."""
    divisor = asked.of(1)
    has_sign = asked.attributes["fmod"] and not is_at_least(asked.of(0).low, 0)
    if not asked.result.dtype.is_integer or has_sign or not is_at_least(divisor.low, 1):
        return UNKNOWN
    return Range(0, None if divisor.high is None else divisor.high - 1)


def _sum(a: Range, b: Range) -> Range:
    low = None if a.low is None or b.low is None else a.low + b.low
    high = None if a.high is None or b.high is None else a.high + b.high
    return Range(low, high)


def _unwrapped(asked: Asked, found: Range) -> Range:
    """What integers do not hold comes back at the other end: without a bound there is none."""
    return UNKNOWN if asked.result.dtype.is_integer and None in found else found


def converted(asked: Asked) -> Range:
    """`cast`: integers wrap, floats saturate."""
    found, source, dtype = asked.of(0), asked.operands[0], asked.result.dtype
    if source is None or not (source.dtype.is_integer and dtype.is_integer):
        return found
    (lowest, most), (low, high) = limits(dtype), limits(source.dtype)
    return _unwrapped(asked, found) if low < lowest or high > most else found


def smaller(asked: Asked) -> Range:
    """The smaller of two operands."""
    return _smaller(asked.of(0), asked.of(1))


def larger(asked: Asked) -> Range:
    """The larger of two operands."""
    return _larger(asked.of(0), asked.of(1))


def rectified(asked: Asked) -> Range:
    """The larger of the operand and 0."""
    return _larger(asked.of(0), Range(0, 0))


def _smaller(a: Range, b: Range) -> Range:
    # Either bounds the result; without a proof of which is lower, the one that came as an operand.
    return Range(least(a.low, b.low), first_known(least(a.high, b.high), b.high, a.high))


def _larger(a: Range, b: Range) -> Range:
    return Range(
        first_known(greatest(a.low, b.low), b.low, a.low), greatest(a.high, b.high)
    )


def clamped(asked: Asked) -> Range:
    """`clip`: an absent limit bounds nothing."""
    found = asked.of(0)
    if _has(asked, 1):
        found = _larger(found, asked.of(1))
    return _smaller(found, asked.of(2)) if _has(asked, 2) else found


def _has(asked: Asked, operand: int) -> bool:
    return operand < len(asked.operands) and asked.operands[operand] is not None


# --- positions -------------------------------------------------------------------------------


def counted(asked: Asked) -> Range:
    """Positions along the `axis` of the result."""
    return Range(0, asked.result.shape[cast("int", asked.attributes["axis"])] - 1)


def position(asked: Asked) -> Range:
    """Positions along the `axis` of the first operand."""
    (x, *_) = asked.operands
    assert x is not None
    return Range(0, x.shape[cast("int", asked.attributes["axis"])] - 1)


def listed(asked: Asked) -> Range:
    """The dimensions in `values`."""
    values = cast("Sequence[Dim]", asked.attributes["values"])
    picked = values if asked.column is None else values[asked.column : asked.column + 1]
    return union(Range(d, d) for d in picked) if picked else UNKNOWN
