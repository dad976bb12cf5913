"""Places and numbers that data decides, also negative ones: `x[i.item()]` and its like."""

from __future__ import annotations

from typing import Any

import numpy as np
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


class Numbered(torch.nn.Module):
    """A number of the call says where."""

    def __init__(self, read: Any) -> None:
        super().__init__()
        self.read = read

    def forward(self, x: Any, n: int) -> Any:
        return self.read(x, n)


@pytest.mark.parametrize(
    ("read", "right", "wrong"),
    [
        (lambda x, n: x[n] * 1, (0, 5, 23), (24, 100, 10**6)),
        (lambda x, n: x.narrow(0, n, 4) * 2, (0, 20), (21, 24, 10**6)),
        (lambda x, n: torch.roll(x, n, 0), (0, 5, 24, 30, 10_000), ()),
        (lambda x, n: x[n:] + 1, (0, 5, 24), (25, 10**6)),
        (
            lambda x, n: torch.slice_scatter(x, torch.ones(4), 0, n, n + 4),
            (0, 20),
            (22, 400),
        ),
        (
            lambda x, n: torch.select_scatter(x, torch.tensor(7.0), 0, n),
            (0, 23),
            (24, 10**6),
        ),
    ],
    ids=["select", "narrow", "roll", "slice", "slice_scatter", "select_scatter"],
)
def test_numbers_of_a_call_lead_to_no_foreign_memory(
    read: Any, right: tuple[int, ...], wrong: tuple[int, ...]
) -> None:
    auto = torch.export.Dim.AUTO
    x = torch.arange(24.0)
    compiled = tw.compile(
        Numbered(read).eval(), args=(x, 3), dynamic_shapes=({0: auto}, auto)
    )
    for n in right:
        torch.testing.assert_close(compiled(x, n), read(x, n), rtol=0, atol=0)
    for n in wrong:
        with pytest.raises(tw.InputError):
            compiled(x, n)


def test_torch_rolls_by_a_number_of_data() -> None:
    class Rolled(torch.nn.Module):
        def forward(self, x: Any, n: Any) -> Any:
            return torch.roll(x, n.item(), 0)

    x = torch.arange(24.0)
    compiled = tw.compile(Rolled().eval(), args=(x, torch.tensor(3)))
    for n in (3, 0, -1, 30, 10_000):
        torch.testing.assert_close(compiled(x, torch.tensor(n)), torch.roll(x, n, 0))


def _rows_of(x: Any, index: Any) -> Any:
    return index[:, None].expand(index.shape[0], x.shape[1])


WITHIN: dict[str, Any] = {
    "bincount": lambda x, i: torch.bincount(i, minlength=x.shape[0]),
    "cross_entropy": lambda x, i: nn.functional.cross_entropy(x.t()[:3], i),
    "embedding": lambda x, i: nn.functional.embedding(i, x),
    "embedding_bag": lambda x, i: nn.functional.embedding_bag(i[None], x),
    "gather": lambda x, i: x.gather(0, _rows_of(x, i)),
    "index_add": lambda x, i: x.index_add(0, i, x[:3]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:3]),
    "index_select": lambda x, i: x.index_select(0, i),
    "max_unpool1d": lambda x, i: nn.functional.max_unpool1d(x[:2, :3], i.expand(2, 3), 2),
    "one_hot": lambda x, i: nn.functional.one_hot(i, x.shape[0]),
    "scatter": lambda x, i: x.scatter(0, _rows_of(x, i), 1.0),
    "scatter_add": lambda x, i: (x > 0).long().scatter_add(0, _rows_of(x, i), x[:3].long()),
    "scatter_flags": lambda x, i: (x > 0).scatter(0, _rows_of(x, i), True),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, _rows_of(x, i), x[:3], "mean"),
}
FROM_THE_END: dict[str, Any] = {
    "index": lambda x, i: x[i],
    "index_fill": lambda x, i: x.index_fill(0, i, 1.0),
    "index_put": lambda x, i: x.index_put((i,), torch.ones(())),
    "put": lambda x, i: x.put(i, torch.ones(3)),
    "take": lambda x, i: x.take(i),
    "take_along_dim": lambda x, i: torch.take_along_dim(x, _rows_of(x, i), 0),
}


def _place(name: str, places: list[int]) -> tuple[Any, Any]:
    """What a call gives, and what torch does."""
    function = (WITHIN | FROM_THE_END)[name]
    x = torch.arange(20.0).reshape(5, 4) - 9

    class Placing(nn.Module):
        def forward(self, x: Any, i: Any) -> Any:
            return function(x, i)

    made = load(Captured(Placing().eval(), args=(x, torch.tensor([0, 1, 2]))))
    assert made.calling is not None
    call = (x, torch.tensor(places))

    def run(arrays: Any) -> Any:
        return evaluate(made.graph, [np.array(array, order="C") for array in arrays])

    return made.calling(run, call, {}), function(*call)


@pytest.mark.parametrize("name", [*WITHIN, *FROM_THE_END])
def test_places_that_are_there_are_read_and_written(name: str) -> None:
    torch.testing.assert_close(*_place(name, [3, 0, 2]))


SCALARS: dict[str, Any] = {
    "gather_scalar": lambda x, i: x[0, 0].gather(0, i),
    "gather_scalar_by_scalar": lambda x, i: x[0, 0].gather(0, i[1]),
    "gather_by_scalar": lambda x, i: x[0, :1].gather(0, i[1]),
    "index_select_scalar": lambda x, i: x[0, 0].index_select(0, i[1:2]),
    "index_select_scalar_by_scalar": lambda x, i: x[0, 0].index_select(0, i[1]),
}


@pytest.mark.parametrize("name", SCALARS)
def test_a_scalar_has_one_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WITHIN, name, SCALARS[name])
    torch.testing.assert_close(*_place(name, [0, 0, 0]))
    for wrong in (-1, 1):
        with pytest.raises(tw.InputError, match=f"index {wrong} is out of range"):
            _place(name, [0, wrong, 0])


def test_a_place_to_unpool_to_is_of_its_own_plane() -> None:
    """The place behind the end of a plane is the first one of the next."""
    torch._dynamo.reset()
    x, function = torch.ones(1, 2, 3), nn.functional.max_unpool1d
    compiled = torch.compile(lambda i: function(x, i, 2), backend="tilewright")
    i = torch.tensor([[[0, 3, 5], [5, 1, 2]]])
    torch.testing.assert_close(compiled(i), function(x, i, 2))
    i[0, 0, 1] = 6
    with pytest.raises(tw.InputError, match="index 6 is out of range"):
        compiled(i)


@pytest.mark.parametrize("name", WITHIN)
def test_a_negative_place_fails_the_call_where_torch_raises(name: str) -> None:
    with pytest.raises(tw.InputError, match="index -1 is out of range"):
        _place(name, [0, -1, 2])


@pytest.mark.parametrize("name", FROM_THE_END)
def test_a_negative_place_counts_from_the_end_where_torch_lets_it(name: str) -> None:
    torch.testing.assert_close(*_place(name, [0, -1, -2]))


@pytest.mark.parametrize("place", [-1, 5])
def test_machine_code_looks_for_negative_places(place: int) -> None:
    x, module = torch.randn(5, 4), nn.Embedding(5, 4).eval()
    with torch.no_grad():
        module.weight.copy_(x)
        model = tw.compile(module, args=(torch.tensor([0, 1, 2]),))
        torch.testing.assert_close(model(torch.tensor([4, 0, 3])), x[[4, 0, 3]])
    with pytest.raises(tw.InputError, match=r"out of range .* expected 0 \.\. 4"):
        model(torch.tensor([0, place, 3]))
