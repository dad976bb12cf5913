"""Figures that need a fresh process: importing, compiling, loading, memory.

What it is: small programs run by the interpreter of the benchmark, their own clock inside.
What it is not: a timer of calls (``measure.py``).
Who calls it: ``rows.py``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from figures.machine import tree_memory_bytes
from figures.measure import WorkerError

SAMPLE_INTERVAL_S: Final = 0.02
TIMEOUT_S: Final = 600.0

IMPORT: Final = """
import time, numpy
start = time.perf_counter()
import {module}
print(time.perf_counter() - start)
"""

BYTE_CODE: Final = """
import compileall, pathlib, tilewright
compileall.compile_dir(pathlib.Path(tilewright.__file__).parent, quiet=1)
print(0)
"""

COMPILE: Final = """
import sys, time
import tilewright
start = time.perf_counter()
model = tilewright.compile(sys.argv[1])
seconds = time.perf_counter() - start
model.save(sys.argv[2])
print(seconds)
"""

FIRST_RUN: Final = """
import sys, time
import numpy
import tilewright.runtime
import tilewright
inputs = list(numpy.load(sys.argv[1]).values())
start = time.perf_counter()
session = tilewright.load(sys.argv[2])
session(*inputs)
print(time.perf_counter() - start)
"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Compilation:
    """What compiling one model took.

    Attributes:
        cold_s: With an empty cache.
        warm_s: Once more, with the cache that the first left.
        first_run_s: Loading the saved artifact and running once, in a fresh process.
        peak_bytes: Memory of the cold compilation, child processes included.
    """

    cold_s: float
    warm_s: float
    first_run_s: float
    peak_bytes: int


def environment(**changes: str) -> dict[str, str]:
    """Return our environment with changes; modules keep their byte code, as in an installed package."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **changes}


def last_number(output: bytes) -> float:
    """Return the number on the last line that a program printed."""
    return float(output.decode().split()[-1])


def run_program(text: str, *arguments: str, **changes: str) -> float:
    """Run a program in a fresh interpreter and return the number it prints last."""
    finished = subprocess.run(
        [sys.executable, "-c", text, *arguments],
        env=environment(**changes),
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if finished.returncode:
        raise WorkerError(last_line(finished.stderr.decode(errors="replace")))
    return last_number(finished.stdout)


def run_watched(text: str, *arguments: str, **changes: str) -> tuple[float, int]:
    """Run a program as ``run_program`` does; return its number and its tree's peak memory."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as trace:
        process = subprocess.Popen(
            [sys.executable, "-c", text, *arguments],
            env=environment(**changes),
            stdout=output,
            stderr=trace,
        )
        peak = 0
        end = time.monotonic() + TIMEOUT_S
        while process.poll() is None and time.monotonic() < end:
            peak = max(peak, tree_memory_bytes(process.pid))
            time.sleep(SAMPLE_INTERVAL_S)
        if process.poll() is None:
            process.kill()
            process.wait()
            raise WorkerError(f"no end in {TIMEOUT_S:.0f} s")
        output.seek(0)
        trace.seek(0)
        if process.returncode:
            raise WorkerError(last_line(trace.read().decode(errors="replace")))
        return last_number(output.read()), peak


def last_line(text: str) -> str:
    """Return the last line that is not empty."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "ended without a word"


def import_seconds(module: str, runs: int = 7) -> float:
    """Return the median time to import ``module`` after numpy."""
    program = IMPORT.format(module=module)
    run_program(program)  # byte code is written, files are in memory
    return statistics.median(run_program(program) for _ in range(runs))


def interpreter_memory_bytes() -> int:
    """Return the memory of an interpreter that does nothing: what sampling reads at least."""
    _, peak = run_watched("import time; time.sleep(0.2); print(0)")
    return peak


def peak_memory_bytes(model: Path) -> int:
    """Return the peak memory of compiling ``model`` with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        artifact = str(Path(folder) / "model.vmfb")
        cache = str(Path(folder) / "cache")
        _, peak = run_watched(COMPILE, str(model), artifact, TILEWRIGHT_CACHE_DIR=cache)
        return peak


def compilation(model: Path) -> Compilation:
    """Compile ``model`` cold and warm, load the artifact and run it once."""
    run_program(
        BYTE_CODE
    )  # an installed package has it; the cold figure is not about our sources
    with tempfile.TemporaryDirectory() as folder:
        artifact = str(Path(folder) / "model.vmfb")
        cache = str(Path(folder) / "cache")
        cold, peak = run_watched(COMPILE, str(model), artifact, TILEWRIGHT_CACHE_DIR=cache)
        warm = run_program(COMPILE, str(model), artifact, TILEWRIGHT_CACHE_DIR=cache)
        inputs = str(model.with_suffix(".inputs.npz"))
        first = [run_program(FIRST_RUN, inputs, artifact) for _ in range(3)]
    return Compilation(
        cold_s=cold, warm_s=warm, first_run_s=statistics.median(first), peak_bytes=peak
    )


def weight_bytes(model: Path) -> int:
    """Return the size of the weights: the ONNX file is nearly nothing else."""
    facts = json.loads(model.with_suffix(".json").read_text())
    return int(facts["onnx_bytes"])
