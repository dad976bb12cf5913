"""The operators of torchvision in exported programs: the numbers of eager mode, however many boxes there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from fakes.torch_programs import module_of, same

torch = pytest.importorskip("torch")
vision_operators = pytest.importorskip("fakes.vision_operators")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]
Dim = torch.export.Dim
ROWS = {0: Dim.AUTO}


@pytest.fixture(scope="module", autouse=True)
def vision() -> Any:
    return vision_operators.operators()


def boxes(count: int, side: float = 10.0) -> Any:
    low, size = torch.rand(count, 2) * side, torch.rand(count, 2) * side
    return torch.cat([low, low + size], 1)


def regions(count: int, images: int = 2) -> Any:
    return torch.cat([torch.randint(0, images, (count, 1)).float(), boxes(count) - 1], 1)


def kept(threshold: float) -> Any:
    def kept(x: Any, scores: Any) -> Any:
        places = torch.ops.torchvision.nms(x, scores, threshold)
        return places, x[places], scores[places]

    return kept


def test_boxes_that_are_kept_are_as_many_as_the_data_says() -> None:
    calls = [(boxes(count), torch.rand(count)) for count in (9, 2, 40)]
    same(kept(0.3), calls, (ROWS, ROWS))


def test_one_box_may_be_kept_or_none() -> None:
    together = torch.tensor([[0.0, 0, 9, 9]]).repeat(5, 1)
    same(kept(0.3), [(together, torch.rand(5))])
    nothing = lambda x, scores: torch.ops.torchvision.nms(x[:0], scores[:0], 0.3)  # noqa: E731
    same(nothing, [(together, torch.rand(5))])


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5, 0.7])
def test_a_threshold_has_all_its_digits(threshold: float) -> None:
    """0.3 of 64 bits is less than of 32, which is the share of two of these boxes."""
    x = torch.tensor([[0.0, 0, 10, 10]]).repeat(5, 1)
    x[1:, 3] = torch.tensor([3.0, 5, 7, 1])
    same(kept(threshold), [(x, torch.arange(5.0).flip(0))])


def test_boxes_without_an_area_and_turned_ones_overlap_nothing() -> None:
    corners = (
        [0, 0, 9, 9],
        [5, 5, 5, 5],
        [5, 5, 5, 5],
        [3, 3, 2, 2],
        [3, 3, 2, 2],
        [1, 8, 8, 1],
    )
    same(kept(0.1), [(torch.tensor(corners).float(), torch.arange(6.0).flip(0))])


def test_equal_scores_keep_their_order_and_what_is_no_number_comes_first() -> None:
    nan, inf = float("nan"), float("inf")
    scores = torch.tensor([0.5, nan, 0.5, 0.5, 1, 1, inf, -inf, 0.5])
    same(lambda x, s: torch.ops.torchvision.nms(x, s, 0.5), [(boxes(9), scores)])


def test_boxes_of_64_bits_are_refused_by_name() -> None:
    with pytest.raises(tw.ModelError, match="boxes of f64 are not supported"):
        same(kept(0.3), [(boxes(9).double(), torch.rand(9).double())])


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("ratio", [-1, 0, 1, 3])
def test_regions_become_averages(ratio: int, aligned: bool) -> None:
    def averages(x: Any, r: Any) -> Any:
        return torch.ops.torchvision.roi_align(x, r, 0.7, 3, 2, ratio, aligned)

    same(averages, [(torch.randn(2, 3, 12, 11), regions(5))])


def test_sizes_of_images_and_counts_of_regions_are_open() -> None:
    def pictures(x: Any, r: Any) -> Any:
        operators = torch.ops.torchvision
        averages = operators.roi_align(x, r, 0.5, 3, 2, -1, False)
        return averages, operators.roi_pool(x, r, 0.5, 2, 3)[0]

    calls = [(torch.randn(2, 3, h, w), regions(n)) for h, w, n in ((12, 9, 5), (7, 16, 3))]
    same(pictures, calls, ({2: Dim.AUTO, 3: Dim.AUTO}, ROWS))


@pytest.mark.parametrize("has_mask", [True, False])
@pytest.mark.parametrize(("groups", "banks"), [(1, 1), (2, 2)])
def test_taps_move(groups: int, banks: int, has_mask: bool) -> None:
    def moved(x: Any, w: Any, offsets: Any, mask: Any, bias: Any) -> Any:
        return torch.ops.torchvision.deform_conv2d(
            x, w, offsets, mask, bias, 2, 1, 1, 0, 1, 2, groups, banks, has_mask
        )

    x, w = torch.randn(2, 4, 7, 6), torch.randn(6, 4 // groups, 3, 2)
    offsets, mask = torch.randn(2, 12 * banks, 4, 4) * 2, torch.rand(2, 6 * banks, 4, 4)
    same(moved, [(x, w, offsets, mask if has_mask else torch.zeros(2, 1), torch.randn(6))])


def detected(x: Any, boxes: Any, scores: Any) -> Any:
    """What a detector does behind its network: the better boxes, of them those that overlap no better one, pictures of them."""
    better = torch.where(scores > 0.5)[0]
    boxes, scores = boxes[better], scores[better]
    places = torch.ops.torchvision.nms(boxes, scores, 0.2)
    boxes, scores = boxes[places], scores[places]
    images = torch.zeros_like(scores)[:, None]
    pictures = torch.ops.torchvision.roi_align(
        x, torch.cat([images, boxes], 1), 1.0, 2, 2, 2, True
    )
    return pictures.flatten(1) @ torch.ones(12, 2), boxes * scores[:, None], scores.sum()


def test_compiled_code_detects() -> None:
    x, module = torch.randn(1, 3, 20, 20), module_of(detected)
    args = (x, boxes(20), torch.rand(20))
    compiled = tw.compile(module, args=args, dynamic_shapes=(None, ROWS, ROWS))
    for count in (20, 31, 3):
        given = (x, boxes(count), torch.rand(count))
        for ours, theirs in zip(compiled(*given), module(*given), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_results_that_nobody_reads_need_no_row() -> None:
    """Where the largest elements were is not known here; who asks is refused, who does not, is not."""
    call = torch.ops.torchvision.roi_pool
    given = [(torch.randn(2, 3, 9, 9), regions(3))]
    same(lambda x, r: call(x, r, 1.0, 2, 2)[0], given)
    with pytest.raises(tw.ModelError, match="result 1 of 'roi_pool' is not supported"):
        same(lambda x, r: call(x, r, 1.0, 2, 2), given)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("border", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("axes", [2, 3])
def test_samples_at_places_that_are_no_numbers(mode: str, border: str, axes: int) -> None:
    line = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.3, -1.7, 300.3])
    places = torch.stack(torch.meshgrid(*[line] * axes, indexing="ij"), -1).unsqueeze(0)

    def sampled(x: Any, grid: Any) -> Any:
        how = {"mode": mode, "padding_mode": border, "align_corners": False}
        return torch.nn.functional.grid_sample(x, grid, **how)

    same(sampled, [(torch.randn(1, 2, *range(3, 3 + axes)), places)], None)
