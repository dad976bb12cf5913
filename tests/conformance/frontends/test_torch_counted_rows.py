"""Rows of unlike lengths, rows that data counts, planes of open sizes, texts under frames of labels."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest

from fakes.torch_programs import module_of, same
from tilewright.compiler.frontends.torch import Captured, load
from tilewright.compiler.graph.evaluator import evaluate

torch = pytest.importorskip("torch")
nn = torch.nn
functional = nn.functional
Dim = torch.export.Dim
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]


# --- rows of unlike lengths ---------------------------------------------------------------------


def test_rows_of_unlike_lengths_are_padded_and_cut() -> None:
    def padded(rows: Any, begins: Any) -> Any:
        return torch.ops.aten._jagged_to_padded_dense_forward(rows, [begins], [4], -1.0)

    calls = [
        (torch.randn(begins[-1], 3), torch.tensor(begins))
        for begins in ([0, 2, 5, 9], [0, 6], [0, 0, 0, 1], [0, 0])
    ]
    open_sizes = ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC})
    same(padded, calls, open_sizes)


def test_rows_that_were_padded_lie_one_behind_the_other_again() -> None:
    def joined(held: Any, begins: Any, like: Any) -> Any:
        rows = torch.ops.aten._padded_dense_to_jagged_forward
        return rows(held, [begins], like.shape[0]), rows(held, [begins]) * 2

    calls = [
        (torch.randn(3, 5, 2), torch.tensor(begins), torch.randn(begins[-1]))
        for begins in ([0, 2, 5, 9], [0, 0, 5, 5], [0, 1, 1, 1])
    ]
    same(joined, calls, (None, None, {0: Dim.DYNAMIC}))


def test_nested_tensors_of_torch_are_compiled_whole() -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 8)

        def forward(self, rows: Any, begins: Any) -> Any:
            made = torch.nested.nested_tensor_from_jagged
            held = self.layer(made(rows, begins, min_seqlen=0, max_seqlen=5)).relu()
            padded = torch.nested.to_padded_tensor(held, 0.0)
            return held.values(), padded, padded.sum(1)

    torch.manual_seed(0)
    module = Nested().eval()
    compiled = torch.compile(module, backend="tilewright")
    torch._dynamo.reset()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # that something runs in eager mode
        for begins in ([0, 2, 5, 9], [0, 5, 5, 9]):
            call = (torch.randn(9, 4), torch.tensor(begins))
            for ours, theirs in zip(compiled(*call), module(*call), strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


# --- operators of other libraries, places, labels -----------------------------------------------


def test_a_composite_operator_may_be_defined_at_any_time() -> None:
    """Torch is asked once how its own operators are taken apart, which takes seconds."""
    load(Captured(module_of(lambda x: x.std(0)), args=(torch.randn(3, 2),)))  # asks torch
    library = torch.library.Library("tilewright_test", "DEF")
    try:
        library.define("normed(Tensor x, float eps) -> Tensor")
        library.impl(
            "normed",
            lambda x, eps: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps),
            "CompositeImplicitAutograd",
        )
        normed = torch.ops.tilewright_test.normed
        same(lambda x: normed(x, 1e-6) + 1, [(torch.randn(2, 5),)])
    finally:
        library._destroy()


def test_distinct_elements_of_as_many_rows_as_data_says() -> None:
    def distinct(x: Any, chosen: Any) -> Any:
        kept = x[chosen]
        wanted = {"return_inverse": True, "return_counts": True}
        return (
            *torch.unique(kept, **wanted),
            *torch.unique(kept[:, 0] > 0, return_counts=True),
            *torch.unique_consecutive(kept[:, 1], **wanted),
        )

    x = torch.tensor([[1.0, 2.0], [1.0, 2.0], [-3.0, 2.0], [0.0, 7.0], [1.0, 2.0]])
    flags = ([1, 1, 0, 1, 1], [0] * 5, [0, 0, 1, 0, 0], [1] * 5)
    same(distinct, [(x, torch.tensor(each, dtype=torch.bool)) for each in flags])


@pytest.mark.parametrize("dim", [-1, -2, -3])
def test_slices_unlike_their_neighbours_along_an_axis_from_the_end(dim: int) -> None:
    def unlike(x: Any) -> Any:
        wanted = {"return_inverse": True, "return_counts": True}
        found = torch.unique_consecutive(x, dim=dim, **wanted)
        return *found, x.unique_consecutive(dim=dim)

    x = torch.tensor([[[0.0, 0, 1], [0, 0, 1]], [[0, 0, 1], [0, 0, 1]]])
    same(unlike, [(x,)])


def test_places_of_largest_elements_in_planes_of_open_sizes() -> None:
    def largest(x: Any) -> Any:
        pool = functional.max_pool2d
        values, places = pool(x, 3, 2, 1, return_indices=True)
        return values, places, pool(x[0], 2, return_indices=True)[1]

    sides = ({0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC},)
    shapes = ((2, 3, 7, 9), (1, 3, 12, 5), (4, 3, 2, 31))
    same(largest, [(torch.randn(shape),) for shape in shapes], sides)


def test_the_largest_element_of_a_plane_of_open_size_and_its_place() -> None:
    def largest(x: Any) -> Any:
        pool = functional.adaptive_max_pool2d
        return pool(x, 1), pool(x[0], 1, return_indices=True)[1], pool(x, (1, 1)) - 1

    x = torch.randn(2, 3, 7, 9)
    x[0, 1, 2, 3], x[0, 2] = float("nan"), 4.0
    sides = ({0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC},)
    calls = [x, torch.randn(1, 3, 1, 1), torch.randn(4, 3, 2, 31)]
    made = load(Captured(module_of(largest), args=(x,), dynamic_shapes=sides))
    assert made.calling is not None
    for given in calls:
        found = made.calling(lambda arrays: evaluate(made.graph, arrays), (given,), {})
        for ours, theirs in zip(found, largest(given), strict=True):
            torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_the_largest_of_so_many_windows_over_a_volume_of_open_sizes() -> None:
    """Windows of several lengths that overlap, some longer than the axis."""

    def largest(x: Any) -> Any:
        plane, line = x[:, 0], x[:, 0, 0]
        return (
            functional.adaptive_max_pool3d(x, (3, 2, 1), return_indices=True),
            functional.adaptive_max_pool2d(plane, (4, 1), return_indices=True),
            functional.adaptive_max_pool1d(line, 5),
        )

    sides = ({0: Dim.DYNAMIC, 2: Dim.DYNAMIC, 3: Dim.DYNAMIC, 4: Dim.DYNAMIC},)
    shapes = ((2, 3, 7, 5, 6), (4, 3, 3, 2, 9), (2, 3, 2, 12, 4))
    same(largest, [(torch.randn(shape).round(),) for shape in shapes], sides)


@pytest.mark.parametrize("is_open", [False, True])
def test_what_is_no_number_stays_in_its_windows_of_a_mean(is_open: bool) -> None:
    def mean(x: Any) -> Any:
        return functional.adaptive_avg_pool2d(x, (3, 2)), functional.adaptive_avg_pool1d(
            x[0], 3
        )

    x = torch.randn(2, 3, 7, 6)
    x[0, 1, 0, 5], x[1, 2, 3, 1], x[1, 0, 6, 0] = float("nan"), float("inf"), -float("inf")
    sides = {2: Dim.DYNAMIC, 3: Dim.DYNAMIC}
    same(mean, [(x,)], (sides,) if is_open else None)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_texts_under_frames_of_labels_have_a_loss(reduction: str) -> None:
    """A text longer than its frames is impossible, repeated labels need a blank between them, texts may be empty."""
    torch.manual_seed(0)

    def loss(scores: Any, texts: Any, lengths: Any, counts: Any) -> Any:
        frames = scores.log_softmax(-1)
        known = functools.partial(functional.ctc_loss, reduction=reduction)
        joined = torch.cat([texts[0, :4], texts[1, :2], texts[2, :1]])
        return (
            known(frames, texts, lengths, counts),
            known(frames, texts, lengths, counts, blank=5, zero_infinity=True),
            known(frames, joined, lengths, torch.tensor([4, 2, 1])),
            known(frames, joined, (9, 9, 9), (4, 2, 1)),
            known(frames[:, 0], texts[0], lengths[0], torch.tensor(4)),
            known(frames[:1, 0], texts[0, :1], torch.tensor(1), torch.tensor(1)),
        )

    texts = torch.tensor([[1, 1, 2, 3], [4, 1, -7, 99], [2, 2, 2, 2]])
    calls = [
        (torch.randn(9, 3, 6), texts, torch.tensor(lengths), torch.tensor(counts))
        for lengths, counts in (([9, 5, 7], [4, 2, 1]), ([2, 1, 0], [3, 0, 0]))
    ]
    same(loss, calls)
