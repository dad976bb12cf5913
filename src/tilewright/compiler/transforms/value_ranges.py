"""In what range the elements of an integer tensor lie, as far as the graph tells.

Follows values back through ops that move, count, clamp and add.  A bound is a dimension, which
may be symbolic, or None where nothing is known.  Bytes and 16-bit integers have at least the
bounds of their type, and no range leaves that of a type: what may have wrapped is not known.  NaN
has no place in a range: what is cast from a float keeps the bounds of the numbers.  Called by
`guard_indices` and `contract_integers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, final

from tilewright.base import symbolic
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Array, Trait
from tilewright.compiler.transforms.matching import (
    constant_of,
    dims,
    has,
    number,
    operand,
    optional_operand,
    word,
)

_DEPTH: Final = 64  # ops that are followed back
_LARGEST: Final = 1 << 62  # bounds beyond may have wrapped
_NARROW: Final = 16  # bits of a type up to which its own bounds say something


class Range(NamedTuple):
    """`low .. high`, both included; None: no bound."""

    low: Dim | None
    high: Dim | None


UNKNOWN: Final = Range(None, None)


def is_at_least(left: Dim | None, right: Dim | None) -> bool:
    """Whether `left >= right` holds for every size."""
    if left is None or right is None:
        return False
    lowest = symbolic.bounds(left - right)[0]
    return lowest is not None and lowest >= 0


@final
class ValueRanges:
    """The ranges of the values of one graph, each found once."""

    def __init__(self) -> None:
        self._known: dict[Value, Range] = {}

    def of(self, value: Value, depth: int = _DEPTH) -> Range:
        """The range of the elements of `value`."""
        if value not in self._known:
            found = self._find(value, depth) if depth else UNKNOWN
            found = _within(found, value.type.dtype)
            self._known[value] = Range(_sane(found.low), _sane(found.high))
        return self._known[value]

    def of_column(self, value: Value, column: int) -> Range:
        """The range of the elements at place `column` of the last axis of `value`."""
        node = value.node
        last = value.type.rank - 1
        if node is not None and node.op == "concat":
            if number(node, "axis") % value.type.rank == last:
                return self._of_part(node, column)
        elif node is not None and node.op == "broadcast_to":
            source = operand(node)
            if source.type.rank and source.type.shape[-1] == value.type.shape[-1]:
                return self.of_column(source, column)
        array = constant_of(value)
        return self.of(value) if array is None else _of_array(array[..., column])

    def _of_part(self, node: Node, column: int) -> Range:
        for part in node.present_operands:
            width = part.type.shape[-1]
            if not isinstance(width, int):
                return UNKNOWN
            if column < width:
                return self.of(part) if width == 1 else self.of_column(part, column)
            column -= width
        return UNKNOWN

    def _find(self, value: Value, depth: int) -> Range:
        if value.type.dtype.is_bool:
            return Range(0, 1)
        node = value.node
        if node is None:
            return UNKNOWN
        array = constant_of(value)
        if array is not None:
            return _of_array(array)
        rule = _RULES.get(node.op)
        if rule is not None:
            found = rule(node, [self._operand(v, depth) for v in node.operands])
            return UNKNOWN if _may_wrap(node, found) else found
        if has(node, Trait.VIEW) or node.op in _MOVES:
            return self.of(operand(node), depth - 1)
        return UNKNOWN

    def _operand(self, value: Value | None, depth: int) -> Range:
        return UNKNOWN if value is None else self.of(value, depth - 1)


def _may_wrap(node: Node, found: Range) -> bool:
    """Whether numbers may leave the type where there is no bound, and come back where there is."""
    dtype = node.result.type.dtype
    if not dtype.is_integer or (found.low is not None and found.high is not None):
        return False
    if node.op != "cast":
        return node.op in _WRAPPING
    source = operand(node).type.dtype
    if not source.is_integer:
        return False  # floats saturate
    (least, most), (low, high) = _limits(dtype), _limits(source)
    return low < least or high > most


def _sane(bound: Dim | None) -> Dim | None:
    return None if isinstance(bound, int) and abs(bound) >= _LARGEST else bound


def _limits(dtype: DType) -> tuple[int, int]:
    """The least and largest number of an integer type."""
    if dtype.is_signed:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def _within(found: Range, dtype: DType) -> Range:
    """`found` as far as the type holds it."""
    if not dtype.is_integer:
        return found
    least, most = _limits(dtype)
    narrow = dtype.bits <= _NARROW
    if any(_may_leave(bound, least, most, open_ended=narrow) for bound in found):
        return Range(least, most) if narrow else UNKNOWN
    if not narrow:
        return found
    return Range(_first_known(found.low, least), _first_known(found.high, most))


def _may_leave(bound: Dim | None, least: int, most: int, *, open_ended: bool) -> bool:
    """Whether a bound lies outside; a symbolic one does where `open_ended`."""
    if isinstance(bound, int):
        return not least <= bound <= most
    return bound is not None and open_ended


def _of_array(array: Array) -> Range:
    if array.dtype.kind not in "biuf" or not array.size:
        return UNKNOWN
    low, high = float(array.min()), float(array.max())
    if not -_LARGEST < low <= high < _LARGEST:  # NaN too
        return UNKNOWN
    if array.dtype.kind != "f":
        return Range(int(array.min()), int(array.max()))
    return Range(int(low // 1), int(-(-high // 1)))


Operands = list[Range]
Rule = Callable[[Node, Operands], Range]


def _least(a: Dim | None, b: Dim | None) -> Dim | None:
    """The lesser of two bounds, None where sizes decide."""
    return a if is_at_least(b, a) else b if is_at_least(a, b) else None


def _greatest(a: Dim | None, b: Dim | None) -> Dim | None:
    return a if is_at_least(a, b) else b if is_at_least(b, a) else None


def _union(a: Range, b: Range) -> Range:
    return Range(_least(a.low, b.low), _greatest(a.high, b.high))


def _first_known(a: Dim | None, b: Dim | None) -> Dim | None:
    return b if a is None else a


def _smaller(_: Node, given: Operands) -> Range:
    a, b = given[0], given[1]
    high = _least(a.high, b.high)
    # Either bounds the result; without a proof of which is lower, the one that came as an operand.
    return Range(_least(a.low, b.low), _first_known(high, _first_known(b.high, a.high)))


def _larger(_: Node, given: Operands) -> Range:
    a, b = given[0], given[1]
    low = _greatest(a.low, b.low)
    return Range(_first_known(low, _first_known(b.low, a.low)), _greatest(a.high, b.high))


def _clamped(node: Node, given: Operands) -> Range:
    """`clip`: an absent limit bounds nothing."""
    result = given[0]
    if optional_operand(node, 1) is not None:
        result = _larger(node, [result, given[1]])
    if optional_operand(node, 2) is not None:
        result = _smaller(node, [result, given[2]])
    return result


def _sum(_: Node, given: Operands) -> Range:
    a, b = given
    low = None if a.low is None or b.low is None else a.low + b.low
    high = None if a.high is None or b.high is None else a.high + b.high
    return Range(low, high)


def _difference(node: Node, given: Operands) -> Range:
    a, b = given
    turned = Range(*(None if bound is None else -bound for bound in (b.high, b.low)))
    return _sum(node, [a, turned])


def _product(_: Node, given: Operands) -> Range:
    """Of numbers that are not negative."""
    a, b = given
    if not is_at_least(a.low, 0) or not is_at_least(b.low, 0):
        return UNKNOWN
    high = None if a.high is None or b.high is None else a.high * b.high
    return Range(0, high)


def _either(_: Node, given: Operands) -> Range:
    return _union(given[1], given[2])


def _all_of(_: Node, given: Operands) -> Range:
    result = given[0]
    for other in given[1:]:
        result = _union(result, other)
    return result


def _same(_: Node, given: Operands) -> Range:
    return given[0]


def _padded(node: Node, given: Operands) -> Range:
    if word(node, "mode") != "constant":
        return given[0]
    filled = optional_operand(node, 1) is not None
    return _union(given[0], given[1] if filled else Range(0, 0))


def _counted(node: Node, _: Operands) -> Range:
    axis = number(node, "axis")
    return Range(0, node.result.type.shape[axis] - 1)


def _position(node: Node, _: Operands) -> Range:
    shape = operand(node).type.shape
    return Range(0, shape[number(node, "axis")] - 1)


def _listed(node: Node, _: Operands) -> Range:
    found = [Range(d, d) for d in dims(node, "values")]
    return _all_of(node, found) if found else UNKNOWN


# Results are operand elements at other places, and nothing else.
_MOVES: Final = frozenset(
    ("transpose", "broadcast_to", "slice", "tile", "gather", "gather_elements", "gather_nd",
     "reverse_sequence", "full", "identity", "reduce_max", "reduce_min")
)  # fmt: skip
# What integers do not hold of these comes back at the other end; of casts, too.
_WRAPPING: Final = frozenset(("add", "sub", "mul"))
_RULES: Final[Mapping[str, Rule]] = {
    "add": _sum,
    "sub": _difference,
    "mul": _product,
    "min": _smaller,
    "max": _larger,
    "clip": _clamped,
    "where": _either,
    "concat": _all_of,
    "pad": _padded,
    "cast": _same,
    "floor": _same,
    "ceil": _same,
    "round": _same,
    "iota": _counted,
    "arg_max": _position,
    "arg_min": _position,
    "shape_tensor": _listed,
}
