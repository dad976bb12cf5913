"""Index checks: what data says is a place is looked at, once per tensor of indices.

Kernels clamp an index that is out of range, so that it reads no foreign memory; that alone would
be a wrong result without a word.  Here an `out_of_range` node is put beside each op that indexes;
the run's host side reads what the nodes found when everything else is done.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from tilewright.base.errors import InputError, ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.control import shape_tensor
from tilewright.compiler.ops.declaration import IndexRange, check_range
from tilewright.compiler.ops.indexing import out_of_range
from tilewright.compiler.ops.ranges import is_at_least
from tilewright.compiler.passes import Emitter, GraphPass, PassContext, PassResult
from tilewright.compiler.transforms.matching import constant_of, shows_everything
from tilewright.compiler.transforms.movement_rewrites import emit_slice
from tilewright.compiler.transforms.value_ranges import ValueRanges


@final
@record(kw_only=True)
class GuardIndices(GraphPass):
    """Put a check beside every op that indexes by data and clamps.

    Requires: nothing.  Ensures: an index that may be out of its range is checked; one that is
    known is in range.  What the graph shows to be in range (constants, positions, clamped values)
    costs nothing; equal checks are one.  Ops that run on the host check for themselves.

    Args:
        run_time: check what only a call can tell; constants are always checked.

    Raises: ModelError for a constant index that is out of range, naming the node.
    """

    ensures: ClassVar[frozenset[str]] = frozenset({"guarded"})
    required_because: ClassVar[str] = (
        "an index out of range would be a wrong result without a word; "
        "check_indices=False (--no-index-checks) leaves out what costs time in a call"
    )
    run_time: bool = True

    def run(self, graph: Graph, _: PassContext) -> PassResult:
        """One walk in order, so that the first check of a run is of the first node."""
        with Editor(graph) as edit:
            guards = _Guards(edit)
            for node in edit.nodes():
                if node.attributes.get("in_range"):
                    # Who makes a graph may say so; who reads memory by it wants to have seen it.
                    node.attributes["in_range"] = False
                for place in _places(node):
                    if not guards.is_known(node, place) and self.run_time:
                        guards.insert(node, place)
            counts = {"checks": len(guards.made)} if guards.made else {}
            return PassResult(edit.modified, counts)


def _places(node: Node) -> tuple[IndexRange, ...]:
    """What of a node are places, and in what range they must lie."""
    row = catalogue.find(node.op)
    if row is None or row.indices is None:
        return ()
    return row.indices(node.operand_types, row.complete(node.attributes))


def _once_each(value: Value) -> Value:
    """The tensor that `value` repeats: the same numbers, fewer of them.

    Not through a tensor that may be empty: nobody looks at what it repeats.
    """
    while value.node is not None and shows_everything(value.node):
        if not is_at_least(value.type.element_count, 1):
            return value
        value = value.node.operand()
    return value


@final
class _Guards:
    """The checks of one graph; `made` has what each is about."""

    def __init__(self, edit: Editor) -> None:
        self.edit: Editor = edit
        self.made: set[tuple[Value | None, Dim, int | None, Dim, Dim]] = set()
        self._ranges: ValueRanges = ValueRanges()

    def is_known(self, node: Node, place: IndexRange) -> bool:
        """Whether no run needs to look.  Raises: ModelError for a constant out of range."""
        if place.operand is None:
            number = place.number
            return is_at_least(number, place.low) and is_at_least(place.high, number)
        value = node.operands[place.operand]
        if value is None or value.type.element_count == 0:
            return True
        array = constant_of(value)
        is_number = isinstance(place.low, int) and isinstance(place.high, int)
        if array is not None and is_number:
            try:
                check_range(np.asarray(array), place)
            except InputError as error:
                raise ModelError(error.message, location=node.location) from error
            return True
        if not catalogue.lookup(node.op).supports(node.operand_types, node.attributes):
            return True
        found = (
            self._ranges.of(value)
            if place.column is None
            else self._ranges.of_column(value, place.column)
        )
        return is_at_least(found.low, place.low) and is_at_least(place.high, found.high)

    def insert(self, node: Node, place: IndexRange) -> None:
        """Check the operand of `node`, or its number, unless an earlier check is the same."""
        value = None if place.operand is None else node.operands[place.operand]
        if value is not None and place.column is None:
            value = _once_each(value)
        key = (value, place.number, place.column, place.low, place.high)
        if key in self.made:
            return
        self.made.add(key)
        emit = Emitter(self.edit, catalogue.schema, node)
        if value is None:
            value = emit.op(shape_tensor.name, [], {"values": (place.number,)})
        if place.column is not None:
            axis = value.type.rank - 1
            value = emit_slice(emit, value, {axis: (place.column, 1, 1)})
        attributes = {
            "low": (place.low,),
            "high": (place.high,),
            "axis": place.axis,
            "size": (place.size,),
        }
        emit.node(out_of_range.name, [value], attributes)
