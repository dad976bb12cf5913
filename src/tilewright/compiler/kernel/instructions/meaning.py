"""What an instruction computes, as an expression of its operands: its loops, written out.

The loops over a tile are lanes and not written out: each lane takes its own elements of the tile's words.

The evaluator runs it, machines without the instruction compute it, and a test holds it against the loops run
by the evaluator themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

from tilewright.base import symbolic
from tilewright.base.dtypes import DType, u8, u16
from tilewright.base.errors import InternalError
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.expressions import binary as operation
from tilewright.compiler.kernel.expressions import bitcast, cast, const
from tilewright.compiler.kernel.fields import children, with_children
from tilewright.compiler.kernel.rewrite import substitute

_UNSIGNED = {8: u8, 16: u16}
Points = Sequence[Mapping[str, int]]
"""For every lane of a tile, what the loops over the tile are there; one without loops for a lane that stands alone."""


def meaning(
    instruction: ir.Instruction, operands: Sequence[ir.Expression]
) -> ir.Expression:
    """The result of an instruction, lane by lane."""
    total = instruction.parameters[0]
    holds = dict(zip(instruction.parameters, operands, strict=True))
    names: list[str] = []
    body = instruction.body
    for _ in total.shape:
        (loop,) = body
        assert isinstance(loop, ir.For), "the loops over a tile are the outermost"
        names.append(loop.var.name)
        body = loop.body
    places = product(*(range(int(str(extent))) for extent in total.shape))
    points = [dict(zip(names, place, strict=True)) for place in places]
    _run(instruction, body, holds, points)
    return holds[total]


def _run(
    instruction: ir.Instruction,
    body: ir.Body,
    holds: dict[ir.Buffer, ir.Expression],
    points: Points,
) -> None:
    """What the parameters hold after the statements of a body."""
    for statement in body:
        match statement:
            case ir.For(extent=int() as extent):
                for step in range(extent):
                    inside = substitute(statement.body, {statement.var.name: step})
                    _run(instruction, inside, holds, points)
            case ir.Store():
                holds[statement.buffer] = _image(statement.value, holds, points)
            case _:
                raise InternalError(
                    f"instruction '{instruction.name}': a {type(statement).__name__} has no "
                    "meaning in lanes"
                )


def _image(
    value: ir.Expression, holds: dict[ir.Buffer, ir.Expression], points: Points
) -> ir.Expression:
    """A value of one lane, in all of them."""
    lanes = next(iter(holds.values())).lanes
    if isinstance(value, ir.Load):
        whole = holds[value.buffer]
        if value.buffer is next(iter(holds)):
            return whole  # a lane has its own total only
        if len(points) > 1:
            return _elements_of_tiles(whole, value, points)
        (*_, place) = value.indices
        return _element(whole, place, value.dtype)
    if isinstance(value, ir.Const):
        return replace(value, lanes=lanes)
    parts = [_image(part, holds, points) for part in children(value)]
    return replace(with_children(value, parts), lanes=lanes)


def _elements_of_tiles(
    words: ir.Expression, load: ir.Load, points: Points
) -> ir.Expression:
    """For every lane the element that it reads of the words of its tile."""
    shape = [int(str(extent)) for extent in load.buffer.shape]
    tiles = range(words.lanes // len(points))
    order: list[int] = []
    for tile, point in product(tiles, points):
        place = tile
        for index, extent in zip(load.indices, shape, strict=True):
            at = symbolic.substitute(index, point)
            assert isinstance(at, int), "loops are written out"
            place = place * extent + at
        order.append(place)
    elements = bitcast(words, load.dtype)
    assert elements.lanes == len(tiles) * math.prod(shape), "words hold whole tiles"
    return ir.Permuted(elements, tuple(order), load.dtype, words.lanes)


def _element(word: ir.Expression, place: object, dtype: DType) -> ir.Expression:
    """One of the elements that lie side by side in a word."""
    assert isinstance(place, int), "loops are written out"
    if dtype is word.dtype:
        return word
    bits = const(place * dtype.bits, word.dtype, word.lanes)
    low = cast(operation("shr", word, bits), _UNSIGNED[dtype.bits])
    return bitcast(low, dtype)
