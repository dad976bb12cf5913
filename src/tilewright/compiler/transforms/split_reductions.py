"""Long sums with few results, in parts that several workgroups add.

A workgroup computes whole results, so a sum of millions of numbers that has one result keeps one core busy.  Here its
numbers are cut into parts: a kernel has one sum for each part, another adds those.  Into how many, the caller says
(`choose_parts`); how many sums fill a machine is not known here.  The number of threads of a call is no part of that:
a model gives the same bits with any.

Source: the factorization of a reduction (`rfactor`) of Suriana, Adams and Kamil, "Parallel associative reductions in
Halide", CGO 2017.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, Protocol, cast, final

from tilewright.base.dtypes import HALVES, f32
from tilewright.base.record import record
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops.shapes import normal_axes
from tilewright.compiler.passes import Emitter, Rewrite, Rewrites, given, need
from tilewright.compiler.transforms.block_weights import is_in_blocks
from tilewright.compiler.transforms.movement_rewrites import emit_slice
from tilewright.compiler.transforms.pack_matmul import flatten_rows
from tilewright.compiler.transforms.rewrite_pass import RewritePass

_COMBINED_BY: Final[Mapping[str, str]] = {
    "reduce_sum": "add",
    "reduce_mean": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
}
"""The op that makes one result of two parts' results."""


class ChooseParts(Protocol):
    """How many parts the sums of a node are cut into."""

    def __call__(self, rows: int, columns: int, steps: int, *, products: bool) -> int:
        """Parts of `rows` x `columns` sums of so many `steps`; below 2 for one.

        Sums of a row stand side by side in memory.  `products`: a step multiplies an element of each of two matrices.
        """
        ...


@final
@record(kw_only=True)
class SplitReductions(RewritePass):
    """Write reductions and products of matrices with few results and many steps as results of parts, put together.

    Sums of floats are rounded in another order; 16-bit floats stay f32 until all parts are added.  Who wants none of
    it disables the pass.

    Requires: norms decomposed, so that no recogniser looks for these reductions any more.  Ensures: types unchanged;
    sizes that are open are not looked at.
    """

    choose_parts: ChooseParts

    def rewrites(self) -> Rewrites:
        """One rewrite for reductions, one for products of two matrices."""
        reductions: dict[str, Sequence[Rewrite]] = dict.fromkeys(
            _COMBINED_BY, (self.reduced_in_parts,)
        )
        return {**reductions, "matmul": (self.multiplied_in_parts,)}

    def reduced_in_parts(self, node: Node, emit: Emitter) -> Value | None:
        """`reduce(x)` is reduce(reduce of each part of x)."""
        x = node.operand()
        shape = given(_known(x.type.shape))
        axes = normal_axes(node.ints("axes"), x.type.rank)
        need(axes and not _truncates(node))
        parts = self.choose_parts(*_sums(shape, axes), products=False)
        long = [a for a in axes if shape[a] >= 2 * parts]
        need(parts >= 2 and long)
        if x.type.dtype in HALVES:
            x = emit.cast(x, f32)
        result = _in_parts(node.op, x, axes, long[0], parts, emit)
        if node.op == "reduce_mean":
            count = math.prod(shape[a] for a in axes)
            result = emit.op("div", [result, emit.scalar(count, result)])
        return _like(node.result, result, emit)

    def multiplied_in_parts(self, node: Node, emit: Emitter) -> Value | None:
        """`a @ b` is the sum of the products of columns of `a` and as many rows of `b`."""
        a, b = node.operand(0), node.operand(1)
        need({a.type.dtype, b.type.dtype} == {f32} and b.type.rank == 2)
        # Read as they lie, which is shorter.
        need(not is_in_blocks(b))
        if a.type.rank > 2:
            return flatten_rows(node, emit)
        shape = given(_known((*a.type.shape, b.type.shape[1])))
        rows, depth, columns = shape
        parts = self.choose_parts(rows, columns, depth, products=True)
        each = depth // max(1, parts)
        need(parts >= 2 and each >= 2)
        left, right = _cut(a, 1, 0, parts * each, emit), _cut(b, 0, 0, parts * each, emit)
        left = emit.reshape(left, (rows, parts, each))
        left = emit.op("transpose", [left], {"perm": (1, 0, 2)})
        right = emit.reshape(right, (parts, each, columns))
        products = emit.op("matmul", [left, right])
        result = emit.op("reduce_sum", [products], {"axes": (0,), "keepdims": False})
        if parts * each < depth:
            left, right = (
                _cut(v, at, parts * each, depth, emit) for v, at in ((a, 1), (b, 0))
            )
            result = emit.op("add", [result, emit.op("matmul", [left, right])])
        return _like(node.result, result, emit)


def _truncates(node: Node) -> bool:
    """Whether a result of results of parts is another: means of integers are cut off."""
    return node.op == "reduce_mean" and not node.result.type.dtype.is_float


def _sums(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, int, int]:
    """How many sums there are in rows, how many side by side, and their steps."""
    last = max(axes) + 1
    rows = math.prod(size for at, size in enumerate(shape[:last]) if at not in axes)
    return rows, math.prod(shape[last:]), math.prod(shape[a] for a in axes)


def _in_parts(
    op: str, x: Value, axes: Sequence[int], axis: int, parts: int, emit: Emitter
) -> Value:
    """The reduction without axes of size 1, `axis` in parts; what they leave over is a part of its own."""
    kind = "reduce_sum" if op == "reduce_mean" else op
    size = cast("int", x.type.shape[axis])
    each = size // parts
    main = _cut(x, axis, 0, parts * each, emit)
    before, after = main.type.shape[:axis], main.type.shape[axis + 1 :]
    main = emit.reshape(main, (*before, parts, each, *after))
    inner = tuple(a + (a >= axis) for a in axes)
    partial = emit.op(kind, [main], {"axes": inner, "keepdims": False})
    place = sum(a not in axes for a in range(axis))
    result = emit.op(kind, [partial], {"axes": (place,), "keepdims": False})
    if parts * each == size:
        return result
    rest = _cut(x, axis, parts * each, size, emit)
    rest = emit.op(kind, [rest], {"axes": tuple(axes), "keepdims": False})
    return emit.op(_COMBINED_BY[op], [result, rest])


def _cut(x: Value, axis: int, start: int, stop: int, emit: Emitter) -> Value:
    """The elements of `x` from `start` to `stop` along an axis."""
    return emit_slice(emit, x, {axis: (start, stop - start, 1)})


def _like(wanted: Value, result: Value, emit: Emitter) -> Value:
    """`result` in the shape and the element type of what it replaces."""
    return emit.cast(emit.reshape(result, wanted.type.shape), wanted.type.dtype)


def _known(shape: Sequence[object]) -> list[int] | None:
    """The sizes, where all are numbers and none is 0."""
    sizes = [size for size in shape if isinstance(size, int) and size > 0]
    return sizes if len(sizes) == len(shape) else None
