"""In what range the elements of an integer tensor lie, as far as the graph tells.

Follows values back through the `ranges` of their ops.  A bound is a dimension, which may be
symbolic, or None where nothing is known.  Bytes and 16-bit integers have at least the bounds of
their type, and no range leaves that of a type: what may have wrapped is not known.  Called by
`guard_indices`, `contract_integers` and the identities of comparisons.
"""

from __future__ import annotations

from typing import Final, final

from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Value
from tilewright.compiler.graph.schema import UNKNOWN, Array, Asked, Range
from tilewright.compiler.ops.ranges import first_known, is_at_least, limits
from tilewright.compiler.transforms.matching import constant_of

_DEPTH: Final = 64  # ops that are followed back
_LARGEST: Final = 1 << 62  # bounds beyond may have wrapped
_NARROW: Final = 16  # bits of a type up to which its own bounds say something


@final
class ValueRanges:
    """The ranges of the values of one graph, each found once."""

    def __init__(self) -> None:
        self._known: dict[Value, Range] = {}

    def of(self, value: Value, depth: int = _DEPTH) -> Range:
        """The range of the elements of `value`."""
        if value not in self._known:
            self._known[value] = self._found(value, depth, None)
        return self._known[value]

    def of_column(self, value: Value, column: int, depth: int = _DEPTH) -> Range:
        """The range of the elements at place `column` of the last axis of `value`."""
        return self._found(value, depth, column)

    def _found(self, value: Value, depth: int, column: int | None) -> Range:
        found = self._find(value, depth, column) if depth else UNKNOWN
        found = _within(found, value.type.dtype)
        return Range(_sane(found.low), _sane(found.high))

    def _find(self, value: Value, depth: int, column: int | None) -> Range:
        if value.type.dtype.is_bool:
            return Range(0, 1)
        array, node = constant_of(value), value.node
        if array is not None:
            return _of_array(array if column is None else array[..., column])
        if node is None or node.schema.ranges is None:
            return UNKNOWN

        def of_operand(position: int, place: int | None) -> Range:
            operand = node.operands[position]
            if operand is None:
                return UNKNOWN
            if place is None:
                return self.of(operand, depth - 1)
            return self.of_column(operand, place, depth - 1)

        types, attributes = node.operand_types, node.attributes
        return node.schema.ranges(Asked(types, attributes, value.type, column, of_operand))


def _sane(bound: Dim | None) -> Dim | None:
    return None if isinstance(bound, int) and abs(bound) >= _LARGEST else bound


def _within(found: Range, dtype: DType) -> Range:
    """`found` as far as the type holds it."""
    if not dtype.is_integer:
        return found
    least, most = limits(dtype)
    narrow = dtype.bits <= _NARROW
    if any(_may_leave(bound, least, most, open_ended=narrow) for bound in found):
        return Range(least, most) if narrow else UNKNOWN
    if not narrow:
        return found
    return Range(first_known(found.low, least), first_known(found.high, most))


def _may_leave(bound: Dim | None, least: int, most: int, *, open_ended: bool) -> bool:
    """Whether a bound lies outside; a symbolic one does where `open_ended`."""
    if isinstance(bound, int):
        return not least <= bound <= most
    # What is below nothing wraps around to the largest numbers.
    wraps = least == 0 and bound is not None and not is_at_least(bound, 0)
    return wraps or (bound is not None and open_ended)


def _of_array(array: Array) -> Range:
    if array.dtype.kind not in "biuf" or not array.size:
        return UNKNOWN
    low, high = float(array.min()), float(array.max())
    if not -_LARGEST < low <= high < _LARGEST:  # NaN too
        return UNKNOWN
    if array.dtype.kind != "f":
        return Range(int(array.min()), int(array.max()))
    return Range(int(low // 1), int(-(-high // 1)))
