"""What modules ask for that the operator database of torch does not: sizes that calls decide, quantization."""

from __future__ import annotations

import math
from typing import Any

import pytest

import tilewright as tw
from tilewright.compiler.frontends.torch import Captured, load
from tilewright.compiler.graph.evaluator import evaluate

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]


@pytest.fixture(autouse=True)
def _same_numbers_every_time() -> None:
    torch.manual_seed(0)


def same(
    module: Any, calls: list[tuple[Any, ...]], dynamic: Any = None, atol: float = 1e-5
) -> None:
    """Each call of the module, traced with the arguments of the first."""
    graph = load(Captured(module.eval(), args=calls[0], dynamic_shapes=dynamic)).graph
    for call in calls:
        found = evaluate(graph, [argument.numpy() for argument in call])
        wanted = torch.utils._pytree.tree_leaves(module(*call))
        for ours, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(torch.from_numpy(ours), theirs, rtol=1e-5, atol=atol)


class Pooled(nn.Module):
    def forward(self, x: Any) -> Any:
        pool = nn.functional.adaptive_avg_pool2d
        return pool(x, (4, 3)), pool(x, 1), pool(x, (None, 7))


def test_windows_of_a_size_that_a_call_decides_are_averaged() -> None:
    sides = {
        2: torch.export.Dim("h", min=1, max=99),
        3: torch.export.Dim("w", min=1, max=99),
    }
    calls = [(torch.randn(2, 3, *size),) for size in ((17, 17), (31, 24), (1, 2), (4, 3))]
    same(Pooled(), calls, (sides,))


class Means(nn.Module):
    """The number of counts is that of groups, whatever the data."""

    def forward(self, x: Any, group: Any) -> Any:
        total = torch.zeros(3, 4).index_add(0, group, x)
        return total / torch.bincount(group, minlength=3)[:, None]


def test_counts_whose_number_follows_from_their_use_are_counted() -> None:
    same(Means(), [(torch.randn(6, 4), torch.tensor([0, 0, 1, 2, 2, 2]))])


class Bytes(nn.Module):
    def forward(self, x: Any, weight: Any) -> Any:
        return torch._int_mm(x, weight)


def test_products_of_bytes_have_sums_of_32_bits() -> None:
    x, weight = (
        torch.randint(-128, 128, s, dtype=torch.int8) for s in ((32, 64), (64, 16))
    )
    same(Bytes(), [(x, weight)])


class Trained(nn.Module):
    """Quantized and back, as models are that are trained to be quantized."""

    def forward(self, x: Any) -> Any:
        scales, zeros = torch.tensor([0.1, 0.2, 0.3, 0.4]), torch.tensor([0, 1, -3, 7])
        by_channel = torch.fake_quantize_per_channel_affine
        whole = torch.fake_quantize_per_tensor_affine
        return (
            whole(x, 0.1, 3, -128, 127),
            whole(x, torch.tensor(0.1), torch.tensor(3, dtype=torch.int32), 0, 255),
            by_channel(x, scales, zeros.to(torch.int32), 0, -128, 127),
        )


def test_numbers_are_quantized_and_back() -> None:
    calls = [(torch.randn(4, count) * 20,) for count in (16, 1, 0)]
    calls[0][0][::2, 3] = float("nan")
    same(Trained(), calls[:1])
    same(Trained(), calls, ({1: torch.export.Dim.AUTO},))


class Ranges(nn.Module):
    def forward(self, x: Any) -> Any:
        del x
        return (
            torch.arange(2.1, -2.9, -1.0, dtype=torch.int64),
            torch.arange(0.1, -7.9, -4.0, dtype=torch.int64),
            torch.arange(0.5, 4, dtype=torch.int32),
            torch.arange(1.5, 4),
        )


def test_whole_ranges_begin_and_step_with_whole_numbers() -> None:
    same(Ranges(), [(torch.zeros(1),)])


class RangesOfSizes(nn.Module):
    def forward(self, x: Any) -> Any:
        return (
            torch.arange(x.shape[0], 10, 1.5, dtype=torch.int64),
            torch.arange(x.shape[0], -20, -2.7, dtype=torch.int64),
        )


def test_whole_ranges_from_a_size_of_the_call_step_with_whole_numbers() -> None:
    calls = [(torch.zeros(size),) for size in (4, 7, 2)]
    same(RangesOfSizes(), calls, ({0: torch.export.Dim("n", min=2, max=8)},))


def sides() -> dict[int, Any]:
    return dict.fromkeys((0, 2, 3), torch.export.Dim.DYNAMIC)


def images() -> list[tuple[Any, ...]]:
    return [
        (torch.randn(*shape),) for shape in ((2, 3, 17, 23), (3, 3, 40, 31), (2, 3, 5, 9))
    ]


class Resampled(nn.Module):
    def __init__(self, mode: str, factor: Any, **options: Any) -> None:
        super().__init__()
        self.options: dict[str, Any] = {"mode": mode, "scale_factor": factor, **options}

    def forward(self, x: Any) -> Any:
        return nn.functional.interpolate(x, **self.options)


@pytest.mark.parametrize("factor", [1.7, (0.6, 2.3), 3.0, (0.37, 1.5), (1.1, 2.1)])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_the_pixel_that_torch_takes_is_taken_of_images_of_any_size(
    mode: str, factor: Any
) -> None:
    for dynamic in (None, (sides(),)):
        calls = [(x[:, :1].contiguous(),) for (x,) in images()]
        same(Resampled(mode, factor), calls if dynamic else calls[1:2], dynamic)


@pytest.mark.parametrize(
    "module",
    [
        Resampled("bilinear", 1.7),
        Resampled("bilinear", (0.6, 2.3), align_corners=True),
        Resampled("bicubic", (1.25, 0.8)),
        Resampled("bilinear", 1.7, recompute_scale_factor=True),
        Resampled("bilinear", 0.6, antialias=True),
        Resampled("bicubic", 0.6, antialias=True),
    ],
)
def test_images_of_any_size_become_larger_by_any_factor(module: Any) -> None:
    calls = [(x[:, :1].contiguous(),) for (x,) in images()]
    same(module, calls, (sides(),), atol=5e-5)  # torch works places out in f32


class SizesRounded(nn.Module):
    """Real numbers of sizes, what is rounded of them in every way, and again."""

    def forward(self, x: Any) -> Any:
        height, width = x.shape[2:]
        grown = nn.functional.interpolate(
            x, size=(round(height / 3) + 1, math.floor(width * 1.1))
        )
        again = nn.functional.interpolate(grown, scale_factor=1.3)
        return again.mean(1), x * (height / 7) + width**0.5


def test_numbers_that_follow_from_sizes_are_numbers_of_the_model() -> None:
    same(SizesRounded(), images(), (sides(),))


def test_a_half_of_a_size_is_a_size_like_others() -> None:
    x = torch.randn(2, 3, 18, 23)
    graph = load(
        Captured(Resampled("nearest", 0.5).eval(), args=(x,), dynamic_shapes=(sides(),))
    )
    assert not any(node.op == "bind_sizes" for node in graph.graph.nodes)


class Masked(nn.Module):
    def forward(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def test_what_is_no_number_comes_out_of_masked_attention() -> None:
    q, k, v = (torch.randn(1, 2, 5, 8) for _ in range(3))
    q[0, 0, 1, 2] = k[0, 1, 3, 0] = float("nan")
    mask = torch.ones(1, 2, 5, 5, dtype=torch.bool)
    mask[:, 0, 4] = False  # a row that sees nothing is 0
    graph = load(Captured(Masked().eval(), args=(q, k, v, mask))).graph
    (found,) = evaluate(graph, [held.numpy() for held in (q, k, v, mask)])
    torch.testing.assert_close(
        torch.from_numpy(found),
        Masked()(q, k, v, mask),
        equal_nan=True,
        rtol=1e-5,
        atol=1e-5,
    )


class OwnFilters(nn.Module):
    """Every sample has filters of its own, as many groups as samples; StyleGAN2 does so, in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 4, 3, 2))
        self.style = nn.Linear(5, 4)

    def forward(self, x: Any, z: Any) -> Any:
        batch, channels, height, width = x.shape
        own = self.weight[None] * (self.style(z)[:, None, :, None, None] + 1)
        flat = x.reshape(1, batch * channels, height, width)
        filters, bias = own.reshape(batch * 6, channels, 3, 2), own.sum((2, 3, 4)).flatten()
        conv = nn.functional.conv2d
        same = conv(flat, filters, bias, padding=1, groups=batch, dilation=(1, 2))
        less = conv(flat, filters, stride=(2, 1), padding="valid", groups=batch)
        depth = own[:, 0, :, None].reshape(batch * channels, 1, 3, 2)
        alone = conv(flat, depth, groups=batch * channels)
        turned = own.transpose(1, 2).reshape(batch * channels, 6, 3, 2)
        more = nn.functional.conv_transpose2d(
            flat, turned, stride=2, padding=1, output_padding=1, groups=batch
        )
        found = (same, less, alone, more)
        return tuple(each.reshape(batch, -1, *each.shape[2:]) for each in found)


def test_samples_have_filters_of_their_own() -> None:
    calls = [(torch.randn(n, 4, 7, 9), torch.randn(n, 5)) for n in (3, 2, 5)]
    batch = {0: torch.export.Dim("batch", min=2, max=16)}
    same(OwnFilters(), calls, (batch, batch))


class Halves(nn.Module):
    """Goes down and up again, which fits for even sizes only."""

    def forward(self, x: Any, y: Any) -> Any:
        low = nn.functional.avg_pool2d(x, 2)
        again = nn.functional.interpolate(low, scale_factor=2.0)
        return x + again, x.reshape(x.shape[0], -1, 4).sum(-1), y[1:].sum() * x.shape[2]


def test_an_axis_may_be_a_multiple_of_a_size_that_no_axis_is() -> None:
    height, width, rows = (torch.export.Dim(n, min=1, max=40) for n in "hwr")
    dynamic = ({2: 2 * height, 3: 4 * width}, {0: 3 * rows + 1})
    calls = [
        (torch.randn(1, 2, h, w), torch.randn(n)) for h, w, n in ((6, 8, 7), (4, 12, 10))
    ]
    same(Halves(), calls, dynamic)
    model = tw.compile(Halves().eval(), args=calls[0], dynamic_shapes=dynamic)
    for call in calls:
        for ours, theirs in zip(model(*call), Halves()(*call), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    with pytest.raises(tw.InputError):
        model(torch.randn(1, 2, 6, 9), torch.randn(7))


class Steps(nn.Module):
    """Takes whole numbers beside tensors, as decoders take a position."""

    def forward(self, x: Any, count: int, place: int) -> Any:
        return x[:, :count], torch.arange(count) + place, x * place


def test_whole_numbers_beside_tensors_are_decided_by_calls() -> None:
    dynamic = (None, torch.export.Dim.DYNAMIC, torch.export.Dim.DYNAMIC)
    x, module = torch.randn(3, 10), Steps().eval()
    model = tw.compile(module, args=(x, 4, 2), dynamic_shapes=dynamic)
    for count, place in ((4, 2), (7, 40), (10, 3)):
        for ours, theirs in zip(
            model(x, count, place), module(x, count, place), strict=True
        ):
            assert torch.equal(ours, theirs)
    with pytest.raises(tw.InputError, match="count"):
        model(x, 11, 2)


class Bags(nn.Module):
    def __init__(self, mode: str, **options: Any) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(30, 5, mode=mode, **options)

    def forward(self, places: Any, offsets: Any) -> Any:
        return self.bags(places, offsets)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("options", [{}, {"padding_idx": 3}, {"include_last_offset": True}])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_any_lengths_are_reduced(mode: str, options: dict[str, Any]) -> None:
    places = torch.randint(0, 30, (11,))
    places[4:6] = 3
    calls = [
        (places, torch.tensor(offsets))
        for offsets in ([0, 4, 4, 6], [0, 0, 9, 11], [0, 1, 2, 3])
    ]
    if options.get("include_last_offset"):
        calls = [(p[: int(o[-1])], o) for p, o in calls][:2]
    for call in calls:
        same(Bags(mode, **options), [call])


def test_weighted_rows_of_halves_are_added_before_they_are_rounded() -> None:
    class Weighted(nn.Module):
        def forward(self, table: Any, places: Any, shares: Any) -> Any:
            bag = nn.functional.embedding_bag
            return bag(places, table, per_sample_weights=shares, mode="sum")

    weighted = Weighted().eval()
    table = (torch.arange(40.0).reshape(8, 5) * 0.37 - 7).half()
    shares = torch.linspace(-0.9, 1.1, 12).reshape(3, 4).half()
    places = torch.tensor([[0, 7, 3, 5], [1, 1, 2, 6], [4, 0, 7, 2]])
    exact = (table.double()[places] * shares.double().unsqueeze(2)).sum(1).half()
    assert torch.equal(weighted(table, places, shares), exact)
    made = load(Captured(weighted, args=(table, places, shares)))
    (found,) = evaluate(made.graph, [t.numpy() for t in (table, places, shares)])
    assert torch.equal(torch.from_numpy(found), exact)


class Repeated(nn.Module):
    def forward(self, x: Any, times: Any) -> Any:
        return torch.repeat_interleave(x, times, 0, output_size=9), torch.repeat_interleave(
            times, output_size=9
        )


@pytest.mark.parametrize("times", [[2, 0, 4, 3, 0], [0, 0, 0, 0, 9], [9, 0, 0, 0, 0]])
def test_rows_are_repeated_as_often_as_their_numbers_say(times: list[int]) -> None:
    same(Repeated(), [(torch.randn(5, 2), torch.tensor(times))])


class Grouped(nn.Module):
    """Rows that were sorted by expert; what is behind the last group is nobody's."""

    def forward(self, x: Any, weight: Any, ends: Any) -> Any:
        return nn.functional.grouped_mm(x, weight, offs=ends)


def test_groups_of_rows_have_matrices_of_their_own() -> None:
    x, weight = torch.randn(7, 16).bfloat16(), torch.randn(3, 16, 8).bfloat16()
    first = torch.tensor([2, 2, 7], dtype=torch.int32)
    compiled = tw.compile(Grouped().eval(), args=(x, weight, first))
    for end in ([2, 2, 7], [0, 0, 7], [7, 7, 7], [1, 3, 7]):
        call = (x, weight, torch.tensor(end, dtype=torch.int32))
        torch.testing.assert_close(compiled(*call), Grouped()(*call), rtol=2e-2, atol=2e-2)


def test_groups_of_rows_as_transformers_have_them() -> None:
    pytest.importorskip("transformers").integrations.moe  # noqa: B018 - defines the operator
    operator = torch.ops.transformers.grouped_mm_fallback

    class Fallback(nn.Module):
        def forward(self, x: Any, weight: Any, ends: Any) -> Any:
            return operator(x, weight, ends)

    module = Fallback().eval()
    x, weight = torch.randn(7, 16), torch.randn(3, 16, 8)
    same(module, [(x, weight, torch.tensor(end)) for end in ([2, 2, 7], [0, 4, 7])])
    compiled = tw.compile(module, args=(x, weight, torch.tensor([2, 2, 7])))
    ends = torch.tensor([3, 3, 5])  # nothing is said of the last two rows
    torch.testing.assert_close(
        compiled(x, weight, ends), operator(x, weight, ends), rtol=1e-5, atol=1e-5
    )


class Chunks(nn.Module):
    """Windows that overlap, cut by strides, as attention to neighbours has them."""

    def forward(self, x: Any) -> Any:
        rows, steps, width = x.shape
        lies = x.contiguous()
        pairs = (rows, steps - 1, 2 * width)
        turned = (width, rows, steps - 1)
        return (
            lies.as_strided(pairs, (steps * width, width, 1)),
            lies.as_strided(turned, (1, steps * width, width), width),
            lies.as_strided((), (), rows * steps * width - 1),
            lies.as_strided((steps, steps), (0, width)),
        )


class ChunksOfTurned(nn.Module):
    """Windows that overlap of heads that stand behind the steps in memory, as Longformer cuts them."""

    def forward(self, x: Any) -> Any:
        steps, rows, width = x.shape
        heads = (x + 1).view(steps, rows * 2, width // 2).transpose(0, 1)
        lies = heads.view(rows * 2, steps // 2, 2, width // 2)
        cut = list(lies.shape)
        cut[1] = cut[1] * 2 - 1
        along = list(lies.stride())
        along[1] = along[1] // 2
        pixels = torch.relu(x).view(1, steps, rows, width).permute(3, 0, 2, 1)
        return lies.as_strided(cut, along), pixels.as_strided((width, rows), (1, width), 2)


def test_strides_may_be_those_of_axes_in_another_order() -> None:
    open_axis = torch.export.Dim.AUTO
    calls = [(torch.randn(*size, 6),) for size in ((8, 3), (14, 2), (2, 1))]
    same(ChunksOfTurned(), calls, ({0: open_axis, 1: open_axis},))
    same(ChunksOfTurned(), calls[:1])


def test_strides_of_a_part_of_a_tensor_are_refused() -> None:
    class Part(nn.Module):
        def forward(self, x: Any) -> Any:
            return (x + 1)[:, 1:].as_strided((3, 2), (4, 1))

    with pytest.raises(tw.ModelError, match="part of another"):
        tw.compile(Part().eval(), args=(torch.randn(3, 4),))


@pytest.mark.parametrize("is_made", [False, True])
@pytest.mark.parametrize("is_turned", [False, True])
def test_an_argument_that_is_read_by_strides_lies_as_in_the_example(
    is_made: bool, is_turned: bool
) -> None:
    """Else a call would read other elements than eager mode, in silence."""

    class Windows(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return (x + 1 if is_made else x).as_strided((3, 2), (2, 1)) + y

    plain = torch.arange(12.0).view(3, 4)
    turned = plain.t().contiguous().t()
    own, other = (turned, plain) if is_turned else (plain, turned)
    free = torch.randn(2, 3).t()
    model = tw.compile(Windows().eval(), args=(own, free))
    for y in (free, free.contiguous()):  # is not read by strides
        assert torch.equal(model(own, y), Windows()(own, y))
    for x in (other, other.numpy(), torch.arange(24.0).view(3, 8)[:, ::2]):
        with pytest.raises(tw.InputError, match="read by strides") as caught:
            model(x, free)
        assert f"order {[1, 0] if is_turned else [0, 1]}" in str(caught.value)


def test_strides_may_follow_from_sizes_that_a_call_decides() -> None:
    open_axis = torch.export.Dim.AUTO
    calls = [(torch.randn(*size, 4),) for size in ((2, 8), (3, 14), (5, 2))]
    same(Chunks(), calls, ({0: open_axis, 1: open_axis},))
    same(Chunks(), calls[:1])
