"""Conversions from bytes by one scale are arithmetic like any other.

What is cheap is computed again where it is read instead of being stored: the bytes lie in memory, and
kernels read them.  After `quantize_contractions`, which looks for the whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from tilewright.base import dtypes
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops import catalogue
from tilewright.compiler.passes import Emitter, RewritePass, Rule
from tilewright.compiler.transforms.matching import operand, optional_operand, splat_of
from tilewright.compiler.transforms.quantized_values import BYTES, is_single, known


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DecomposeQuantization(RewritePass):
    """Write dequantizations of bytes by one scale as a conversion, a difference and a product.

    Requires: nothing.  Ensures: same values, every step of which is exact but the product.
    """

    lookup: ClassVar = staticmethod(catalogue.schema)
    level: ClassVar[int] = 1

    def rules(self) -> Mapping[str, Sequence[Rule]]:
        """One rule."""
        return {"dequantize_linear": (plain_dequantization,)}


def plain_dequantization(node: Node, emit: Emitter) -> Value | None:
    """(f32(x) - zero) * scale; differences of bytes are floats."""
    x, scale, zero = operand(node, 0), operand(node, 1), optional_operand(node, 2)
    if x.type.dtype not in BYTES or node.result.type.dtype is not dtypes.f32:
        return None
    if scale.type.dtype is not dtypes.f32 or not is_single(scale):
        return None
    scale = known(emit, "reshape", [scale], {"shape": ()})
    value = emit.op("cast", [x], {"dtype": dtypes.f32})
    if zero is not None and splat_of(zero) != 0:
        shift = known(emit, "cast", [zero], {"dtype": dtypes.f32})
        value = emit.op("sub", [value, known(emit, "reshape", [shift], {"shape": ()})])
    return emit.op("mul", [value, scale])
