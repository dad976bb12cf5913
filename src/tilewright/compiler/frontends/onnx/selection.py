"""Rows that choose elements by comparing them: distinct ones, boxes that overlap no better one.

How many there are is read from the data (`kit.computed`).

Source: ONNX operator reference (NonMaxSuppression opset 11, Unique opset 11).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit import computed
from tilewright.compiler.frontends.kit.distinct import distinct
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.generation_scores import (
    ends_of_repeated_runs,
    has_runs,
    marked,
)
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row
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
    size = scores.shape[-1]
    # Exporters write how many are wanted; so many are looked for in what comes out.
    room = size if most.array is None else symbolic.minimum(size, max(0, int(most.array)))
    picked = e.op(
        "non_max_suppression",
        boxes,
        scores,
        e.cast(most, dtypes.i64),
        _scalar_operand(call, 3, 0.0),
        _scalar_operand(call, 4, None),
        room=(room,),
        center_point_box=call.flag("center_point_box"),
    )
    shape = picked.shape
    picked = e.reshape(picked, (element_count(shape),))
    is_one = e.op("greater_equal", picked, computed.whole(e, 0))
    places = computed.true_places(e, is_one, "boxes")
    chosen = e.op("gather", picked, places, axis=0)
    images_and_kinds = e.slice(computed.unraveled(e, places, shape), 0, 0, 2)
    return e.transpose(e.concat([images_and_kinds, e.unsqueeze(chosen, (0,))], 0), (1, 0))


def _unique(call: Call) -> list[Tensor]:
    found = distinct(
        call.maker,
        call.tensor(0),
        call.attributes.integer("axis"),
        in_order=call.flag("sorted", default=True),
    )
    return [found.values, found.places, found.inverse, found.counts]


def _contributed_unique(call: Call) -> list[Tensor]:
    """Distinct elements as they first appear, what each is of them, how often they are there."""
    found = distinct(call.maker, call.tensor(0), in_order=False)
    return [found.values, found.inverse, found.counts]


def _n_gram_repeat_block(call: Call) -> Tensor:
    """Scores of what would repeat a run of tokens become the lowest."""
    e, ids, scores = call.maker, call.tensor(0), call.tensor(1)
    size = call.integer("ngram_size")
    if size < 1:
        raise ModelError(f"attribute 'ngram_size' is {size}, expected at least 1")
    if not has_runs(ids, size):
        return scores
    tokens, repeats = ends_of_repeated_runs(e, ids, size)
    never = marked(e, scores, tokens, repeats)
    return e.op("where", never, e.scalar(-np.inf, scores.dtype), scores)


ROWS: Final[tuple[Row, ...]] = (
    row("NonMaxSuppression", _non_max_suppression),
    row("Unique", _unique),
    row("NGramRepeatBlock", _n_gram_repeat_block, domain=MICROSOFT),
    row("Unique", _contributed_unique, domain=MICROSOFT),
)
