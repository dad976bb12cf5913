"""A process that takes one case after another and may die of any of them.

What it is: both ends.  `CaseWorker` starts ``python -m fakes.case_worker``, hands it a case per line
and says what became of it; a process that died or hung is replaced.  The child compiles a model or
loads an archive, and runs what came of it.
What it is not: where damaged files are made (`fakes.damage`) or judged (`tests/fuzz`).

Time is the processor's, so that a busy machine is not taken for a hang; memory is limited too.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

import tilewright as tw
from tilewright.base import symbolic
from tilewright.base.errors import InternalError, TilewrightError
from tilewright.formats.tensor_spec import TensorSpec

CPU_SECONDS = 60
WALL_SECONDS = 900
MEMORY_BYTES = 4 << 30
MOST_INPUT_BYTES = 1 << 24
MOST_DEVICE_BYTES = 1 << 28


@dataclass(frozen=True)
class Outcome:
    """What became of a case: `ran`, `refused` (an error of ours), else a finding."""

    kind: str
    text: str = ""

    @property
    def is_clean(self) -> bool:
        return self.kind in ("ran", "refused")


class CaseWorker:
    """The parent's end; a context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def ask(self, task: str, path: Path, **options: object) -> Outcome:
        """Run one case: `task` is a name in `TASKS`."""
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"task": task, "path": str(path), **options}) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], WALL_SECONDS)
        line = process.stdout.readline() if ready else ""
        if line:
            return Outcome(**json.loads(line))
        if ready:
            code = process.wait()
            self._end()
            hung = code == -signal.SIGXCPU
            return Outcome("hung" if hung else "died", f"exit status {code}")
        self._end()
        return Outcome("hung", f"no answer in {WALL_SECONDS} s")

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fakes.case_worker"],
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return self._process

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.communicate()
        self._process = None


# --- the child -------------------------------------------------------------------------------


def compile_and_run(path: str, opt_level: int = 2) -> None:
    """The whole compiler on a model file, and one run."""
    model = tw.compile(path, opt_level=opt_level, threads=1, jobs=1)
    run(model, model.inputs)


def load_and_run(path: str, engine: str = "plan") -> None:
    """The loader on an archive, and one run through an engine."""
    session = tw.load(path, engine=engine, threads=1)  # pyright: ignore[reportArgumentType]
    run(session, session.inputs)


def crash(path: str) -> None:
    """Die as native code dies; for the tests of the worker itself."""
    del path
    os.kill(os.getpid(), signal.SIGSEGV)


def spin(path: str, seconds: int = CPU_SECONDS) -> None:
    """Use up the processor time that a case may have."""
    del path
    _allow(seconds)
    while True:
        pass


TASKS: Mapping[str, Callable[..., None]] = {
    "compile": compile_and_run,
    "load": load_and_run,
    "crash": crash,
    "spin": spin,
}


def run(model: Callable[..., object], inputs: tuple[TensorSpec, ...]) -> None:
    """Call with small whole numbers, unless the inputs are large."""
    names = {s.name for _, _, shape in inputs for d in shape for s in symbolic.symbols(d)}
    dims = dict.fromkeys(names, 3)
    random = np.random.default_rng(0)
    arrays = []
    for _, dtype, shape in inputs:
        sizes = [symbolic.evaluate(d, dims) for d in shape]
        if any(n < 0 for n in sizes) or np.prod(sizes, dtype=float) > MOST_INPUT_BYTES:
            return
        arrays.append(random.integers(0, 3, sizes).astype(dtype.numpy))
    planned = getattr(getattr(model, "memory", None), "arena_bytes", None)
    if (planned or 0) > MOST_DEVICE_BYTES:  # known of models that were compiled here
        return
    model(*arrays)


def outcome_of(case: dict[str, object]) -> Outcome:
    """Run a case; every exception is an answer."""
    try:
        TASKS[str(case.pop("task"))](**case)  # pyright: ignore[reportArgumentType]
    except InternalError as error:
        return Outcome("internal", "".join(traceback.format_exception(error)))
    except TilewrightError as error:
        return Outcome("refused", f"{type(error).__name__}: {error}")
    except BaseException as error:
        return Outcome("raw", "".join(traceback.format_exception(error)))
    return Outcome("ran")


def _allow(seconds: int) -> None:
    """End the process after so much more processor time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def main() -> None:
    """Answer cases until the input ends."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what code prints must not be taken for an answer
    for line in sys.stdin:
        _allow(CPU_SECONDS)
        answers.write(json.dumps(vars(outcome_of(json.loads(line)))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
