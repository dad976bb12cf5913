"""What belongs to a process says so when it is to be copied or sent away."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest

import tilewright as tw
from tilewright.api.factory import Factory
from tilewright.base.bound_to_process import BoundToProcess
from tilewright.base.errors import UserError
from tilewright.runtime.graph_executor.executor_module import ExecutorModule
from tilewright.runtime.library.library_module import LibraryModule
from tilewright.runtime.library.vm_module import VmModule
from tilewright.runtime.packed.machine_module import MachineModule


class Held(BoundToProcess):
    """As sessions and models are."""

    _made_again = "Held(path)"


class Unheld(Held):
    """Another one whose name begins with a vowel."""


@pytest.mark.parametrize("use", [pickle.dumps, copy.copy, copy.deepcopy])
def test_it_is_neither_copied_nor_pickled(use: Callable[[object], object]) -> None:
    for value in (Held(), [Held()], {"x": Held()}):
        if use is copy.copy and not isinstance(value, Held):
            assert use(value) == value, "a list is another one, what it has is the same"
            continue
        with pytest.raises(
            UserError,
            match=r"^a Held holds memory and threads of this(.|\n)*hint: .* its own: Held\(path\)(\n|$)",
        ):
            use(value)
    with pytest.raises(TypeError, match=r"^an Unheld holds memory"):
        use(Unheld())


@pytest.mark.parametrize(
    "public",
    [
        tw.Session,
        tw.Model,
        tw.InferenceSession,
        tw.VirtualMachine,
        tw.LanguageModel,
        tw.graph_executor.GraphModule,
    ],
)
def test_what_is_called_is_bound_to_its_process_and_says_how_it_is_made_again(
    public: type,
) -> None:
    assert issubclass(public, BoundToProcess)
    made = object.__new__(public)
    own = "load" if public in (tw.Session, tw.Model) else public.__name__
    for use in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(
            TypeError,
            match=rf"^an? {public.__name__} holds(.|\n)*tilewright\.[\w.]*{own}\(",
        ) as caught:
            use(made)
        assert isinstance(caught.value, UserError)


@pytest.mark.parametrize(
    "kind", [LibraryModule, ExecutorModule, Factory, MachineModule, VmModule]
)
def test_modules_of_this_process_say_how_they_are_made_again(kind: type) -> None:
    made = object.__new__(kind)
    told = rf"^an? {kind.__name__} holds(.|\n)*: tilewright\.runtime\.load_module\(path\)"
    for use in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match=told):
            use(made)
