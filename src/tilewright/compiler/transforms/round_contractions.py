"""Operands of contractions rounded to 16 or 8 bits, because the user said that this is fine.

Of 16 bits half as much of weights lies in memory and is read, and machines that multiply pairs of bf16 take half the
steps.  Rows of 8 bits meet weights that are integers in blocks anyway.  Sums and results stay f32.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.record import record
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.passes import Emitter, GraphPass, Rewrites, need
from tilewright.compiler.transforms.block_weights import is_in_blocks
from tilewright.compiler.transforms.fold_constants import FoldConstants
from tilewright.compiler.transforms.rewrite_pass import RewritePass

PRECISIONS: Final[Mapping[str, DType]] = {
    "f32": dtypes.f32,
    "bf16": dtypes.bf16,
    "f16": dtypes.f16,
    "i8": dtypes.i8,
}
"""What operands of f32 contractions may be rounded to; to 8 bits, rows only, in the blocks of the weights."""


@final
@record(kw_only=True)
class RoundContractions(RewritePass):
    """Write `matmul` and `conv` of f32 as those of operands rounded to `precision`, with sums of f32.

    Requires: biases apart.  Ensures: types unchanged; every operand is off by at most half a unit in its last
    place: 2**-9 of it for bf16, 2**-12 for f16, which turns what is above 65504 into infinity.
    A convolution whose filters see one channel each stays: reading it takes longer than multiplying.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"bias-apart"})
    precision: str

    def rewrites(self) -> Rewrites:
        """One rewrite for both."""
        return {"matmul": (self.rounded,), "conv": (self.rounded,)}

    def rounded(self, node: Node, emit: Emitter) -> Value | None:
        """The same contraction of rounded operands."""
        operands = [node.operand(0), node.operand(1)]
        types = {v.type.dtype for v in (*operands, node.result)}
        need(types == {dtypes.f32} and node.optional_operand(2) is None)
        need(node.op != "conv" or operands[1].type.shape[1] != 1)
        short = {"dtype": PRECISIONS[self.precision]}
        cut = [emit.op("cast", [value], short) for value in operands]
        return emit.op(node.op, cut, {**node.attributes, "dtype": dtypes.f32})


@final
@record(kw_only=True)
class RoundRows(RewritePass):
    """Permit that rows are rounded to 8 bits where they meet weights in blocks.

    Requires: weights in blocks not widened.  Ensures: types and values unchanged; back ends of machines that gain by it
    round a row to 127 steps on each side of zero, block by block: by at most half of the largest magnitude over 127.
    """

    def rewrites(self) -> Rewrites:
        """One rewrite."""
        return {"matmul": (permitted,)}


def permitted(node: Node, emit: Emitter) -> Value | None:
    """The same product with the permission."""
    need(node.attributes["rounds_to"] is None and is_in_blocks(node.operand(1)))
    return emit.op(node.op, node.operands, {**node.attributes, "rounds_to": dtypes.i8})


def rounding_passes(precision: str) -> tuple[GraphPass, ...]:
    """The passes for operands as exact as `precision` says; weights are rounded when compiling."""
    if precision == "f32":
        return ()
    if precision == "i8":
        return (RoundRows(),)
    return RoundContractions(precision=precision), FoldConstants(keep_blocks=True)
