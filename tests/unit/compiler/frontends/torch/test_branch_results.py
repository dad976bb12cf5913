"""Branches that return what they are given, a view of it, or a tensor twice, against eager mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tilewright as tw
from fakes.dynamo_backend import entry
from fakes.torch_programs import module_of

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def unchanged(x: Any, n: Any) -> Any:
    return torch.cond(n > 0, lambda x: x.sin(), lambda x: x, (x,))


def turned(x: Any, n: Any) -> Any:
    return torch.cond(n > 0, lambda x: x.sin().t(), lambda x: x.t(), (x,))


def twice(x: Any, n: Any) -> Any:
    def same(x: Any) -> Any:
        found = x + 1
        return found, found

    return torch.cond(n > 0, lambda x: (x.sin(), x.cos()), same, (x,))


def nested(x: Any, n: Any) -> Any:
    def inner(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda y: y.view(9).view(3, 3), lambda y: -y, (x,))

    return torch.cond(n > 0, inner, lambda x: x[...], (x,))


PROGRAMS = (unchanged, turned, twice, nested)


def check(run: Callable[..., Any], function: Callable[..., Any], x: Any) -> None:
    for sign in (1, 0):
        for given in (x, -x):
            found, wanted = (
                run(given, torch.tensor(sign)),
                function(given, torch.tensor(sign)),
            )
            torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("function", PROGRAMS)
def test_a_branch_may_return_what_it_is_given(function: Callable[..., Any]) -> None:
    module, x = module_of(function), torch.randn(3, 3)
    program = torch.export.export(module, (x, torch.tensor(1)))
    before = str(program.graph_module.code)
    check(tw.compile(program), function, x)
    assert program.graph_module.code == before


@pytest.mark.parametrize("function", PROGRAMS)
def test_a_branch_may_under_torch_compile(function: Callable[..., Any]) -> None:
    x = torch.randn(3, 3)
    run = torch.compile(module_of(function), backend=entry(), fullgraph=True)
    check(run, function, x)
