"""Conversions from bytes by one scale are arithmetic like any other.

What is cheap is computed again where it is read instead of being stored: the bytes lie in memory, and
kernels read them.  After `quantize_contractions`, which looks for the whole.
"""

from __future__ import annotations

from typing import Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.record import record
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.passes import Emitter, Rewrites, given, need
from tilewright.compiler.transforms.matching import constant_of, made, maker, splat_of
from tilewright.compiler.transforms.quantized_sums import quotient_in_factors
from tilewright.compiler.transforms.quantized_values import BYTES, is_single, known
from tilewright.compiler.transforms.rewrite_pass import RewritePass

_LEAST: Final = 2.0**-64
"""Factors nearer to zero, or farther from it than one over this, are left as they stand."""


@final
@record(kw_only=True)
class DecomposeQuantization(RewritePass):
    """Write dequantizations of bytes by one scale as a conversion, a difference and a product.

    Requires: nothing.  Ensures: same values, every step of which is exact but the product.  A sum of integers
    times one factor, over another, is rounded after one product, and not after a product and a quotient; a sum of
    two tensors of bytes is quantized without a quotient where that gives the same bytes (`quantized_sums`).
    """

    def rewrites(self) -> Rewrites:
        """One rewrite for each direction."""
        return {
            "dequantize_linear": (plain_dequantization,),
            "quantize_linear": (one_factor, quotient_in_factors),
        }


def plain_dequantization(node: Node, emit: Emitter) -> Value | None:
    """(f32(x) - zero) * scale; differences of bytes are floats."""
    x, scale, zero = node.operand(0), node.operand(1), node.optional_operand(2)
    need(x.type.dtype in BYTES and node.result.type.dtype is dtypes.f32)
    need(scale.type.dtype is dtypes.f32 and is_single(scale))
    scale = known(emit, "reshape", [scale], {"shape": ()})
    value = emit.cast(x, dtypes.f32)
    if zero is not None and splat_of(zero) != 0:
        shift = known(emit, "cast", [zero], {"dtype": dtypes.f32})
        value = emit.op("sub", [value, known(emit, "reshape", [shift], {"shape": ()})])
    return emit.op("mul", [value, scale])


def one_factor(node: Node, emit: Emitter) -> Value | None:
    """round(f32(sum) * f / s) is round(f32(sum) * (f / s)) for known factors."""
    scaled, scale = made(node.operand(), "mul"), given(constant_of(node.operand(1)))
    need(scale.size == 1 and scale.dtype == np.float32)
    need(emit.edit.sole_user(scaled.result) is not None and _is_sum(scaled.operand()))
    factor = given(constant_of(scaled.operand(1)))
    need(scale.reshape(()) != 1)
    exact = factor.astype(np.float64) / scale.reshape(()).astype(np.float64)
    size = np.abs(exact)
    # Nor is there NaN.
    need(((size > _LEAST) & (size < 1 / _LEAST)).all())
    both = emit.constant(np.asarray(exact, np.float32))
    value = emit.op("mul", [scaled.operand(), both])
    one = emit.constant(np.ones_like(scale))
    return emit.op(node.op, [value, one, *node.operands[2:]], node.attributes)


def _is_sum(value: Value) -> bool:
    """Whether floats are integers of 32 bits, of which products are finite."""
    node = maker(value, "cast")
    return (
        node is not None
        and node.operand().type.dtype is dtypes.i32
        and value.type.dtype is dtypes.f32
    )
