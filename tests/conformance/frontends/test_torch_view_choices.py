"""Writes in place where sizes decide whether an operator gives a view or a copy: calls are right, or refused.

What it is not: what torch decides of sizes elsewhere, which `test_torch_guards` and `test_torch_open_sizes` try.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from fakes.torch_programs import module_of, same
from tilewright.compiler.frontends.torch import Captured, load
from tilewright.compiler.graph.evaluator import evaluate

torch = pytest.importorskip("torch")
nn = torch.nn
Dim = torch.export.Dim
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]
BOTH = {0: Dim.AUTO, 1: Dim.AUTO}
EXAMPLE = (4, 6)
LAST = torch.channels_last


def writes(view: Callable[..., Any]) -> Any:
    """A module that writes to what `view` makes of a tensor, and returns the tensor."""

    def function(x: Any) -> Any:
        y = x * 1
        view(y).add_(1)
        return y

    return module_of(function)


def answers(
    module: Any, example: tuple[int, int], calls: Iterable[tuple[int, int]]
) -> set[Any]:
    """The calls that are taken, each of which gives what torch gives."""
    made = load(Captured(module, args=(torch.zeros(example),), dynamic_shapes=(BOTH,)))
    assert made.calling is not None

    def run(arrays: Any) -> Any:
        return evaluate(made.graph, [np.array(array, order="C") for array in arrays])

    def works(call: tuple[int, int]) -> bool:
        try:
            module(torch.zeros(call))
        except (RuntimeError, IndexError):
            return (
                False  # for an operator, perhaps, whose result nobody reads: it is not run
            )
        return True

    taken: set[Any] = set()
    for call in filter(works, calls):
        try:
            found = made.calling(run, (torch.zeros(call),), {})
        except tw.UserError:
            continue
        torch.testing.assert_close(found, module(torch.zeros(call)))
        taken.add(call)
    return taken


CALLS = [(rows, columns) for rows in range(5) for columns in range(8)]
MANY = {call for call in CALLS if min(call) > 1}
VIEWS: dict[str, tuple[Callable[..., Any], set[Any]]] = {
    "even columns": (
        lambda y: y[:, : 2 * (y.shape[1] // 2)].reshape(-1),
        {call for call in CALLS if call[0] > 0 and call[1] > 0 and call[1] % 2 == 0},
    ),
    "four columns": (
        lambda y: y[:, :4].reshape(-1), {call for call in CALLS if call[0] > 1 and call[1] > 4},
    ),
    "transposed": (lambda y: y.t().contiguous(), MANY),
    "transposed, in a row": (lambda y: y.t().flatten(), MANY),
    "rows apart": (
        lambda y: y[::2].contiguous(), {call for call in CALLS if call[0] > 2 and call[1] > 0},
    ),
    "columns apart": (
        lambda y: y[:, ::2].reshape(-1), {call for call in CALLS if call[0] > 0 and call[1] > 2 and call[1] % 2 == 0},
    ),
    "a column": (lambda y: y[:, 0].contiguous(), MANY),
    "windows": (lambda y: y.unfold(0, 2, 1).reshape(-1), MANY - {(2, 1)}),
    "repeated": (lambda y: y[:1].expand(y.shape[0], -1).reshape(-1), MANY),
    "channels last": (lambda y: y[None, :, None].contiguous(memory_format=LAST), MANY),
    "a part": (lambda y: y.chunk(2, 1)[0].reshape(-1), MANY - {(n, 2) for n in range(5)}),
}  # fmt: skip
"""Views that copy for the example, and calls that have to be taken because they are alike."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("example", [EXAMPLE, (4, 3), (3, 8)])
def test_a_write_to_what_may_be_a_copy_is_right_or_refused(
    name: str, example: tuple[int, int]
) -> None:
    view, alike = VIEWS[name]
    taken = answers(writes(view), example, CALLS)
    assert taken
    if example == EXAMPLE:
        assert taken >= alike


def test_odd_columns_are_refused_where_the_even_ones_are_a_view() -> None:
    module = writes(VIEWS["even columns"][0])
    model = tw.compile(module, args=(torch.zeros(4, 6),), dynamic_shapes=(BOTH,))
    torch.testing.assert_close(model(torch.zeros(3, 8)), module(torch.zeros(3, 8)))
    with pytest.raises(tw.InputError, match="expected a multiple of 2"):
        model(torch.zeros(4, 7))


def test_one_row_is_refused_where_it_would_be_no_copy() -> None:
    module = writes(VIEWS["transposed"][0])
    program = torch.export.export(module, (torch.zeros(4, 6),), dynamic_shapes=(BOTH,))
    for model in (
        tw.compile(module, args=(torch.zeros(4, 6),), dynamic_shapes=(BOTH,)),
        tw.compile(program),
    ):
        assert not model(torch.zeros(3, 8)).any()
        with pytest.raises(tw.InputError, match="the distance of 1 and s"):
            model(torch.zeros(1, 6))


def test_a_copy_that_shows_what_is_written_to_its_source_later_is_checked() -> None:
    def kept(x: Any) -> Any:
        y = x * 1
        part = y[:, :4].reshape(-1)
        y.add_(1)
        return part

    sizes = answers(module_of(kept), EXAMPLE, CALLS)
    assert {(2, 5), (4, 7)} <= sizes
    assert sizes.isdisjoint({(1, 5), (2, 3), (2, 4)})


def activated(x: Any) -> Any:
    return torch.relu_(x.t().contiguous() * 2).t().reshape(-1).mul_(2)


def written_before(x: Any) -> Any:
    return (x * 1).relu_().t().contiguous()


def copied_and_forgotten(x: Any) -> Any:
    return (x * 1).t().contiguous().add_(1)


@pytest.mark.parametrize(
    "function",
    [activated, written_before, copied_and_forgotten, writes(lambda y: y.flatten())],
)
def test_one_row_is_taken_where_nobody_can_tell_a_view_from_a_copy(function: Any) -> None:
    same(
        function,
        [(torch.randn(size),) for size in (EXAMPLE, (1, 6), (4, 1), (0, 3))],
        (BOTH,),
    )


def written_by_columns(x: Any) -> Any:
    y = torch.zeros(x.shape[0], 8)
    y[:, :4] = x
    y[:, 4:].copy_(x.flip(0))
    return y.view(x.shape[0], 2, 4).transpose(1, 2).reshape(x.shape[0], 8).relu_()


def added_to_a_row(x: Any) -> Any:
    y = x.clone().permute(1, 0)
    y[0] += 1
    return y.flatten()


def written_at_even_columns(x: Any) -> Any:
    y = x.flip(1)
    y[:, ::2].reshape(x.shape[0], 2).exp_()
    return y


@pytest.mark.parametrize(
    "function", [written_by_columns, added_to_a_row, written_at_even_columns]
)
def test_what_finds_types_of_a_write_decides_nothing(function: Any) -> None:
    """Torch looks at how elements lie when it finds out which type `copy_` has."""
    calls = [(torch.randn(count, 4),) for count in (3, 1, 0, 5)]
    same(function, calls, ({0: Dim.AUTO},))


class Classifier(nn.Module):
    """Activations in place before what flattens."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 2, 3)
        self.classes = nn.Linear(2, 3)

    def forward(self, x: Any) -> Any:
        x = nn.functional.relu(self.convolution(x), inplace=True)
        x = torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1)
        return nn.functional.relu(self.classes(x), inplace=True)


def test_a_classifier_with_activations_in_place_takes_one_picture() -> None:
    images = [(torch.randn(count, 1, 6, 6),) for count in (3, 1, 0)]
    same(Classifier().eval(), images, ({0: Dim.AUTO},))


# --- elements seen as others --------------------------------------------------------------------


@pytest.mark.parametrize("rows", [4, 1, 0])
def test_elements_are_seen_as_narrower_and_wider_ones(rows: int) -> None:
    def seen(x: Any, y: Any) -> Any:
        narrow = (x.view(torch.uint8), x.view(torch.int16), x[0].view(torch.int8))
        wide = (y.view(torch.int16), y.view(torch.float32), y.view(torch.int64))
        return (*narrow, *wide, (y > 0).view(torch.uint8), (y & 1).view(torch.bool))

    def given(count: int) -> tuple[Any, Any]:
        bytes_ = torch.arange(max(count, 1) * 16) * 37 % 64
        return torch.randn(2, count, 3), bytes_.to(torch.uint8).view(-1, 16)[:count]

    same(seen, [given(3), given(rows)], ({1: Dim.AUTO}, {0: Dim.AUTO}))


def test_what_is_written_to_bytes_of_a_tensor_is_written_to_it() -> None:
    def marked(x: Any) -> Any:
        y = x * 1
        y.view(torch.uint8)[:, 3] |= 128
        return y, y.view(torch.int16)

    same(marked, [(torch.rand(2, 5),)])
