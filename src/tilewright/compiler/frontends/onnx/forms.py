"""How values of ONNX that are no plain tensors pass through branches and loops, which have tensors only.

A form says how many tensors a value is made of, takes it apart and puts it together.  Two values of which data decides
which one it is, or what a loop begins with and what a trip makes of it, get a form that both fit.  Called by `branches`
and `control`.

Source: ONNX operator reference (If, Loop, Sequence*, Optional*).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol, final

import tilewright.compiler.frontends.onnx.joined_sequences as joints
import tilewright.compiler.frontends.onnx.stacked_sequences as lists
from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.record import record
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.values import (
    ChosenOptional,
    Held,
    JoinedSequence,
    Nothing,
    StackedSequence,
    TensorSequence,
)
from tilewright.compiler.graph.schema import TensorType


class Form(Protocol):
    """What tensors a value is made of.  Forms are equal where values of both can be one result."""

    @property
    def count(self) -> int:
        """How many tensors."""
        ...

    def apart(self, e: NodeMaker, held: Held) -> list[Tensor]:
        """The tensors of a value.  Raises: UnsupportedError where it has another form."""
        ...

    def together(self, tensors: Sequence[Tensor], decided_by: tuple[Tensor, ...]) -> Held:
        """The value of `count` tensors, with the tensors that decide how long or whether it is."""
        ...


@final
@record
class OneTensor:
    """A tensor."""

    count: int = 1

    def apart(self, e: NodeMaker, held: Held) -> list[Tensor]:
        """The tensor."""
        del e
        return [tensor_in(held)]

    def together(self, tensors: Sequence[Tensor], decided_by: tuple[Tensor, ...]) -> Held:
        """The tensor."""
        del decided_by
        return tensors[0]


@final
@record
class Absent:
    """An optional without a value."""

    count: int = 0

    def apart(self, e: NodeMaker, held: Held) -> list[Tensor]:
        """No tensor."""
        del e
        assert isinstance(held, Nothing), "what has a value gets a form that may have one"
        return []

    def together(self, tensors: Sequence[Tensor], decided_by: tuple[Tensor, ...]) -> Held:
        """The empty optional."""
        del tensors, decided_by
        return Nothing()


@final
@dataclass(frozen=True, slots=True)
class Items:
    """A sequence of known length, item by item."""

    count: int
    dtype: DType | None = field(compare=False)

    def apart(self, e: NodeMaker, held: Held) -> list[Tensor]:
        """The items."""
        del e
        assert isinstance(held, TensorSequence), "of this length"
        return list(held.items)

    def together(self, tensors: Sequence[Tensor], decided_by: tuple[Tensor, ...]) -> Held:
        """The sequence of these items."""
        del decided_by
        return TensorSequence(tuple(tensors), self.dtype)


@final
@dataclass(frozen=True, slots=True)
class Stack:
    """A sequence of any length, of items of one type; None: nobody knows which."""

    item: TensorType | None = field(compare=False)
    count: int = 1

    def apart(self, e: NodeMaker, held: Held) -> list[Tensor]:
        """The items along a new first axis."""
        return [lists.stacked(e, held, self.item)]

    def together(self, tensors: Sequence[Tensor], decided_by: tuple[Tensor, ...]) -> Held:
        """The sequence of these items."""
        return StackedSequence(tensors[0], decided_by)


@final
@dataclass(frozen=True, slots=True)
class Joint:
    """A sequence of any length, of items that have several sizes along one axis."""

    item: TensorType = field(compare=False)
    axis: int
    count: int = 2

    def apart(self, e: NodeMaker, held: Held) -> list[Tensor]:
        """The items along that axis, and how much of it each has."""
        made = joints.joined(e, held, self.item, self.axis)
        return [made.items, made.sizes]

    def together(self, tensors: Sequence[Tensor], decided_by: tuple[Tensor, ...]) -> Held:
        """The sequence of these items."""
        return JoinedSequence(tensors[0], tensors[1], self.axis, decided_by)


@final
@dataclass(frozen=True, slots=True)
class Perhaps:
    """An optional tensor that is there or not; `type` is what it has where it is not."""

    type: TensorType = field(compare=False)
    count: int = 2

    def apart(self, e: NodeMaker, held: Held) -> list[Tensor]:
        """Whether it is there, and it or zeros."""
        if isinstance(held, ChosenOptional):
            return [held.is_there, held.value]
        is_there = e.scalar(not isinstance(held, Nothing), dtypes.bool_)
        if isinstance(held, Nothing):
            return [is_there, e.full(0, self.type.dtype, self.type.shape)]
        return [is_there, tensor_in(held)]

    def together(self, tensors: Sequence[Tensor], decided_by: tuple[Tensor, ...]) -> Held:
        """The optional."""
        return ChosenOptional(tensors[0], tensors[1], decided_by)


def form_of(held: Held) -> Form:
    """The form that a value has by itself.  Raises: UnsupportedError for what the host holds."""
    if isinstance(held, TensorSequence):
        return Items(len(held.items), held.dtype)
    if isinstance(held, StackedSequence):
        return Stack(None)
    if isinstance(held, JoinedSequence):
        return Joint(held.items.type, held.axis)
    if isinstance(held, ChosenOptional):
        return Perhaps(held.value.type)
    if isinstance(held, Nothing):
        return Absent()
    tensor_in(held)
    return OneTensor()


def common_form(one: Held, another: Held, inner: Collection[str]) -> Form:
    """A form that two values fit, whichever of them it is.

    Args:
        one: the first.
        another: the second.
        inner: names of sizes that mean nothing where the values come together.

    Raises: UnsupportedError where there is none.
    """
    pair = (one, another)
    if all(isinstance(held, Tensor) for held in pair):
        return OneTensor()
    if any(isinstance(held, Nothing | ChosenOptional) for held in pair):
        return _common_optional(pair, inner)
    item, axis = joints.common_items(pair, inner)
    return Stack(item) if item is None or axis is None else Joint(item, axis)


def _common_optional(pair: Sequence[Held], inner: Collection[str]) -> Form:
    there = [held for held in pair if not isinstance(held, Nothing)]
    if not there:
        return Absent()
    values = [h.value if isinstance(h, ChosenOptional) else tensor_in(h) for h in there]
    type_ = values[-1].type
    sizes = (0 if control.mentions((size,), inner) else size for size in type_.shape)
    return Perhaps(type_.with_shape(tuple(sizes)))


def tensor_in(held: Held) -> Tensor:
    """What control flow carries as a tensor.  Raises: UnsupportedError for anything else."""
    if not isinstance(held, Tensor):
        raise UnsupportedError(
            "values of control flow that are no tensors are not supported where data decides"
        )
    return held
