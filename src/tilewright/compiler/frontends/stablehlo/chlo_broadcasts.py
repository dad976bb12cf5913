"""Rows for CHLO's operations that broadcast as numpy does: `chlo.broadcast_add` and its like.

Source: CHLO, "broadcasting binary ops".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.stablehlo.bits import ROWS as BITS
from tilewright.compiler.frontends.stablehlo.call import Call
from tilewright.compiler.frontends.stablehlo.demands import SAME_SHAPE
from tilewright.compiler.frontends.stablehlo.elementwise import ROWS as ELEMENTWISE
from tilewright.compiler.frontends.stablehlo.elementwise import condition_fits
from tilewright.compiler.frontends.stablehlo.held import Held, dims_of, on_parts
from tilewright.compiler.frontends.stablehlo.movement import broadcast_in
from tilewright.compiler.frontends.stablehlo.row import Build, Result, Row, row
from tilewright.compiler.frontends.stablehlo.special_functions import ROWS as SPECIAL
from tilewright.compiler.frontends.stablehlo.tree import Number

_OPERATIONS: Final = {
    "add": "stablehlo.add", "and": "stablehlo.and", "atan2": "stablehlo.atan2",
    "compare": "stablehlo.compare", "complex": "stablehlo.complex", "divide": "stablehlo.divide",
    "maximum": "stablehlo.maximum", "minimum": "stablehlo.minimum",
    "multiply": "stablehlo.multiply", "next_after": "chlo.next_after", "or": "stablehlo.or",
    "polygamma": "chlo.polygamma", "power": "stablehlo.power",
    "remainder": "stablehlo.remainder", "select": "stablehlo.select",
    "shift_left": "stablehlo.shift_left",
    "shift_right_arithmetic": "stablehlo.shift_right_arithmetic",
    "shift_right_logical": "stablehlo.shift_right_logical", "subtract": "stablehlo.subtract",
    "xor": "stablehlo.xor", "zeta": "chlo.zeta",
}  # fmt: skip
_ABOUT_SHAPES: Final = (SAME_SHAPE, condition_fits)
_ROWS: Final = {entry.name: entry for entry in (*BITS, *ELEMENTWISE, *SPECIAL)}


def _broadcast(call: Call, held: Held, axes: tuple[int, ...], shape: Sequence[Dim]) -> Held:
    e, own = call.maker, dims_of(held)
    if len(axes) != len(own):
        axes = tuple(range(len(shape) - len(own), len(shape)))
    return on_parts(lambda x: broadcast_in(e, x, axes, shape), held)


def _shape(given: Sequence[Sequence[Dim]], axes: Sequence[int]) -> list[Dim]:
    """What shapes broadcast to; the axes of the shorter of two are `axes`, else its last ones are the last."""
    rank = max(map(len, given))
    found: list[Dim] = [1] * rank
    for own in given:
        places = range(rank - len(own), rank) if len(axes) != len(own) else axes
        for axis, size in zip(places, own, strict=True):
            if not 0 <= axis < rank:
                raise ModelError(f"dimensions {list(axes)} do not fit {rank} dimensions")
            # What a call decides gives way to what is written down.
            if found[axis] == 1 or (size != 1 and isinstance(size, int)):
                found[axis] = size
    return found


def _broadcasting(entry: Row) -> Build:
    def build(call: Call) -> Result:
        axes = call.integers("broadcast_dimensions", ())
        given = [dims_of(held) for held in call.operands]
        shape = _shape(given, axes)
        operands = [_broadcast(call, held, axes, shape) for held in call.operands]
        inner = call.on(operands)
        found = entry.build(inner)
        call.read |= inner.read
        return found

    return build


def _of_parts(entry: Row) -> Row:
    return row(
        f"chlo.broadcast_{entry.name.rpartition('.')[2]}",
        _broadcasting(entry),
        by_parts=entry.by_parts,
        demands=[each for each in entry.demands if each not in _ABOUT_SHAPES],
    )


def _constant_like(call: Call) -> Held:
    value = call.attribute("value")
    if not isinstance(value, Number):
        raise ModelError("attribute 'value' is no number")
    return call.maker.full(value.value, call.dtype(), dims_of(call.held(0)))


ROWS: Final[tuple[Row, ...]] = (
    *(_of_parts(_ROWS[name]) for name in _OPERATIONS.values()),
    row("chlo.constant_like", _constant_like),
)
