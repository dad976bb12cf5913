"""Attention that models spell out: two products around a softmax become one op.

    p = softmax(q k' * scale + bias);  p v          ->  attention(q, k, v, bias) {scale}

Starts at the second product and walks back to the first: through guards of rows without a key, casts,
masks, biases and factors, whatever their order and broadcast, and through the reshapes between them.
Nothing else may read what lies between, for it is no longer computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, final

from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.passes import Emitter, Rewrite, given, need
from tilewright.compiler.transforms.attention_scores import (
    AttentionEnds,
    Scores,
    WrittenAttention,
    cuts_rows,
    leads_to_product,
    regroups,
    swapped_last,
)
from tilewright.compiler.transforms.matching import (
    constant_of,
    either_way,
    ints,
    made,
    maker,
    number,
    operand,
    splat_of,
)
from tilewright.compiler.transforms.position_masks import HIDING, shows_a_key
from tilewright.compiler.transforms.rewrite_pass import RewritePass


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RecognizeAttention(RewritePass):
    """Write softmax(q k' * scale + bias) v as one op.

    Requires: simplified.  Ensures: no matrix of scores is made only to be multiplied; results change
    in the last digits.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"simplified"})

    def rewrites(self) -> Mapping[str, Sequence[Rewrite]]:
        """The product with the values is where it ends; scores in more axes are folded first."""
        return {"softmax": (folded_sums,), "matmul": (spelled_out, turned_round)}


def folded_sums(node: Node, emit: Emitter) -> Value | None:
    """A softmax of sums over several axes of rows and of keys is one of sums of what is folded.

    So are positions added that differ by rows and by columns of an image (SAM).
    """
    fold = made(operand(node), "reshape")
    need(emit.edit.sole_user(fold.result) is node and not regroups(fold))
    shape, value, added = operand(fold).type.shape, operand(fold), list[Value]()
    user = fold
    while (total := maker(value, "add")) is not None:
        ways = either_way(total)
        found = [x for x in ways if x[0].type.shape == shape and leads_to_product(x[0])]
        need(found and emit.edit.sole_user(value) is user)
        (value, other), user = found[0], total
        added.append(other)
    unfold = made(value, "reshape")
    need(added and operand(unfold).type == fold.result.type)
    bias = added[0]
    for other in added[1:]:
        bias = emit.op("add", [bias, other])
    if bias.type.shape != shape:
        bias = emit.op("broadcast_to", [bias], {"shape": shape})
    bias = emit.reshape(bias, fold.result.type.shape)
    total = emit.op("add", [operand(unfold), bias])
    return emit.op("softmax", [total], node.attributes)


def spelled_out(node: Node, emit: Emitter) -> Value | None:
    """The attention whose second product `node` is."""
    found = _read(operand(node, 0), node, emit)
    return found.written(operand(node, 1), node.result.type.shape)


def turned_round(node: Node, emit: Emitter) -> Value | None:
    """The attention whose second product is `v' p'`, so that columns of the result come before rows."""
    values, shape = operand(node, 0), node.result.type.shape
    swap = given(_swap_of(operand(node, 1), node, emit))
    need(values.type.rank >= 2)
    found = _read(operand(swap), swap, emit)
    perm = swapped_last(values.type.rank)
    turned = emit.op("transpose", [values], {"perm": perm})
    result = found.written(turned, (*shape[:-2], shape[-1], shape[-2]))
    return emit.op("transpose", [result], {"perm": swapped_last(len(shape))})


@final
@record
class _Found:
    """The weights of an attention."""

    emit: Emitter
    weights: _Weights
    scores: Scores

    def written(self, values: Value, shape: tuple[Dim, ...]) -> Value:
        """The attention of `shape` that the weights times `values` are.  Raises: NoMatchError where something does not fit."""
        # A layer behind a softmax, whose weights are packed when compiling.
        need(constant_of(values) is None)
        emit, lost = self.emit, self.weights.lost
        weights = self.weights
        ends = AttentionEnds(values, shape, weights.zero_rows, weights.zero_nan)
        result = WrittenAttention(emit, self.scores, ends).value()
        if lost is None or shows_a_key(lost):
            return result
        # Weights of zero sum up to zero: nothing of such a row is looked at, not even values that are no numbers.
        return emit.op("where", [lost, emit.scalar(0, result), result])


def _read(value: Value, user: Node, emit: Emitter) -> _Found:
    """What `value`, which only `user` reads, is as weights of values."""
    weights, scores = _Weights(emit), Scores(emit)
    weights.read(value, user)
    last, kept = weights.softmax, 0
    scores.cut = weights.cut
    if weights.choice is not None:
        last, kept = weights.choice
        scores.hide(last, kept, -math.inf)
    scores.read(operand(last, kept), last)
    return _Found(emit, weights, scores)


def _swap_of(value: Value, user: Node, emit: Emitter) -> Node | None:
    """What swaps rows and keys, behind which `value`, which only `user` reads, cuts other axes at most.

    A transpose, which may move axes of one element, too, as the products of JAX ask for; of one row a reshape.
    """
    need(emit.edit.sole_user(value) is user)
    view = maker(value, "reshape")
    if view is not None:
        before, end = operand(view).type.shape, value.type.shape
        if end[-1:] == (1,) and before[-2:] == (1, *end[-2:-1]):
            return view
        value, user = operand(view), view
    swap = made(value, "transpose")
    need(emit.edit.sole_user(value) is user)
    before = operand(swap).type.shape
    last = len(before) - 2
    moved = [i for i in ints(swap, "perm") if i >= last or before[i] != 1]
    leads = [i for i in range(last) if before[i] != 1]
    end = user.result.type.shape if view is not None else value.type.shape
    is_swap = last >= 0 and moved == [*leads, last + 1, last]
    return swap if is_swap and end[-2:] == (before[-1], before[-2]) else None


# --- from the weights to the softmax ---------------------------------------------------------


@final
@dataclass(slots=True)
class _Weights:
    """The softmax behind the first operand of a product.

    Attributes:
        zero_rows: rows without a key have weights of zero.
        zero_nan: so have all rows whose weights are NaN.
        choice: what hides keys in front of the softmax, where the same keys have weights of zero behind it, and
            which operand of it the scores are.
        lost: where rows have weights of zero, whatever their scores are.
        cut: (rows, keys) behind a reshape that cuts rows another way, until the scores have these again.
    """

    emit: Emitter
    zero_rows: bool = False
    zero_nan: bool = False
    choice: tuple[Node, int] | None = None
    lost: Value | None = None
    cut: tuple[Dim, ...] | None = None
    softmax: Node = field(init=False)

    def read(self, value: Value, user: Node) -> None:
        """Walk back from `value`, which only `user` may read.  Raises: NoMatchError without a softmax."""
        while True:
            node = made(value)
            need(self.emit.edit.sole_user(value) is user)
            if node.op == "softmax":
                self.softmax = node
                break
            if node.op == "where" and self._drops_rows(node, user):
                self.lost = operand(node, 0)
                value, user = operand(node, 2), node
                continue
            if node.op == "where":
                guarded = _guarded(node, self.emit)
                self.zero_nan = guarded is not None
                self.softmax = given(guarded or self._hidden_twice(node))
                self.zero_rows = True
                break
            need(node.op == "cast" or regroups(node) or self._cuts_rows(node))
            need(operand(node).type.dtype.is_float)
            value, user = operand(node), node
        need(number(self.softmax, "axis") % value.type.rank == value.type.rank - 1)

    def _cuts_rows(self, node: Node) -> bool:
        """Whether a reshape leaves keys and cuts rows another way, as the first there."""
        if self.cut is not None or self.lost is not None or not cuts_rows(node):
            return False
        self.cut = node.result.type.shape[-2:]
        return True

    def _hidden_twice(self, node: Node) -> Node | None:
        """The softmax `s` of `where(m, s, 0)`, if it is taken of `where(m, scores, low)`: no key leaves zeros."""
        if self.cut is not None:
            return None
        sole_user = self.emit.edit.sole_user
        for kept in (1, 2):
            softmax = maker(operand(node, kept), "softmax")
            choice = None if softmax is None else maker(operand(softmax), "where")
            if softmax is None or choice is None:
                continue
            low, zero = (splat_of(operand(each, 3 - kept)) for each in (choice, node))
            shapes = {x.result.type.shape for x in (node, softmax)}
            same = operand(choice, 0) is operand(node, 0) and shapes == {
                operand(choice, kept).type.shape
            }
            used_once = (
                sole_user(softmax.result) is node and sole_user(choice.result) is softmax
            )
            if low is not None and low <= HIDING and zero == 0 and same and used_once:
                self.choice = (choice, kept)
                return softmax
        return None

    def _drops_rows(self, node: Node, user: Node) -> bool:
        """Whether a choice right in front of the product takes 0 for whole rows."""
        chosen = operand(node, 0).type.shape
        return (
            self.lost is None
            and user.op == "matmul"
            and chosen[-1:] == (1,)
            and splat_of(operand(node, 1)) == 0
            and operand(node, 2).type.shape == node.result.type.shape
        )


def _guarded(node: Node, emit: Emitter) -> Node | None:
    """The softmax `s` of `where(is_nan(s), 0, s)` that nothing else reads."""
    test = maker(operand(node, 0), "is_nan")
    softmax = maker(operand(node, 2), "softmax")
    if test is None or softmax is None or splat_of(operand(node, 1)) != 0:
        return None
    if operand(test) is not softmax.result or node.result.type != softmax.result.type:
        return None
    return softmax if emit.edit.use_count(softmax.result) == 2 else None
