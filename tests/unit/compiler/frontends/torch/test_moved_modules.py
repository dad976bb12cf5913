"""Modules that are moved to where they are, while threads trace and others do not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tilewright.compiler.frontends.torch.moved_modules import moves_that_change

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.needs_torch
nn = torch.nn


class Counted(nn.Linear):
    """Counts how often its tensors are gone through, which is what a move does."""

    moves = 0

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self.moves += 1
        return super()._apply(*args, **kwargs)


def test_a_module_that_has_the_type_stays_untouched_and_another_is_moved() -> None:
    module = Counted(2, 2)
    with moves_that_change():
        assert module.to(torch.float32) is module
        assert not module.moves
        assert module.to(torch.float64).weight.dtype == torch.float64


def test_moves_of_other_threads_are_torchs_own_while_one_traces() -> None:
    module = Counted(2, 2)
    with moves_that_change(), ThreadPoolExecutor(1) as other:
        other.submit(module.to, torch.float32).result()
    assert module.moves == 1


def test_contexts_of_moves_that_overlap_leave_torch_as_it_was() -> None:
    held, module = nn.Module.to, Counted(2, 2)
    first, second = moves_that_change(), moves_that_change()
    with ThreadPoolExecutor(1) as other:
        first.__enter__()
        other.submit(second.__enter__).result()
        first.__exit__(None, None, None)
        module.to(torch.float32)
        other.submit(module.to, torch.float32).result()
        other.submit(second.__exit__, None, None, None).result()
    assert module.moves == 1
    assert nn.Module.to is held


def test_a_context_that_ends_by_an_error_leaves_torch_as_it_was() -> None:
    held = nn.Module.to
    with pytest.raises(KeyError), moves_that_change(), moves_that_change():
        raise KeyError
    assert nn.Module.to is held
