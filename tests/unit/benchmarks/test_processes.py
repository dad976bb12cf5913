"""Figures from fresh processes, taken of a stand-in package with known behaviour."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from figures import processes
from figures.measure import WorkerError

# What is slow in the stand-in sleeps for far longer than a busy machine keeps what is fast in it.
STAND_IN = """
import os, pathlib, subprocess, sys, time

class Model:
    def save(self, path):
        pathlib.Path(path).write_text("artifact")
    def __call__(self, *inputs):
        time.sleep(0.01 * len(inputs))

def compile(path, threads=1):
    if "broken" in str(path):
        raise ValueError("no such op")
    cache = pathlib.Path(os.environ["TILEWRIGHT_CACHE_DIR"])
    if not cache.exists():
        cache.mkdir()
        program = "import time; x = bytearray(80_000_000); time.sleep(2)"
        subprocess.run([sys.executable, "-c", program], check=True)
    return Model()

def load(path):
    assert pathlib.Path(path).read_text() == "artifact"
    return Model()
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "tilewright"
    (package / "runtime").mkdir(parents=True)
    (package / "__init__.py").write_text(STAND_IN)
    (package / "runtime" / "__init__.py").write_text("import time; time.sleep(2)\n")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    )
    model = tmp_path / "model.onnx"
    np.savez(model.with_suffix(".inputs.npz"), a=np.zeros(1), b=np.zeros(1))
    return model


@pytest.mark.slow
def test_cold_and_warm_differ_by_the_cache_and_children_count(stand_in: Path) -> None:
    taken = processes.compilation(stand_in)
    assert taken.cold_s >= 2
    assert taken.cold_s > taken.warm_s
    assert taken.peak_bytes > 80e6  # the child's
    assert taken.first_run_s >= 0.02


@pytest.mark.slow
def test_what_importing_costs_is_timed_after_numpy(stand_in: Path) -> None:
    whole = processes.import_seconds("tilewright.runtime", runs=1)
    assert whole >= 2
    assert processes.import_seconds("tilewright", runs=1) < whole


def test_an_error_of_the_program_is_its_last_line(stand_in: Path) -> None:
    with pytest.raises(WorkerError, match="ValueError: no such op"):
        processes.compilation(stand_in.with_name("broken.onnx"))
