"""Operators of PyTorch in forms that its database shows among thousands of samples, against torch itself.

Each is exported and computed by the oracles of the graph's ops, as `tools/torch_samples.py` does.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import pytest

import tilewright as tw

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # torch's database needs it
samples = pytest.importorskip("torch_samples")
F, aten = torch.nn.functional, torch.ops.aten
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]
Function = Callable[..., Any]


class Called(torch.nn.Module):
    """A function of tensors."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Any) -> list[Any]:
        found = self.function(*tensors)
        return [found] if isinstance(found, torch.Tensor) else list(found)


@pytest.fixture(scope="module", autouse=True)
def quickly() -> Generator[None]:
    torch.manual_seed(0)
    with samples.hastened_decompositions():
        yield


def assert_as_torch(function: Function, *tensors: Any) -> None:
    module = Called(function).eval()
    wanted = module(*(tensor.clone() for tensor in tensors))
    program, graph = samples.translate(module, tensors)
    for ours, theirs in zip(samples.computed(program, graph, tensors), wanted, strict=True):
        array = samples.border.to_array(theirs)
        assert (ours.shape, ours.dtype) == (array.shape, array.dtype)
        np.testing.assert_allclose(
            ours.astype(np.float64), array.astype(np.float64), rtol=2e-5, atol=2e-5
        )


def refusal_of(function: Function, *tensors: Any) -> str:
    with pytest.raises(samples.Refused) as caught:
        samples.translate(Called(function).eval(), tensors)
    return str(caught.value)


def whole(*shape: int, low: int = -9) -> Any:
    return torch.randint(low, 10, shape)


# --- windows


@pytest.mark.sampled(3)
@pytest.mark.parametrize("pads", [(-1, 1), (-2, 2), (2, -1), (-1, 3), (-1, -1)])
@pytest.mark.parametrize("mode", ["circular", "reflect", "replicate"])
def test_what_is_cropped_is_not_repeated(mode: str, pads: tuple[int, int]) -> None:
    assert_as_torch(lambda x: F.pad(x, pads, mode=mode), torch.rand(1, 2, 4))


def test_a_border_wider_than_what_is_left_is_refused() -> None:
    text = refusal_of(lambda x: F.pad(x, (-3, 2), mode="circular"), torch.rand(1, 1, 4))
    assert "a border of 2 around 1 that are left" in text


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("include_pad", [False, True])
@pytest.mark.parametrize("divisor", [None, 5])
def test_means_of_integers_are_rounded_towards_zero(
    ceil_mode: bool, include_pad: bool, divisor: int | None
) -> None:
    how = (3, 2, 1, ceil_mode, include_pad, divisor)
    assert_as_torch(lambda x: F.avg_pool2d(x, *how), whole(2, 3, 7, 6))
    assert_as_torch(lambda x: F.avg_pool2d(x, *how), whole(3, 5, 4))


def test_integers_are_averaged_in_one_and_three_dimensions() -> None:
    assert_as_torch(lambda x: F.avg_pool1d(x, 3, 2, 1), whole(2, 3, 8))
    assert_as_torch(lambda x: F.avg_pool3d(x, (2, 3, 1), 2), whole(1, 2, 5, 6, 3))


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups", "behind"),
    [(1, 0, 1, 1, 0), (2, 1, 1, 2, 1), (3, 0, 2, 1, 2), (2, 3, 2, 2, 1)],
)
def test_integers_are_convolved_backwards(
    stride: int, padding: int, dilation: int, groups: int, behind: int
) -> None:
    how = (stride, padding, behind, groups, dilation)
    bias = whole(3 * groups)
    assert_as_torch(
        lambda x, w, b: F.conv_transpose1d(x, w, b, *how),
        whole(2, 4, 5),
        whole(4, 3, 3),
        bias,
    )
    assert_as_torch(
        lambda x, w, b: F.conv_transpose2d(x, w, b, *how),
        whole(4, 5, 4),
        whole(4, 3, 3, 2),
        bias,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_a_batch_without_images_gives_none(dtype: Any) -> None:
    none = torch.zeros(0, 3, 4, 4, dtype=dtype)
    weight = torch.ones(3, 3, 2, 2, dtype=dtype)
    assert_as_torch(lambda x: F.avg_pool2d(x, 2), none)
    assert_as_torch(lambda x: F.max_pool2d(x, 2, return_indices=True), none)
    assert_as_torch(F.conv2d, none, weight)
    assert_as_torch(F.conv_transpose2d, none, weight)


# --- images

SIZES = [
    ((5, 7), (3, 3)),
    ((10, 3), (3, 3)),
    ((1, 4), (1, 5)),
    ((5, 4), (10, 8)),
    ((5, 7), (5, 7)),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("before", "after"), SIZES)
@pytest.mark.parametrize("factors", [(None, None), (1.7, 1.4), (None, 1.3)])
def test_factors_count_where_torch_asks_them(before: Any, after: Any, factors: Any) -> None:
    x = torch.rand(2, 3, *before)
    assert_as_torch(lambda x: aten.upsample_nearest2d(x, after, *factors), x)
    for name, aligned in itertools.product(
        ("upsample_bilinear2d", "upsample_bicubic2d"), (False, True)
    ):
        upsample = getattr(aten, name)
        assert_as_torch(lambda x: upsample(x, after, aligned, *factors), x)  # noqa: B023


@pytest.mark.parametrize(("before", "after"), SIZES[:3])
@pytest.mark.parametrize("factors", [(None, None), (0.9, 1.7)])
@pytest.mark.parametrize("name", ["_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"])
def test_windows_against_aliases_follow_corners_and_factors(
    name: str, before: Any, after: Any, factors: Any
) -> None:
    x, upsample = torch.rand(2, 3, *before), getattr(aten, name)
    assert_as_torch(lambda x: upsample(x, after, True, *factors), x)
    assert_as_torch(lambda x: upsample(x, after, False, *factors), x)


def test_windows_behind_an_image_are_refused() -> None:
    text = refusal_of(
        lambda x: aten._upsample_bilinear2d_aa(x, [1, 9], False, None, 0.9),
        torch.rand(1, 1, 1, 4),
    )
    assert "antialiasing of 4 elements to 9 by 0.9" in text


# --- statistics


@pytest.mark.parametrize(
    ("shape", "inner"),
    [((0, 3), (3,)), ((3, 0), (0,)), ((0, 2), (0, 2)), ((2, 3, 4), (3, 4))],
)
def test_statistics_of_layers_are_torchs_where_there_are_no_elements(
    shape: tuple[int, ...], inner: tuple[int, ...]
) -> None:
    assert_as_torch(
        lambda x: aten.native_layer_norm(x, inner, None, None, 1e-5), torch.rand(shape)
    )


@pytest.mark.parametrize(("count", "size"), [(0, 2), (2, 0), (2, 5)])
def test_statistics_of_groups_are_torchs_where_there_are_no_elements(
    count: int, size: int
) -> None:
    assert_as_torch(
        lambda x: aten.native_group_norm(x, None, None, count, 6, size, 3, 1e-5),
        torch.rand(count, 6, size),
    )


def test_no_statistics_stand_beside_a_batch_that_is_not_trained_on() -> None:
    mean, variance = torch.rand(3), torch.rand(3)
    assert_as_torch(
        lambda x, m, v: aten.native_batch_norm(x, None, None, m, v, False, 0.1, 1e-5),
        torch.rand(2, 3), mean, variance,
    )  # fmt: skip
    nothing = torch.rand(0)
    assert_as_torch(F.batch_norm, nothing, nothing, nothing)


# --- activations and attention


def test_a_number_has_one_slope() -> None:
    assert_as_torch(F.prelu, torch.tensor(-2.0), torch.tensor([0.25]))


HEADS = [
    ((4, 3, 8), (4, 4, 6, 8), (4, 4, 6, 8), False),
    ((2, 1, 3, 8), (1, 4, 6, 8), (2, 4, 6, 5), False),
    ((3, 8), (6, 8), (6, 8), False),
    ((5, 1, 2, 3, 8), (1, 4, 2, 6, 8), (5, 4, 2, 6, 8), False),
    ((1, 8, 3, 8), (2, 2, 6, 8), (2, 2, 6, 8), True),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("q", "k", "v", "shares"), HEADS)
@pytest.mark.parametrize("mask", [None, (3, 6), (2, 1, 1, 6), (5, 1, 2, 3, 6)])
def test_queries_keys_values_and_masks_broadcast(
    q: Any, k: Any, v: Any, shares: bool, mask: Any
) -> None:
    tensors = [torch.rand(q), torch.rand(k), torch.rand(v)]
    if mask is not None:
        tensors.append(torch.rand(mask) > 0.4)

    def attend(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=shares)

    try:
        attend(*tensors)
    except RuntimeError:
        pytest.skip("torch does not broadcast these")
    assert_as_torch(attend, *tensors)


# --- borders that data decides


@pytest.mark.sampled(2)
@pytest.mark.parametrize("borders", [(-5, -1), (2, 4), (3, 3), (5, 99), (4, 2)])
def test_slices_between_numbers_of_data_are_counted(borders: tuple[int, int]) -> None:
    x, places = torch.rand(7, 3), torch.tensor(borders)
    assert_as_torch(lambda x, at: x[at[0].item() : at[1].item()] * 2, x, places)
    assert_as_torch(lambda x, at: x[at[0].item() :: 2].sum(0), x, places)
    assert_as_torch(lambda x, at: x[:, : at[1].item()].sum(1), x, places)
    assert_as_torch(torch.tensor_split, x, places)


@pytest.mark.parametrize("place", [0, 6, -1, -7])
def test_an_element_at_a_number_of_data_may_be_counted_from_the_end(place: int) -> None:
    assert_as_torch(lambda x, at: x[at.item()], torch.rand(7, 3), torch.tensor(place))


def test_truth_values_are_added_where_a_mask_says() -> None:
    mask, added = torch.tensor([True, False, True, True]), torch.tensor([True, False, True])
    assert_as_torch(
        lambda x, mask, added: x.index_put((mask,), added, accumulate=True),
        torch.eye(4, 3) > 0, mask, added,
    )  # fmt: skip


# --- functions that look at data while they are traced


@pytest.mark.parametrize("shape", [(3, 5), (5,), (3, 1)])
@pytest.mark.parametrize("correction", [0, 1, 3])
def test_covariances_have_torchs_weights_and_corrections(
    shape: tuple[int, ...], correction: int
) -> None:
    x, often = torch.rand(shape), torch.arange(1, shape[-1] + 1)
    assert_as_torch(lambda x: torch.cov(x, correction=correction), x)
    assert_as_torch(
        lambda x, f, a: x.cov(correction=correction, fweights=f, aweights=a),
        x, often, torch.rand(shape[-1]),
    )  # fmt: skip
    assert_as_torch(torch.corrcoef, x)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("repeats", [False, True])
def test_combinations_come_in_order(count: int, repeats: bool) -> None:
    assert_as_torch(lambda x: torch.combinations(x, count, repeats), torch.rand(3))


def test_functions_take_their_first_argument_by_name() -> None:
    x = torch.rand(3, 5)
    assert_as_torch(lambda x: torch.narrow(input=x, dim=0, start=0, length=2), x)
    assert_as_torch(lambda x: torch.cov(input=x), x)
    assert_as_torch(lambda x: torch.corrcoef(input=x), x)
    assert_as_torch(lambda x: torch.combinations(input=x, r=2), x[0])
    assert_as_torch(
        lambda x: torch.nn.functional.gaussian_nll_loss(input=x, target=x + 1, var=x + 0.5),
        x,
    )


def test_covariances_are_of_any_number_of_observations() -> None:
    class Covariance(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cov(x)

    count = torch.export.Dim("count", min=2, max=100)
    x = torch.rand(3, 7)
    model = tw.compile(Covariance().eval(), args=(x,), dynamic_shapes=({1: count},))
    for size in (7, 2, 31):
        other = torch.rand(3, size)
        np.testing.assert_allclose(model(other), torch.cov(other), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("start", [0, 3, -2, -5])
def test_a_narrow_part_may_begin_at_a_number_of_data(start: int) -> None:
    assert_as_torch(lambda x, at: x.narrow(1, at, 2), torch.rand(2, 5), torch.tensor(start))


def test_losses_of_negative_variances_are_no_numbers() -> None:
    x, target, var = torch.rand(2, 3), torch.rand(2, 3), torch.tensor([0.5, 0.0])
    for how in ({}, {"full": True, "reduction": "none"}, {"eps": 0.1, "reduction": "sum"}):
        assert_as_torch(lambda *ts: F.gaussian_nll_loss(*ts, **how), x, target, var)  # noqa: B023
    module = Called(F.gaussian_nll_loss).eval()
    program, graph = samples.translate(module, (x, target, var))
    (loss,) = samples.computed(program, graph, (x, target, -1 - var))
    assert np.isnan(loss)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (1, 0, 2)])
@pytest.mark.parametrize(
    "function",
    [
        torch.argwhere,
        torch.unique,
        lambda x: torch.unique(x, return_inverse=True, return_counts=True),
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
    ],
)
def test_nothing_has_no_places_and_no_distinct_elements(
    function: Function, shape: tuple[int, ...]
) -> None:
    assert_as_torch(function, torch.rand(shape))


# --- scalars

OF_SCALARS: dict[str, Function] = {
    "argmax": lambda x: torch.stack([x.argmax(-1), x.argmin(0, keepdim=True)]),
    "arguments": lambda x: torch.stack([x.argsort(0), x.cummax(-1)[1], x.cummin(0)[1]]),
    "extremes": lambda x: torch.stack([*x.aminmax(dim=0), x.amax(-1), x.min(0)[0]]),
    "flags": lambda x: torch.stack([x.any(0), x.all(-1, keepdim=True), x.isnan().any(-1)]),
    "moments": lambda x: torch.stack([*torch.var_mean(x, 0), x.std(-1, correction=0)]),
    "norms": lambda x: torch.stack([x.norm(3, 0), torch.linalg.vector_norm(x, 1, -1)]),
    "order": lambda x: torch.stack([x.kthvalue(1, 0)[0], x.mode(-1)[0], x.median(0)[0]]),
    "parts": lambda x: torch.stack([x.quantile(0.3, 0), x.nanquantile(0.3, -1)]),
    "running": lambda x: torch.stack([x.cumsum(-1), x.cumprod(0), x.logcumsumexp(-1)]),
    "shares": lambda x: torch.stack([x.softmax(-1), x.log_softmax(0), x.logsumexp(-1)]),
    "sorted": lambda x: torch.stack([x.sort(0)[0], x.msort(), x.topk(1, -1)[0]]),
    "sums": lambda x: torch.stack([x.sum(-1), x.mean(0), x.prod(-1), x.nansum(0)]),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OF_SCALARS)
def test_a_scalar_has_the_axes_0_and_minus_1(name: str) -> None:
    assert_as_torch(OF_SCALARS[name], torch.tensor(-1.25))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("label", [0, -1])
def test_a_scalar_has_one_label(label: int, reduction: str) -> None:
    def loss(x: Any, labels: Any) -> Any:
        return F.multilabel_margin_loss(x, labels, reduction=reduction)

    assert_as_torch(loss, torch.tensor(1.5), torch.tensor(label))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_powers_between_exponents_are_rounded_as_torch_rounds_them(dtype: Any) -> None:
    def powers(x: Any) -> list[Any]:
        make = functools.partial(torch.logspace, dtype=dtype)
        return [
            make(4.3, 2, 4, 5.0),
            make(-0.03, 2.1457, 18, 1.2921),
            make(1.3, 9.0, 1, 2.7),
            make(4.3, x, 4, 5.0),
            make(0.0, 1.0, 0),
        ]

    assert_as_torch(powers, torch.tensor(2))
