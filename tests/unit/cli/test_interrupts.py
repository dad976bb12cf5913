"""Ctrl-C comes through wherever Python happens to be."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import gc, signal, sys, time, weakref
from tilewright.cli.interrupts import keep_interrupts

if sys.argv[2] == "kept":
    keep_interrupts()

class Thing:
    if sys.argv[1] == "destructor":
        def __del__(self):
            signal.raise_signal(signal.SIGINT)
            time.sleep(0)

def callback(_):
    signal.raise_signal(signal.SIGINT)
    time.sleep(0)

signal.signal(signal.SIGINT, signal.default_int_handler)
thing = Thing()
reference = weakref.ref(thing, callback) if sys.argv[1] == "callback" else None
try:
    del thing
    time.sleep(2 if sys.argv[2] == "kept" else 0.1)
    print("went on")
except KeyboardInterrupt:
    print("interrupted")
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)


@pytest.mark.parametrize("where", ["destructor", "callback"])
def test_an_interrupt_that_python_ignores_comes_again(where: str) -> None:
    assert run(where, "lost").stdout == "went on\n"  # what Python does by itself
    done = run(where, "kept")
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


def test_other_errors_in_destructors_are_shown_as_ever() -> None:
    script = (
        "from tilewright.cli.interrupts import keep_interrupts; keep_interrupts()\n"
        "class Thing:\n"
        "    def __del__(self): raise ValueError('seven')\n"
        "del_me = Thing(); del del_me\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "Exception ignored in" in done.stderr
    assert "ValueError: seven" in done.stderr
