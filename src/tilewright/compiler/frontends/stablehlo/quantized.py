"""Quantized types: integers that stand for `(q - zero_point) * scale`.

An operation on them is one on the numbers that they stand for, whose result is quantized again; what only
moves elements moves the integers.  Operations with a region leave that to the region.

Source: StableHLO specification, "Quantized types", "uniform_quantize", "uniform_dequantize", and the functions
`quantize`, `dequantize`, `dequantize_op_quantize`, `hybrid_dequantize_then_op` of its "Notation".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.call import Call, element_dtype, real
from tilewright.compiler.frontends.stablehlo.demands import (
    SAME_SHAPE,
    elements,
    gives,
    takes,
)
from tilewright.compiler.frontends.stablehlo.elements import numpy_of, whole_range
from tilewright.compiler.frontends.stablehlo.held import Held
from tilewright.compiler.frontends.stablehlo.quantized_demands import (
    numbers_fit,
)
from tilewright.compiler.frontends.stablehlo.row import Row, row
from tilewright.compiler.frontends.stablehlo.tree import (
    Operation,
    QuantizedType,
    TensorType,
    Type,
    Value,
)


def quantized_type(type_: Type) -> QuantizedType | None:
    """The quantized elements of a tensor; None for others."""
    element = type_.element if isinstance(type_, TensorType) else type_
    return element if isinstance(element, QuantizedType) else None


def computes_quantized(operation: Operation) -> bool:
    """Whether an operation computes on quantized numbers itself, not through a region."""
    values = (*operation.operands, *operation.results)
    return not operation.regions and any(quantized_type(v.type) for v in values)


def expressed(operation: Operation) -> Operation:
    """The same operation on the numbers that quantized elements stand for."""
    return replace(
        operation,
        operands=tuple(map(_expressed, operation.operands)),
        results=tuple(map(_expressed, operation.results)),
    )


def _expressed(value: Value) -> Value:
    found = quantized_type(value.type)
    if found is None or not isinstance(value.type, TensorType):
        return value
    return Value(value.name, replace(value.type, element=found.expressed))


def dequantize(e: NodeMaker, held: Held, type_: Type) -> Held:
    """What a tensor stands for; one of another type stands for itself."""
    found = quantized_type(type_)
    if found is None:
        return held
    x, dtype = real(held), element_dtype(found.expressed)
    scales, zeros = _parameters(e, found, x.shape)
    # Differences of integers are exact in f64, and rounded once.
    apart = e.op("sub", e.cast(x, dtypes.f64), e.cast(zeros, dtypes.f64))
    return e.op("mul", e.cast(apart, dtype), e.cast(scales, dtype))


def quantize(e: NodeMaker, held: Held, type_: Type) -> Held:
    """The nearest integers within the limits of a type."""
    found = quantized_type(type_)
    if found is None:
        return held
    x, dtype = real(held), element_dtype(found.expressed)
    scales, zeros = _parameters(e, found, x.shape)
    scaled = e.op("div", e.cast(x, dtype), e.cast(scales, dtype))
    moved = e.op("add", scaled, e.cast(zeros, dtype))
    low, high = (e.scalar(limit, dtype) for limit in limits_of(found))
    rounded = e.op("round", e.op("min", e.op("max", moved, low), high))
    return e.cast(rounded, element_dtype(found))


def limits_of(type_: QuantizedType) -> tuple[int, int]:
    """The least and the largest integer of a type."""
    if type_.limits is not None:
        return type_.limits
    return whole_range(type_.storage)


def _check(type_: QuantizedType, shape: Sequence[Dim]) -> None:
    """Raise ModelError for what the constraints of quantized types rule out."""
    rank, (low, high) = len(shape), limits_of(type_)
    least, largest = limits_of(replace(type_, limits=None))
    if type_.axis is None and not type_.blocks and len(type_.scales) != 1:
        raise ModelError(f"{type_} has {len(type_.scales)} scales and no axis")
    if type_.axis is not None and not 0 <= type_.axis < rank:
        raise ModelError(f"axis {type_.axis} of {type_} does not fit {rank} dimensions")
    slices = None if type_.axis is None else shape[type_.axis]
    if isinstance(slices, int) and slices != len(type_.scales):
        raise ModelError(f"{type_} has {len(type_.scales)} scales for {slices} slices")
    if not least <= low < high <= largest:
        raise ModelError(f"{low} to {high} are no limits of {type_.storage}")
    for scale in type_.scales:
        stored = float(np.asarray(scale).astype(numpy_of(type_.expressed) or np.float64))
        if not (scale > 0 and 0 < stored < math.inf):
            raise ModelError(
                f"a scale of {type_} is {scale}, expected a positive {type_.expressed}"
            )
    for zero in type_.zero_points:
        if not low <= zero <= high:
            raise ModelError(f"a zero point of {type_} is {zero}, expected {low} to {high}")


def _check_blocks(type_: QuantizedType, shape: Sequence[Dim]) -> None:
    """Raise ModelError unless blocks are whole and the grid has a scale for each."""
    sizes = dict(type_.blocks)
    counts: list[Dim] = [1] * len(shape)
    for axis, size in type_.blocks:
        held = shape[axis] if axis < len(shape) else None
        if not isinstance(held, int) or axis < 0 or size < 1 or held % size:
            raise ModelError(f"blocks of {type_} do not fit {list(shape)}")
        counts[axis] = held // size
    if len(sizes) != len(type_.blocks) or tuple(counts) != type_.grid:
        raise ModelError(f"{type_} has scales {list(type_.grid)}, expected {counts}")


def _parameters(
    e: NodeMaker, type_: QuantizedType, shape: Sequence[Dim]
) -> tuple[Tensor, Tensor]:
    """Scales and zero points, one of each, along an axis, or one for each block."""
    _check(type_, shape)
    scales = np.array(type_.scales, np.float64)
    zeros = np.array(type_.zero_points, np.int64)
    if type_.blocks:
        _check_blocks(type_, shape)
        return _by_blocks(e, type_, scales), _by_blocks(e, type_, zeros)
    line: Sequence[int] = ()
    if type_.axis is not None:
        line = [1] * len(shape)
        line[type_.axis] = scales.size
    return e.constant(scales.reshape(line)), e.constant(zeros.reshape(line))


def _by_blocks(e: NodeMaker, type_: QuantizedType, numbers: np.ndarray) -> Tensor:
    """Each number as often as its block has elements; axes without blocks stay of size 1."""
    sizes = [dict(type_.blocks).get(axis, 1) for axis in range(len(type_.grid))]
    pairs = list(zip(type_.grid, sizes, strict=True))
    apart = e.constant(numbers.reshape([n for count in type_.grid for n in (count, 1)]))
    spread = e.broadcast_to(apart, [n for pair in pairs for n in pair])
    return e.reshape(spread, [count * size for count, size in pairs])


def _same(call: Call) -> Held:
    """The numbers themselves: what is around an operation quantizes and dequantizes."""
    return call.held(0)


ROWS: Final[tuple[Row, ...]] = (
    row(
        "uniform_dequantize",
        _same,
        demands=(takes(1), elements("qQ"), gives("f"), SAME_SHAPE, numbers_fit),
    ),
    row(
        "uniform_quantize",
        _same,
        demands=(takes(1), elements("fqQ"), gives("qQ"), SAME_SHAPE, numbers_fit),
    ),
)
