"""onnxruntime in a process of its own, which may die of a model: some end it by a signal.

What it is: both ends.  A process that died or hung is replaced, and the model counts as one that onnxruntime
does not run.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Self

import numpy as np

ANSWER_S = 30
Feeds = dict[str, np.ndarray]
Outputs = list[list[np.ndarray]]


class OnnxruntimeError(Exception):
    """onnxruntime does not run the model; why."""


class OnnxruntimeWorker:
    """The parent's end; a context manager.

    Args:
        work: what the process does, a function of this module.
    """

    def __init__(self, work: str = "answer") -> None:
        self._work = work
        self._process: subprocess.Popen[bytes] | None = None
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
        mine, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(other.fileno()), self._work],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
                pass_fds=[other.fileno()],
            )
        self._pipe = Connection(mine.detach())

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
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


if __name__ == "__main__":
    {"answer": answer, "die": die}[sys.argv[2]](Connection(int(sys.argv[1])))
