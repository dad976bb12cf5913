"""Places and numbers that data decides, also negative ones: `x[i.item()]` and its like."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]


def same(found: Any, wanted: Any) -> None:
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


class Picked(nn.Module):
    def forward(self, x: Any, i: Any) -> Any:
        place = i.item()
        return x[place], x[:, place], x.select(0, place) * 2


def test_a_place_of_the_data_counts_from_the_end_where_it_is_negative() -> None:
    x, module = torch.randn(5, 5), Picked().eval()
    model = tw.compile(module, args=(x, torch.tensor(0)))
    for place in (0, 4, -1, -5):
        i = torch.tensor(place)
        same(model(x, i), module(x, i))
    for place in (5, -6, 1 << 40):
        with pytest.raises(tw.InputError, match=r"item|select"):
            model(x, torch.tensor(place))


def test_nobody_waits_for_a_place_that_no_size_follows_from() -> None:
    model = tw.compile(Picked().eval(), args=(torch.randn(5, 5), torch.tensor(0)))
    assert not model.session.executor.plan.has_reads


class Cut(nn.Module):
    def forward(self, x: Any, i: Any) -> Any:
        place = i.item()
        return x[place:], x[:place], x[:, place:].sum(1), x[place - 1 : place + 2]


def test_a_slice_begins_and_ends_where_the_data_says() -> None:
    x, module = torch.randn(5, 6), Cut().eval()
    model = tw.compile(module, args=(x, torch.tensor(2)))
    for place in (2, -2, 0, 5, -9, 9):
        i = torch.tensor(place)
        same(model(x, i), module(x, i))


class Arithmetic(nn.Module):
    def forward(self, x: Any, i: Any) -> Any:
        number = i.item()
        return (
            x * number + number // 3,
            torch.full((3,), number % 5),
            x.sum() - number * 2,
            torch.full((2,), max(number, 2) * 2 - number),
        )


def test_a_number_of_the_data_may_be_negative_and_large() -> None:
    x, module = torch.randn(5), Arithmetic().eval()
    model = tw.compile(module, args=(x, torch.tensor(7)))
    for number in (7, -7, 0, -1, 1 << 33, -(1 << 33)):
        i = torch.tensor(number)
        same(model(x, i), module(x, i))


class Written(nn.Module):
    def forward(self, x: Any, i: Any, row: Any) -> Any:
        found, place = x.clone(), i.item()
        found.select(0, place).copy_(row)
        found.select(1, place).fill_(3)
        return (found,)


def test_a_row_is_written_where_the_data_says() -> None:
    x, row, module = torch.randn(5, 6), torch.randn(6), Written().eval()
    model = tw.compile(module, args=(x, torch.tensor(2), row))
    for place in (2, -1, 4, -5):
        i = torch.tensor(place)
        same(model(x, i, row), module(x, i, row))
    with pytest.raises(tw.InputError):
        model(x, torch.tensor(5), row)
