"""`tilewright explore`: a page until Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from fakes.command_line import tilewright
from fakes.scarce_threads import threads_left
from tilewright.api.explorer import ExplorerServer


@pytest.mark.slow
def test_the_page_is_there_where_no_thread_is_left_for_a_browser(
    mlp_onnx: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[str] = []

    def serve(server: ExplorerServer) -> None:
        served.append(server.address)

    monkeypatch.setattr(ExplorerServer, "serve_forever", serve)
    with threads_left(0):
        done = tilewright("explore", mlp_onnx, "--calls=1", "--open")
    assert done.code == 0, done.err
    assert served[0] in done.err


@pytest.mark.slow
def test_it_shows_a_page_until_ctrl_c(mlp_onnx: Path) -> None:
    command = [sys.executable, "-m", "tilewright", "explore", str(mlp_onnx), "--calls=1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/", line)
            assert found, line
            with urllib.request.urlopen(found[0], timeout=60) as answer:
                page = answer.read().decode()
            assert "<h1>mlp.onnx</h1>" in page
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(60) == 0
            assert "ended" in process.stderr.read()
        finally:
            process.kill()


def test_a_model_that_is_not_there_and_sizes_that_it_has_not_are_said(
    mlp_onnx: Path,
) -> None:
    assert "no such file" in tilewright("explore", "nowhere.onnx").err
    done = tilewright("explore", mlp_onnx, "--dim=batch=2")
    assert done.code == 1
    assert "no input has a dimension 'batch'" in done.err
