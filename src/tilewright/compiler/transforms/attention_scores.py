"""The scores that an attention is taken of, and the attention that is written in their place.

What it is: the way back from a softmax to the product whose scores it is taken of, and the operands of the one
op.  What it is not: the search for the softmax.  Called by `recognize_attention`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast, final

import numpy as np

from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops.shapes import (
    broadcast_shapes,
    element_count,
    surely_broadcasts,
)
from tilewright.compiler.passes import Emitter, NoMatchError, need
from tilewright.compiler.transforms.matching import (
    dim_groups,
    either_way,
    ints,
    made,
    maker,
    operand,
    splat_of,
)
from tilewright.compiler.transforms.position_masks import HIDING, causal_offset


def regroups(node: Node) -> bool:
    """Whether a reshape only splits or joins the axes in front of the last two."""
    if node.op != "reshape":
        return False
    before, after = operand(node).type.shape, node.result.type.shape
    return len(before) > 2 and len(after) > 2 and before[-2:] == after[-2:]


def cuts_rows(node: Node) -> bool:
    """Whether a reshape keeps the last axis and cuts what is in front of it another way."""
    if node.op != "reshape":
        return False
    before, after = operand(node).type.shape, node.result.type.shape
    return len(before) > 2 and len(after) > 2 and before[-1] == after[-1]


def swapped_last(rank: int) -> tuple[int, ...]:
    """The permutation that swaps the last two axes."""
    return (*range(rank - 2), rank - 1, rank - 2)


def without_factor(node: Node, scale: float) -> tuple[Value, float] | None:
    """What one number multiplies or divides in a node, all elements of it, and `scale` with that number in it."""
    for value, other in either_way(node)[: 2 if node.op == "mul" else 1]:
        factor = splat_of(other)
        if factor is None or value.type.shape != node.result.type.shape:
            continue
        if node.op == "mul":
            return value, scale * float(factor)
        if factor:
            return value, scale / float(factor)
    return None


# --- from the softmax to the first product ---------------------------------------------------


@final
@record
class Added:
    """What is added to scores, times a factor, where they have a shape.

    Attributes:
        shown: for a finite number that stands in the place of hidden scores: where they are not hidden.  In a row that
            has no other it counts alone, whatever was added in front of it.
    """

    value: Value
    factor: float
    shape: tuple[Dim, ...]
    shown: Value | None = None


@final
@dataclass(slots=True)
class Scores:
    """What a softmax is taken of: a product, a factor, and what is added or masked on the way.

    Attributes:
        biases: what is added, the last first.
        mask: what scores are kept where, the shape there and what stands in the place of the others.
        softcap: what stands before the hyperbolic tangent that is taken of them; 0: none is.
        row_factor: what the rows of the product are multiplied by: `[.., 1]`, or with rows.
        cut: (rows, keys) that reshapes have still to lead back to; what differs by rows has no place until then.
    """

    emit: Emitter
    scale: float = 1.0
    softcap: float = 0.0
    biases: list[Added] = field(default_factory=list)
    mask: tuple[Value, tuple[Dim, ...], float] | None = None
    shapes: list[tuple[Dim, ...]] = field(default_factory=list)
    row_factor: Value | None = None
    cut: tuple[Dim, ...] | None = None
    product: Node = field(init=False)

    def read(self, value: Value, user: Node) -> None:
        """Walk back from `value`, which only `user` may read, to the product.  Raises: NoMatchError without one."""
        while True:
            node = made(value)
            need(self.emit.edit.sole_user(value) is user and value.type.dtype.is_float)
            if value.type.shape[-2:] == self.cut:
                self.cut = None
            if self.cut is None:
                self.shapes.append(value.type.shape)
            if node.op == "matmul":
                self.product = node
                need(self.cut is None)
                return
            value, user = self._step(node), node

    def _step(self, node: Node) -> Value:
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
        if cuts_rows(node) and not regroups(node):
            self.cut = self.cut or node.result.type.shape[-2:]
            return operand(node)
        need(node.op == "cast" or regroups(node))
        return operand(node)

    def _scaled(self, node: Node) -> Value:
        found = without_factor(node, self.scale)
        if found is None:
            return self._row_scaled(node)
        value, self.scale = found
        return value

    def _row_scaled(self, node: Node) -> Value:
        """The product itself, where each row of it has a factor of its own, as heads of cosines have."""
        need(node.op == "mul" and self.row_factor is None and self.cut is None)
        for product, factor in either_way(node):
            if (
                maker(product, "matmul") is not None
                and product.type.shape == node.result.type.shape
                and factor.type.shape[-1:] == (1,)
            ):
                self.row_factor = factor
                return product
        raise NoMatchError

    def _biased(self, node: Node) -> Value:
        need(not self.softcap and self.row_factor is None and self.cut is None)
        shape = node.result.type.shape
        for value, added in either_way(node)[: 2 if node.op == "add" else 1]:
            if value.type.shape == shape and leads_to_product(value):
                sign = 1.0 if node.op == "add" else -1.0
                self.biases.append(Added(added, sign * self.scale, shape))
                return value
        raise NoMatchError

    def _masked(self, node: Node) -> Value:
        need(not self.softcap and self.row_factor is None and self.cut is None)
        shape = node.result.type.shape
        for kept in (1, 2):
            other = splat_of(operand(node, 3 - kept))
            if other is None or operand(node, kept).type.shape != shape:
                continue
            value = float(other)
            if value <= HIDING and self.scale > 0:
                self.hide(node, kept, value)
            else:
                need(self.mask is None and not self.biases and self.scale == 1)
                self.mask = (self._shown(node, kept), shape, value)
            return operand(node, kept)
        raise NoMatchError

    def hide(self, node: Node, kept: int, value: float) -> None:
        """Add `value` where a choice does not take operand `kept`."""
        zero, low = (self.emit.scalar(x, node.result) for x in (0.0, value))
        shown = self._shown(node, kept)
        bias = self.emit.op("where", [shown, zero, low])
        instead = None if value == -math.inf else shown
        self.biases.append(Added(bias, 1.0, node.result.type.shape, instead))

    def _shown(self, node: Node, kept: int) -> Value:
        """Where a choice takes operand `kept`."""
        condition = operand(node, 0)
        return condition if kept == 1 else self.emit.op("logical_not", [condition])


def leads_to_product(value: Value) -> bool:
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
                return any(leads_to_product(side) for side in sides)
            node = sides[0].node if sides else None
        else:
            return False
    return False


# --- what it is written as ---------------------------------------------------------------------


@final
@record
class AttentionEnds:
    """What stands behind the softmax: `values: [.., keys, columns]` and the result's `shape`.

    Attributes:
        zero_rows: rows without a key have weights of zero.
        zero_nan: so have all rows whose weights are NaN.
    """

    values: Value
    shape: tuple[Dim, ...]
    zero_rows: bool
    zero_nan: bool


@final
class WrittenAttention:
    """An attention in the place of what was found."""

    def __init__(self, emit: Emitter, scores: Scores, ends: AttentionEnds) -> None:
        self.emit: Emitter = emit
        self.scores: Scores = scores
        self.ends: AttentionEnds = ends
        self.scale: float = scores.scale
        self.lead: tuple[Dim, ...] = self._lead()

    def _lead(self) -> tuple[Dim, ...]:
        """(batch, heads): those axes in front that scores have somewhere; the finest cut there is."""
        shapes = [*self.scores.shapes, self.ends.shape]
        leads = list(dict.fromkeys(shape[:-2] for shape in shapes))
        two = [lead for lead in leads if len(lead) == 2]
        two += [cut for cut in map(_without_ones, leads) if len(cut) == 2]
        if two:
            return two[0]
        finest = max(leads, key=len)
        if len(finest) < 2:
            return (*finest, 1, 1)[:2]
        return finest[0], element_count(finest[1:])

    def value(self) -> Value:
        """The result.  Raises: NoMatchError where something does not fit."""
        product = self.scores.product
        front, behind = product.result.type.shape[:-2], self.ends.shape[:-2]
        q = self._factored(operand(product, 0))
        k = self._swapped(operand(product, 1))
        need(self._fits(front, behind))
        q = self._full(self._row_scaled(q), front)
        own_k, own_v = self._shared(k, front), self._shared(self.ends.values, behind)
        if own_k.type.shape[1] != own_v.type.shape[1]:
            own_k, own_v = self._full(k, front), self._full(self.ends.values, behind)
        causal, bias = self._bias()
        mask = self._mask()
        dtype = q.type.dtype
        need(own_k.type.dtype is dtype and own_v.type.dtype is dtype)
        # Sizes that only a call compares are equal here, and not to who cannot know it.
        scores = (*q.type.shape[:3], own_k.type.shape[2])
        beside = [x.type.shape for x in (bias, mask) if x is not None]
        need(all(surely_broadcasts(shape, scores) for shape in beside))
        attributes = {
            "scale": self.scale,
            "causal": causal,
            "masked": self.scores.mask[2] if self.scores.mask else -np.inf,
            "zero_rows": self.ends.zero_rows,
            "zero_nan": self.ends.zero_nan,
            "softcap": self.scores.softcap,
        }
        result = self.emit.op("attention", [q, own_k, own_v, bias, mask], attributes)
        return self._reshaped(result, behind)

    def _fits(self, front: tuple[Dim, ...], behind: tuple[Dim, ...]) -> bool:
        """Whether both products have as many heads in all as the scores between them."""
        count = element_count(self.lead)
        return element_count(front) == count and element_count(behind) == count

    def _reshaped(self, value: Value, lead: Sequence[Dim]) -> Value:
        return self.emit.reshape(value, (*lead, *value.type.shape[-2:]))

    def _row_scaled(self, q: Value) -> Value:
        factor = self.scores.row_factor
        return q if factor is None else self.emit.op("mul", [q, factor])

    def _factored(self, value: Value) -> Value:
        """`value` without a factor, which goes into the scale."""
        node = maker(value, "mul", "div")
        found = None if node is None else without_factor(node, self.scale)
        if found is None:
            return value
        inner, self.scale = found
        return self._factored(inner)

    def _swapped(self, value: Value) -> Value:
        """`value` with its last two axes swapped and without a factor."""
        value = self._factored(value)
        node = value.node
        if node is not None and regroups(node):
            return self._reshaped(self._swapped(operand(node)), value.type.shape[:-2])
        rank = value.type.rank
        perm = swapped_last(rank)
        if node is not None and node.op == "transpose":
            before = ints(node, "perm")
            together = tuple(before[p] for p in perm)
            if together == tuple(range(rank)):
                return operand(node)
            return self.emit.op("transpose", [operand(node)], {"perm": together})
        return self.emit.op("transpose", [value], {"perm": perm})

    def _full(self, value: Value, lead: tuple[Dim, ...]) -> Value:
        """`value`, an operand of a product with `lead`, with all of its heads as (batch, heads)."""
        if value.type.shape[:-2] != lead:
            shape = (*lead, *value.type.shape[-2:])
            value = self.emit.op("broadcast_to", [value], {"shape": shape})
        return self._reshaped(value, self.lead)

    def _shared(self, value: Value, lead: tuple[Dim, ...]) -> Value:
        """Keys or values with one head where each serves several heads of queries.

        They are repeated in memory, or the product with `lead` broadcasts them.
        """
        own = (*(1,) * (len(lead) - value.type.rank + 2), *value.type.shape[:-2])
        if own != lead:
            kept = self._kept(own, lead)
            return self._full(value, lead) if kept is None else self._reshaped(value, kept)
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

    def _kept(self, own: tuple[Dim, ...], lead: tuple[Dim, ...]) -> tuple[Dim, Dim] | None:
        """(batch, heads) of an operand that a product with `lead` broadcasts along its last axes; None if elsewhere."""
        if len(lead) < 2 or self.lead != (lead[0], element_count(lead[1:])):
            return None
        same = next(i for i, (a, b) in enumerate(zip(own, lead, strict=True)) if a != b)
        if not same or any(size != 1 for size in own[same:]):
            return None
        return lead[0], element_count(own[1:])

    # --- what is added -----------------------------------------------------------------------

    def _bias(self) -> tuple[tuple[Dim, ...], Value | None]:
        """The offset of a causal mask, if there is one, and the sum of all that is added."""
        emit, causal = self.emit, cast("tuple[Dim, ...]", ())
        total: Value | None = None
        biases = self.scores.biases
        covers = [i for i, each in enumerate(biases[:-1]) if each.shown is not None]
        # What stands in the place of scores takes that of all that was added before, which is put together first.
        order = reversed(range(len(biases))) if covers else range(len(biases))
        for i in order:
            value, factor, shape = biases[i].value, biases[i].factor, biases[i].shape
            is_covered = any(cover < i for cover in covers)
            offset = causal_offset(value, shape, alone=len(biases) == 1)
            if (
                offset is not None
                and factor > 0
                and not causal
                and not is_covered
                and self.scores.mask is None
            ):
                causal = (offset,)
                continue
            placed = self._placed(value, shape)
            if factor != 1:
                placed = emit.op("mul", [placed, emit.scalar(factor, placed)])
            if total is not None:
                placed = self._beside(biases[i], placed, total, instead=i in covers)
            total = placed
        return causal, total

    def _beside(
        self, added: Added, placed: Value, others: Value, *, instead: bool
    ) -> Value:
        """All that is added: `placed` and the others, or instead of them where it hides scores."""
        emit = self.emit
        if not instead or added.shown is None:
            return emit.op("add", [others, emit.cast(placed, others.type.dtype)])
        shown = self._placed(added.shown, added.shape)
        return emit.op("where", [shown, emit.cast(others, placed.type.dtype), placed])

    def _mask(self) -> Value | None:
        if self.scores.mask is None:
            return None
        shown, shape, _ = self.scores.mask
        return self._placed(shown, shape)

    def _placed(self, value: Value, shape: tuple[Dim, ...]) -> Value:
        """What was added to scores of `shape`, for scores of [batch, heads, rows, keys]."""
        lead = shape[:-2]
        full = (1,) * (len(shape) - value.type.rank) + value.type.shape
        wanted = _joined(full[:-2], lead, self.lead)
        if wanted is None:
            full = broadcast_shapes(full, (*lead, 1, 1))
            value = self.emit.op("broadcast_to", [value], {"shape": full})
            wanted = self.lead
        return self.emit.reshape(value, (*wanted, *full[-2:]))


def _without_ones(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    return tuple(d for d in shape if d != 1)


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
