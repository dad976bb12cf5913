"""Attention that models spell out: two products around a softmax become one op.

    p = softmax(q k' * scale + bias);  p v          ->  attention(q, k, v, bias) {scale}

Starts at the second product and walks back to the first: through guards of rows without a key, casts,
masks, biases and factors, whatever their order and broadcast, and through the reshapes between them.
Nothing else may read what lies between, for it is no longer computed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, final

from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.passes import (
    Emitter,
    NoMatchError,
    Rewrites,
    attempt,
    given,
    need,
)
from tilewright.compiler.transforms.attention_axes import (
    Axes,
    Piece,
    all_pieces,
    before,
    broadcast,
    fresh,
    pieces,
    placed,
)
from tilewright.compiler.transforms.attention_scores import Scores, Step
from tilewright.compiler.transforms.matching import (
    constant_of,
    either_way,
    made,
    maker,
    splat_of,
)
from tilewright.compiler.transforms.movement_rewrites import cuts_of
from tilewright.compiler.transforms.position_masks import HIDING, shows_a_key
from tilewright.compiler.transforms.rewrite_pass import RewritePass
from tilewright.compiler.transforms.spelled_softmax import softmax_beside
from tilewright.compiler.transforms.write_attention import (
    Ends,
    Factors,
    Operand,
    written,
)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RecognizeAttention(RewritePass):
    """Write softmax(q k' * scale + bias) v as one op.

    Requires: simplified.  Ensures: no matrix of scores is made only to be multiplied; results change
    in the last digits.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"simplified"})

    def rewrites(self) -> Rewrites:
        """The product with the values is where it ends."""
        return {"matmul": (by_weights,)}


def by_weights(node: Node, emit: Emitter) -> Value | None:
    """The attention whose second product `node` is, whichever of its operands the weights are."""
    (depth,) = fresh(node.operand(0).type.shape[-1:])
    need(depth)
    factors = Factors.of(node, fresh(node.result.type.shape), depth)
    sides = (factors.left, factors.right)
    for weights, values in (sides, sides[::-1]):
        if constant_of(values.value) is not None:
            continue  # a layer behind a softmax, whose weights are packed when compiling
        found = _Weights(emit, weights.axes, depth)
        result = attempt(_written, found, weights.value, node, factors, values)
        if result is not None:
            return result
    return None


def _written(
    weights: _Weights, product: Value, node: Node, factors: Factors, values: Operand
) -> Value:
    """The attention whose weights are `product`, with these values.  Raises: NoMatchError where something does not fit."""
    weights.read(product, node)
    emit, steps = weights.emit, list[Step]()
    # Weights may have a wider type, which results do not have.
    need(all(v.type.dtype is node.result.type.dtype for _, v, _ in weights.factors))
    last, kept = weights.softmax, 0
    if weights.choice is not None:
        last, kept = weights.choice
        steps.append(Step(last, last.operand(kept), weights.axes, hides=True))
    scores, sink = Scores(emit, weights.axes, steps), None
    if weights.sink is not None:
        last, kept, sink = weights.sink
    scores.read(last.operand(kept), None if weights.is_spelled else last)
    rows, columns = factors.result[-2:]
    if values is factors.left:
        rows, columns = columns, rows
    ends = Ends(
        values, columns, rows, node.result, factors.result, weights.axes, weights.keys,
        sink, weights.zero_rows, weights.zero_nan, weights.rest,
    )  # fmt: skip
    result, lost = written(emit, scores, ends), weights.lost
    for op, factor, axes in reversed(weights.factors):
        result = emit.op(op, [result, placed(factor, axes, factors.result, emit)])
    if lost is None or shows_a_key(lost):
        return result
    # Weights of zero sum up to zero: nothing of such a row is looked at, not even values that are no numbers.
    return emit.op("where", [lost, emit.scalar(0, result), result])


# --- from the weights to the softmax ---------------------------------------------------------


@final
@dataclass(slots=True)
class _Weights:
    """The softmax behind an operand of a product.

    Attributes:
        axes: those of the weights, in the end where the softmax makes them.
        keys: the pieces that the product sums over.
        zero_rows: rows without a key have weights of zero.
        zero_nan: so have all rows whose weights are NaN.
        choice: what hides keys in front of the softmax, where the same keys have weights of zero behind it, and
            which operand of it the scores are.
        lost: where rows have weights of zero, whatever their scores are.
        sink: what puts a score beside those of keys, which operand the others are, and that score with its axes.
        rest: what stands beside the powers of scores less the largest.
        is_spelled: the softmax is spelled out, and its first step, which alone does not read the scores, is in its place.
        factors: what weights of all keys are multiplied or divided by alike: the op, the value and its axes, the last first.
    """

    emit: Emitter
    axes: Axes
    keys: tuple[Piece, ...]
    zero_rows: bool = False
    zero_nan: bool = False
    choice: tuple[Node, int] | None = None
    lost: Value | None = None
    sink: tuple[Node, int, tuple[Value, Axes]] | None = None
    rest: float = 0.0
    is_spelled: bool = False
    factors: list[tuple[str, Value, Axes]] = field(
        default_factory=list["tuple[str, Value, Axes]"]
    )
    softmax: Node = field(init=False)

    def read(self, value: Value, user: Node) -> None:
        """Walk back from `value`, which only `user` may read, to the softmax.  Raises: NoMatchError."""
        while True:
            need(self.emit.edit.sole_user(value) is user)
            node = made(value)
            if node.op in ("softmax", "slice"):
                return self._of(node) if node.op == "softmax" else self._beside_sink(node)
            if node.op == "where" and self._drops_rows(node, user):
                self.lost = node.operand(0)
                value, user = node.operand(2), node
                continue
            if node.op == "where":
                guarded = attempt(_guarded, node, self.emit)
                self.zero_nan, self.zero_rows = guarded is not None, True
                return self._of(guarded or self._hidden_twice(node))
            if node.op == "div" and (found := attempt(softmax_beside, node, self.emit)):
                shifted, axis, self.rest = found
                self.is_spelled = True
                if not self.rest:
                    zero = self.emit.scalar(0, node.result)
                    self.sink = (shifted, 0, (zero, ()))
                return self._along(shifted, axis)
            if node.op in ("mul", "div"):
                value, user = self._without_factor(node), node
                continue
            need(node.op != "broadcast_to")
            self.axes = self.axes if node.op == "cast" else given(before(node, self.axes))
            need(node.operand().type.dtype.is_float)
            value, user = node.operand(), node

    def _without_factor(self, node: Node) -> Value:
        """The weights that `node` multiplies or divides by what is the same for all keys of a row."""
        for value, other in either_way(node)[: 2 if node.op == "mul" else 1]:
            axes = broadcast(other.type.shape, self.axes)
            is_whole = value.type.shape == node.result.type.shape
            if axes is None or not is_whole or {*all_pieces(axes)} & {*pieces(self.keys)}:
                continue
            self.factors.append((node.op, other, axes))
            return value
        raise NoMatchError

    def _of(self, softmax: Node) -> None:
        """The weights are those of a softmax, which is taken along keys."""
        self._along(softmax, softmax.number("axis") % len(self.axes))

    def _along(self, softmax: Node, axis: int) -> None:
        self.softmax = softmax
        need({*pieces(self.axes[axis])} == {*pieces(self.keys)})

    def _beside_sink(self, node: Node) -> None:
        """A softmax of keys and one more score, from whose weights that of the latter is cut off."""
        softmax, sole_user = made(node.operand(), "softmax"), self.emit.edit.sole_user
        axis = softmax.number("axis") % len(self.axes)
        joined = made(softmax.operand(), "concat", "pad")
        need(sole_user(softmax.result) is node and sole_user(joined.result) is softmax)
        kept, (start, size), more = _one_more(joined, axis, self.emit)
        axes = given(broadcast(more.type.shape, self.axes))
        need(cuts_of(node) == {axis: (start, size, 1)})
        levels = [level for level in Operand(more, axes).levels() if not level.factors]
        self.sink = (joined, kept, (levels[-1].value, levels[-1].axes))
        self._of(softmax)

    def _hidden_twice(self, node: Node) -> Node:
        """The softmax `s` of `where(m, s, 0)`, if it is taken of `where(m, scores, low)`: no key leaves zeros."""
        sole_user = self.emit.edit.sole_user
        kept = 1 if maker(node.operand(1), "softmax") is not None else 2
        softmax = made(node.operand(kept), "softmax")
        choice = made(softmax.operand(), "where")
        need(choice.operand(0) is node.operand(0))
        need(given(splat_of(choice.operand(3 - kept))) <= HIDING)
        need(splat_of(node.operand(3 - kept)) == 0)
        shapes = {v.type.shape for v in (node.result, softmax.result, choice.operand(kept))}
        need(len(shapes) == 1 and sole_user(softmax.result) is node)
        need(sole_user(choice.result) is softmax)
        self.choice = (choice, kept)
        return softmax

    def _drops_rows(self, node: Node, user: Node) -> bool:
        """Whether a choice right in front of the product takes 0 for whole rows, not for whole keys."""
        chosen = node.operand(0).type.shape
        return (
            self.lost is None
            and user.op == "matmul"
            and user.operand(0) is node.result
            and chosen[-1:] == (1,)
            and splat_of(node.operand(1)) == 0
            and node.operand(2).type.shape == node.result.type.shape
        )


def _guarded(node: Node, emit: Emitter) -> Node:
    """The softmax `s` of `where(is_nan(s), 0, s)` that nothing else reads."""
    test, softmax = made(node.operand(0), "is_nan"), made(node.operand(2), "softmax")
    need(splat_of(node.operand(1)) == 0 and test.operand() is softmax.result)
    need(node.result.type == softmax.result.type)
    need(emit.edit.use_count(softmax.result) == 2)
    return softmax


def _one_more(node: Node, axis: int, emit: Emitter) -> tuple[int, tuple[Dim, Dim], Value]:
    """What adds one element along an axis: the operand beside it, where in the result that is, and the element."""
    rank = node.result.type.rank
    if node.op == "concat":
        need(node.number("axis") % rank == axis and len(node.operands) == 2)
        first, second = (node.operand(i).type.shape[axis] for i in (0, 1))
        if second == 1:
            return 0, (0, first), node.operand(1)
        need(first == 1)
        return 1, (1, second), node.operand(0)
    pads = node.dims("pads")
    there = [i for i, size in enumerate(pads) if size != 0]
    need(node.word("mode") == "constant" and there in ([axis], [rank + axis]))
    need(pads[there[0]] == 1)
    x, fill = node.operand(), node.optional_operand(1)
    more = emit.scalar(0, x) if fill is None else emit.reshape(fill, ())
    return 0, (int(there == [axis]), x.type.shape[axis]), more
