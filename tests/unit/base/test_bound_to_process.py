"""What belongs to a process says so when it is to be copied or sent away."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

import tilewright as tw
from tilewright.base.bound_to_process import BoundToProcess
from tilewright.base.errors import UserError


class Held(BoundToProcess):
    """As sessions and models are."""


@pytest.mark.parametrize("use", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_is_neither_copied_nor_pickled(use: Callable[[object], object]) -> None:
    for value in (Held(), [Held()], {"x": Held()}):
        if use is copy.copy and not isinstance(value, Held):
            assert use(value) == value, "a list is another one, what it has is the same"
            continue
        with pytest.raises(UserError, match="a Held holds memory and threads of this"):
            use(value)


@pytest.mark.parametrize(
    "public",
    [tw.Session, tw.Model, tw.InferenceSession, tw.VirtualMachine, tw.LanguageModel],
)
def test_what_is_called_is_bound_to_its_process(public: type) -> None:
    assert issubclass(public, BoundToProcess)
