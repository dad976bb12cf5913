"""Constant folding behind an index: what is made of a row of constants is a row of what is made of them.

    f(gather(stack, i))     ->     gather(f of every row of stack, i)

A loop over layers picks the weights of a layer from the weights of all.  What its trips would move and pack, one
layer each, again and again, is moved and packed here once for all layers, with the oracles of the ops.  Not here:
what is made of constants alone (`fold_constants`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

import numpy as np

from tilewright.base.record import record
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.evaluator import evaluate_node
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.placement import empty_at_line
from tilewright.compiler.graph.schema import Array, Trait
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.indexing import gather
from tilewright.compiler.passes import Emitter, GraphPass, PassContext, PassResult
from tilewright.compiler.transforms.fold_constants import attributes_are_numbers, release
from tilewright.compiler.transforms.matching import constant_of, picks_one


@final
@record(kw_only=True)
class FoldRows(GraphPass):
    """Replace a node on rows of constants by a row of a constant.

    Requires: folded.  Ensures: types unchanged; no pure node remains whose operands are rows of constants, all at
    one place, or constants, where there are at most `most` rows and those of its result take at most `growth` times
    the bytes of theirs.

    A stack of layers has few rows; a table of words has many, of which a call reads one.
    """

    ensures: ClassVar[frozenset[str]] = frozenset({"rows-folded"})
    requires: ClassVar[frozenset[str]] = frozenset({"folded"})
    level: ClassVar[int] = 1
    growth: float = 1.5
    most: int = 1024

    def run(self, graph: Graph, _: PassContext) -> PassResult:
        """Fold in node order, so that chains fold in one go."""
        count = 0
        with Editor(graph) as edit:
            for node in edit.nodes():
                rows = _rows_of(node)
                if rows is not None and self._folds(node, rows):
                    _fold(node, rows, edit)
                    count += 1
            return PassResult(edit.modified, {"folded": count} if count else {})

    def _folds(self, node: Node, rows: _Rows) -> bool:
        result = node.result.type.size_bytes
        if not isinstance(result, int) or rows.count > self.most:
            return False
        held = sum(stack.nbytes for stack, _ in rows.stacks.values())
        return rows.count * result <= self.growth * held


@final
@record(eq=False)
class _Rows:
    """The operands of a node that are rows of constants.

    Attributes:
        place: which row, a tensor of one element.
        count: how many there are.
        stacks: by operand, the constant and the axis along which it is picked from.
    """

    place: Value
    count: int
    stacks: dict[int, tuple[Array, int]]

    def row(self, index: int, at: int) -> Array:
        """Row `at` of operand `index`, of the shape that the operand has."""
        array, axis = self.stacks[index]
        return np.take(array, at, axis)


def _rows_of(node: Node) -> _Rows | None:
    """The rows that a node is made of, if it is made of nothing else and they lie at one place."""
    if not node.has(Trait.PURE) or node.regions or len(node.results) != 1:
        return None
    if picks_one(node.result) or not attributes_are_numbers(node):
        return None
    stacks: dict[int, tuple[Array, int]] = {}
    places: list[Value] = []
    for index, value in enumerate(node.operands):
        if value is None or constant_of(value) is not None:
            continue
        if not picks_one(value) or value.node is None:
            return None
        stack = constant_of(value.node.operand())
        if stack is None:
            return None
        stacks[index] = (stack, value.node.number("axis") % stack.ndim)
        places.append(value.node.operand(1).origin)
    counts = {array.shape[axis] for array, axis in stacks.values()}
    if len(set(places)) != 1 or len(counts) != 1 or not min(counts):
        return None
    return _Rows(places[0], counts.pop(), stacks)


def _fold(node: Node, rows: _Rows, edit: Editor) -> None:
    emit = Emitter(edit, catalogue.schema, node)
    stack = emit.constant(_made(node, rows))
    place = emit.reshape(rows.place, ())
    result = emit.op(gather.name, [stack, place], {"axis": 0})
    operands = node.present_operands
    edit.replace(node, [result])
    _release_rows(edit, operands)


def _made(node: Node, rows: _Rows) -> Array:
    """What the node makes of every row, one after the other from the boundary of a cache line."""
    type_ = node.result.type
    shape = (rows.count, *(int(str(d)) for d in type_.shape))
    made = empty_at_line(shape, type_.dtype.numpy)
    for at in range(rows.count):
        (made[at],) = evaluate_node(node, _operands_at(node, rows, at))
    return made


def _operands_at(node: Node, rows: _Rows, at: int) -> list[Array | None]:
    return [
        rows.row(index, at).reshape([int(str(d)) for d in value.type.shape])
        if value is not None and index in rows.stacks
        else constant_of(value)
        for index, value in enumerate(node.operands)
    ]


def _release_rows(edit: Editor, operands: Sequence[Value]) -> None:
    """Let go of rows that nobody reads any more, and of the constants behind them."""
    for value in dict.fromkeys(operands):
        node = value.node
        if node is None or not edit.contains(node) or edit.use_count(value):
            continue
        if node.has(Trait.CONSTANT):
            release(edit, [value])
            continue
        behind = node.present_operands
        edit.erase(node)
        release(edit, [v for v in behind if constant_of(v) is not None])
        for other in behind:
            edit.erase_dead(other.node)
