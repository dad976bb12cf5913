"""Rows that choose elements by comparing them: distinct ones, boxes that overlap no better one.

How many there are is read from the data (`kit.computed`).

Source: ONNX operator reference (NonMaxSuppression opset 11, Unique opset 11).
"""

from __future__ import annotations

from typing import Final

from tilewright.base import dtypes
from tilewright.compiler.frontends.kit import computed
from tilewright.compiler.frontends.kit.distinct import distinct
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import Row, row
from tilewright.compiler.ops.shapes import element_count


def _scalar_operand(call: Call, index: int, default: float | None) -> Tensor | None:
    """An operand of one element as a scalar."""
    e, given = call.maker, call.optional(index)
    if given is not None:
        return e.reshape(given, ())
    return None if default is None else e.scalar(default, dtypes.f32)


def _non_max_suppression(call: Call) -> Tensor:
    e, boxes, scores = call.maker, call.tensor(0), call.tensor(1)
    most = call.optional(2)
    most = computed.whole(e, 0) if most is None else e.reshape(most, ())
    ranked, order = e.ops("top_k", scores, k=(scores.shape[-1],), axis=-1)
    taken = e.op(
        "non_max_suppression",
        boxes,
        ranked,
        order,
        e.cast(most, dtypes.i64),
        _scalar_operand(call, 3, 0.0),
        _scalar_operand(call, 4, None),
        center_point_box=call.flag("center_point_box"),
    )
    count = element_count(scores.shape)
    places = computed.true_places(e, e.reshape(taken, (count,)), "boxes")
    chosen = e.op("gather", e.reshape(order, (count,)), places, axis=0)
    images_and_kinds = e.slice(computed.unraveled(e, places, scores.shape), 0, 0, 2)
    return e.transpose(e.concat([images_and_kinds, e.unsqueeze(chosen, (0,))], 0), (1, 0))


def _unique(call: Call) -> list[Tensor]:
    found = distinct(
        call.maker,
        call.tensor(0),
        call.attributes.integer("axis"),
        in_order=call.flag("sorted", default=True),
    )
    return [found.values, found.places, found.inverse, found.counts]


ROWS: Final[tuple[Row, ...]] = (
    row("NonMaxSuppression", _non_max_suppression),
    row("Unique", _unique),
)
