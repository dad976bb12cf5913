"""Attributes that a module changes while it runs: a compiled model has none, so that the user is told or refused."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import tilewright as tw
from tilewright.base.diagnostics import TilewrightWarning
from tilewright.base.errors import ModelError

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.needs_torch,
    # Torch's own word on the same attributes, where they are tensors.
    pytest.mark.filterwarnings("ignore:The tensor attribute"),
]
nn = torch.nn


class Counts(nn.Module):
    """Knows how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls


class Collects(nn.Module):
    """Adds up everything it has met."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def forward(self, x: Any) -> Any:
        self.seen.append(x)
        return sum(self.seen)


class Carries(nn.Module):
    """Has a state that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.state = torch.zeros(3)

    def forward(self, x: Any) -> Any:
        self.state = self.state + x
        return self.state * 2


class Within(nn.Module):
    """Has another as its part."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Any) -> Any:
        return self.part(x) + 1


class Notes(nn.Module):
    """Leaves what it met for its user to look at; nothing of it is read again."""

    def __init__(self) -> None:
        super().__init__()
        self.size: Any = (1, 1)
        self.last: Any = torch.zeros(3)
        self.scale = 2

    def forward(self, x: Any) -> Any:
        self.size = x.shape
        self.last = x
        self.scale = 2
        return x * self.scale


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (Counts(), "'calls'"),
        (Collects(), "'seen'"),
        (Within(Counts()), r"'part\.calls'"),
    ],
)
def test_numbers_and_lists_that_change_are_told(module: Any, name: str) -> None:
    x = torch.ones(3)
    with pytest.warns(TilewrightWarning, match=f"changes {name} while it runs"):
        model = tw.compile(module.eval(), args=(x,))
    torch.testing.assert_close(model(x), module(x))


@pytest.mark.parametrize(
    ("module", "name"),
    [(Carries(), "'state'"), (Within(Carries()), r"'part\.state'")],
)
def test_a_state_that_is_no_buffer_is_refused(module: Any, name: str) -> None:
    with pytest.raises(ModelError, match=f"another tensor into its attribute {name}"):
        tw.compile(module.eval(), args=(torch.ones(3),))


def test_what_is_not_read_again_may_change() -> None:
    module, x = Notes().eval(), torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TilewrightWarning)
        model = tw.compile(module, args=(x,))
    torch.testing.assert_close(model(x), x * 2)


def test_no_hook_stays_at_the_module() -> None:
    module = Notes().eval()
    tw.compile(module, args=(torch.ones(3),))
    assert not module._forward_hooks
