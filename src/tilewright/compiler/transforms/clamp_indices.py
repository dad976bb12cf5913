"""Indices along rows are brought in range before rows are picked by them.

    gather(x: [N, 64], i: [4096])     ->     gather(x, clamp_index(i)) {in_range = true}

A kernel clamps what it loads as an index, so that it reads no foreign memory.  Where many rows are picked from by the same
indices, as an image that is warped or resampled has channels, that is done once for all of them, and what is left of an
index is short.  What fusion makes of `clamp_index`, whether it is kept in memory, is a question of cost.
"""

from __future__ import annotations

from typing import ClassVar, Final, cast, final

from tilewright.base import symbolic
from tilewright.base.dtypes import DType, i32, i64
from tilewright.base.record import field, record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.indexing import clamp_index, gather, gather_elements
from tilewright.compiler.passes import Emitter, GraphPass, PassContext, PassResult
from tilewright.compiler.transforms.guard_indices import GuardIndices
from tilewright.compiler.transforms.matching import constant_of, shows_everything

_PICKING: Final = (gather.name, gather_elements.name)


@final
@record(kw_only=True)
class ClampIndices(GraphPass):
    """Bring indices of the innermost axis in range where several rows are picked from by them.

    Requires: guarded, for what is clamped is no longer seen to be out of range.  Ensures: who picks by `in_range` indices
    reads them from a constant whose numbers are in range, or from `clamp_index`, through moves alone.
    """

    requires: ClassVar[frozenset[str]] = GuardIndices.ensures
    ensures: ClassVar[frozenset[str]] = frozenset({"indices-clamped"})
    level: ClassVar[int] = 2

    def run(self, graph: Graph, _: PassContext) -> PassResult:
        """One look at each node."""
        with Editor(graph) as edit:
            clamped = _Clamped(edit)
            for node in edit.nodes():
                if node.op in _PICKING and not node.attributes.get("in_range"):
                    clamped.look_at(node)
            counts = {"indices": clamped.count} if clamped.count else {}
            return PassResult(edit.modified, counts)


@final
@record(frozen=False)
class _Clamped:
    """The clamped indices of one graph, each made once."""

    edit: Editor
    count: int = 0
    made: dict[tuple[Value, Dim], Value] = field(
        default_factory=dict[tuple[Value, Dim], Value]
    )

    def look_at(self, node: Node) -> None:
        """Let `node` pick by indices in range, if that pays."""
        x, indices = node.operand(), node.operand(1)
        axis = cast("int", node.attributes.get("axis", 0)) % x.type.rank
        size = x.type.shape[axis]
        moves: list[Node] = []
        if not _is_in_range(indices, size):
            if axis != x.type.rank - 1 or not indices.type.rank:
                return
            source, moves = _repeated(indices)
            rows = x.type.shape[:-1] if node.op == gather.name else ()
            if source is indices and all(d == 1 for d in rows):
                return
            indices = self._clamp(source, size, node)
        emit = Emitter(self.edit, catalogue.schema, node)
        for move in moves:
            indices = emit.op(move.op, [indices, *move.operands[1:]], move.attributes)
        attributes = {**node.attributes, "in_range": True}
        self.edit.replace_uses(node.result, emit.op(node.op, [x, indices], attributes))
        self.edit.erase_dead(node)
        self.count += 1

    def _clamp(self, indices: Value, size: Dim, node: Node) -> Value:
        if (indices, size) not in self.made:
            emit = Emitter(self.edit, catalogue.schema, node)
            attributes = {"size": (size,), "dtype": _places_of(size)}
            self.made[indices, size] = emit.op(clamp_index.name, [indices], attributes)
        return self.made[indices, size]


def _places_of(size: Dim) -> DType:
    """The shortest type that kernels pick by and that holds the places of an axis."""
    most = symbolic.bounds(size)[1]
    return i32 if most is not None and most <= 1 << (i32.bits - 1) else i64


def _is_in_range(indices: Value, size: Dim) -> bool:
    """Whether they are numbers that count from the front."""
    array = constant_of(indices)
    if array is None or not array.size or not isinstance(size, int):
        return False
    return bool(array.min() >= 0) and bool(array.max() < size)


def _repeated(value: Value) -> tuple[Value, list[Node]]:
    """The tensor whose elements `value` repeats, and the moves that do, in order."""
    moves: list[Node] = []
    found, source = list[Node](), value
    while source.node is not None and shows_everything(source.node):
        found.insert(0, source.node)
        before, source = source, source.node.operand()
        if source.type.element_count != before.type.element_count:
            value, moves = source, list(found)
    return value, moves
