"""Attention that models spell out: two products around a softmax become one op.

    p = softmax(q k' * scale + bias);  p v          ->  attention(q, k, v, bias) {scale}

Starts at the second product and walks back to the first: through guards of rows without a key, casts,
masks, biases and factors, whatever their order and broadcast, and through the reshapes between them.
Nothing else may read what lies between, for it is no longer computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.passes import Emitter, Rewrite, attempt
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
from tilewright.compiler.transforms.matching import constant_of, either_way, maker, splat_of
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

    def rewrites(self) -> Mapping[str, Sequence[Rewrite]]:
        """The product with the values is where it ends."""
        return {"matmul": (by_weights,)}


def by_weights(node: Node, emit: Emitter) -> Value | None:
    """The attention whose second product `node` is, whichever of its operands the weights are."""
    depth = fresh(node.operand(0).type.shape[-1:])[0]
    factors = Factors.of(node, fresh(node.result.type.shape), depth)
    if factors is None or not depth:
        return None
    sides = (factors.left, factors.right)
    for weights, values in (sides, sides[::-1]):
        if constant_of(values.value) is not None:
            continue  # a layer behind a softmax, whose weights are packed when compiling
        found = _Weights(emit, weights.axes, depth).read(weights.value, node)
        result = None if found is None else _written(found, node, factors, values)
        if result is not None:
            return result
    return None


def _written(
    weights: _Weights, node: Node, factors: Factors, values: Operand
) -> Value | None:
    """The attention of weights and values; None where something does not fit."""
    emit, steps = weights.emit, list[Step]()
    if any(v.type.dtype is not node.result.type.dtype for _, v, _ in weights.factors):
        return None  # of weights in a wider type, which results do not have
    last, kept = weights.softmax, 0
    if weights.choice is not None:
        last, kept = weights.choice
        steps.append(Step(last, last.operand(kept), weights.axes, hides=True))
    scores, sink = Scores(emit, weights.axes, steps), None
    if weights.sink is not None:
        last, kept, sink = weights.sink
    if not scores.read(last.operand(kept), None if weights.is_spelled else last):
        return None
    rows, columns = factors.result[-2:]
    if values is factors.left:
        rows, columns = columns, rows
    ends = Ends(
        values, columns, rows, node.result, factors.result, weights.axes, weights.keys,
        sink, weights.zero_rows, weights.zero_nan, weights.rest,
    )  # fmt: skip
    result, lost = written(emit, scores, ends), weights.lost
    if result is None:
        return None
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

    def read(self, value: Value, user: Node) -> _Weights | None:
        """Walk back from `value`, which only `user` may read."""
        while self.emit.edit.sole_user(value) is user:
            node = value.node
            if node is None:
                return None
            if node.op in ("softmax", "slice"):
                return self._of(node) if node.op == "softmax" else self._beside_sink(node)
            if node.op == "where" and self._drops_rows(node, user):
                self.lost = node.operand(0)
                value, user = node.operand(2), node
                continue
            if node.op == "where":
                guarded = _guarded(node, self.emit)
                self.zero_nan = guarded is not None
                guarded = guarded or self._hidden_twice(node)
                self.zero_rows = True
                return None if guarded is None else self._of(guarded)
            if node.op == "div" and (found := attempt(softmax_beside, node, self.emit)):
                shifted, axis, self.rest = found
                self.is_spelled = True
                if not self.rest:
                    zero = self.emit.scalar(0, node.result)
                    self.sink = (shifted, 0, (zero, ()))
                return self._along(shifted, axis)
            if node.op in ("mul", "div"):
                scaled = self._without_factor(node)
                if scaled is None:
                    return None
                value, user = scaled, node
                continue
            axes = self.axes if node.op == "cast" else before(node, self.axes)
            if axes is None or node.op == "broadcast_to":
                return None
            if not node.operand().type.dtype.is_float:
                return None
            self.axes, value, user = axes, node.operand(), node
        return None

    def _without_factor(self, node: Node) -> Value | None:
        """The weights that `node` multiplies or divides by what is the same for all keys of a row."""
        for value, other in either_way(node)[: 2 if node.op == "mul" else 1]:
            axes = broadcast(other.type.shape, self.axes)
            is_whole = value.type.shape == node.result.type.shape
            if axes is None or not is_whole or {*all_pieces(axes)} & {*pieces(self.keys)}:
                continue
            self.factors.append((node.op, other, axes))
            return value
        return None

    def _of(self, softmax: Node) -> _Weights | None:
        """The weights, if the softmax is taken along keys."""
        return self._along(softmax, softmax.number("axis") % len(self.axes))

    def _along(self, softmax: Node, axis: int) -> _Weights | None:
        self.softmax = softmax
        return self if {*pieces(self.axes[axis])} == {*pieces(self.keys)} else None

    def _beside_sink(self, node: Node) -> _Weights | None:
        """A softmax of keys and one more score, from whose weights that of the latter is cut off."""
        softmax = maker(node.operand(), "softmax")
        sole_user = self.emit.edit.sole_user
        if softmax is None or sole_user(softmax.result) is not node:
            return None
        axis = softmax.number("axis") % len(self.axes)
        joined = maker(softmax.operand(), "concat", "pad")
        if joined is None or sole_user(joined.result) is not softmax:
            return None
        found = _one_more(joined, axis, self.emit)
        if found is None:
            return None
        kept, (start, size), more = found
        axes = broadcast(more.type.shape, self.axes)
        if cuts_of(node) != {axis: (start, size, 1)} or axes is None:
            return None
        levels = [level for level in Operand(more, axes).levels() if not level.factors]
        self.sink = (joined, kept, (levels[-1].value, levels[-1].axes))
        return self._of(softmax)

    def _hidden_twice(self, node: Node) -> Node | None:
        """The softmax `s` of `where(m, s, 0)`, if it is taken of `where(m, scores, low)`: no key leaves zeros."""
        sole_user = self.emit.edit.sole_user
        for kept in (1, 2):
            softmax = maker(node.operand(kept), "softmax")
            choice = None if softmax is None else maker(softmax.operand(), "where")
            if (
                softmax is None
                or choice is None
                or choice.operand(0) is not node.operand(0)
            ):
                continue
            low, zero = (splat_of(each.operand(3 - kept)) for each in (choice, node))
            same = {x.result.type.shape for x in (node, softmax)} == {
                choice.operand(kept).type.shape
            }
            used_once = (
                sole_user(softmax.result) is node and sole_user(choice.result) is softmax
            )
            if low is not None and low <= HIDING and zero == 0 and same and used_once:
                self.choice = (choice, kept)
                return softmax
        return None

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


def _guarded(node: Node, emit: Emitter) -> Node | None:
    """The softmax `s` of `where(is_nan(s), 0, s)` that nothing else reads."""
    test = maker(node.operand(0), "is_nan")
    softmax = maker(node.operand(2), "softmax")
    if test is None or softmax is None or splat_of(node.operand(1)) != 0:
        return None
    if test.operand() is not softmax.result or node.result.type != softmax.result.type:
        return None
    return softmax if emit.edit.use_count(softmax.result) == 2 else None


def _one_more(
    node: Node, axis: int, emit: Emitter
) -> tuple[int, tuple[Dim, Dim], Value] | None:
    """What adds one element along an axis: the operand beside it, where in the result that is, and the element."""
    if node.op == "concat":
        if node.number("axis") % node.result.type.rank != axis or len(node.operands) != 2:
            return None
        first, second = (node.operand(i).type.shape[axis] for i in (0, 1))
        if second == 1:
            return 0, (0, first), node.operand(1)
        return (1, (1, second), node.operand(0)) if first == 1 else None
    rank, pads = node.result.type.rank, node.dims("pads")
    there = [i for i, size in enumerate(pads) if size != 0]
    if node.word("mode") != "constant" or len(there) != 1 or pads[there[0]] != 1:
        return None
    x, fill = node.operand(), node.optional_operand(1)
    more = emit.scalar(0, x) if fill is None else emit.reshape(fill, ())
    is_first = there[0] == axis
    if not is_first and there[0] != rank + axis:
        return None
    return 0, (int(is_first), x.type.shape[axis]), more
