"""Whole numbers that torch wants to know, given as sizes that calls decide: diagonals, steps, classes, windows of a whole axis."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from fakes.torch_programs import module_of, same
from tilewright.base.diagnostics import TilewrightWarning
from tilewright.base.errors import InputError

torch = pytest.importorskip("torch")
functional = torch.nn.functional
AUTO = torch.export.Dim.AUTO
COLUMNS = ({1: AUTO},)
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]


def rows(*sizes: int) -> list[tuple[Any, ...]]:
    return [(torch.randn(2, size),) for size in sizes]


def triangles(x: Any) -> Any:
    n = x.shape[1]
    return x.tril(n - 5), torch.ones(4, 20).triu(n - 4), x.mT.tril(-n + 2), x.triu()


def test_a_triangle_begins_at_a_diagonal_that_calls_decide() -> None:
    same(triangles, rows(9, 12, 5, 1), COLUMNS)


class Cached(torch.nn.Module):
    """Attention of new rows over what a cache holds and themselves: the mask's diagonal is the cache's length."""

    def forward(self, x: Any, keys: Any) -> Any:
        keys = torch.cat([keys, x], 1)
        new, all_ = x.shape[1], keys.shape[1]
        shown = torch.ones(new, all_, dtype=torch.bool).tril(diagonal=all_ - new)
        return functional.scaled_dot_product_attention(x, keys, keys, attn_mask=shown)


def test_rows_behind_a_cache_see_what_lies_before_them() -> None:
    calls = [
        (torch.randn(2, new, 8), torch.randn(2, held, 8))
        for new, held in ((3, 5), (4, 9), (2, 2))
    ]
    same(Cached().eval(), calls, ({1: AUTO}, {1: AUTO}))
    model = tw.compile(Cached().eval(), calls[0], dynamic_shapes=({1: AUTO}, {1: AUTO}))
    for call in calls:
        torch.testing.assert_close(model(*call), Cached()(*call), rtol=1e-5, atol=1e-5)


def lines(x: Any) -> Any:
    n = x.shape[1]
    return (
        torch.linspace(0, 1, n),
        torch.linspace(-3, 7.5, 2 * n, dtype=torch.float64),
        torch.linspace(1, -1, steps=n // 2),
        torch.logspace(0, 2, n),
        torch.logspace(0, 2, n, 2.0),
        torch.hann_window(n),
        torch.hamming_window(n + 1, periodic=False),
    )


def test_lines_and_windows_have_as_many_places_as_calls_decide() -> None:
    same(lines, rows(9, 12, 5, 2), COLUMNS)


WINDOWS = ("bartlett", "blackman", "hamming", "hann", "kaiser")


def windows(x: Any) -> Any:
    n = x.shape[0]
    return *(
        x * getattr(torch, f"{kind}_window")(n, periodic)
        for kind in WINDOWS
        for periodic in (True, False)
    ), x * torch.hann_window(n, dtype=torch.float64)  # fmt: skip


def test_a_window_of_one_place_is_one() -> None:
    """Its formula would be divided by the places less one; with DYNAMIC no check keeps a call of one place away."""
    calls = [(torch.ones(n),) for n in (5, 1, 2, 0, 8)]
    same(windows, calls, ({0: torch.export.Dim.DYNAMIC},))
    same(windows, calls[1:2])


def one_line(x: Any) -> Any:
    n = x.shape[1]
    halves = torch.logspace(1, 2, n, dtype=torch.float16)
    return torch.linspace(3, 5, n), torch.logspace(1, 2, n), halves


def test_a_line_of_one_place_is_where_it_starts() -> None:
    same(one_line, rows(4, 1, 0, 7), COLUMNS)


def into_given(x: Any) -> Any:
    n, line, powers = x.shape[1], torch.zeros(9), torch.zeros(9)
    torch.linspace(0, 1, n, out=line)
    torch.logspace(0, 2, n, out=powers)
    return line, powers


def test_lines_that_are_written_into_a_given_tensor_are_those_of_the_example() -> None:
    """The tensor stayed as it was, in silence."""
    same(into_given, rows(9), COLUMNS)


def test_a_line_between_complex_numbers_is_as_long_as_that_of_the_example() -> None:
    module = module_of(lambda x: torch.linspace(1j, 2, x.shape[1]))
    for sides in (None, COLUMNS):
        same(module, rows(9), sides)
        with pytest.raises(InputError, match="9"):
            same(module, rows(9, 7), sides)


def classes(x: Any) -> Any:
    capacity = max(x.shape[1] // 4 * 2, 1)
    places = (x > 0).long().cumsum(1).clamp(max=capacity - 1)
    return functional.one_hot(places, capacity), functional.one_hot(
        x.argsort(1), num_classes=x.shape[1]
    )


def test_there_are_as_many_classes_as_calls_decide() -> None:
    same(classes, rows(9, 16, 40, 2), COLUMNS)


def whole(x: Any) -> Any:
    n, wide, pair = x.shape[1], x[None], x.repeat(3, 1)[None]
    return (
        functional.max_pool1d(wide, n),
        functional.max_pool1d(wide, wide.shape[2:], ceil_mode=True),
        functional.avg_pool1d(wide, kernel_size=n),
        functional.avg_pool2d(wide, wide.shape[1:]),
        functional.max_pool2d(wide, (2, n)),
        functional.avg_pool2d(pair, (2, n), stride=1),
        functional.avg_pool2d(pair, (4, n), (2, 1), (1, 0), count_include_pad=False),
        functional.max_pool2d(pair, (3, pair.size(2)), (2, 1), (1, 0)),
        functional.avg_pool3d(pair[None], (1, 2, n), (1, 3, n)),
    )


def test_windows_that_are_as_large_as_the_picture_leave_its_size_open() -> None:
    same(whole, rows(9, 12, 5, 1), COLUMNS)


PARTS = {
    "half": lambda x: functional.max_pool1d(x[None], x.shape[1] // 2, stride=1),
    "places": lambda x: functional.max_pool1d(x[None], x.shape[1], return_indices=True),
}


@pytest.mark.parametrize("form", ["half", "places"])
def test_other_windows_of_open_size_are_told(form: str) -> None:
    module, x = module_of(PARTS[form]), torch.randn(2, 9)
    with pytest.warns(TilewrightWarning, match=r"x\.shape\[1\] is 9 at test_torch_open"):
        model = tw.compile(module, args=(x,), dynamic_shapes=COLUMNS)
    torch.testing.assert_close(model(x), module(x))
    with pytest.raises(tw.InputError):
        model(torch.randn(2, 12))


def bias_of_the_last_keys(x: Any, expands: bool = False) -> Any:
    """Of a table of biases as many keys as there are; its axis of one row is cut likewise, as MPT does."""
    n = x.shape[1]
    bias = torch.arange(64.0).view(1, 1, 64)[:, max(0, 1 - n) :, max(0, 64 - n) :]
    return x[:, :, None] + x[:, None] + (bias.expand(2, n, n) if expands else bias)


@pytest.mark.parametrize("expands", [False, True], ids=["repeated", "expanded"])
def test_an_axis_of_one_row_or_none_is_repeated(expands: bool) -> None:
    module = module_of(lambda x: bias_of_the_last_keys(x, expands))
    same(module, rows(9, 2, 1, 0), COLUMNS)
    model = tw.compile(module, (torch.randn(2, 9),), dynamic_shapes=COLUMNS)
    x = torch.randn(2, 5)
    torch.testing.assert_close(model(x), module(x), rtol=1e-5, atol=1e-5)


def test_an_axis_that_turns_out_to_have_no_row_is_refused() -> None:
    table = torch.arange(64.0).view(1, 64)
    module = module_of(lambda x: (torch.ones(3, 64) + table[max(0, 1 - x.shape[1]) :], x))
    model = tw.compile(module, (torch.randn(2, 9),), dynamic_shapes=COLUMNS)
    assert model(torch.randn(2, 5))[0].shape == (3, 64)
    with pytest.raises(tw.InputError):
        model(torch.randn(2, 0))
