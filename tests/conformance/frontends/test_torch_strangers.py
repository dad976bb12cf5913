"""Programs of other people's kinds: borders of any size, attention by functions, distances, numbers among results."""

from __future__ import annotations

import io
import operator
from collections.abc import Callable
from typing import Any

import pytest

import tilewright as tw
from fakes.torch_programs import module_of, same
from tilewright.compiler.frontends.torch import Captured, load

torch = pytest.importorskip("torch")
nn = torch.nn
functional = nn.functional
Dim = torch.export.Dim
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]


# --- borders ------------------------------------------------------------------------------------


def surrounded(x: Any, y: Any) -> Any:
    """A border as large as another axis, in every mode, and of other types."""
    amounts = (y.shape[0], 1, 2, y.shape[0] - 1)
    modes = [
        functional.pad(x, amounts, mode) for mode in ("reflect", "replicate", "circular")
    ]
    flags = functional.pad(x > 0, amounts, value=True)
    return (
        *modes,
        functional.pad(x, amounts, value=-2.0),
        flags,
        functional.pad(y, (0, x.shape[3])),
    )


def test_a_border_is_as_large_as_a_size_that_calls_decide() -> None:
    calls = [
        (torch.randn(2, 3, h, w), torch.randn(p))
        for h, w, p in ((9, 11, 5), (17, 7, 4), (9, 31, 7))
    ]
    same(surrounded, calls, (dict.fromkeys((2, 3), Dim.AUTO), {0: Dim.AUTO}))


def to_multiples(x: Any) -> Any:
    return functional.pad(x, (0, (8 - x.shape[2] % 8) % 8)) * 2


def test_a_border_fills_up_to_a_multiple() -> None:
    calls = [(torch.randn(2, 3, size),) for size in (7, 9, 16, 1)]
    same(to_multiples, calls, ({2: Dim("n", min=1, max=64)},))


def as_long_as(x: Any, y: Any) -> Any:
    return functional.pad(x, (0, y.shape[1] - x.shape[1]), value=-1.0)


def test_what_has_to_be_as_long_as_something_else_is_filled_or_cropped() -> None:
    calls = [(torch.randn(2, x), torch.randn(1, y)) for x, y in ((7, 12), (9, 9), (12, 3))]
    same(as_long_as, calls, ({1: Dim("l", min=2, max=64)}, {1: Dim("m", min=2, max=64)}))


def counted(x: Any, n: Any) -> Any:
    count = n.item()
    torch._check(count >= 0)
    torch._check(count < 100)
    return functional.pad(x, (count, 1))


def test_a_border_is_as_large_as_the_data_says() -> None:
    same(counted, [(torch.randn(3, 8), torch.tensor(n)) for n in (3, 0, 17)])


def test_a_border_does_not_bring_back_what_was_cropped() -> None:
    def there_and_back(x: Any) -> Any:
        return functional.pad(functional.pad(x, (-2, 0, 0, -1)), (2, 1, 0, 1))

    x, module = torch.randn(3, 5), module_of(there_and_back)
    torch.testing.assert_close(tw.compile(module, (x,))(x), module(x))


def test_a_border_that_needs_more_than_there_is_fails_the_call() -> None:
    def turned(x: Any, n: Any) -> Any:
        count = n.item()
        torch._check(count >= 0)
        torch._check(count < x.shape[1])
        return functional.pad(x, (count, 0), mode="reflect")

    x, module = torch.randn(3, 5), module_of(turned)
    model = tw.compile(module, args=(x, torch.tensor(2)))
    for count in (0, 4):
        torch.testing.assert_close(
            model(x, torch.tensor(count)), module(x, torch.tensor(count))
        )
    with pytest.raises(tw.InputError):
        model(x, torch.tensor(5))


def windows_of(x: Any) -> Any:
    """Images of any size, in windows of 4 x 4 that a border fills up."""
    count, height, width, channels = x.shape
    x = functional.pad(x, (0, 0, 0, (4 - width % 4) % 4, 0, (4 - height % 4) % 4))
    rows, columns = x.shape[1] // 4, x.shape[2] // 4
    parts = x.view(count, rows, 4, columns, 4, channels).permute(0, 1, 3, 2, 4, 5)
    shares = parts.reshape(-1, 16, channels).softmax(1)
    parts = shares.view(count, rows, columns, 4, 4, channels).permute(0, 1, 3, 2, 4, 5)
    return parts.reshape(count, 4 * rows, 4 * columns, channels)[
        :, :height, :width
    ].contiguous()


def test_what_torch_cannot_prove_of_sizes_is_checked_by_calls() -> None:
    shapes = ((2, 7, 10, 4), (3, 5, 9, 4), (2, 16, 12, 4))
    sides = {0: Dim("b"), 1: Dim("h", min=4, max=40), 2: Dim("w", min=4, max=40)}
    same(windows_of, [(torch.randn(shape),) for shape in shapes], (sides,))

    def turned(x: Any) -> Any:
        return functional.pad(x, (x.shape[1] // 2, 0), mode="reflect")[
            :, : x.shape[1] * 5 // 4
        ]

    same(
        turned, [(torch.randn(2, n),) for n in (8, 13, 41)], ({1: Dim("n", min=4, max=64)},)
    )


def test_a_call_that_breaks_what_torch_took_for_granted_fails() -> None:
    def halves(x: Any) -> Any:
        n = x.shape[0] // 2
        return x[: 2 * n].view(2, n).sum(0) * 2 if (x.shape[0] * x.shape[0]) % 3 == 1 else x

    x, module = torch.randn(8), module_of(halves)
    model = tw.compile(module, args=(x,), dynamic_shapes=({0: Dim("n", min=4, max=64)},))
    for size in (8, 10, 11):
        x = torch.randn(size)
        torch.testing.assert_close(model(x), module(x))
    with pytest.raises(tw.InputError):
        model(torch.randn(9))


# --- sizes of 0 and 1 ---------------------------------------------------------------------------


def fails(function: Any, example: Any, call: Any) -> None:
    """A call of another first size, which torch itself may only answer with another shape, is refused."""
    rows = ({0: Dim.DYNAMIC},)
    model = tw.compile(module_of(function), args=(example,), dynamic_shapes=rows)
    torch.testing.assert_close(model(example), function(example))
    with pytest.raises(
        tw.InputError, match=r"sizes do not agree|a size (does not fit|is below)"
    ):
        model(call)


SQUEEZED: dict[str, Callable[[Any], Any]] = {
    "axis": lambda x: x.squeeze(0) + 1,
    "axes": lambda x: x.unsqueeze(0).squeeze((0, 1)) + 1,
    "all": lambda x: x.squeeze() * 2,
    "joined": lambda x: torch.cat([x, x[:, :1].squeeze(0).reshape(-1, 1)], 1) * 2,
    "in place": lambda x: (x * 2).squeeze_(0),
    "found places": lambda x: (x[:, 0] > 0).nonzero().squeeze(),
}


@pytest.mark.parametrize("form", SQUEEZED)
def test_a_size_of_1_fails_the_call_where_ranks_would_differ(form: str) -> None:
    fails(SQUEEZED[form], torch.ones(5, 2), torch.ones(1, 2))


def test_a_size_that_no_squeeze_asks_for_may_be_0_and_1() -> None:
    def squeezed(x: Any) -> Any:
        return x.squeeze(1), x.unsqueeze(0).squeeze(0), x.squeeze(()) * 2

    calls = [(torch.randn(n, 3, 1),) for n in (5, 1, 0)]
    same(squeezed, calls, ({0: Dim.DYNAMIC},))
    same(
        lambda x: x.squeeze(0) + 1,
        [(torch.randn(n, 2),) for n in (5, 0)],
        ({0: Dim.DYNAMIC},),
    )


EXTREMES: dict[str, Callable[[Any], Any]] = {
    "amax": lambda x: x.amax(0),
    "amin of all": lambda x: x.amin(),
    "argmax": lambda x: x.argmax(0),
    "argmin of all": lambda x: x.argmin(),
    "max": lambda x: x.max(0)[1],
    "aminmax": lambda x: x.aminmax(dim=0)[0],
    "largest norm": lambda x: torch.linalg.vector_norm(x, float("inf"), 0),
    "mode": lambda x: x.mode(0)[0],
    "joined": lambda x: torch.cat([x, x]).amax(0),
}


@pytest.mark.parametrize("form", EXTREMES)
def test_an_extreme_of_no_element_fails_the_call(form: str) -> None:
    fails(EXTREMES[form], torch.randn(5, 2), torch.randn(0, 2))


def test_statistics_of_no_element_that_torch_has() -> None:
    def statistics(x: Any) -> Any:
        bytes_ = (x > 0).to(torch.uint8)
        wide = x.amax(1), x.argmin(1), x.max(1)[1]
        return *wide, bytes_.all(0), bytes_.any(0), (x > 0).all(), x.logsumexp(0), x.prod(0)

    same(statistics, [(torch.randn(n, 3),) for n in (5, 1, 0)], ({0: Dim.DYNAMIC},))


# --- attention by functions ---------------------------------------------------------------------

flexible = pytest.importorskip("torch.nn.attention.flex_attention")


class Flexible(nn.Module):
    def __init__(self, score: Any = None, mask: Any = None, **options: Any) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.tensor([0.5, 0.25, 0.125, 0.0625]))
        self.score, self.options = score, options
        self.blocks = None
        if mask is not None:
            self.blocks = flexible.create_block_mask(mask, None, None, 20, 33, device="cpu")

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        def linear(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return score + self.slopes[h] * (j - i)

        score = linear if self.score == "slopes" else self.score
        attend = flexible.flex_attention
        return attend(q, k, v, score_mod=score, block_mask=self.blocks, **self.options)


def heads() -> tuple[Any, ...]:
    shapes = ((2, 4, 20, 16), (2, 2, 33, 16), (2, 2, 33, 8))
    return tuple(torch.randn(shape) for shape in shapes)


def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    return i >= j


def capped(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return torch.tanh(score / 5) * 5


FORMS: dict[str, Any] = {
    "slopes": lambda: Flexible(score="slopes", mask=causal, enable_gqa=True),
    "plain": lambda: Flexible(enable_gqa=True, scale=0.3),
    "causal": lambda: Flexible(mask=causal, enable_gqa=True),
    "capped": lambda: Flexible(score=capped, enable_gqa=True),
    "rows of nothing": lambda: Flexible(mask=lambda b, h, i, j: i > j + 3, enable_gqa=True),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("form", FORMS)
def test_attention_by_functions_of_scores_and_places(form: str) -> None:
    same(FORMS[form]().eval(), [heads(), heads()])


def test_attention_by_functions_is_compiled_whole_for_torch() -> None:
    module, given = FORMS["slopes"]().eval(), heads()
    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(module, backend="tilewright")(*given)
    torch.testing.assert_close(found, module(*given), rtol=1e-5, atol=1e-5)


def test_plain_masks_of_places_leave_attention_whole() -> None:
    graph = load(Captured(FORMS["causal"]().eval(), args=heads())).graph
    assert any(node.op == "attention" for node in graph.nodes)


class AddedTo(nn.Module):
    def forward(self, q: Any, k: Any, v: Any) -> Any:
        return flexible.flex_attention(q, k, v, score_mod=self.score) + q

    score: Any = None


@pytest.mark.parametrize("score", [None, capped])
def test_results_of_attention_that_are_taken_twice_or_not_at_all(score: Any) -> None:
    module = AddedTo().eval()
    module.score = score
    given = tuple(torch.randn(1, 2, 5, 4) for _ in range(3))
    wanted = module(*given)

    def found(change: Callable[[Any, Any, Any], None]) -> Any:
        exported = torch.export.export(module, given)
        graph = exported.graph
        (item,) = (
            n for n in graph.nodes if n.target is operator.getitem and n.args[1] == 0
        )
        change(graph, item, next(iter(item.users)))
        exported.graph_module.recompile()
        return tw.compile(exported)(*given)

    def twice(graph: Any, item: Any, added: Any) -> None:
        with graph.inserting_after(item):
            again = graph.call_function(operator.getitem, (item.args[0], 0))
        again.meta = dict(item.meta)
        added.args = (item, again)

    def never(graph: Any, item: Any, added: Any) -> None:
        (query,) = (x for x in added.args if x is not item)
        added.args = (query, query)

    torch.testing.assert_close(found(twice), 2 * (wanted - given[0]), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found(never), 2 * given[0])


# --- distances, views, numbers ------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2])
def test_a_narrow_part_that_lies_outside_fails_the_call(length: int) -> None:
    def narrow(x: Any, at: Any) -> Any:
        return torch.narrow(x, 0, at, length) * 1

    x, rows = torch.arange(5.0), torch.tensor
    model = tw.compile(module_of(narrow), args=(x, rows(1)))
    for start in (-5, -2, 3):
        torch.testing.assert_close(model(x, rows(start)), narrow(x, rows(start)))
    for start in (-11, -7, -6, 5, 6):
        with pytest.raises(tw.InputError, match="out of range"):
            model(x, rows(start))


def test_distances_of_as_many_rows_as_a_call_or_the_data_says() -> None:
    def apart(x: Any, y: Any) -> Any:
        return [torch.cdist(x, y, p=p) for p in (2.0, 1.0, 0.5, 0.0, float("inf"))]

    calls = [(torch.randn(n, 3), torch.randn(m, 3)) for n, m in ((5, 4), (7, 9), (2, 1))]
    same(apart, calls, ({0: Dim("n")}, {0: Dim("m")}))

    def among(x: Any) -> Any:
        return functional.pdist(x), functional.pdist(x, 1.0)

    same(among, [(torch.randn(n, 3),) for n in (5, 7, 2, 31)], ({0: Dim("n")},))

    def nearest(x: Any, chosen: Any) -> Any:
        return torch.cdist(x[chosen.nonzero()[:, 0]], x).sum(0)

    x = torch.randn(5, 3)
    same(nearest, [(x, torch.tensor(flags)) for flags in ([1, 0, 1, 1, 0], [0] * 5)])


def test_the_parts_of_what_is_conjugated() -> None:
    def parts(x: Any) -> Any:
        whole = torch.fft.fft(x).conj()
        return whole.imag, whole.real, whole.imag.abs() + 1

    same(parts, [(torch.randn(3, 8),)])


def test_axes_of_their_own_have_names_that_no_user_gave() -> None:
    def folded(x: Any, y: Any) -> Any:
        return x.unflatten(0, (-1, 8)).sum(1), y * 2

    calls = [(torch.randn(8 * h, 4), torch.randn(n)) for h, n in ((3, 5), (2, 7), (4, 2))]
    same(folded, calls, ({0: 8 * Dim("h", max=9)}, {0: Dim("x_0")}))


@pytest.mark.parametrize("length", [0, 1, 2, 7, 8])
def test_windows_and_frequencies(length: int) -> None:
    def windows(x: Any) -> Any:
        makers = (
            torch.hann_window, torch.hamming_window, torch.blackman_window, torch.bartlett_window,
            torch.kaiser_window,
        )  # fmt: skip
        found = [make(length, periodic) for make in makers for periodic in (True, False)]
        found.append(torch.hamming_window(length, True, 0.6, 0.3, dtype=torch.float64))
        frequencies = (torch.fft.fftfreq(length + 1, 0.5), torch.fft.rfftfreq(length + 1))
        return *found, *frequencies, x

    same(windows, [(torch.zeros(1),)])


def test_elements_are_written_where_a_mask_may_be_true_nowhere() -> None:
    def written(x: Any, mask: Any) -> Any:
        found = x.clone()
        found[mask] += x[mask] * 2
        return found, x.masked_scatter(mask[:, None].expand(6, 4), x)

    calls = [
        (torch.randn(6, 4), torch.tensor(flags))
        for flags in ([True, False] * 3, [False] * 6)
    ]
    same(written, calls)


def test_elements_are_written_where_a_scalar_says() -> None:
    def written(x: Any, place: Any) -> Any:
        found = x.clone()
        found[place % 3] = x.mean(0)
        found[place] *= 2
        return found

    calls = [(torch.randn(5, 4), torch.tensor(place)) for place in (3, 0, -1)]
    same(written, calls)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_labels_behind_a_negative_one_do_not_count(reduction: str) -> None:
    def loss(x: Any, labels: Any) -> Any:
        found = functional.multilabel_margin_loss(x, labels, reduction=reduction)
        return found, functional.multilabel_margin_loss(
            x[0], labels[0], reduction=reduction
        )

    labels = torch.tensor([[1, 2, -1, 0, 0], [-1, 3, 0, 0, 0], [0, 4, 1, 2, 3]])
    same(loss, [(torch.randn(3, 5), labels)])


def test_numbers_and_truths_of_sizes_are_results() -> None:
    def numbers(x: Any, chosen: Any) -> Any:
        kept = x[chosen]
        count, size = kept.shape[0], x.shape[0]
        return kept.sum(), count, count > 2, size * 0.5, size, 3, "words", None

    calls = [
        (torch.randn(len(flags)), torch.tensor(flags))
        for flags in ([True, False, True, True], [False] * 5, [True, True])
    ]
    same(numbers, calls, ({0: Dim("n")}, {0: Dim("n")}))


def test_masks_of_transformers_are_applied_as_they_are_given() -> None:
    module = nn.Transformer(8, 2, 1, 1, 16, batch_first=True).eval()

    def both(x: Any, y: Any) -> Any:
        mask = module.generate_square_subsequent_mask(y.shape[1])
        return module(x, y, tgt_mask=mask), module(x, y, tgt_mask=torch.zeros_like(mask))

    size = [Dim("b", min=2, max=8), Dim("t", min=2, max=8), Dim("u", min=2, max=8)]
    dynamic = ({0: size[0], 1: size[1]}, {0: size[0], 1: size[2]})
    calls = [
        (torch.randn(b, t, 8), torch.randn(b, u, 8)) for b, t, u in ((2, 5, 3), (3, 4, 6))
    ]
    same(both, calls, dynamic)


def test_places_are_as_far_apart_as_a_size_that_calls_decide() -> None:
    def begins(x: Any) -> Any:
        count, length = x.shape
        ends = torch.arange(length, count * length + 1, length)
        return torch.arange(0, count * length, length), ends * 0.5

    calls = [(torch.randn(n, m),) for n, m in ((3, 5), (4, 2), (2, 9))]
    same(begins, calls, ({0: Dim.AUTO, 1: Dim.AUTO},))


# --- sizes of images ----------------------------------------------------------------------------


class Halved(nn.Module):
    """Half of an image, enlarged and cropped to the image: the example's sizes are even, those of calls need not be."""

    def __init__(self) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(3, 2, 3, stride=2, padding=1)

    def forward(self, x: Any) -> Any:
        larger = functional.interpolate(self.reduce(x), scale_factor=2, mode="bilinear")
        return torch.cat([x, larger[..., : x.shape[2], : x.shape[3]]], 1) * 2


def test_an_example_of_even_sizes_does_not_make_calls_even() -> None:
    sides = {2: Dim("h", min=8, max=128), 3: Dim("w", min=8, max=128)}
    calls = [(torch.randn(1, 3, *size),) for size in ((16, 20), (13, 9), (33, 8))]
    same(Halved().eval(), calls, (sides,))


def halves(x: Any, n: Any) -> Any:
    y = x * 2
    return y[:, : n.shape[0]].contiguous() + 1, y[:, 1:].contiguous()


def written_halves(x: Any, n: Any) -> Any:
    y = x * 2
    half = y[:, : n.shape[0]].contiguous()
    y.add_(1)
    return half, y


def test_whether_rows_are_copied_is_asked_where_it_can_be_told() -> None:
    sides = ({0: Dim("rows"), 1: Dim("columns")}, {0: Dim("n")})
    calls = [
        (torch.randn(rows, columns), torch.zeros(n))
        for rows, columns, n in ((3, 8, 5), (2, 8, 8), (1, 5, 5), (4, 6, 2))
    ]
    same(halves, calls, sides)
    same(written_halves, calls[::3], sides)
    with pytest.raises(tw.InputError, match="distance of n and columns is 0"):
        same(written_halves, calls, sides)


@pytest.mark.parametrize("is_aligned", [True, False])
def test_matrices_move_images_of_any_size(is_aligned: bool) -> None:
    def moved(x: Any, matrices: Any) -> Any:
        grid = functional.affine_grid(matrices, x.shape, align_corners=is_aligned)
        return grid, functional.grid_sample(x, grid, align_corners=is_aligned)

    sides = {2: Dim("h", min=1, max=64), 3: Dim("w", min=1, max=64)}
    calls = [
        (torch.randn(2, 3, *size), torch.randn(2, 2, 3))
        for size in ((9, 11), (4, 7), (1, 1))
    ]
    same(moved, calls, (sides, None))


class Asks(nn.Module):
    """Branches by sizes of its inputs, which the program knows by several names."""

    def forward(self, x: Any, ys: Any, *rest: Any, z: Any, flag: Any = None) -> Any:
        assert flag is None
        factor = 3
        if x.shape[1] != rest[0].shape[0] * 2 and x.shape[0] * 2 <= x.shape[1] // 3:
            factor = 2
        return x * (factor if ys["a"][0].shape[0] == z.shape[0] else -1)


def test_branches_that_ask_sizes_are_checked_by_calls() -> None:
    def arguments(rows: int, columns: int, a: int, count: int, z: int) -> Any:
        given = (torch.randn(rows, columns), {"a": [torch.zeros(a)]}, torch.zeros(count))
        return given, {"z": torch.zeros(z)}

    sides = {
        "x": {0: Dim("rows", min=2), 1: Dim("columns", min=12)},
        "ys": {"a": [{0: Dim("a")}]}, "rest": ({0: Dim("n")},), "z": {0: Dim("z")},
    }  # fmt: skip
    args, kwargs = arguments(2, 13, 3, 5, 4)
    program = torch.export.export(Asks(), args, kwargs, dynamic_shapes=sides)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for each in (program, torch.export.load(file)):
        model = tw.compile(each)
        for sizes in ((2, 13, 3, 5, 4), (3, 18, 2, 1, 7)):
            args, kwargs = arguments(*sizes)
            torch.testing.assert_close(model(*args, **kwargs), Asks()(*args, **kwargs))
        for sizes in ((2, 14, 3, 7, 4), (3, 17, 3, 5, 4), (2, 13, 4, 5, 4)):
            args, kwargs = arguments(*sizes)
            with pytest.raises(tw.InputError, match="a size does not fit"):
                model(*args, **kwargs)


# --- what torch cannot export -------------------------------------------------------------------


class Asking(nn.Module):
    def forward(self, x: Any) -> Any:
        return x * 2 if x.mean() > 0 else x - 1


def test_a_branch_that_asks_data_is_refused_with_its_line_and_what_helps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(tw.ModelError) as caught:
        tw.compile(Asking().eval(), args=(torch.ones(3),))
    told = str(caught.value)
    assert "\nat test_torch_strangers.py:" in told
    assert "hint: write it as torch.cond" in told
    assert "TORCH_LOGS" not in told
    assert "TORCHDYNAMO" not in told
    assert not [r for r in caplog.records if r.name == "torch._guards"]


class Neighbours(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("adjacent", torch.eye(5).to_sparse())

    def forward(self, x: Any) -> Any:
        return self.adjacent @ x


def test_a_sparse_buffer_is_refused_by_its_name() -> None:
    with pytest.raises(tw.ModelError, match=r"adjacent.*layout torch\.sparse_coo"):
        tw.compile(Neighbours().eval(), args=(torch.randn(5, 4),))


def among_unsorted(x: Any, edges: Any) -> Any:
    held = [(row, row.argsort(-1)) for row in (edges[0], edges)]
    places = [torch.searchsorted(row, x, sorter=order) for row, order in held]
    return *places, torch.searchsorted(edges, x, right=True, sorter=held[1][1])


def test_places_among_edges_that_are_read_in_a_given_order() -> None:
    edges = torch.tensor([[2.0, -1.0, 0.5], [0.5, 0.25, 0.5]])
    same(among_unsorted, [(torch.tensor([[0.5, -3.0], [0.5, 9.0]]), edges)])
