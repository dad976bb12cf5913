"""The op in the place of an attention that was found: its operands, and the axes that they have there.

    q: [batch, heads, rows, depth]   k: [batch, shared heads, keys, depth]   v: [batch, shared heads, keys, columns]

Every axis of scores has a place whatever the model's order: pieces that keys or values have are the batch and heads
that are shared, other pieces are rows or a group of heads.  Called by `recognize_attention`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from tilewright.base.record import record
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops.shapes import element_count
from tilewright.compiler.passes import Emitter, given, need
from tilewright.compiler.transforms.attention_axes import (
    Axes,
    Piece,
    all_pieces,
    before,
    broadcast,
    fresh,
    lies_as,
    pieces,
    placed,
)
from tilewright.compiler.transforms.attention_scores import Scores, Sum
from tilewright.compiler.transforms.matching import either_way, splat_of

_Axis = tuple[Piece, ...]


@final
@record
class Operand:
    """A value, the pieces of its axes, and what multiplies it: a number, made of so many factors."""

    value: Value
    axes: Axes
    scale: float = 1.0
    factors: int = 0

    def within(self, wanted: Axes, *, scaled: bool = True) -> Operand:
        """What it is made of by moves and, if `scaled`, factors: the first of fewest pieces, most factors and no other order."""

        def cost(x: Operand) -> tuple[int, int, bool]:
            return len(all_pieces(x.axes)), -x.factors, not lies_as(x.axes, wanted)

        return min((x for x in self.levels() if scaled or not x.factors), key=cost)

    def levels(self) -> Iterator[Operand]:
        """Itself, and what moves and factors make it of."""
        level: Operand | None = self
        while level is not None:
            yield level
            level = level.source()

    def source(self) -> Operand | None:
        """What one move or factor makes it of."""
        node = self.value.node
        if node is None:
            return None
        if node.op in ("mul", "div"):
            return self._without_factor(node)
        axes = before(node, self.axes)
        if axes is None:
            return None
        return Operand(node.operand(), axes, self.scale, self.factors)

    def _without_factor(self, node: Node) -> Operand | None:
        for value, other in either_way(node)[: 2 if node.op == "mul" else 1]:
            number = splat_of(other)
            if number is None or value.type.shape != node.result.type.shape:
                continue
            if node.op == "mul":
                scale = self.scale * float(number)
            elif number:
                scale = self.scale / float(number)
            else:
                return None
            return Operand(value, self.axes, scale, self.factors + 1)
        return None

    def full(self, wanted: Axes, emit: Emitter) -> Value:
        """The value with all pieces of `wanted`."""
        value = placed(self.value, self.axes, wanted, emit)
        shape = tuple(element_count([p.size for p in pieces(axis)]) for axis in wanted)
        if value.type.shape == shape:
            return value
        return emit.op("broadcast_to", [value], {"shape": shape})


@final
@record
class Factors:
    """What a product multiplies: `[.., rows, depth]` by `[.., depth, columns]`, all axes in pieces.

    Attributes:
        result: the axes of the product.
    """

    left: Operand
    right: Operand
    result: Axes

    @staticmethod
    def of(node: Node, result: Axes, depth: _Axis) -> Factors:
        """The operands of a `matmul`.  Raises: NoMatchError where sizes do not tell how they fit."""
        left, right = node.operand(0), node.operand(1)
        need(min(left.type.rank, right.type.rank) >= 2)
        need(left.type.shape[-1] == right.type.shape[-2])
        leads = [given(broadcast(x.type.shape[:-2], result[:-2])) for x in (left, right)]
        return Factors(
            Operand(left, (*leads[0], result[-2], depth)),
            Operand(right, (*leads[1], depth, result[-1])),
            result,
        )


@final
@record
class Ends:
    """What stands behind the softmax.

    Attributes:
        values: the operand of the second product that the weights are not.
        columns: its pieces that are not keys'.
        rows: those of the second product.
        result, result_axes: of the second product.
        shown: the axes of scores where the softmax is taken of them.
        keys: those along which it is taken.
        sink: a score beside those of keys whose weight is dropped, and its axes.
        zero_rows: rows without a key have weights of zero.
        zero_nan: so have all rows whose weights are NaN.
        rest: what is added to the powers of scores less the largest.
    """

    values: Operand
    columns: _Axis
    rows: _Axis
    result: Value
    result_axes: Axes
    shown: Axes
    keys: _Axis
    sink: tuple[Value, Axes] | None
    zero_rows: bool
    zero_nan: bool
    rest: float


@final
@record
class _Places:
    """The pieces of the op's axes; a group of heads of queries shares one of keys."""

    batch: _Axis
    shared: _Axis
    group: _Axis
    rows: _Axis

    def queries(self, last: _Axis) -> Axes:
        """The axes of queries, scores and results."""
        return (self.batch, (*self.shared, *self.group), self.rows, last)


def written(emit: Emitter, scores: Scores, ends: Ends) -> Value:
    """The attention.  Raises: NoMatchError where something does not fit."""
    depth = fresh(scores.product.operand(0).type.shape[-1:])[0]
    factors = Factors.of(scores.product, scores.axes, depth)
    keys, q, k, rows = {*pieces(ends.keys)}, factors.left, factors.right, scores.axes[-2]
    if {*pieces(rows)} == keys:
        q, k, rows = k, q, scores.axes[-1]
    else:
        need({*pieces(scores.axes[-1])} == keys)
    places = _places(scores, ends, k, pieces(rows), {*pieces(depth)})
    total = Sum(emit, places.queries(ends.keys), [*scores.steps])
    total.take_steps()
    shared = (places.batch, places.shared, ends.keys)
    wanted = (places.queries(depth), (*shared, depth), (*shared, ends.columns))
    own = [
        x.within(axes, scaled=x is not ends.values)
        for x, axes in zip((q, k, ends.values), wanted, strict=True)
    ]
    parts = [x.full(axes, emit) for x, axes in zip(own, wanted, strict=True)]
    need(len({part.type.dtype for part in parts}) == 1)
    if total.factor is not None:
        op, value, axes = total.factor
        # Scores may have a wider type, which queries do not have.
        need(value.type.dtype is parts[0].type.dtype)
        parts[0] = emit.op(op, [parts[0], placed(value, axes, wanted[0], emit)])
    attributes = {
        "scale": total.scale * own[0].scale * own[1].scale,
        "causal": total.causal,
        "masked": total.masked,
        "zero_rows": ends.zero_rows,
        "zero_nan": ends.zero_nan,
        "softcap": total.softcap,
        "low": total.limits[0],
        "high": total.limits[1],
        "rest": ends.rest,
    }
    extras = [total.bias, total.mask]
    if ends.sink is not None:
        extras.append(placed(*ends.sink, places.queries(()), emit))
    result = emit.op("attention", [*parts, *extras], attributes)
    result = placed(result, places.queries(ends.columns), ends.result_axes, emit)
    return emit.reshape(result, ends.result.type.shape)


def _places(
    scores: Scores, ends: Ends, k: Operand, rows: _Axis, depth: set[Piece]
) -> _Places:
    """Where the pieces of scores go.  Raises: NoMatchError where keys or values have others."""
    *_, own_k = k.levels()
    *_, own_v = ends.values.levels()
    keys = {*pieces(ends.keys)}
    behind = {*all_pieces(own_k.axes), *all_pieces(own_v.axes)}
    behind -= keys | depth | {*pieces(ends.columns)}
    order = [piece for piece in all_pieces(ends.shown) if piece not in keys]
    need(behind <= {*order})
    shared = [piece for piece in order if piece in behind]
    own = [p for p in pieces(rows) if p in pieces(ends.rows) and p not in behind]
    added = [step.other_axes for step in scores.steps]
    added += [] if ends.sink is None else [ends.sink[1]]
    differs = {piece for axes in added if axes is not None for piece in all_pieces(axes)}
    if differs & {*own}:
        # What differs by some of them is repeated for the others, unless these are heads.
        beside = [axis for axis in map(pieces, ends.shown) if not keys & {*axis}][-1:]
        own = [p for p in own if any(p in axis for axis in beside)] or own
    first = _first_axis(scores, ends)
    batch = tuple(piece for piece in shared if piece in first)
    group = tuple(piece for piece in order if piece not in {*shared, *own})
    return _Places(batch, tuple(p for p in shared if p not in batch), group, tuple(own))


def _first_axis(scores: Scores, ends: Ends) -> _Axis:
    """The pieces of the batch: the first axis where scores have two in front somewhere, or in the finest cut there is."""
    known = [ends.shown, *(step.axes for step in scores.steps), scores.axes]
    leads = [axes[:-2] for axes in (*known, ends.result_axes)]
    two = [lead for lead in leads if len(lead) == 2]
    two += [cut for cut in ([*filter(None, lead)] for lead in leads) if len(cut) == 2]
    finest = two[0] if two else max(leads, key=len)
    return pieces(finest[0]) if finest else ()
