"""Rows for products: dot_general and its older forms.

Source: StableHLO specification, "dot_general".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.assumed_sizes import assumed_equal
from tilewright.compiler.frontends.stablehlo.attribute_demands import (
    known_fields,
    precision,
)
from tilewright.compiler.frontends.stablehlo.call import Call, listed, real
from tilewright.compiler.frontends.stablehlo.demands import (
    one_element,
    takes,
)
from tilewright.compiler.frontends.stablehlo.held import Complex, Held
from tilewright.compiler.frontends.stablehlo.quantized_demands import (
    factors_fit,
    zero_points_are_zero,
)
from tilewright.compiler.frontends.stablehlo.row import Row, row
from tilewright.compiler.ops.shapes import element_count

Dimensions = tuple[tuple[int, ...], ...]
"""The batching dimensions of an operand, and its contracting ones."""

# How exact an accelerator shall be; ours are as exact as the type.
_PRECISION: Final = ("algorithm",)


def product(e: NodeMaker, a: Tensor, b: Tensor, dtype: dtypes.DType) -> Tensor:
    """`[B, M, K]` times `[B, K, N]` in `dtype`: operands of another type are widened first."""
    if dtype.is_bool:
        counted = product(e, e.cast(a, dtypes.i32), e.cast(b, dtypes.i32), dtypes.i32)
        return e.op("not_equal", counted, e.scalar(0, dtypes.i32))
    own = summed_in(dtype, a, b)
    wide = [x if x.dtype is own else e.cast(x, own) for x in (a, b)]
    return e.cast(e.op("matmul", *wide), dtype)


def summed_in(dtype: dtypes.DType, *factors: Tensor) -> dtypes.DType:
    """What products of these are summed in, to be rounded once: floats that are wider than the result, or its type."""
    wider = [x.dtype for x in factors if x.dtype.is_float and x.dtype.bits > dtype.bits]
    return max(wider, key=lambda own: own.bits) if wider and dtype.is_float else dtype


def _ordered(
    e: NodeMaker, x: Tensor, groups: Sequence[Sequence[int]]
) -> tuple[Tensor, list[list[Dim]]]:
    """The axes in groups, each group as one axis; and the sizes in each group."""
    order = [axis for group in groups for axis in group]
    if sorted(order) != list(range(x.rank)):
        raise ModelError(f"dimension numbers do not fit {x.type}")
    kept = [[x.shape[axis] for axis in group] for group in groups]
    return e.reshape(e.transpose(x, order), [element_count(k) for k in kept]), kept


def _dot_general(call: Call) -> Held:
    numbers = call.fields("dot_dimension_numbers")
    named = {
        side: tuple(
            listed(numbers, f"{side}_{kind}_dimensions")
            for kind in ("batching", "contracting")
        )
        for side in ("lhs", "rhs")
    }
    return contracted(call, call.held(0), call.held(1), named["lhs"], named["rhs"])


def contracted(
    call: Call, left: Held, right: Held, of_left: Dimensions, of_right: Dimensions
) -> Held:
    """Sums of products over the contracting dimensions: batches, then what is left of each operand."""
    if not (isinstance(left, Complex) and isinstance(right, Complex)):
        return _multiplied(call, real(left), real(right), of_left, of_right)

    def part(x: Tensor, y: Tensor) -> Tensor:
        return _multiplied(call, x, y, of_left, of_right)

    e = call.maker
    return Complex(
        e.op("sub", part(left.real, right.real), part(left.imaginary, right.imaginary)),
        e.op("add", part(left.real, right.imaginary), part(left.imaginary, right.real)),
    )


def _multiplied(
    call: Call,
    a: Tensor,
    b: Tensor,
    of_a: Dimensions,
    of_b: Dimensions,
) -> Tensor:
    e = call.maker
    (batch_a, contracted_a), (batch_b, contracted_b) = of_a, of_b
    free_a = [i for i in range(a.rank) if i not in (*batch_a, *contracted_a)]
    free_b = [i for i in range(b.rank) if i not in (*batch_b, *contracted_b)]
    x, (batch, rows, depth) = _ordered(e, a, (batch_a, free_a, contracted_a))
    y, (other_batch, other_depth, columns) = _ordered(e, b, (batch_b, contracted_b, free_b))
    numbers = len(batch) == len(other_batch) and len(depth) == len(other_depth)
    pairs = zip((*batch, *depth), (*other_batch, *other_depth), strict=numbers)
    if not (numbers and all(assumed_equal(e, *pair) for pair in pairs)):
        raise ModelError(f"dimension numbers do not fit {a.type} and {b.type}")
    shape = [*batch, *rows, *columns]
    if 0 in depth or 0 in shape:
        return e.full(0, call.dtype(), shape)
    return e.reshape(product(e, x, y, call.dtype()), shape)


def _dot(call: Call) -> Tensor:
    a, b = call.tensor(0), call.tensor(1)
    if a.rank not in (1, 2) or b.rank not in (1, 2):
        raise ModelError(f"got {a.type} and {b.type}, expected vectors and matrices")
    return _multiplied(call, a, b, ((), (a.rank - 1,)), ((), (0,)))


ROWS: Final[tuple[Row, ...]] = (
    row(
        "dot",
        _dot,
        ignores=("precision",),
        demands=(takes(2), one_element(0, 1, results=False), precision),
    ),
    row(
        "dot_general",
        _dot_general,
        ignores=_PRECISION,
        demands=(
            takes(2),
            known_fields("dot_dimension_numbers"),
            factors_fit,
            zero_points_are_zero,
            precision,
        ),
    ),
)
