"""The way back from a softmax to the product whose scores it is taken of, and what the steps between come to.

    product, steps outward     ->     softcap * tanh(scale * product / softcap), within limits, + bias, another number where masked

What it is not: the search for the softmax, or what becomes of the operands.  Called by `recognize_attention` and
`write_attention`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, final

from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.passes import Emitter, attempt, given, need
from tilewright.compiler.transforms.attention_axes import (
    Axes,
    all_pieces,
    before,
    broadcast,
    pieces,
    placed,
)
from tilewright.compiler.transforms.matching import either_way, made, splat_of
from tilewright.compiler.transforms.position_masks import (
    HIDING,
    TwoNumbers,
    causal_offset,
    two_numbers,
)

_MOVES: Final = ("reshape", "transpose")
_KEPT: Final = ("cast", "tanh", "clip", *_MOVES)
_SMALL: Final = 2.0**-20
"""Numbers of `HIDING` times as much still hide."""
_ARITHMETIC: Final = {"mul": 2, "add": 2, "div": 1, "sub": 1, "min": 2, "max": 2}
"""How many of its operands may be scores."""


# --- from the softmax to the first product ---------------------------------------------------


@final
@record
class Step:
    """What `node` does to scores, whose axes are `axes`.

    Attributes:
        hides: the keys that a choice hides have no weight behind the softmax either.
    """

    node: Node
    scores: Value
    axes: Axes
    hides: bool = False

    @property
    def other(self) -> Value | None:
        """What decides, or meets the scores."""
        if self.node.op == "where":
            return self.node.operand(0)
        return next((v for v in self.node.present_operands if v is not self.scores), None)

    @property
    def other_axes(self) -> Axes | None:
        """Those of the other operand; None where it does not surely fit, or is not there."""
        return None if self.other is None else broadcast(self.other.type.shape, self.axes)

    @property
    def low(self) -> float | None:
        """The number that a choice takes in place of scores."""
        if self.node.op != "where":
            return None
        sides = [self.node.operand(i) for i in (1, 2)]
        number = next((splat_of(v) for v in sides if v is not self.scores), None)
        return None if number is None else -math.inf if self.hides else float(number)

    @property
    def adds(self) -> bool:
        """Whether it is one of what is added."""
        return self.node.op in ("add", "sub") or (self.low or 0) <= HIDING

    @property
    def shrinks(self) -> bool:
        """Whether a factor makes numbers so small that those which hide keys no longer do."""
        if self.node.op not in ("mul", "div"):
            return False
        number = None if self.other is None else splat_of(self.other)
        if number is None:
            return False
        size = abs(float(number))
        return size < _SMALL if self.node.op == "mul" else size * _SMALL > 1

    @property
    def covers(self) -> bool:
        """Whether a finite number stands in the place of whatever was added before."""
        return self.low is not None and self.low > -math.inf


@final
@dataclass(slots=True)
class Scores:
    """What a softmax is taken of.

    Attributes:
        axes: those of the product, once it is found.
        steps: from the softmax to the product.
    """

    emit: Emitter
    axes: Axes
    steps: list[Step]
    product: Node = field(init=False)

    def read(self, value: Value, user: Node | None) -> None:
        """Walk back from `value`, which only `user` may read if it is given, to the product.  Raises: NoMatchError."""
        while True:
            node = made(value)
            need(not user or self.emit.edit.sole_user(value) is user)
            need(value.type.dtype.is_float)
            if node.op == "matmul":
                self.product = node
                return
            scores = given(_scores_of(node))
            if node.op in _MOVES:
                self.axes = given(before(node, self.axes))
            else:
                self.steps.append(Step(node, scores, self.axes))
            value, user = scores, node


def _scores_of(node: Node) -> Value | None:
    """The operand that scores are, if `node` may be a step."""
    if node.op in _KEPT:
        return node.operand()
    if node.op == "where":
        ways = ((node.operand(1), node.operand(2)), (node.operand(2), node.operand(1)))
        sides = [value for value, other in ways if splat_of(other) is not None]
    else:
        ways = either_way(node)[: _ARITHMETIC[node.op]] if node.op in _ARITHMETIC else ()
        sides = [value for value, _ in ways if _leads_to_product(value)]
    same = (side for side in sides if side.type.shape == node.result.type.shape)
    return next(same, None)


def _leads_to_product(value: Value) -> bool:
    """Whether a product is behind what scores are made of."""
    node = value.node
    while node is not None:
        if node.op == "matmul":
            return True
        if node.op not in (*_KEPT, *_ARITHMETIC, "where"):
            return False
        sides = [v for v in node.present_operands if v.type.shape == node.result.type.shape]
        if node.op in _KEPT:
            sides = [node.operand()]
        if len(sides) > 1:
            return any(_leads_to_product(side) for side in sides)
        node = sides[0].node if sides else None
    return False


# --- what the steps come to ------------------------------------------------------------------


@final
@record(frozen=False)
class Sum:
    """Scores as the op makes them.

    Attributes:
        wanted: the axes of bias and mask, the last two of which are rows and keys.
        steps: those that are still ahead, the next last.
        softcap: 0: no hyperbolic tangent is taken.
        limits: between which scores are held before anything is added.
        factor: what multiplies, or divides, the rows of the product: the op, the value and its axes.
        masked: what stands where the mask does not show scores.
        numbers: what scores were multiplied by to mask them, and its axes.
    """

    emit: Emitter
    wanted: Axes
    steps: list[Step]
    scale: float = 1.0
    softcap: float = 0.0
    limits: tuple[float, float] = (-math.inf, math.inf)
    factor: tuple[str, Value, Axes] | None = None
    causal: tuple[Dim, ...] = ()
    bias: Value | None = None
    mask: Value | None = None
    masked: float = -math.inf
    numbers: tuple[TwoNumbers, Axes] | None = None

    def take_steps(self) -> None:
        """Do what all steps do, from the product outward.  Raises: NoMatchError where the op cannot."""
        is_alone = sum(step.adds for step in self.steps) == 1
        while self.steps:
            step = self.steps.pop()
            _STEPS[step.node.op](self, step, is_alone)
        need(self.softcap >= 0)

    def _is_plain(self) -> bool:
        """Whether nothing was added or chosen, nor is there a cap or a limit."""
        is_free = self.limits == (-math.inf, math.inf) and not self.softcap
        return is_free and self._is_product()

    def _is_product(self) -> bool:
        """Whether nothing was added or chosen."""
        return not self.causal and self.bias is None is self.mask

    def keep(self, *_: object) -> None:
        """A cast."""

    def cap(self, *_: object) -> None:
        """A hyperbolic tangent, cap * tanh(scale * product): the op's scale is that of scores in whole, not in parts of the cap."""
        need(self._is_plain())
        self.softcap = 1.0

    def limit(self, step: Step, _: bool) -> None:
        """Numbers that scores are held between, or above, or below."""
        need(self._is_product())
        node, (low, high) = step.node, self.limits
        if node.op == "clip":
            ways = zip(("max", "min"), node.operands[1:], strict=False)
        else:
            ways = ((node.op, given(step.other)),)
        for op, value in ways:
            if value is None:
                continue
            number, held = float(given(splat_of(value))), max if op == "max" else min
            need(not math.isnan(number))
            low, high = held(low, number), held(high, number)
        self.limits = low, high

    def multiply(self, step: Step, _: bool) -> None:
        """One number for all, one for each row of the product, or 1 where scores are kept and 0 elsewhere."""
        op, other = step.node.op, given(step.other)
        number = splat_of(other)
        if number is not None:
            self._scale(op, float(number))
            return
        axes = given(step.other_axes)
        if not {*all_pieces(axes)} & {*pieces(self.wanted[-1])}:
            need(self.factor is None and self._is_plain())
            self.factor = (op, other, axes)
            return
        need(op == "mul" and not self.causal)
        found = given(two_numbers(other))
        need((found.inside, found.outside) == (1, 0))
        self.numbers = (found, axes)
        self._mask(found.condition(self.emit), axes, 0.0)

    def _scale(self, op: str, number: float) -> None:
        need((op == "mul" or number) and (number > 0 or not self.causal))

        def changed(x: float) -> float:
            return x * number if op == "mul" else x / number

        self.scale, self.softcap = changed(self.scale), changed(self.softcap)
        if self.limits != (-math.inf, math.inf):
            need(number > 0)
            self.limits = changed(self.limits[0]), changed(self.limits[1])
        self.masked = self.masked if self.mask is None else changed(self.masked)
        if self.bias is not None:
            factor = self.emit.scalar(number, self.bias)
            self.bias = self.emit.op(op, [self.bias, factor])

    def add(self, step: Step, is_alone: bool) -> None:
        """A bias, what hides later keys, or a number in place of what a product with 0 masked."""
        emit, op = self.emit, step.node.op
        other, axes = given(step.other), given(step.other_axes)
        if self.mask is not None:
            found = self._beside_mask(other, axes)
            need(found.inside == 0)
            self.masked += found.outside if op == "add" else -found.outside
            return
        if op == "add" and self._hides_later(other, step, is_alone):
            return
        value = placed(other, axes, self.wanted, emit)
        if self.bias is not None:
            value = emit.op(op, [self.bias, emit.cast(value, self.bias.type.dtype)])
        elif op == "sub":
            value = emit.op("neg", [value])
        self.bias = value

    def _beside_mask(self, value: Value, axes: Axes) -> TwoNumbers:
        """The two numbers of a value that stand where those do which scores were multiplied by."""
        numbers, own = given(self.numbers)
        need([pieces(axis) for axis in axes] == [pieces(axis) for axis in own])
        return given(given(two_numbers(value)).where(numbers))

    def _hides_later(self, value: Value, step: Step, is_alone: bool) -> bool:
        """Whether a value hides keys behind rows and nothing else; from here on the op does."""
        own = [pieces(axis) for axis in step.axes[-2:]]
        if own != [pieces(axis) for axis in self.wanted[-2:]] or self.causal:
            return False
        if any(later.covers for later in self.steps):
            return False
        shape = step.node.result.type.shape
        is_last = is_alone and not any(later.shrinks for later in self.steps)
        offset = attempt(causal_offset, value, shape, alone=is_last)
        self.causal = () if offset is None else (offset,)
        return offset is not None

    def choose(self, step: Step, is_alone: bool) -> None:
        """A choice of scores or one number."""
        emit, node, low, axes = (
            self.emit,
            step.node,
            given(step.low),
            given(step.other_axes),
        )
        need(self.mask is None)
        shown = node.operand(0)
        if node.operand(1) is not step.scores:
            shown = emit.op("logical_not", [shown])
        if low > HIDING:
            need(not self.causal)
            self._mask(shown, axes, low)
            return
        zero, number = (emit.scalar(x, node.result) for x in (0.0, low))
        value = emit.op("where", [shown, zero, number])
        if self._hides_later(value, step, is_alone):
            return
        value = placed(value, axes, self.wanted, emit)
        if self.bias is not None and low == -math.inf:
            value = emit.op("add", [self.bias, emit.cast(value, self.bias.type.dtype)])
        elif self.bias is not None:
            # In a row that has no other key it counts alone, whatever was added before.
            shown = placed(shown, axes, self.wanted, emit)
            bias = emit.cast(self.bias, node.result.type.dtype)
            value = emit.op("where", [shown, bias, number])
        self.bias = value

    def _mask(self, shown: Value, axes: Axes, low: float) -> None:
        need(self.mask is None)
        self.mask, self.masked = placed(shown, axes, self.wanted, self.emit), low


_STEPS: Final[Mapping[str, Callable[[Sum, Step, bool], None]]] = {
    "cast": Sum.keep,
    "tanh": Sum.cap,
    **dict.fromkeys(("clip", "min", "max"), Sum.limit),
    **dict.fromkeys(("mul", "div"), Sum.multiply),
    **dict.fromkeys(("add", "sub"), Sum.add),
    "where": Sum.choose,
}
