"""Contractions of integers become contractions of floats where those are exact.

An f32 holds every integer up to 2²⁴ in size, so a sum of products that stays below it at every
step is the same number in f32, in whatever order it is added, and the contractions of floats are
those that kernels are written for.  Ranges of the operands prove it: 8-bit numbers around zero
points, and the weights themselves where they are known.  A sum too long for the proof is made of
shorter ones, each exact, added as integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final, final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.record import record
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops.shapes import element_count
from tilewright.compiler.passes import Emitter, NoMatchError, Rewrites, given, need
from tilewright.compiler.transforms.byte_words import BYTES_PER_WORD, are_whole
from tilewright.compiler.transforms.matching import constant_of, fixed
from tilewright.compiler.transforms.movement_rewrites import emit_slice
from tilewright.compiler.transforms.rewrite_pass import RewritePass
from tilewright.compiler.transforms.value_ranges import ValueRanges

_EXACT: Final = 1 << 24
"""The size up to which f32 holds every integer."""
_MOST_PARTS: Final = 16
"""Shorter sums up to which adding them costs less than multiplying integers."""


@final
@record(kw_only=True)
class ContractIntegers(RewritePass):
    """Write `matmul` and `conv` of integers as those of f32, where no result changes.

    Requires: biases apart; weights folded.  Ensures: types and values unchanged; a product of
    integers remains only where ranges do not prove sums of f32 exact, where every channel has its own
    filter, and of bytes with `keep_bytes`.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"bias-apart"})
    keep_bytes: bool = False

    def rewrites(self) -> Rewrites:
        """One rewrite for both."""
        return {"matmul": (self.in_floats,), "conv": (self.in_floats,)}

    def in_floats(self, node: Node, emit: Emitter) -> Value | None:
        """The same product as i32(f32(a) @ f32(b)), unless it is one of bytes that stays."""
        need(
            node.attributes["dtype"] is None
            or (not _is_depthwise(node) and (not self.keep_bytes or not _has_words(node)))
        )
        return in_floats(node, emit)


def _is_depthwise(node: Node) -> bool:
    """Whether every filter sees one channel."""
    return node.op == "conv" and node.operand(1).type.shape[1] == 1


def _has_words(node: Node) -> bool:
    """Whether the channels of every group, or the one group there is with more of them, are whole words."""
    if node.op == "matmul":
        return are_whole(node.operand(1).type.shape[-2])
    depth = node.operand(1).type.shape[1]
    return node.number("groups") == 1 or symbolic.mod(depth, BYTES_PER_WORD) == 0


def in_floats(node: Node, emit: Emitter) -> Value | None:
    """The same product as i32(f32(a) @ f32(b)), or a sum of those over parts of the depth."""
    a = node.operand()
    need(a.type.dtype.is_integer and node.optional_operand(2) is None)
    result, plain = node.result.type.dtype, {**node.attributes, "dtype": None}
    size = _exact_depth(node)
    total: Value | None = None
    for left, right in _parts(node, size, emit):
        wide = [emit.cast(v, dtypes.f32) for v in (left, right)]
        product = emit.op(node.op, wide, plain)
        # By way of i32, which holds it: an integer of fewer bits is its low bits, and a float saturates.
        whole = emit.cast(emit.cast(product, dtypes.i32), result)
        total = whole if total is None else emit.op("add", [total, whole])
    return total


def _depth_axes(node: Node) -> tuple[int, int]:
    """The axes of both operands along which a contraction sums (for conv, beside the kernel)."""
    if node.op == "matmul":
        return node.operand(0).type.rank - 1, node.operand(1).type.rank - 2
    channels_first = node.word("layout") == "NCHW"
    return (1 if channels_first else node.operand(0).type.rank - 1), 1


def _exact_depth(node: Node) -> int:
    """How much of the depth is summed at once: all of it, or what stays exact.  Raises: NoMatchError if too little."""
    a, b = node.operand(0), node.operand(1)
    axis = _depth_axes(node)[1]
    depth = fixed(b.type.shape[axis])
    taps = 1 if node.op == "matmul" else fixed(element_count(b.type.shape[2:]))
    need(depth * taps)
    ranges = ValueRanges()
    left, array = _magnitude(ranges, a), constant_of(b)
    sizes = None if array is None else _sizes(array, per_column=node.op == "matmul")
    right = 0 if sizes is not None else _magnitude(ranges, b)
    splits = node.op == "matmul" or node.number("groups") == 1
    for count in range(1, _MOST_PARTS + 1 if splits else 2):
        size = -(-depth // count)
        weight = right * size * taps if sizes is None else _heaviest(sizes, axis, size)
        if left * weight <= _EXACT:
            return size
    raise NoMatchError


def _magnitude(ranges: ValueRanges, value: Value) -> int:
    """The largest size of an element.  Raises: NoMatchError where nothing is known."""
    return max(abs(fixed(given(bound))) for bound in ranges.of(value))


def _sizes(array: np.ndarray, *, per_column: bool) -> np.ndarray:
    """The size of every weight, or of all taps of a filter together."""
    sizes = np.abs(array.astype(np.float64))  # exact, or far too large
    return sizes if per_column else sizes.reshape(*sizes.shape[:2], -1).sum(axis=-1)


def _heaviest(sizes: np.ndarray, axis: int, size: int) -> int:
    """The largest sum of sizes that a result meets in `size` elements along `axis`."""
    starts = np.arange(0, sizes.shape[axis], size)
    sums = np.add.reduceat(sizes, starts, axis=axis)
    return int(sums.max(initial=0))


def _parts(node: Node, size: int, emit: Emitter) -> Iterator[tuple[Value, Value]]:
    """The operands, `size` of the depth at a time."""
    operands = (node.operand(0), node.operand(1))
    axes = _depth_axes(node)
    depth = fixed(operands[1].type.shape[axes[1]])
    if size >= depth:
        yield operands
        return
    for start in range(0, depth, size):
        count = min(size, depth - start)
        left, right = (
            emit_slice(emit, v, {x: (start, count, 1)})
            for v, x in zip(operands, axes, strict=True)
        )
        yield left, right
