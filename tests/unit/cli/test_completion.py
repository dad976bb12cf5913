"""`tilewright completion`: what a shell is told, and what it gets when it asks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.command_line import tilewright
from tilewright.cli import VERBS
from tilewright.cli.completion import VARIABLE


def ask(*words: str) -> list[str]:
    """What a process answers to a shell that stands behind the last word."""
    done = subprocess.run(
        [sys.executable, "-m", "tilewright"],
        env=os.environ
        | {
            VARIABLE: "bash_complete",
            "COMP_WORDS": " ".join(["tilewright", *words]),
            "COMP_CWORD": str(len(words)),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.slow
def test_verbs_options_values_and_files_are_completed() -> None:
    assert ask("ex") == ["plain,explain", "plain,explore"]
    assert ask("run", "--dev") == ["plain,--device"]
    assert ask("bench", "--engine", "p") == ["plain,plan"]
    assert ask("run", "mod") == ["file,mod"]
    assert ask("sign", "--key", "mak") == ["file,mak"]


def test_a_verb_that_there_is_not_completes_to_nothing() -> None:
    assert ask("frobnicate", "x") == []


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_completes(tmp_path: Path) -> None:
    command = tmp_path / "tilewright"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tilewright "$@"\n')
    command.chmod(0o755)
    script = (
        'eval "$(tilewright completion bash)"; COMP_WORDS=(tilewright ex); COMP_CWORD=1;'
        '_tilewright_completion tilewright; echo "${COMPREPLY[@]}"'
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.split(), done.stderr) == (["explain", "explore"], "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_lines(shell: str) -> None:
    done = tilewright("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert VARIABLE in done.out


def test_another_shell_is_refused_with_those_there_are() -> None:
    done = tilewright("completion", "tcsh")
    assert done.code == 2
    assert "'bash', 'zsh', 'fish'" in done.err
    assert "completion" in VERBS
