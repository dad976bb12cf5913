"""Attention that models spell out: two products around a softmax become one op.

    p = softmax(q k' * scale + bias);  p v          ->  attention(q, k, v, bias) {scale}

Starts at the second product and walks back to the first: through guards of rows without a key, casts,
masks, biases and factors, whatever their order and broadcast, and through the reshapes between them.
Nothing else may read what lies between, for it is no longer computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, cast, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.shapes import broadcast_shapes, element_count
from tilewright.compiler.passes import Emitter, RewritePass, Rule
from tilewright.compiler.transforms.matching import (
    constant_of,
    dim_groups,
    ints,
    maker,
    number,
    operand,
    splat_of,
)

HIDING: Final = -1e30
"""A finite score that no other score is added to up to where its power shows."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RecognizeAttention(RewritePass):
    """Write softmax(q k' * scale + bias) v as one op.

    Requires: simplified.  Ensures: no matrix of scores is made only to be multiplied; results change
    in the last digits.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"simplified"})
    lookup: ClassVar = staticmethod(catalogue.schema)
    level: ClassVar[int] = 1

    def rules(self) -> Mapping[str, Sequence[Rule]]:
        """The product with the values is where it ends."""
        return {"matmul": (spelled_out,)}


def spelled_out(node: Node, emit: Emitter) -> Value | None:
    """The attention whose second product `node` is."""
    found = _Weights(emit).read(operand(node, 0), node)
    if found is None:
        return None
    scores = _Scores(emit)
    if not scores.read(operand(found.softmax), found.softmax):
        return None
    result = _Written(emit, node, found, scores).value()
    if result is None or found.lost is None:
        return result
    # Weights of zero sum up to zero: nothing of such a row is looked at, not even values that are no numbers.
    return emit.op("where", [found.lost, emit.scalar(0, result), result])


# --- from the weights to the softmax ---------------------------------------------------------


@final
@dataclass(slots=True)
class _Weights:
    """The softmax behind the first operand of a product.

    Attributes:
        zero_rows: rows without a key have weights of zero.
        lost: where rows have weights of zero, whatever their scores are.
    """

    emit: Emitter
    zero_rows: bool = False
    lost: Value | None = None
    softmax: Node = field(init=False)

    def read(self, value: Value, user: Node) -> _Weights | None:
        """Walk back from `value`, which only `user` may read."""
        while self.emit.edit.sole_user(value) is user:
            node = value.node
            if node is None:
                return None
            if node.op == "softmax":
                last = number(node, "axis") % value.type.rank == value.type.rank - 1
                self.softmax = node
                return self if last else None
            if node.op == "where" and self._drops_rows(node, user):
                self.lost = operand(node, 0)
                value, user = operand(node, 2), node
                continue
            if node.op == "where":
                guarded = _guarded(node, self.emit)
                if guarded is None:
                    return None
                self.zero_rows, self.softmax = True, guarded
                last = number(guarded, "axis") % value.type.rank == value.type.rank - 1
                return self if last else None
            if node.op != "cast" and not _regroups(node):
                return None
            if not operand(node).type.dtype.is_float:
                return None
            value, user = operand(node), node
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
    if operand(test) is not softmax.result or operand(node, 1).type.rank:
        return None
    return softmax if emit.edit.use_count(softmax.result) == 2 else None


def _regroups(node: Node) -> bool:
    """Whether a reshape only splits or joins the axes in front of the last two."""
    if node.op != "reshape":
        return False
    before, after = operand(node).type.shape, node.result.type.shape
    return len(before) > 2 and len(after) > 2 and before[-2:] == after[-2:]


# --- from the softmax to the first product ---------------------------------------------------


@final
@dataclass(slots=True)
class _Scores:
    """What a softmax is taken of: a product, a factor, and what is added or masked on the way.

    Attributes:
        biases: what is added, times a factor, each with the shape of the scores there.
        mask: what scores are kept where, the shape there and what stands in the place of the others.
        softcap: what stands before the hyperbolic tangent that is taken of them; 0: none is.
    """

    emit: Emitter
    scale: float = 1.0
    softcap: float = 0.0
    biases: list[tuple[Value, float, tuple[Dim, ...]]] = field(default_factory=list)
    mask: tuple[Value, tuple[Dim, ...], float] | None = None
    shapes: list[tuple[Dim, ...]] = field(default_factory=list)
    product: Node = field(init=False)

    def read(self, value: Value, user: Node) -> bool:
        """Walk back from `value`, which only `user` may read, to the product."""
        while True:
            node = value.node
            if node is None or self.emit.edit.sole_user(value) is not user:
                return False
            if not value.type.dtype.is_float:
                return False
            self.shapes.append(value.type.shape)
            if node.op == "matmul":
                self.product = node
                return True
            onward = self._step(node)
            if onward is None:
                return False
            value, user = onward, node

    def _step(self, node: Node) -> Value | None:
        if node.op in ("mul", "div"):
            return self._scaled(node)
        if node.op in ("add", "sub"):
            return self._biased(node)
        if node.op == "where":
            return self._masked(node)
        if node.op == "tanh" and not self.softcap and self.scale > 0:
            # cap * tanh(scale * product): the op's scale is that of scores in whole, not in parts of the cap.
            self.softcap = self.scale
            return operand(node)
        return operand(node) if node.op == "cast" or _regroups(node) else None

    def _scaled(self, node: Node) -> Value | None:
        for here, there in ((0, 1), (1, 0)):
            factor = splat_of(operand(node, there))
            if factor is None or operand(node, here).type.shape != node.result.type.shape:
                continue
            if node.op == "mul":
                self.scale *= float(factor)
                return operand(node, here)
            if here == 0 and factor:
                self.scale /= float(factor)
                return operand(node, here)
        return None

    def _biased(self, node: Node) -> Value | None:
        if self.softcap:
            return None
        shape = node.result.type.shape
        sides = ((0, 1), (1, 0)) if node.op == "add" else ((0, 1),)
        for here, there in sides:
            if operand(node, here).type.shape == shape and _leads_to_product(
                operand(node, here)
            ):
                sign = 1.0 if node.op == "add" else -1.0
                self.biases.append((operand(node, there), sign * self.scale, shape))
                return operand(node, here)
        return None

    def _masked(self, node: Node) -> Value | None:
        if self.softcap:
            return None
        shape = node.result.type.shape
        for kept in (1, 2):
            other = splat_of(operand(node, 3 - kept))
            if other is None or operand(node, kept).type.shape != shape:
                continue
            shown = operand(node, 0)
            if kept == 2:
                shown = self.emit.op("logical_not", [shown])
            value = float(other)
            if value <= HIDING and self.scale > 0:
                self.biases.append((self._as_bias(shown, value, node), 1.0, shape))
            elif self.mask is None and not self.biases and self.scale == 1:
                self.mask = (shown, shape, value)
            else:
                return None
            return operand(node, kept)
        return None

    def _as_bias(self, shown: Value, value: float, node: Node) -> Value:
        like = node.result
        zero, low = (self.emit.scalar(x, like) for x in (0.0, value))
        return self.emit.op("where", [shown, zero, low])


def _leads_to_product(value: Value) -> bool:
    """Whether a product is behind what scores are made of."""
    node = value.node
    while node is not None:
        if node.op == "matmul":
            return True
        if node.op in ("mul", "div", "cast", "reshape", "where", "add", "sub", "tanh"):
            sides = [
                v for v in node.present_operands if v.type.shape == node.result.type.shape
            ]
            if node.op in ("cast", "reshape", "tanh"):
                sides = [operand(node)]
            if len(sides) > 1:
                return any(_leads_to_product(side) for side in sides)
            node = sides[0].node if sides else None
        else:
            return False
    return False


# --- what it is written as ---------------------------------------------------------------------


class _Written:
    """An attention in the place of what was found."""

    def __init__(
        self, emit: Emitter, node: Node, weights: _Weights, scores: _Scores
    ) -> None:
        self.emit: Emitter = emit
        self.node: Node = node
        self.weights: _Weights = weights
        self.scores: _Scores = scores
        self.scale: float = scores.scale
        self.lead: tuple[Dim, ...] | None = self._lead()

    def _lead(self) -> tuple[Dim, ...] | None:
        """(batch, heads): those axes in front that scores have somewhere; the finest cut there is."""
        shapes = [*self.scores.shapes, self.node.result.type.shape]
        leads = {shape[:-2] for shape in shapes}
        two = [lead for lead in leads if len(lead) == 2]
        if two:
            return two[0]
        one = [lead for lead in leads if len(lead) == 1]
        return (*one[0], 1) if one else None

    def value(self) -> Value | None:
        """The result; None where something does not fit."""
        product, values = self.scores.product, operand(self.node, 1)
        if self.lead is None:
            return None
        q = self._factored(operand(product, 0))
        k = self._swapped(operand(product, 1))
        if k is None or not self._fits(q, k, values):
            return None
        q = self._reshaped(q, self.lead)
        k, v = self._shared(k), self._shared(values)
        if k is None or v is None or k.type.shape[1] != v.type.shape[1]:
            k, v = self._whole(operand(product, 1)), self._reshaped(values, self.lead)
        causal, bias = self._bias()
        mask = self._mask()
        dtype = q.type.dtype
        if not (k.type.dtype is dtype and v.type.dtype is dtype):
            return None
        attributes = {
            "scale": self.scale,
            "causal": causal,
            "masked": self.scores.mask[2] if self.scores.mask else -np.inf,
            "zero_rows": self.weights.zero_rows,
            "softcap": self.scores.softcap,
        }
        result = self.emit.op("attention", [q, k, v, bias, mask], attributes)
        return self._reshaped(result, self.node.result.type.shape[:-2])

    def _fits(self, q: Value, k: Value, v: Value) -> bool:
        """Whether no product broadcasts its operands, and heads join as the result has them."""
        assert self.lead is not None
        count = element_count(self.lead)
        shapes = (q.type.shape, k.type.shape, v.type.shape, self.node.result.type.shape)
        return all(len(x) > 2 and element_count(x[:-2]) == count for x in shapes)

    def _reshaped(self, value: Value, lead: Sequence[Dim]) -> Value:
        shape = (*lead, *value.type.shape[-2:])
        if value.type.shape == shape:
            return value
        return self.emit.op("reshape", [value], {"shape": shape})

    def _factored(self, value: Value) -> Value:
        """`value` without a factor, which goes into the scale."""
        node = maker(value, "mul", "div")
        if node is None:
            return value
        for here, there in ((0, 1), (1, 0)):
            factor = splat_of(operand(node, there))
            if factor is None or operand(node, here).type.shape != value.type.shape:
                continue
            if node.op == "mul":
                self.scale *= float(factor)
            elif here == 0 and factor:
                self.scale /= float(factor)
            else:
                continue
            return self._factored(operand(node, here))
        return value

    def _swapped(self, value: Value) -> Value | None:
        """`value` with its last two axes swapped and without a factor."""
        value = self._factored(value)
        node = value.node
        if node is not None and _regroups(node):
            inner = self._swapped(operand(node))
            return None if inner is None else self._reshaped(inner, value.type.shape[:-2])
        rank = value.type.rank
        perm = (*range(rank - 2), rank - 1, rank - 2)
        if node is not None and node.op == "transpose":
            before = ints(node, "perm")
            together = tuple(before[p] for p in perm)
            if together == tuple(range(rank)):
                return operand(node)
            return self.emit.op("transpose", [operand(node)], {"perm": together})
        return self.emit.op("transpose", [value], {"perm": perm})

    def _whole(self, transposed: Value) -> Value:
        assert self.lead is not None
        scale = self.scale
        k = self._swapped(transposed)
        assert k is not None
        self.scale = scale  # its factor was counted before
        return self._reshaped(k, self.lead)

    def _shared(self, value: Value) -> Value | None:
        """Keys or values with one head where each is repeated for several heads of queries."""
        assert self.lead is not None
        node = maker(value, "reshape")
        repeated = None if node is None else maker(operand(node), "broadcast_to")
        if repeated is None:
            return self._reshaped(value, self.lead)
        batch, heads, times, *last = (*repeated.result.type.shape, 0, 0)[:5]
        source = operand(repeated).type.shape
        ok = (
            repeated.result.type.rank == 5
            and source == (batch, heads, 1, *last)
            and value.type.shape == (batch, heads * times, *last)
            and self.lead == value.type.shape[:2]
        )
        if not ok:
            return self._reshaped(value, self.lead)
        return self._reshaped(operand(repeated), (batch, heads))

    # --- what is added -----------------------------------------------------------------------

    def _bias(self) -> tuple[tuple[Dim, ...], Value | None]:
        """The offset of a causal mask, if there is one, and the sum of all that is added."""
        emit, causal = self.emit, cast("tuple[Dim, ...]", ())
        total: Value | None = None
        for value, factor, shape in self.scores.biases:
            offset = causal_offset(constant_of(value), alone=len(self.scores.biases) == 1)
            if (
                offset is not None
                and factor > 0
                and not causal
                and self.scores.mask is None
            ):
                causal = (offset,)
                continue
            placed = self._placed(value, shape)
            if factor != 1:
                placed = emit.op("mul", [placed, emit.scalar(factor, placed)])
            if total is not None and total.type.dtype is not placed.type.dtype:
                placed = emit.op("cast", [placed], {"dtype": total.type.dtype})
            total = placed if total is None else emit.op("add", [total, placed])
        return causal, total

    def _mask(self) -> Value | None:
        if self.scores.mask is None:
            return None
        shown, shape, _ = self.scores.mask
        return self._placed(shown, shape)

    def _placed(self, value: Value, shape: tuple[Dim, ...]) -> Value:
        """What was added to scores of `shape`, for scores of [batch, heads, rows, keys]."""
        assert self.lead is not None
        lead = shape[:-2]
        full = (1,) * (len(shape) - value.type.rank) + value.type.shape
        wanted = _joined(full[:-2], lead, self.lead)
        if wanted is None:
            full = broadcast_shapes(full, (*lead, 1, 1))
            value = self.emit.op("broadcast_to", [value], {"shape": full})
            wanted = self.lead
        return self._reshaped_to(value, (*wanted, *full[-2:]))

    def _reshaped_to(self, value: Value, shape: tuple[Dim, ...]) -> Value:
        if value.type.shape == shape:
            return value
        return self.emit.op("reshape", [value], {"shape": shape})


def _joined(
    own: Sequence[Dim], lead: Sequence[Dim], into: Sequence[Dim]
) -> tuple[Dim, ...] | None:
    """The leading axes of a broadcast operand when those of the scores become `into`."""
    if tuple(lead) == tuple(into):
        return tuple(own)
    groups = dim_groups(lead, into)
    if groups is None:
        return None
    result: list[Dim] = [1] * len(into)
    for mine, theirs in groups:
        sizes = [own[a] for a in mine]
        if all(size == 1 for size in sizes):
            continue
        if any(own[a] != lead[a] for a in mine):
            return None
        for axis in theirs:
            result[axis] = into[axis]
    return tuple(result)


def causal_offset(array: Array | None, *, alone: bool) -> int | None:
    """`o` of a constant that adds 0 to keys up to row + o and hides the others; None for any other.

    A finite number hides only where nothing else is added: in a row that has nothing but such, scores would
    count again.
    """
    if array is None or array.ndim < 2 or dtypes.from_numpy(array.dtype).is_bool:
        return None
    rows, keys = array.shape[-2:]
    if array.size != rows * keys or not rows or not keys:
        return None
    flat: np.ndarray = array.astype(np.float64).reshape(rows, keys)
    first = np.count_nonzero(flat[0] == 0)
    shown = np.tril(np.ones((rows, keys), bool), int(first) - 1)
    hidden = flat[~shown]
    if first < 1 or not hidden.size or not (flat[shown] == 0).all():
        return None
    if not (hidden <= HIDING).all() or not (alone or np.isneginf(hidden).all()):
        return None
    return int(first) - 1
