"""What a module holds after it was traced as a function, which may fail at any place."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.torch.differentiated import differentiated

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]
nn = torch.nn


class Keeps(nn.Module):
    """Keeps what it computes in attributes, lists and dictionaries, and may ask data for a way."""

    def __init__(self, *, asks: bool) -> None:
        super().__init__()
        self.asks = asks
        self.seen: Any = None
        self.gone: Any = "here"
        self.steps: list[Any] = []
        self.by_name: dict[str, Any] = {}

    def forward(self, x: Any) -> Any:
        self.seen = x * 2
        self.fresh = x * 3
        del self.gone
        self.steps.append(x * 4)
        self.by_name["x"] = x * 5
        if self.asks and (x.sum() > 0).item():
            return x + 1
        return x - 1


def is_as_made(module: Any) -> bool:
    plain = module.seen is None and module.gone == "here" and not hasattr(module, "fresh")
    return plain and module.steps == [] and module.by_name == {}


def test_a_compile_that_fails_leaves_the_module_as_it_was() -> None:
    module, x = Keeps(asks=True).eval(), torch.ones(3)
    with pytest.raises(ModelError, match="torch cannot export it"):
        tw.compile(module, args=(x,))
    assert is_as_made(module)
    assert torch.equal(module(x), x + 1)


@pytest.mark.parametrize("asks", [False, True])
def test_a_trace_that_fails_leaves_the_module_as_it_was_and_says_why(asks: bool) -> None:
    module = Keeps(asks=asks).eval()
    # What ends the trace is the module's own question, unless it gets to its end.
    with pytest.raises(Exception, match="" if asks else "changes its attributes") as raised:
        differentiated(module)(torch.ones(3))
    assert isinstance(raised.value, TypeError) is not asks
    assert is_as_made(module)


def test_attributes_that_no_trace_touched_are_the_same_objects() -> None:
    module = Keeps(asks=True).eval()
    module.linear = nn.Linear(2, 2)
    before = {name: id(value) for name, value in vars(module).items()}
    with pytest.raises(ModelError):
        tw.compile(module, args=(torch.ones(3),))
    assert {name: id(value) for name, value in vars(module).items()} == before
