"""Non-maximum suppression: the best boxes that overlap no better one.

As few are chosen of many, nothing is put in order.  Every score gets an integer key that grows with its rank; of each
block of boxes the best key is known, so that the next candidate is found by looking at the blocks and into one of
them.  It is held against all boxes that were chosen before at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast, final

import numpy as np

from tilewright.base import symbolic
from tilewright.base.dtypes import f32, i32, i64
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, TensorType
from tilewright.compiler.kernel.builder import KernelBuilder, Source
from tilewright.compiler.kernel.ir import Buffer, Expression
from tilewright.compiler.ops.bodies import (
    Operands,
    Results,
    given,
    maybe,
    order_key,
    picking_nest,
)
from tilewright.compiler.ops.declaration import (
    OpDecl,
    Types,
    attr,
    declare,
    operand,
    optional,
)
from tilewright.compiler.ops.shapes import check_same, need

_PASSED_OVER: Final = 64
"""Boxes of which only the best score is looked at while another one is better."""
NO_KEY: Final = -(1 << 31)
"""Below the key of any score."""


def _suppress_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    boxes, scores = need(types, 0), need(types, 1)
    if not boxes.rank == scores.rank == 3:
        raise ModelError(f"boxes {boxes} with scores {scores}")
    check_same(f"sides of {boxes}", boxes.shape[2], 4)
    check_same(f"images of {boxes}", boxes.shape[0], scores.shape[0])
    check_same(f"boxes of {scores}", scores.shape[2], boxes.shape[1])
    (room,) = cast("tuple[Dim, ...]", attributes["room"])
    return (TensorType(i64, (*scores.shape[:2], room)),)


def _corners(boxes: np.ndarray, *, center: bool) -> np.ndarray:
    """Boxes as (low y, low x, high y, high x)."""
    if center:
        x, y, width, height = boxes.T
        return np.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2], 1)
    low, high = (
        np.minimum(boxes[:, :2], boxes[:, 2:]),
        np.maximum(boxes[:, :2], boxes[:, 2:]),
    )
    return np.concatenate([low, high], 1)


def _overlaps(box: np.ndarray, others: np.ndarray, threshold: float) -> bool:
    """Whether intersection over union with one of `others` exceeds a threshold."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.prod(high - low, 1)
    areas = np.prod(others[:, 2:] - others[:, :2], 1)
    own = np.prod(box[2:] - box[:2])
    union = own + areas - shared
    valid = (high > low).all(1) & (own > 0) & (areas > 0) & (union > 0)
    return bool((valid & (shared / np.where(valid, union, 1) > threshold)).any())


def _suppress_oracle(
    boxes: np.ndarray, scores: np.ndarray, most: np.ndarray, iou: np.ndarray,
    least: np.ndarray | None, *, room: tuple[int], center_point_box: bool,
) -> np.ndarray:  # fmt: skip
    picked = np.full((*scores.shape[:2], *room), -1, np.int64)
    for image, kind in np.ndindex(*scores.shape[:2]):
        corners = _corners(boxes[image], center=center_point_box)
        own = scores[image, kind]
        # NaN counts as the largest; equal scores keep their order.
        order = np.argsort(-np.where(np.isnan(own), np.inf, own), kind="stable")
        order = np.concatenate([order[np.isnan(own[order])], order[~np.isnan(own[order])]])
        chosen: list[int] = []
        for candidate in order:
            low = least is not None and not own[candidate] > least
            if len(chosen) >= min(int(most), *room) or low:
                continue
            if not _overlaps(corners[candidate], corners[chosen], float(iou)):
                picked[image, kind, len(chosen)] = candidate
                chosen.append(int(candidate))
    return picked


@final
@record
class _Box:
    """The sides and the area of a box."""

    low: tuple[Expression, Expression]
    high: tuple[Expression, Expression]
    area: Expression


def _box(b: KernelBuilder, values: Sequence[Expression], *, center: bool) -> _Box:
    if center:
        half = [b.div(size, 2) for size in values[2:]]
        sides = [
            (b.sub(middle, size), b.add(middle, size))
            for middle, size in zip(values[:2], half, strict=True)
        ]
    else:
        sides = [
            (b.min(one, other), b.max(one, other))
            for one, other in zip(values[:2], values[2:], strict=True)
        ]
    (y, bottom), (x, right) = sides
    return _Box((y, x), (bottom, right), b.mul(b.sub(bottom, y), b.sub(right, x)))


def _clash(b: KernelBuilder, one: _Box, other: _Box, threshold: Expression) -> Expression:
    low = [b.max(p, q) for p, q in zip(one.low, other.low, strict=True)]
    high = [b.min(p, q) for p, q in zip(one.high, other.high, strict=True)]
    shared = b.mul(b.sub(high[0], low[0]), b.sub(high[1], low[1]))
    union = b.sub(b.add(one.area, other.area), shared)
    valid = b.and_(b.gt(high[0], low[0]), b.gt(high[1], low[1]))
    for area in (one.area, other.area, union):
        valid = b.and_(valid, b.gt(area, 0))
    return b.and_(valid, b.gt(b.div(shared, union), threshold))


@final
@record
class _Candidates:
    """The boxes of one kind in an image that nobody has asked for yet.

    Their scores as keys, `_PASSED_OVER` to a block, and the best key of each block; the lowest key is none.
    """

    b: KernelBuilder
    line: tuple[Dim, ...]
    size: Dim
    keys: Buffer
    tops: Buffer

    @staticmethod
    def of(
        b: KernelBuilder,
        line: tuple[Dim, ...],
        scores: Source,
        least: Source | None,
    ) -> _Candidates:
        """All of them, but for those whose scores are not above the threshold."""
        lines, size = scores.shape[:2], scores.shape[2]
        blocks = symbolic.ceildiv(size, _PASSED_OVER)
        keys = b.temporary(i32, (*lines, blocks * _PASSED_OVER), "keys")
        tops = b.temporary(i32, (*lines, blocks), "tops")
        with b.loop(size, "i") as i:
            score = b.read(scores, (*line, i))
            key = order_key(b, score, largest=True)
            if least is not None:
                key = b.select(b.gt(score, b.read(least, ())), key, NO_KEY)
            b.store(keys, (*line, i), key)
        with b.loop(blocks * _PASSED_OVER - size, "i") as i:
            b.store(keys, (*line, size + i), NO_KEY)
        found = _Candidates(b, line, size, keys, tops)
        with b.loop(blocks, "block") as block:
            found.look_at(block)
        return found

    def look_at(self, block: Dim) -> None:
        """Find the best of a block."""
        b, line = self.b, self.line
        b.store(self.tops, (*line, block), NO_KEY)
        with b.reduce((_PASSED_OVER,), ("n",)) as (n,):
            key = b.load(self.keys, (*line, block * _PASSED_OVER + n))
            b.accumulate("max", self.tops, (*line, block), key)

    def best(self) -> Buffer:
        """The best key that is left."""
        b, line = self.b, self.line
        best = b.temporary(i32, self.keys.shape[:2], "best")
        b.store(best, line, NO_KEY)
        with b.reduce((self.tops.shape[2],), ("n",)) as (n,):
            b.accumulate("max", best, line, b.load(self.tops, (*line, n)))
        return best

    def take(self, best: Buffer) -> Expression:
        """The first box with the best key; from here on it is no candidate."""
        b, line = self.b, self.line
        block = self._first(self.tops, 0, self.tops.shape[2], best, "block")
        inside = self._first(self.keys, block * _PASSED_OVER, _PASSED_OVER, best, "inside")
        place = b.temporary(i64, self.keys.shape[:2], "place")
        found = b.index(block * _PASSED_OVER + inside)
        b.store(place, line, b.min(found, b.index(self.size - 1)))
        taken = b.as_index(b.load(place, line))
        b.store(self.keys, (*line, taken), NO_KEY)
        self.look_at(block)
        return b.load(place, line)

    def _first(self, keys: Buffer, start: Dim, size: Dim, best: Buffer, name: str) -> Dim:
        """The first of `size` places from `start` on whose key is the best."""
        b, line = self.b, self.line
        first = b.temporary(i32, self.keys.shape[:2], name)
        b.store(first, line, b.index(size - 1, i32))
        with b.reduce((size,), ("n",)) as (n,):
            same = b.eq(b.load(keys, (*line, start + n)), b.load(best, line))
            place = b.select(same, b.index(n, i32), b.index(size - 1, i32))
            b.accumulate("min", first, line, place)
        return b.as_index(b.cast(b.load(first, line), i64))


def _suppress_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    """Box after box from the best on, each against all that were chosen before.

    As few are chosen of many, nothing is put in order: the best is looked for, block by block.
    """
    boxes, scores, most, iou = (given(operands, i) for i in range(4))
    least, center = maybe(operands, 4), bool(attributes["center_point_box"])
    (picked,) = results
    lines, size = scores.shape[:2], scores.shape[2]
    sides = [b.temporary(f32, scores.shape, name) for name in ("y", "x", "bottom", "right")]
    count, is_open = (b.temporary(i64, lines, name) for name in ("count", "open"))
    free = b.temporary(i32, lines, "free")
    with picking_nest(b, lines, (size,), ("image", "kind")) as line:
        candidates = _Candidates.of(b, line, scores, least)
        with b.loop(picked.shape[2], "i") as i:
            b.store(picked, (*line, i), -1)
        b.store(count, line, 0)
        limit = b.min(b.load(most, ()), b.index(picked.shape[2]))
        b.store(is_open, line, b.cast(b.gt(limit, 0), i64))
        with b.loop(size, "rank"), b.when(b.ne(b.load(is_open, line), 0)):
            best = candidates.best()
            b.store(is_open, line, b.cast(b.gt(b.load(best, line), NO_KEY), i64))
            with b.when(b.ne(b.load(is_open, line), 0)):
                place = candidates.take(best)
                at = b.as_index(place)
                mine = _box(
                    b, [b.read(boxes, (line[0], at, s)) for s in range(4)], center=center
                )
                number = b.as_index(b.load(count, line))
                b.store(free, line, 1)
                with b.reduce((number,), ("before",)) as (before,):
                    y, x, bottom, right = (b.load(s, (*line, before)) for s in sides)
                    area = b.mul(b.sub(bottom, y), b.sub(right, x))
                    clash = _clash(
                        b, mine, _Box((y, x), (bottom, right), area), b.read(iou, ())
                    )
                    b.accumulate("min", free, line, b.cast(b.not_(clash), i32))
                with b.when(b.ne(b.load(free, line), 0)):
                    for side, value in zip(sides, (*mine.low, *mine.high), strict=True):
                        b.store(side, (*line, number), value)
                    b.store(picked, (*line, number), place)
                    b.store(count, line, b.add(b.load(count, line), 1))
                    more = b.lt(b.load(count, line), limit)
                    b.store(is_open, line, b.cast(more, i64))


non_max_suppression: Final = declare(
    name="non_max_suppression",
    summary="The first `room` boxes, from the best score to the worst, that overlap no better one taken; then -1",
    operands=(
        operand("boxes", (f32,)), operand("scores", (f32,)), operand("most", (i64,)),
        operand("iou_threshold", (f32,)), optional("score_threshold", (f32,)),
    ),
    attributes=(attr("room", "dims"), attr("center_point_box", "bool", default=False)),
    infer=_suppress_infer,
    evaluate=_suppress_oracle,
    body=_suppress_body,
    cases=(
        "[2,7,4]:unit [2,3,7]:=0.9,0.4,0.7,0.6,0.7,0.8,0.3 []:=3 []:=0.2 []:=0.35; room=(7,)",
        "[1,9,4]:unit [1,1,9]:=0.9,0.5 []:=9 []:=0.1; room=(9,) center_point_box=True",
        "[1,70,4]:unit [1,2,70] []:=70 []:=0.3; room=(70,)",
        "[1,5,4]:=0,0,1,1,1,1,0,0,0,0,0,5,nan,0,1,1,0,0,inf,1 [1,1,5]:=1,nan,1,0 []:=5 []:=0.5; room=(2,)",
        "[1,1,4] [1,2,1] []:=0 []:=0.5; room=(0,)",
        "[1,1,4] [1,2,1] []:=1 []:=0.5 []:=-inf; room=(1,)",
        "[1,0,4] [1,2,0] []:=1 []:=0.5; room=(0,)",
        "[0,3,4] [0,2,3] []:=1 []:=0.5; room=(1,)",
    ),
    source="ONNX NonMaxSuppression, opset 11",
)  # fmt: skip

OPS: Final[tuple[OpDecl, ...]] = (non_max_suppression,)
