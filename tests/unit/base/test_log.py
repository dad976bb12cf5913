"""The logger `tilewright`: what it says, and that it costs nothing where nobody listens."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.small_models import mlp, save
from tilewright.base.log import Log


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "tilewright")
    return caplog


def texts(told: pytest.LogCaptureFixture) -> str:
    return "\n".join(f"{r.name} {r.levelname} {r.getMessage()}" for r in told.records)


def test_a_room_is_a_logger_of_its_own(told: pytest.LogCaptureFixture) -> None:
    Log("kitchen").info("%s pots", 3)
    Log("kitchen").debug("one %s", "lid")
    assert texts(told) == "tilewright.kitchen INFO 3 pots\ntilewright.kitchen DEBUG one lid"


def test_what_nobody_asked_for_is_shown_nowhere() -> None:
    script = (
        "from tilewright.base.log import Log\n"
        "for tell in (Log('kitchen').debug, Log('kitchen').info, Log('kitchen').warning):\n"
        "    tell('%s pots', 3)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_a_compilation_says_its_phases_and_its_kernels(
    told: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    tw.compile(save(mlp(), tmp_path / "m.onnx"), cache=False)
    text = texts(told)
    assert re.search(r"tilewright.compiler INFO generate code: [0-9.]+ s", text)
    assert re.search(
        r"INFO x86_64 .*: 0 of \d+ kernels are from the cache|INFO aarch64", text
    )
    assert re.search(r"tilewright.compiler DEBUG kernel 'matmul_.*': tiled", text)


@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_loading_says_what_was_chosen(
    engine: str, told: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    path = tmp_path / "m.vmfb"
    tw.compile(save(mlp(), tmp_path / "m.onnx")).save(path)
    told.clear()
    tw.load(path, threads=1, engine=engine)
    assert f"{path}: engine '{engine}', code for '" in texts(told)
    assert "1 thread, device local-task" in texts(told)


def test_each_shape_is_told_once_and_calls_never(
    told: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    model = tw.compile(save(mlp("batch"), tmp_path / "m.onnx"))
    model(np.zeros((5, 20), np.float32))
    told.clear()
    for _ in range(5):
        model(np.zeros((5, 20), np.float32))
    assert texts(told) == ""
    model(np.zeros((4, 20), np.float32))
    assert re.fullmatch(
        r"tilewright.runtime INFO \S+: recorded \d+ commands for batch = 4, .*", texts(told)
    )
