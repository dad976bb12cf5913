"""The loop nests that dot products of short vectors mean.  Called by the tables."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.base.dtypes import DType, f32
from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.builder import KernelBuilder

Nest = tuple[tuple[ir.Buffer, ...], ir.Body]
"""What an instruction is given, and the loops over that."""
_LEAST_NORMAL = 2.0**-126
SMALL = 127
"""The largest unsigned byte of which two products with signed ones never saturate 16 bits."""


def instruction(name: str, nest: Nest, forms: Iterable[ir.Form]) -> ir.Instruction:
    """The row of an instruction that computes just what a nest does."""
    parameters, body = nest
    return ir.Instruction(name=name, parameters=parameters, body=body, forms=tuple(forms))


def dot(
    total: DType, left: DType, right: DType, count: int, *, small: bool = False
) -> Nest:
    """`total += left[k] * right[k]` for every k, in the type of the total.

    With `small` the left number is `left[k] & 127`: a sum of two such products of bytes fits 16 bits with its sign.
    """
    b = KernelBuilder("dot")
    sum_ = b.parameter("total", total, (), ir.AccessMode.READ_WRITE)
    a, w = b.parameter("a", left, (count,)), b.parameter("b", right, (count,))
    with b.reduce((count,), ["k"]) as (k,):
        x, y = b.cast(b.load(a, (k,)), total), b.cast(b.load(w, (k,)), total)
        b.accumulate("add", sum_, (), b.mul(b.and_(x, SMALL) if small else x, y))
    return (sum_, a, w), b.build().body


def product_of_rows(total: DType, left: DType, right: DType, count: int) -> Nest:
    """`total[i, j] += left[i, k] * right[j, k]` of two rows and two columns, in the type of the total."""
    b = KernelBuilder("tile")
    sum_ = b.parameter("total", total, (2, 2), ir.AccessMode.READ_WRITE)
    a, w = b.parameter("a", left, (2, count)), b.parameter("b", right, (2, count))
    with b.nest((2, 2), ["i", "j"]) as (i, j), b.reduce((count,), ["k"]) as (k,):
        x, y = b.cast(b.load(a, (i, k)), total), b.cast(b.load(w, (j, k)), total)
        b.accumulate("add", sum_, (i, j), b.mul(x, y))
    return (sum_, a, w), b.build().body


def dot_flushed(parameters: tuple[ir.Buffer, ...], count: int) -> ir.Body:
    """The same over the parameters of a `dot` of f32, last product first.

    Every product is added with one rounding to nearest even; denormal operands, totals and results
    are zeros of their sign.
    """
    b = KernelBuilder("dot")
    sum_, a, w = parameters

    def normal(x: ir.Expression) -> ir.Expression:
        zero = b.binary("copysign", b.const(0.0, f32), x)
        return b.select(b.lt(b.abs(x), _LEAST_NORMAL), zero, x)

    with b.reduce((count,), ["k"]) as (k,):
        last: Dim = count - 1 - k
        x, y = (normal(b.cast(b.load(side, (last,)), f32)) for side in (a, w))
        b.store(sum_, (), normal(b.fma(x, y, normal(b.load(sum_, ())))))
    return b.build().body
