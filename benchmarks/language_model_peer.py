"""llama.cpp behind a pipe: answers requests of `language_model.py`, one line of JSON each.

It runs in an interpreter of its own, for llama-cpp-python is compiled where it is installed.  Called by
`language_model.py --peer`.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np


class Peer:
    """One model with so many threads."""

    def __init__(self, path: str, threads: int, context: int) -> None:
        llama: Any = importlib.import_module("llama_cpp")
        self.model: Any = llama.Llama(
            path, n_threads=threads, n_threads_batch=threads, n_ctx=context, verbose=False
        )

    def scores(self, tokens: Sequence[int]) -> np.ndarray:
        """What it says behind tokens."""
        self.model.reset()
        self.model.eval(list(tokens))
        return self._last()

    def _last(self) -> np.ndarray:
        found = self.model._ctx.get_logits_ith(-1)
        return np.ctypeslib.as_array(found, shape=(self.model.n_vocab(),)).copy()

    def greedy(self, tokens: Sequence[int], count: int) -> list[int]:
        """The most likely tokens behind a prompt."""
        scores = self.scores(tokens)
        made: list[int] = []
        for _ in range(count):
            made.append(int(scores.argmax()))
            self.model.eval(made[-1:])
            scores = self._last()
        return made

    def timed(self, tokens: Sequence[int], count: int, clock: str) -> tuple[float, float]:
        """Seconds for a prompt, and for so many tokens behind it, by a clock of `time`."""
        now: Callable[[], float] = getattr(time, clock)
        self.model.reset()
        begin = now()
        self.model.eval(list(tokens))
        token = int(self._last().argmax())
        middle = now()
        for _ in range(count):
            self.model.eval([token])
            token = int(self._last().argmax())
        return middle - begin, now() - middle


def main() -> None:
    """Answer until the input ends."""
    peer: Peer | None = None
    answers: Mapping[str, Callable[..., Any]] = {
        "greedy": lambda own, **given: own.greedy(**given),
        "scores": lambda own, **given: own.scores(**given).tolist(),
        "timed": lambda own, **given: own.timed(**given),
        "encode": lambda own, text: own.model.tokenize(
            text.encode(), add_bos=False, special=True
        ),
    }
    for line in sys.stdin:
        request = json.loads(line)
        name = request.pop("do")
        if name == "open":
            peer, answer = Peer(**request), None
        else:
            answer = answers[name](peer, **request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
