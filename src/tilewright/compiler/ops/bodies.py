"""Emitters shared by the families: pointwise nests, reductions, index helpers.

Every body is a function `(builder, attributes, operands, results)` that emits naive nests (see
`kernel/ir.py`): loops over result indices, then reduction loops, one store.  f16 and bf16 are
computed in f32 and rounded at each store.  Schedules fuse, inline and tile; nothing here does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, cast

from tilewright.base import dtypes
from tilewright.base.dtypes import i32, i64
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes
from tilewright.compiler.kernel import numerics
from tilewright.compiler.kernel.builder import KernelBuilder, Source, compute_dtype
from tilewright.compiler.kernel.ir import Buffer, Expression
from tilewright.compiler.ops.declaration import Body, Emit, Supports, supports_all
from tilewright.compiler.ops.shapes import broadcast_indices, normal_axes

Operands = Sequence[Source | None]
Results = Sequence[Buffer]
# (builder, *operand values, **attributes) -> value
Scalar = Callable[..., Expression]


def given(operands: Operands, position: int) -> Source:
    """An operand that the checks made sure of."""
    source = operands[position]
    assert source is not None
    return source


def maybe(operands: Operands, position: int) -> Source | None:
    """An optional operand."""
    return operands[position] if position < len(operands) else None


def read_broadcast(b: KernelBuilder, source: Source, indices: Sequence[Dim]) -> Expression:
    """The (widened) element of a broadcast operand at a result position."""
    return b.read(source, broadcast_indices(source.shape, indices))


def pointwise(
    function: Scalar, supports: Supports = supports_all, *, use_attributes: bool = False
) -> Body:
    """A nest over the result; `function(b, *values)` of the broadcast operands.

    Absent operands are passed as None, attributes as keywords when `use_attributes`.
    """

    def element(
        b: KernelBuilder, values: Sequence[Expression | None], attributes: Attributes
    ) -> Expression:
        keywords: dict[str, Any] = dict(attributes) if use_attributes else {}
        return function(b, *values, **keywords)

    def emit(
        b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
    ) -> None:
        (result,) = results
        with b.nest(result.shape) as indices:
            values = [
                None if o is None else read_broadcast(b, o, indices) for o in operands
            ]
            b.write(result, indices, element(b, values, attributes))

    return Body(emit, supports, element)


def full_indices(
    axes: Sequence[int], outer: Sequence[Dim], inner: Sequence[Dim]
) -> tuple[Dim, ...]:
    """Operand indices from those of the kept axes and those of the reduced `axes`, in order."""
    kept, reduced = iter(outer), iter(inner)
    rank = len(outer) + len(inner)
    return tuple(next(reduced) if i in axes else next(kept) for i in range(rank))


def kept_indices(axes: Sequence[int], indices: Sequence[Dim]) -> tuple[Dim, ...]:
    """The indices that do not belong to `axes`."""
    return tuple(d for i, d in enumerate(indices) if i not in axes)


def result_indices(
    axes: Sequence[int], outer: Sequence[Dim], *, keepdims: bool
) -> tuple[Dim, ...]:
    """Where a reduction stores the element of the kept indices `outer`."""
    if not keepdims:
        return tuple(outer)
    return full_indices(axes, outer, (0,) * len(axes))


def fold(
    b: KernelBuilder,
    op: str,
    into: Buffer,
    where: Sequence[Dim],
    extents: Sequence[Dim],
    value: Callable[[tuple[Dim, ...]], Expression],
    names: Sequence[str] | None = None,
) -> None:
    """`into[where]` is what `op` makes of `value(indices)` over `extents`, in order.

    The one form of a reduction: schedules know it, tile it and keep what it gathers in registers.
    Give it a buffer of the compute type; what leaves the kernel is written from there.
    """
    b.store(into, where, numerics.identity(op, into.dtype))
    with b.reduce(extents, names) as inner:
        b.accumulate(op, into, where, value(inner))


def reduce_rows(
    b: KernelBuilder,
    op: str,
    source: Source,
    axes: Sequence[int],
    value: Callable[[tuple[Dim, ...], tuple[Dim, ...]], Expression],
    *,
    into: Buffer | None = None,
    keepdims: bool = False,
) -> Buffer:
    """Combine `value(indices of source, kept indices)` over `axes` with `op`.

    Shapes: the result has the kept dimensions (or is `into`, with `keepdims` as stated).
    """
    outer_shape = kept_indices(axes, source.shape)
    extents = [source.shape[a] for a in axes]
    if into is None:
        into = b.temporary(compute_dtype(source.dtype), outer_shape, f"{op}_rows")
    with b.nest(outer_shape) as outer:
        where = result_indices(axes, outer, keepdims=keepdims)
        fold(
            b, op, into, where, extents,
            lambda inner: value(full_indices(axes, outer, inner), outer),
        )  # fmt: skip
    return into


def reduction(op: str, after: Scalar | None = None) -> Emit:
    """A reduction over `axes` with `keepdims`.

    `after(b, total, count)` maps the result; `count` is the number of combined elements as a dimension.
    """

    def emit(
        b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
    ) -> None:
        x, (result,) = given(operands, 0), results
        axes = normal_axes(cast("tuple[int, ...]", attributes["axes"]), len(x.shape))
        keepdims = bool(attributes["keepdims"])

        def element(indices: tuple[Dim, ...], _: tuple[Dim, ...]) -> Expression:
            return b.read(x, indices)

        direct = after is None and result.dtype is compute_dtype(x.dtype)
        if direct:
            reduce_rows(b, op, x, axes, element, into=result, keepdims=keepdims)
            return
        rows = reduce_rows(b, op, x, axes, element)
        count: Dim = 1
        for axis in axes:
            count = count * x.shape[axis]
        with b.nest(rows.shape) as outer:
            total = b.load(rows, outer)
            value = total if after is None else after(b, total, count)
            b.write(result, result_indices(axes, outer, keepdims=keepdims), value)

    return emit


def safe_quotient(b: KernelBuilder, op: str, x: Expression, y: Expression) -> Expression:
    """`div`, `mod` or `floormod` of integers that cannot trap: by zero gives 0, by -1 wraps."""
    if x.dtype.is_float:
        return b.binary(op, x, y)
    zero = b.eq(y, 0)
    if not x.dtype.is_signed:
        return b.select(zero, 0, _quotient(b, op, x, b.select(zero, 1, y)))
    minus = b.eq(y, -1)
    plain = _quotient(b, op, x, b.select(b.or_(zero, minus), 1, y))
    by_minus_one = b.neg(x) if op == "div" else b.const(0, x.dtype)
    return b.select(zero, 0, b.select(minus, by_minus_one, plain))


def _quotient(b: KernelBuilder, op: str, x: Expression, y: Expression) -> Expression:
    """`div` of up to 32 bits in f64, which vectors divide; the rest as integers.

    The rounded quotient has the whole part of the true one: that lies at least 1 / y from the next
    whole number, unless it is one, and rounding moves it by less than 2⁻²⁰ / y.
    """
    if op != "div" or x.dtype.bits > 32:
        return b.binary(op, x, y)
    return b.cast(b.div(b.cast(x, dtypes.f64), b.cast(y, dtypes.f64)), x.dtype)


def polynomial(
    b: KernelBuilder, x: Expression, coefficients: Sequence[float]
) -> Expression:
    """`c[0] + c[1] x + c[2] x^2 …` by Horner's rule."""
    total: Expression = b.const(coefficients[-1], x.dtype)
    for coefficient in reversed(coefficients[:-1]):
        total = b.add(b.mul(total, x), coefficient)
    return total


def copy_nest(b: KernelBuilder, source: Source, target: Buffer) -> None:
    """`target[i] = source[i]`, converted."""
    with b.nest(target.shape) as indices:
        b.write(target, indices, b.read(source, indices))


@contextmanager
def picking_nest(
    b: KernelBuilder,
    shape: Sequence[Dim],
    sizes: Iterable[Dim],
    names: Sequence[str] | None = None,
) -> Generator[tuple[Dim, ...]]:
    """A nest over `shape` whose body picks places on axes of `sizes`.

    An axis that turns out to be empty has no place into which an index could be clamped: then
    the body does not run.
    """
    all_have_some: Expression = b.const(True, dtypes.bool_)
    for size in sizes:
        all_have_some = b.and_(b.gt(b.index(size), 0), all_have_some)
    with b.nest(shape, names) as place, b.when(all_have_some):
        yield place


def wrapped_index(b: KernelBuilder, value: Expression, extent: Dim) -> Dim:
    """A loaded index, negative ones counted from the end, clamped into `0 .. extent`.

    Inside a `picking_nest`.
    """
    value = b.cast(value, b.index(0).dtype)
    wrapped = b.select(b.lt(value, 0), b.add(value, b.index(extent)), value)
    return b.as_index(b.min(b.max(wrapped, 0), b.index(extent - 1)))


def order_key(b: KernelBuilder, value: Expression, *, largest: bool) -> Expression:
    """A signed integer that is larger the earlier `value` comes; i64 for 64-bit types, else i32."""
    dtype = value.dtype
    if dtype.is_float:
        bits = i64 if dtype.bits == 64 else i32
        plain = b.select(b.eq(value, 0), 0, value)
        raw = b.bitcast(plain, bits)
        low = b.const((1 << (bits.bits - 1)) - 1, bits)
        turned = b.xor(raw, b.and_(b.shr(raw, bits.bits - 1), low))
        key = b.select(b.is_nan(value), low, turned)
    elif dtype.bits == 64 or dtype is dtypes.u32:
        wide = b.cast(value, i64)
        # The upper half of u64 became negative.
        key = b.xor(wide, -(1 << 63)) if dtype is dtypes.u64 else wide
    else:
        key = b.cast(value, i32)
    return key if largest else b.not_(key)
