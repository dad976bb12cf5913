"""Moves behind contractions go down through elementwise ops.

A matmul works on rows and columns; what follows it (bias, activation, residual) is fused into its
store when it works on the same shape.  So the reshape back goes behind them, where it is a view
between kernels or meets another reshape and vanishes.  Transposes go behind scales and the like.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import ClassVar, final

from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.passes import Emitter, Rewrites, merge_rewrites, need
from tilewright.compiler.transforms.fusion_classes import is_cheap
from tilewright.compiler.transforms.matching import (
    dim_groups,
    made,
    maker,
    reached,
    splat_of,
)
from tilewright.compiler.transforms.movement_rewrites import VIEW_REWRITES
from tilewright.compiler.transforms.rewrite_pass import RewritePass

_MOST_STEPS = 32


@final
@record(kw_only=True)
class SinkReshapes(RewritePass):
    """Move reshapes of contraction results behind the elementwise ops that follow.

    Requires: packed.  Ensures: an elementwise op on the reshaped result of a contraction works
    on the contraction's own shape, wherever its other operands allow it.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"packed"})

    def rewrites(self) -> Rewrites:
        """One rewrite, and the cleanup of what it leaves."""
        return merge_rewrites(VIEW_REWRITES, {"*": (sink, sink_transpose)})


def sink(node: Node, emit: Emitter) -> Value | None:
    """f(reshape(x), …) is reshape(f(x, …)) for elementwise f."""
    need(node.has(Trait.ELEMENTWISE) and len(node.results) == 1)
    shape = node.result.type.shape
    for value in node.present_operands:
        view = maker(value, "reshape")
        if view is None or value.type.shape != shape or not _is_contracted(view.operand()):
            continue
        target = view.operand().type.shape
        alone = _stands_alone(node, value, target) or _is_moved(node, value)
        if len(target) >= len(shape) and not alone:
            continue  # two views would chase each other
        groups = dim_groups(target, shape)
        operands = [None if v is None else _like(v, target, shape, groups, emit)
                    for v in node.operands]  # fmt: skip
        if any(
            new is None and old is not None
            for new, old in zip(operands, node.operands, strict=True)
        ):
            continue
        result = emit.op(node.op, operands, node.attributes)
        if result.type.shape == target:
            return emit.reshape(result, shape)
    return None


def _stands_alone(node: Node, value: Value, target: Sequence[Dim]) -> bool:
    """Whether `value`, seen with other unit axes, decides the shape."""
    shape = value.type.shape
    if [d for d in target if d != 1] != [d for d in shape if d != 1] or target == shape:
        return False
    for other in node.present_operands:
        view = maker(other, "reshape")
        same = view is not None and view.operand().type.shape == target
        alike = other is value or same or other.type.shape != shape
        if not alike and _is_contracted(other):
            return False
    return len(target) > len(shape)


def _is_moved(node: Node, value: Value) -> bool:
    """Whether `value`, and no operand beside it, merges axes that were moved: windows put together to an image.

    Where it is written then is a place on the axes apart, which is found without quotients.
    """
    moved = [v for v in node.present_operands if _merges_moved_axes(v)]
    return moved == [value]


def _merges_moved_axes(value: Value) -> bool:
    view = maker(value, "reshape")
    return view is not None and maker(view.operand(), "transpose") is not None


def sink_transpose(node: Node, emit: Emitter) -> Value | None:
    """f(transpose(x), scalars) is transpose(f(x, scalars)) for elementwise f."""
    moves = [i for i, v in enumerate(node.operands) if maker(v, "transpose") is not None]
    if len(moves) != 1 or not node.has(Trait.ELEMENTWISE) or len(node.results) != 1:
        return None
    place = moves[0]
    move = made(node.operands[place], "transpose")
    need(emit.edit.sole_user(move.result) is node)
    rest = [v for i, v in enumerate(node.operands) if i != place and v is not None]
    need(all(splat_of(v) is not None and not v.type.rank for v in rest))
    need(move.result.type.shape == node.result.type.shape and _is_contracted(move.result))
    operands = [*node.operands[:place], move.operand(), *node.operands[place + 1 :]]
    result = emit.op(node.op, operands, node.attributes)
    return emit.op("transpose", [result], move.attributes)


def _is_contracted(value: Value) -> bool:
    """Whether a contraction, through elementwise ops and moves only, makes the value."""

    def behind(current: Value) -> list[Value]:
        node = current.node
        if node is not None and node.op in ("reshape", "transpose"):
            return [node.operand()]
        if node is None or not node.has(Trait.ELEMENTWISE):
            return []
        return [v for v in node.present_operands if v.type.shape == current.type.shape]

    steps = itertools.islice(reached([value], behind), _MOST_STEPS)
    return any(v.node is not None and v.node.has(Trait.CONTRACTION) for v in steps)


Groups = list[tuple[tuple[int, ...], tuple[int, ...]]]


def _like(
    value: Value,
    target: Sequence[Dim],
    shape: Sequence[Dim],
    groups: Groups | None,
    emit: Emitter,
) -> Value | None:
    """`value`, an operand beside data of `shape`, for data of shape `target`."""
    view = maker(value, "reshape")
    if (
        view is not None
        and view.operand().type.shape == target
        and value.type.shape == shape
    ):
        return view.operand()
    if splat_of(value) is not None and value.type.rank == 0:
        return value
    if all(d == 1 for d in value.type.shape):
        return emit.reshape(value, ())
    if value.type.shape == shape:
        return _narrow_reshaped(value, tuple(target), emit)
    wanted = None if groups is None else _broadcast_shape(value, target, shape, groups)
    return None if wanted is None else emit.reshape(value, wanted)


def _narrow_reshaped(value: Value, target: tuple[Dim, ...], emit: Emitter) -> Value:
    """`value` in the shape `target`; the reshape goes in front of steps that only made narrower elements wider.

    So what lies between two kernels is the narrow tensor: who reads it, makes it wider.
    """
    steps, source = _widening_steps(value)
    moved = emit.reshape(source, target)
    for step in reversed(steps):
        operands = [
            moved if v is not None and v.type.shape == value.type.shape else v
            for v in step.operands
        ]
        moved = emit.op(step.op, operands, step.attributes)
    return moved


def _widening_steps(value: Value) -> tuple[list[Node], Value]:
    """The steps, last one first, from a tensor of narrower elements and single numbers to `value`, and that tensor.

    No steps where there are none, and where a step is more work than to load an element.
    """
    steps: list[Node] = []
    current = value
    while current.type.dtype.itemsize >= value.type.dtype.itemsize:
        source = _only_tensor(current)
        if source is None or current.node is None or len(steps) == _MOST_STEPS:
            return [], value
        steps.append(current.node)
        current = source
    return steps, current


def _only_tensor(value: Value) -> Value | None:
    """What a cheap elementwise step makes `value` of beside single numbers, if it is one."""
    node = value.node
    if node is None or not value.type.rank or len(node.results) != 1:
        return None
    if not node.has(Trait.ELEMENTWISE) or not is_cheap(node):
        return None
    tensors = [v for v in node.present_operands if v.type.rank]
    return (
        tensors[0]
        if len(tensors) == 1 and tensors[0].type.shape == value.type.shape
        else None
    )


def _broadcast_shape(
    value: Value, target: Sequence[Dim], shape: Sequence[Dim], groups: Groups
) -> tuple[Dim, ...] | None:
    """The shape that makes `value` broadcast over `target` as it does over `shape`."""
    sizes = (*([1] * (len(shape) - value.type.rank)), *value.type.shape)
    result: list[Dim] = [1] * len(target)
    for mine, theirs in groups:
        here = [(sizes[a], shape[a]) for a in theirs if shape[a] != 1]
        if all(size == full for size, full in here):
            for axis in mine:
                result[axis] = target[axis]
        elif any(size != 1 for size, _ in here):
            return None
    while len(result) > 1 and result[0] == 1:
        del result[0]
    return tuple(result)
