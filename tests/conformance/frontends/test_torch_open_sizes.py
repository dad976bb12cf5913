"""Sizes that calls decide, where torch decides by those of the example: branches, parts, views."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import tilewright as tw
from fakes.torch_programs import module_of, same
from tilewright.compiler.frontends.torch import load
from tilewright.compiler.graph.evaluator import evaluate

torch = pytest.importorskip("torch")
nn = torch.nn
functional = nn.functional
Dim = torch.export.Dim
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]
ROWS = {0: Dim.AUTO}
COLUMNS = {1: Dim.AUTO}
BOTH = {0: Dim.AUTO, 1: Dim.AUTO}


def numbers(*sizes: int) -> tuple[Any, ...]:
    return (torch.randn(*sizes),)


def refused(
    function: Callable[..., Any], example: Any, sides: Any, call: Any, match: str
) -> None:
    with pytest.raises(tw.InputError, match=match):
        same(function, [example, call], sides)


# --- branches -----------------------------------------------------------------------------------


def pairs(count: int) -> tuple[Any, Any]:
    return torch.randn(count, 3), torch.randn(count, 3)


def crossed(x: Any, y: Any) -> Any:
    return torch.cross(x, y)


def test_a_function_that_looks_for_an_axis_of_three_is_checked() -> None:
    """Without an axis, `cross` takes the first that has three elements."""
    same(crossed, [pairs(5), pairs(4), pairs(1)], (ROWS, ROWS))
    refused(crossed, pairs(5), (ROWS, ROWS), pairs(3), "distance of 3 and")


def rank(x: Any) -> Any:
    return torch.linalg.matrix_rank(x)


def test_a_function_whose_limit_is_of_the_longer_side_is_checked() -> None:
    same(rank, [numbers(5, 6), numbers(4, 7), numbers(4, 4)], (BOTH,))
    refused(rank, numbers(5, 6), (BOTH,), numbers(6, 4), "expected at most 4")


def second_differences(x: Any) -> Any:
    return torch.diff(x, 2)


@pytest.mark.slow
def test_a_function_that_stops_where_nothing_is_left_is_checked() -> None:
    same(second_differences, [numbers(5, 6), numbers(4, 3), numbers(2, 2)], (BOTH,))
    refused(second_differences, numbers(5, 6), (BOTH,), numbers(5, 1), "at least 2")


def halves(x: Any) -> Any:
    return x[:, : x.shape[1] // 2] if x.shape[1] // 2 != 1 else x * 2


def test_a_branch_is_checked_that_an_earlier_question_answered() -> None:
    """How the elements of half of the columns lie was asked before the module asks."""

    def late(x: Any) -> Any:
        half = (x[:, : x.shape[1] // 2] + 1).contiguous()
        return half * 2 if x.shape[1] // 2 != 1 else half - 1

    for function in (halves, late):
        same(function, [numbers(5, 32), numbers(1, 7), numbers(2, 4)], (BOTH,))
        refused(function, numbers(5, 32), (BOTH,), numbers(5, 3), "distance of")


RATIOS: dict[str, tuple[Callable[..., Any], tuple[int, int], tuple[int, int]]] = {
    "a ratio": (lambda x: x * (2 if x.shape[1] / x.shape[0] > 1.5 else 3), (4, 7), (4, 6)),
    "a tenth": (lambda x: x * (2 if x.shape[1] / x.shape[0] >= 0.1 else 3), (10, 1), (20, 1)),
    "a product": (lambda x: x * (2 if 0.07 * x.shape[0] > 7 else 3), (100, 2), (99, 2)),
    "the longer side": (lambda x: x * (2 if max(x.shape) / min(x.shape) > 2 else 3), (7, 3), (4, 6)),
    "a ratio, rounded": (lambda x: x * (2 if math.ceil(x.shape[1] / x.shape[0]) > 2 else 3), (4, 9), (4, 8)),
}  # fmt: skip


@pytest.mark.parametrize("name", RATIOS)
def test_a_branch_on_real_numbers_of_sizes_is_checked(name: str) -> None:
    """They are rounded as Python rounds them: 0.07 times 100 is more than 7."""
    function, right, other = RATIOS[name]
    example = numbers(101, 300) if name == "a product" else numbers(3, 9)
    same(function, [example, numbers(*right)], (BOTH,))
    refused(
        function,
        example,
        (BOTH,),
        numbers(*other),
        "does not hold for this call|expected at least",
    )
    given = torch.export.export(module_of(function), example, dynamic_shapes=(BOTH,))
    made = load(given)
    assert made.calling is not None
    evaluate(made.graph, [numbers(*right)[0].numpy()])
    with pytest.raises(
        tw.InputError, match=r"does not hold for this call|expected at least"
    ):
        evaluate(made.graph, [numbers(*other)[0].numpy()])


def test_a_branch_on_real_numbers_is_told_by_places_of_shapes() -> None:
    def branch(x: Any) -> Any:
        return x * 2 if x.shape[1] / x.shape[0] > 1.5 else x - 1

    for sides, shown in (
        (
            BOTH,
            r"x\.shape\[1\] / x\.shape\[0\] > 1\.5\)'.*\n.* or decide by torch\.cond",
        ),
        ({0: Dim("rows"), 1: Dim("columns")}, r"columns / rows > 1\.5"),
    ):
        module = module_of(branch)
        model = tw.compile(module, args=numbers(4, 8), dynamic_shapes=(sides,))
        torch.testing.assert_close(model(torch.ones(4, 7)), module(torch.ones(4, 7)))
        with pytest.raises(tw.InputError, match=shown):
            model(*numbers(4, 6))
        with pytest.raises(tw.InputError, match="expected at least 1"):
            model(*numbers(0, 6))


def test_windows_are_within_their_axis() -> None:
    def windows(x: Any) -> Any:
        return x.unfold(0, 3, 2) * 2

    same(windows, [numbers(7, 2), numbers(3, 2)], (ROWS,))
    refused(windows, numbers(7, 2), (ROWS,), numbers(2, 2), "expected at least 3")


def pseudo_inverse(x: Any) -> Any:
    return torch.linalg.pinv(x)


def inner(x: Any, y: Any) -> Any:
    return torch.inner(x, y)


def all_pairs(x: Any, y: Any) -> Any:
    return torch.cartesian_prod(x[:, 0], y[:, 0])


def pooled_and_back(x: Any) -> Any:
    values, places = functional.max_pool1d(x, 2, return_indices=True)
    return functional.max_unpool1d(values, places, 2)


SAME_EITHER_WAY: list[tuple[Callable[..., Any], list[Any], Any]] = [
    (pseudo_inverse, [numbers(5, 6), numbers(6, 4), numbers(4, 4)], (BOTH,)),
    (inner, [pairs(5), pairs(1)], (ROWS, ROWS)),
    (all_pairs, [pairs(5), pairs(1)], (ROWS, ROWS)),
    (
        pooled_and_back,
        [numbers(1, 5, 6), numbers(1, 5, 2), numbers(1, 5, 3)],
        ({2: Dim.AUTO},),
    ),
]


@pytest.mark.parametrize(("function", "calls", "sides"), SAME_EITHER_WAY)
def test_what_is_right_on_both_sides_is_not_refused(
    function: Callable[..., Any], calls: list[Any], sides: Any
) -> None:
    same(function, calls, sides)


def sets(left: Sequence[int], right: Sequence[int]) -> tuple[Any, Any]:
    return torch.randint(0, 9, left), torch.randint(0, 9, right).float()


@pytest.mark.parametrize("invert", [False, True])
def test_elements_are_looked_for_among_few_and_among_many(invert: bool) -> None:
    calls = [
        sets(left, right)
        for left, right in (
            ((6, 2), (3,)), ((60, 2), (3,)), ((3, 2), (50,)), ((0, 2), (5,)), ((5, 2), (0,)),
        )
    ]  # fmt: skip
    calls[1][1][0] = torch.nan
    same(lambda x, y: torch.isin(x, y, invert=invert), calls, (ROWS, ROWS))


# --- parts and views ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("side", [Dim.AUTO, Dim("columns")])
@pytest.mark.parametrize("count", [2, 3])
def test_an_example_does_not_say_which_parts_are_longer(count: int, side: Any) -> None:
    def split(x: Any) -> Any:
        return [part * 2 for part in torch.tensor_split(x, count, 1)]

    calls = [numbers(2, columns) for columns in (32, 8, 9, 10, 1, 0)]
    same(split, calls, ({1: side},))


PLACES = {
    (3, 1): range(3, 13), (2, -3): range(5, 13), (-3, 2): range(6, 13), (5, 2, 9): (10,), (0, 12, -12): range(12),
    (-20, 20, 4): range(5, 13), (4, 4): range(4, 13), (-1, -1): range(1, 13), (3,): range(3, 13),
}  # fmt: skip
"""Places that go up and down, count from the end, lie outside, and the sizes that torch traces as it does 10."""


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("places", PLACES)
def test_parts_begin_at_their_places(places: tuple[int, ...]) -> None:
    """A part whose end lies before its begin has no element; a call whose parts torch would have otherwise is refused."""

    def split(x: Any) -> Any:
        return [part * 2 for part in x.tensor_split(places)]

    right = PLACES[places]
    same(split, [numbers(10, 3), *(numbers(count, 3) for count in right)], (ROWS,))
    for count in range(13):
        same(split, [numbers(count, 3)])
        if count not in right:
            with contextlib.suppress(tw.InputError):
                same(split, [numbers(10, 3), numbers(count, 3)], (ROWS,))


def test_parts_may_be_named_as_places_or_as_sections() -> None:
    def split(x: Any) -> Any:
        parts = (
            *x.tensor_split(sections=3, dim=0),
            *torch.tensor_split(x, indices=(1,), dim=1),
        )
        return [part * 2 for part in parts]

    same(split, [numbers(count, 3) for count in (10, 9, 2)], (ROWS,))


def test_parts_at_places_that_go_down_are_of_the_tensor() -> None:
    """Compiled, too: it read memory behind the tensor."""
    x = torch.arange(18.0).reshape(6, 3)
    module = module_of(lambda x: torch.tensor_split(x, (3, 1)))
    for sides in ((ROWS,), None):
        found = tw.compile(module, args=(x,), dynamic_shapes=sides)(x)
        torch.testing.assert_close(list(found), list(module(x)))


def fours(x: Any) -> Any:
    return [part * 2 for part in x.split(4, 1)]


def thirds(x: Any) -> Any:
    return [part * 2 for part in x.chunk(3, 1)]


def sixths(x: Any) -> Any:
    return [part * 2 for part in x.chunk(6, 1)]


@pytest.mark.slow
def test_how_many_parts_there_are_is_checked() -> None:
    same(fours, [numbers(2, 10), numbers(2, 9), numbers(2, 12)], (COLUMNS,))
    refused(fours, numbers(2, 10), (COLUMNS,), numbers(2, 13), "13, expected at most 12")
    refused(fours, numbers(2, 10), (COLUMNS,), numbers(2, 8), "8, expected at least 9")
    same(thirds, [numbers(2, 10), numbers(2, 8), numbers(2, 0)], (COLUMNS,))
    refused(thirds, numbers(2, 10), (COLUMNS,), numbers(2, 4), "expected at least 5")
    refused(sixths, numbers(2, 8), (COLUMNS,), numbers(2, 9), "expected at most 8")


def quartered(x: Any) -> Any:
    return x.reshape(*x.shape[:2], x.shape[2] // 4, 4).sum(-1)


def unflattened(x: Any) -> Any:
    return x.unflatten(2, (-1, 4)).sum(-1)


def unshuffled(x: Any) -> Any:
    return functional.pixel_unshuffle(x, 4)


@pytest.mark.parametrize("function", [quartered, unflattened, unshuffled])
def test_sizes_of_sizes_may_be_one_and_none(function: Callable[..., Any]) -> None:
    sides = ({2: Dim.AUTO},)
    rest = (4,) if function is unshuffled else ()
    calls = [numbers(2, 3, size, *rest) for size in (32, 8, 4)]
    same(function, calls if rest else [*calls, numbers(2, 3, 0)], sides)
    refused(function, calls[0], sides, numbers(2, 3, 7, *rest), "multiple of 4|agree")


def rows_one_by_one(x: Any, t: Any) -> Any:
    y = 2 * x
    return torch.special.entr(t), y, torch.cat(list(y))


def test_a_result_keeps_the_size_that_its_rows_were_counted_by() -> None:
    """Torch leaves the size's name in tensors that were made before it became a number."""
    t = torch.rand(5)
    calls = [(torch.randn(3, 4), t), (torch.randn(3, 4), torch.rand(7))]
    same(rows_one_by_one, calls, (ROWS, ROWS))
    other = (torch.randn(2, 4), t)
    refused(rows_one_by_one, calls[0], (ROWS, ROWS), other, "expected 3")


# --- padded sequences ---------------------------------------------------------------------------


@pytest.mark.slow
def test_rows_behind_a_sequence_are_what_the_layers_compute() -> None:
    """Torch's own path for nested tensors makes them zeros; of all others both give the same."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    module = nn.TransformerEncoder(layer, 2).eval()
    x, is_behind = torch.randn(3, 5, 16), torch.arange(5) >= torch.tensor([[5], [3], [1]])
    given = {"src_key_padding_mask": is_behind}
    found = tw.compile(module, args=(x,), kwargs=given)(x, **given)
    with torch.no_grad():
        fast = module(x, **given)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        whole = module(x, **given)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    torch.testing.assert_close(found, whole)
    torch.testing.assert_close(found[~is_behind], fast[~is_behind])
    assert not fast[is_behind].any()
