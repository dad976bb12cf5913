"""Language models that signals and forks meet in the middle of a step."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fakes.language_models import speaking_form
from tilewright.api.language.language_model import LanguageModel
from tilewright.api.language.sampling import GREEDY
from tilewright.base.errors import UserError

pytestmark = pytest.mark.slow  # a model of two programs is compiled


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> LanguageModel:
    place: Path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    place.write_bytes(speaking_form().data())
    return LanguageModel(place, cache=False)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals of POSIX systems")
def test_a_handler_of_a_signal_in_the_middle_of_a_step_is_told(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, heard = model.generate("the end and", tokens=4, sampling=GREEDY), list[str]()
    advance = LanguageModel._advance

    def interrupted(self: LanguageModel, tokens: Sequence[int]) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return advance(self, tokens)

    def hear(*_: object) -> None:
        try:
            model.generate("once upon a time", tokens=1)
        except UserError as error:
            heard.append(error.message)

    def hangs(*_: object) -> None:
        raise TimeoutError

    model.scores([1])  # the text is read anew
    monkeypatch.setattr(LanguageModel, "_advance", interrupted)
    before = [signal.signal(signal.SIGUSR1, hear), signal.signal(signal.SIGALRM, hangs)]
    signal.alarm(60)
    try:
        assert model.generate("the end and", tokens=4, sampling=GREEDY) == expected
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGUSR1, before[0])
        signal.signal(signal.SIGALRM, before[1])
    assert set(heard) == {"this thread is in the middle of a step of the model"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_that_is_forked_in_a_step_of_another_thread_speaks(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = model.generate("the end and", tokens=4, sampling=GREEDY)
    advance, inside = LanguageModel._advance, threading.Event()

    def slow(self: LanguageModel, tokens: Sequence[int]) -> Any:
        inside.set()
        time.sleep(0.3)
        return advance(self, tokens)

    model.scores([1])
    monkeypatch.setattr(LanguageModel, "_advance", slow)
    thread = threading.Thread(target=lambda: model.generate("once upon a time", tokens=2))
    thread.start()
    assert inside.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends it where it hangs
        said = model.generate("the end and", tokens=4, sampling=GREEDY)
        os._exit(7 if said == expected else 8)
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert model.generate("the end and", tokens=4, sampling=GREEDY) == expected
