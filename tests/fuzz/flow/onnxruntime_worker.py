"""onnxruntime in a process of its own, which may die of a model: some end it by a signal.

What it is: both ends.  A process that died or hung is replaced, and the model counts as one that onnxruntime
does not run.
"""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Self

import numpy as np

ANSWER_S = 30
Feeds = dict[str, np.ndarray]
Outputs = list[list[np.ndarray]]


class OnnxruntimeError(Exception):
    """onnxruntime does not run the model; why."""


class OnnxruntimeWorker:
    """The parent's end; a context manager."""

    def __init__(self, work: Callable[[Connection], None] | None = None) -> None:
        self._work = work or answer
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, model: bytes, calls: Sequence[Feeds]) -> Outputs:
        """The outputs of each call.  Raises: OnnxruntimeError."""
        if self._process is None:
            self._start()
        assert self._pipe is not None
        try:
            self._pipe.send((model, list(calls)))
            if not self._pipe.poll(ANSWER_S):
                raise OnnxruntimeError(f"no answer in {ANSWER_S} s")
            kind, answer = self._pipe.recv()
        except (EOFError, OSError) as error:
            self.close()
            raise OnnxruntimeError("the process died") from error
        except OnnxruntimeError:
            self.close()
            raise
        if kind == "error":
            raise OnnxruntimeError(answer)
        return answer

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=self._work, args=(other,), daemon=True)
        self._process.start()
        other.close()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None


# --- the child ----------------------------------------------------------------------------------


def answer(pipe: Connection) -> None:
    """Run models until the pipe is closed."""
    with contextlib.suppress(EOFError):
        while True:
            model, calls = pipe.recv()
            try:
                pipe.send(("outputs", outputs(model, calls)))
            except Exception as error:
                pipe.send(("error", f"{type(error).__name__}: {error}"))


def die(pipe: Connection) -> None:
    """End in the middle of a case, as native code may; for the tests of the worker."""
    pipe.recv()


def outputs(model: bytes, calls: Sequence[Feeds]) -> Outputs:
    """Without rewriting, on one thread."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model, options, providers=["CPUExecutionProvider"]
    )
    return [session.run(None, feeds) for feeds in calls]
