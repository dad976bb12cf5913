"""A sum of two quantized tensors that is quantized again needs no quotient.

    quantize(a * sa + b * sb, s)     ->     quantize(a * (sa / s) + b * (sb / s), 1)

for bytes `a` and `b` less their zero points, as models add what goes around a block to what comes out of it.  Floats
round otherwise there, but two bytes have 65536 values together, and all of them are tried: the factors are taken
where every result is the byte that it was.  Nearby factors round in other places, so some are looked through.
Called by `decompose_quantization`.
"""

from __future__ import annotations

import itertools
from typing import Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.record import record
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.passes import Emitter, given, need
from tilewright.compiler.transforms.matching import constant_of, made, maker, splat_of
from tilewright.compiler.transforms.quantized_values import BYTES

_NEARBY: Final = tuple(
    sorted(
        itertools.product(range(-3, 4), repeat=2),
        key=lambda step: step[0] ** 2 + step[1] ** 2,
    )
)
"""Steps from either factor to another one, in units of its last place, the nearest first."""
_CLOSE: Final = 2.0**-10
"""From the middle between two bytes: whatever lies farther from it is rounded alike by all factors nearby."""
_LEAST: Final = 2.0**-16
"""Factors below this, or above one over it, are left alone: sums would lie close to the ends of what is tried."""


@final
@record
class _Term:
    """`(bytes - zero) * scale`: `integers` are the bytes less their zero point, as floats."""

    integers: Value
    zero: int
    scale: float

    @property
    def every(self) -> np.ndarray:
        """The integers that bytes may be, in f32."""
        dtype = _cast_of(self.integers).operand().type.dtype
        low = -128 if dtype.is_signed else 0
        return (np.arange(low, low + 256) - self.zero).astype(np.float32)


def quotient_in_factors(node: Node, emit: Emitter) -> Value | None:
    """The quantization of a sum of two dequantized tensors by one that divides by 1."""
    scale = splat_of(node.operand(1))
    need(node.result.type.dtype in BYTES and scale and scale != 1)
    through = maker(node.operand(), "relu")
    need(through is None or emit.edit.sole_user(through.result) is not None)
    total = made((node if through is None else through).operand(), "add")
    need(emit.edit.sole_user(total.result) is not None)
    left, right = (_term(v) for v in total.present_operands)
    factors = given(_factors(node, left, right, is_cut=through is not None))
    products = [
        emit.op("mul", [term.integers, emit.constant(np.asarray(factor, np.float32))])
        for term, factor in zip((left, right), factors, strict=True)
    ]
    value = emit.op("add", products)
    if through is not None:
        value = emit.op(through.op, [value], through.attributes)
    one = emit.constant(np.ones((), np.float32))
    return emit.op(node.op, [value, one, *node.operands[2:]], node.attributes)


def _cast_of(integers: Value) -> Node:
    node = maker(integers, "sub")
    cast = maker(integers if node is None else node.operand(), "cast")
    assert cast is not None, "a term"
    return cast


def _term(value: Value) -> _Term:
    """`value` as a product of bytes and one number, which it must be in f32."""
    product = made(value, "mul")
    need(value.type.dtype is dtypes.f32)
    integers, scale = product.operand(0), given(splat_of(product.operand(1)))
    moved = maker(integers, "sub")
    zero = 0 if moved is None else given(splat_of(moved.operand(1)))
    cast = made(integers if moved is None else moved.operand(), "cast")
    need(cast.operand().type.dtype in BYTES)
    need(zero == int(zero) and scale and np.isfinite(scale))
    return _Term(integers, int(zero), float(scale))


def _factors(
    node: Node, left: _Term, right: _Term, *, is_cut: bool
) -> tuple[np.float32, np.float32] | None:
    """Factors by which every two bytes give the byte that `node` makes of them; None where none were found."""
    scale, zero = node.operand(1), node.optional_operand(2)
    exact = [term.scale / float(splat_of(scale) or 1) for term in (left, right)]
    need(all(_LEAST < abs(factor) < 1 / _LEAST for factor in exact))
    a, b = left.every[:, None], right.every[None, :]
    known_zero = None if zero is None else constant_of(zero)
    need(zero is None or known_zero is not None)

    def rounded(total: np.ndarray, divisor: Array | None) -> Array:
        value = np.maximum(total, np.float32(0)) if is_cut else total
        (found,) = node.schema.evaluate([value, divisor, known_zero], node.attributes)
        return found

    wanted = rounded(
        a * np.float32(left.scale) + b * np.float32(right.scale), constant_of(scale)
    )
    one = np.ones((), np.float32)
    ideal = a.astype(np.float64) * exact[0] + b.astype(np.float64) * exact[1]
    close = np.nonzero(np.abs(ideal - np.floor(ideal) - 0.5) < _CLOSE)
    few = (left.every[close[0]], right.every[close[1]])
    for steps in _NEARBY:
        x, y = (_moved(f, step) for f, step in zip(exact, steps, strict=True))
        if not np.array_equal(rounded(few[0] * x + few[1] * y, one), wanted[close]):
            continue
        if np.array_equal(rounded(a * x + b * y, one), wanted):
            return x, y
    return None


def _moved(factor: float, steps: int) -> np.float32:
    """The f32 nearest to `factor`, so many units of its last place away."""
    nearest = np.float32(factor)
    return np.float32(nearest + np.float32(steps) * np.spacing(nearest))
