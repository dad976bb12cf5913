"""Loops read a row of a table where it lies: the weights of a layer, in a loop over layers.

    gather(table, i)     ->     pick_row(table, i)

A kernel that reads elementwise takes the gather into its loads. One that reads its operand from memory, as products
do, or that adds it to what a product makes, would get a copy of the row in each trip; `pick_row` says where the row is
instead, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar, Final, final

from tilewright.base import dtypes
from tilewright.base.record import record
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import Role, Trait
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.indexing import pick_row
from tilewright.compiler.ops.ranges import is_at_least
from tilewright.compiler.passes import Emitter, GraphPass, PassContext, PassResult
from tilewright.compiler.transforms.guard_indices import GuardIndices
from tilewright.compiler.transforms.matching import constant_of, picks_one

_DEPTH: Final = 4  # elementwise ops behind a product
_FROM_MEMORY: Final = (Role.CONTRACTION, Role.ATTENTION, Role.POOLING, Role.ALONE)


@final
@record(kw_only=True)
class PickRows(GraphPass):
    """In bodies of loops, write what picks a row for a kernel that reads it from memory as `pick_row`.

    Requires: guarded, for a row has no check of its own.  Ensures: tables are constants, or what the loop reads from
    outside, and never empty; rows have at least `least_bytes`, and a size that is known.  Bodies in which sizes are read stay as they are.
    """

    ensures: ClassVar[frozenset[str]] = frozenset({"rows-picked"})
    requires: ClassVar[frozenset[str]] = GuardIndices.ensures
    level: ClassVar[int] = 2
    least_bytes: int = 1 << 12

    def run(self, graph: Graph, _: PassContext) -> PassResult:
        """One look at the body of each loop."""
        count = sum(self._in_body(node) for node in graph if node.has(Trait.LOOP))
        return PassResult(bool(count), {"rows": count} if count else {})

    def _in_body(self, loop: Node) -> int:
        body = loop.regions[1]
        if any(node.has(Trait.BINDS) for node in body.walk()):
            return 0
        outside = body.inputs[len(loop.results) :]
        count = 0
        with Editor(body) as edit:
            for node in edit.nodes():
                if self._fits(node, outside) and _is_read_from_memory(node.result, edit):
                    _pick(node, edit)
                    count += 1
        return count

    def _fits(self, node: Node, outside: Collection[Value]) -> bool:
        if not node.results or not picks_one(node.results[0]):
            return False
        table, place = node.operand(), node.operand(1)
        if constant_of(table) is None and table not in outside:
            return False
        axis = node.number("axis") % table.type.rank
        size = node.result.type.size_bytes
        return (
            place.type.dtype is dtypes.i64
            and is_at_least(table.type.shape[axis], 1)
            and all(extent == 1 for extent in table.type.shape[:axis])
            and isinstance(size, int)
            and size >= self.least_bytes
        )


def _is_read_from_memory(value: Value, edit: Editor) -> bool:
    return any(
        user.schema.role in _FROM_MEMORY
        or (user.schema.role is Role.POINTWISE and _follows_product(user, value))
        or (user.has(Trait.VIEW) and _is_read_from_memory(user.result, edit))
        for user in edit.users(value)
    )


def _follows_product(user: Node, value: Value, depth: int = _DEPTH) -> bool:
    """Whether the other operands are made of a product: the kernel is its, and moves nothing that data picks."""
    for other in user.present_operands:
        maker = other.node
        if other is value or maker is None:
            continue
        if maker.schema.role is Role.CONTRACTION:
            return True
        passes = maker.schema.role in (Role.POINTWISE, Role.VIEW)
        if depth and passes and _follows_product(maker, value, depth - 1):
            return True
    return False


def _pick(node: Node, edit: Editor) -> None:
    shape = {"shape": node.result.type.shape}
    emit = Emitter(edit, catalogue.schema, node)
    edit.replace(node, [emit.op(pick_row.name, node.operands, shape)])
