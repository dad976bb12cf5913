"""Boxes of one kind in an image: which are chosen, within blocks and at their edges."""

import numpy as np
import pytest

from fakes.loop_nests import emit
from tilewright.base.dtypes import f32, i64
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.suppression import _PASSED_OVER

RNG = np.random.default_rng(5)


def pick(
    boxes: np.ndarray, scores: np.ndarray, most: int, room: int, least: float = -np.inf
) -> list[int]:
    """What the kernel picks of one image and kind, which the reference picks, too."""
    inputs = [
        boxes[None],
        scores[None, None],
        *(np.array(v) for v in (most, np.float32(0.4), np.float32(least))),
    ]
    b = KernelBuilder("picked")
    kinds = (f32, f32, i64, f32, f32)
    operands = [
        b.parameter(f"x{n}", kind, a.shape)
        for n, (kind, a) in enumerate(zip(kinds, inputs, strict=True))
    ]
    given = {"room": (room,)}
    emit(b, "non_max_suppression", given, operands, b.result("y", i64, (1, 1, room)))
    out = np.zeros((1, 1, room), np.int64)
    evaluate(b.build(), [*inputs, out])
    decl = catalogue.lookup("non_max_suppression")
    (wanted,) = decl.schema.evaluate(inputs, decl.complete(given))
    np.testing.assert_array_equal(out, wanted)
    return out.ravel().tolist()


def apart(count: int) -> np.ndarray:
    """Boxes that do not meet."""
    low = 2.0 * np.arange(count)
    return np.stack([low, low, low + 1, low + 1], 1).astype(np.float32)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("count", [1, _PASSED_OVER - 1, _PASSED_OVER, _PASSED_OVER + 1])
def test_the_best_are_picked_in_order_from_any_block(count: int) -> None:
    scores = RNG.permutation(count).astype(np.float32)
    order = np.argsort(-scores).tolist()
    wanted = [*order[:3], -1, -1, -1, -1]
    assert pick(apart(count), scores, 3, 5) == wanted[:5]
    assert pick(apart(count), scores, 9, 1) == order[:1]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_boxes_overlap_whatever_an_image_measures(scale: float) -> None:
    """Corners may be parts of an image's size: the areas are below 1."""
    boxes = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 0.9, 1, 1.9]], np.float32)
    assert pick(boxes * np.float32(scale), np.array([3, 2, 1], np.float32), 3, 3) == [
        0,
        2,
        -1,
    ]


def test_equal_scores_keep_their_order_across_blocks() -> None:
    count = 2 * _PASSED_OVER + 3
    picked = pick(apart(count), np.ones(count, np.float32), 2, 3)
    assert picked == [0, 1, -1]
    scores = np.zeros(count, np.float32)
    scores[[1, _PASSED_OVER, count - 1]] = 1
    assert pick(apart(count), scores, 4, 4) == [1, _PASSED_OVER, count - 1, 0]


def test_scores_that_are_no_numbers_come_first_and_reach_no_threshold() -> None:
    scores = np.float32([0.5, np.nan, np.inf, -np.inf, np.nan])
    assert pick(apart(5), scores, 5, 5, -np.inf) == [2, 0, -1, -1, -1]
    assert pick(apart(5), scores, 5, 5, 0.7) == [2, -1, -1, -1, -1]


def test_a_box_is_held_against_all_that_were_picked_before() -> None:
    boxes = RNG.uniform(0, 4, (30, 4)).astype(np.float32)
    scores = (RNG.integers(0, 12, 30) / 11).astype(np.float32)
    picked = pick(boxes, scores, 30, 30, 0.2)
    assert 3 < picked.index(-1) < 25


def test_none_are_picked_where_none_are_wanted() -> None:
    scores = np.ones(3, np.float32)
    assert pick(apart(3), scores, 0, 2) == [-1, -1]
    assert pick(apart(3), scores, -4, 2) == [-1, -1]
