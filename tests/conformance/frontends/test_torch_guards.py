"""What torch decided of sizes while it traced: calls for which it would decide otherwise are refused, the others are right."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import tilewright as tw
from fakes.torch_programs import module_of, same
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.torch.guards import condition, guards_of

torch = pytest.importorskip("torch")
nn = torch.nn
Dim = torch.export.Dim
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]


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


def cut(x: Any, n: Any) -> Any:
    y = x * 2
    part = y[:, : n.shape[0]].reshape(-1)
    y.add_(1)
    return part, y


def asks_its_layout(x: Any, n: Any) -> Any:
    return x * (2 if x[:, : n.shape[0]].is_contiguous() else 3)


def asks_the_largest(x: Any, y: Any, z: Any) -> Any:
    largest = torch.sym_max(torch.sym_max(x.shape[0], y.shape[0]), z.shape[0])
    return x * (2 if largest > 4 else 3)


def rows(*counts: int) -> tuple[Any, ...]:
    return tuple(torch.randn(count, 3) for count in counts)


WIDE = ((torch.randn(3, 8), torch.zeros(5)), ({0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO}))
OPEN = ({0: Dim.AUTO},)
DECIDED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any, Any, Any]] = {
    "split": (lambda x: x.split(2), rows(8), OPEN, rows(7), rows(10)),
    "chunk": (lambda x: x.chunk(4), rows(8), OPEN, rows(16), rows(6)),
    "view": (lambda x: x.view(-1, 4), rows(8), OPEN, rows(12), rows(5)),
    "median": (lambda x: x.median(0), rows(5), OPEN, rows(1), rows(0)),
    "median of all": (lambda x: x.median(), rows(5), OPEN, rows(2), rows(0)),
    "reshape": (cut, *WIDE, WIDE[0], (torch.randn(3, 8), torch.zeros(8))),
    "layout": (asks_its_layout, *WIDE, WIDE[0], (torch.randn(3, 8), torch.zeros(8))),
    "largest": (asks_the_largest, rows(3, 6, 2), OPEN * 3, rows(3, 7, 2), rows(3, 2, 2)),
}


@pytest.mark.parametrize("name", DECIDED)
def test_what_an_operator_decided_is_checked_by_calls(name: str) -> None:
    function, example, sides, right, other = DECIDED[name]
    same(function, [example, right], sides)
    with pytest.raises(tw.InputError, match=r"a size does not fit|sizes do not agree"):
        same(function, [example, other], sides)


def turned(x: Any) -> Any:
    return x * 2 if x.t().is_contiguous() else x * 3


def channels_last(x: Any) -> Any:
    is_last = x.is_contiguous(memory_format=torch.channels_last)
    return x * 2 if is_last else x * 3


def first_columns(x: Any) -> Any:
    return x * 2 if x[:, :4].is_contiguous() else x * 3


LAYOUTS: dict[str, tuple[Callable[..., Any], Any, Any, Any]] = {
    "turned": (turned, [(3, 4), (5, 2), (0, 4)], [(1, 4), (3, 1)], (0, 1)),
    "channels last": (channels_last, [(2, 3, 4, 5), (1, 3, 2, 2)], [(2, 1, 4, 5), (2, 3, 1, 1)], (0, 1, 2, 3)),
    "a part": (first_columns, [(3, 6), (2, 5)], [(1, 6), (3, 4)], (0, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_branch_on_how_elements_lie_is_checked_for_sizes_of_one(name: str) -> None:
    """Elements of one row lie one behind the other, whatever the strides."""
    function, right, others, axes = LAYOUTS[name]
    sides = (dict.fromkeys(axes, Dim.AUTO),)
    same(function, [(torch.randn(size),) for size in right], sides)
    for size in others:
        calls = [(torch.randn(shape),) for shape in (right[0], size)]
        with pytest.raises(tw.InputError, match=r"hint: torch decided by the example"):
            same(function, calls, sides)


def test_how_elements_lie_is_no_question_where_no_size_can_change_it() -> None:
    def kept(x: Any) -> Any:
        return x * 2 if x.is_contiguous() and (x + 1).is_contiguous() else x * 3

    same(kept, [(torch.randn(size),) for size in ((3, 4), (1, 1), (0, 4))], ({0: Dim.AUTO, 1: Dim.AUTO},))  # fmt: skip


def written_turned(x: Any) -> Any:
    y = x * 1
    y.t().contiguous().add_(1)
    return y


def as_many(x: Any) -> Any:
    return x * 2 if x.shape[0] != x.shape[1] else x * 3


@pytest.mark.parametrize(
    ("function", "size", "told"),
    [
        (as_many, (4, 4), r"for which x\.shape\[\d\] != x\.shape\[\d\].*decide by torch\.cond"),
        (written_turned, (1, 6), r"for which x\.shape\[0\] != 1.*write to a copy"),
    ],
)  # fmt: skip
def test_a_call_for_which_torch_would_decide_otherwise_is_told_what_helps(
    function: Any, size: tuple[int, int], told: str
) -> None:
    with pytest.raises(tw.InputError) as caught:
        same(function, [(torch.zeros(4, 6),), (torch.zeros(size),)], ({0: Dim.AUTO, 1: Dim.AUTO},))  # fmt: skip
    assert "does not fit" in caught.value.message
    assert re.search(told, caught.value.hint or "")


def test_sizes_that_break_no_decision_are_told_nothing_of_one() -> None:
    def added(x: Any, y: Any) -> Any:
        return x + y if x.shape[0] != 2 else x

    with pytest.raises(tw.InputError) as caught:
        same(added, [rows(5, 5), rows(5, 4)], OPEN * 2)
    assert "torch decided" not in (caught.value.hint or "")


def test_a_range_that_the_module_does_not_take_is_told_what_helps() -> None:
    module = module_of(lambda x: x * 2 if x.shape[0] > 4 else x)
    with pytest.raises(tw.ModelError, match="hint: give the size a range") as caught:
        tw.compile(module, args=rows(8), dynamic_shapes=({0: Dim("count")},))
    assert "Constraints violated (count)" in str(caught.value)


def test_an_argument_with_a_number_in_its_name_is_no_element_of_another() -> None:
    def second(x: Any, x_1: Any) -> Any:
        return x_1 * (2 if x[1].shape[0] > 4 else 3)

    call = ([torch.randn(3), torch.randn(6)], torch.randn(2))
    same(second, [call], ([OPEN[0], OPEN[0]], OPEN[0]))


def test_numbers_of_calls_are_within_what_they_cut() -> None:
    same(
        lambda x, n: x[:n], [(torch.randn(8, 3), n) for n in (5, 1, 0)], (None, Dim.DYNAMIC)
    )


def test_shapes_are_compared_before_elements() -> None:
    model = tw.compile(
        module_of(lambda x, y: torch.equal(x, y[:1])),
        args=(torch.ones(3, 4), torch.ones(5, 4)),
        dynamic_shapes=(OPEN[0], OPEN[0]),
    )
    assert not model(torch.ones(5, 4), torch.ones(5, 4))
    assert model(torch.ones(1, 4), torch.ones(5, 4))


@pytest.mark.parametrize(
    "text",
    [
        "L['x'].size()[0]" + "+1" * 700 + " > 4",
        "(L['x'].size()[0] > 4) + 1 == 2",
        "max() > 4",
        "L['x'].size()[0] % 0 == 0",
        "L['y'].size()[0] == 2",
        "L['x'].size()[7] == 2",
        "__import__('os').abort() == 1",
        "L['x'].size()[0] == 2 and",
        5.5,
    ],
)
def test_conditions_of_a_file_are_read_and_never_run(text: object) -> None:
    x = torch.randn(4, 3)
    program = torch.export.export(nn.Linear(3, 2), (x,), dynamic_shapes=({0: Dim("rows")},))
    given = SimpleNamespace(
        _guards_code=[text],
        graph=program.graph,
        graph_module=program.graph_module,
        call_spec=program.call_spec,
        module_call_graph=program.module_call_graph,
    )
    with pytest.raises(UnsupportedError, match=r"cannot be read|no words"):
        _ = [condition(guard, [(4, 3)]) for guard in guards_of(given)]
