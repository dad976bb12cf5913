"""Ctrl-C, a moment later."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from tilewright.base import interrupts
from tilewright.base.interrupts import (
    answer_termination,
    deferred,
    exit_code,
    leave_termination,
)


@pytest.fixture(autouse=True)
def _pythons_own_handler(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(interrupts, "_CAME", [])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    others = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)}
    yield
    signal.signal(signal.SIGINT, before)
    for number, handler in others.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "after"),
    [(signal.SIGTERM, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_IGN)],
)
def test_a_request_to_end_comes_as_an_interrupt_once_and_at_the_end_of_the_block(
    number: signal.Signals, after: signal.Handlers
) -> None:
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)
    answer_termination()
    seen: list[str] = []

    def work() -> None:
        with deferred():
            signal.raise_signal(number)
            seen.append("the end")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert seen == ["the end"]
    assert signal.getsignal(number) is after
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert exit_code() == 128 + number


@pytest.mark.parametrize("theirs", [signal.SIG_IGN, print])
def test_a_request_to_end_that_somebody_answers_already_stays_theirs(
    theirs: object,
) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, theirs)  # pyright: ignore[reportArgumentType]
    answer_termination()
    leave_termination()
    assert signal.getsignal(signal.SIGTERM) is theirs
    assert signal.getsignal(signal.SIGHUP) is theirs


def test_an_interrupt_comes_at_the_end_of_the_block() -> None:
    seen: list[str] = []

    def work() -> None:
        with deferred():
            signal.raise_signal(signal.SIGINT)
            seen.append("the end")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert seen == ["the end"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_comes_also_where_the_block_failed() -> None:
    def work() -> None:
        with deferred():
            signal.raise_signal(signal.SIGINT)
            raise ValueError("seven")

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert str(caught.value.__context__) == "seven"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_one_nothing_comes_and_errors_pass() -> None:
    with deferred():
        pass
    with pytest.raises(ValueError, match="seven"), deferred():
        raise ValueError("seven")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_program_with_a_handler_of_its_own_keeps_it() -> None:
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    with deferred():
        signal.raise_signal(signal.SIGINT)
        assert came == [signal.SIGINT]


def test_other_threads_are_left_alone() -> None:
    seen: list[object] = []

    def work() -> None:
        with deferred():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


@pytest.mark.thinned(2)
def test_the_first_random_inputs_are_not_taken_for_an_import_that_fails() -> None:
    script = (
        "import signal, sys\n"
        "from tilewright.api.model_inputs import random_inputs\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith('numpy.random.'): signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "try:\n"
        "    random_inputs([], {})\n"
        "except KeyboardInterrupt:\n"
        "    print('numpy.random.mtrand' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


@pytest.mark.slow
def test_the_first_import_of_onnx_is_not_interrupted_in_its_middle() -> None:
    """Its extension module dies of an exception while it is made (SIGSEGV or abort)."""
    script = (
        "import signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith('onnx.'): signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "try:\n"
        "    import tilewright.compiler.frontends.onnx\n"
        "except KeyboardInterrupt:\n"
        "    print('onnx.onnx_cpp2py_export' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


# --- interrupts that are dropped -----------------------------------------------------------------

SCRIPT = """
import contextlib, ctypes, gc, signal, sys, time, weakref
from tilewright.base.interrupts import answered, keep_interrupts

signal.signal(signal.SIGINT, signal.default_int_handler)

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

class Number(ctypes.c_int):
    @classmethod
    def from_param(cls, value):
        callback(None)

def returns():
    try:
        callback(None)
    finally:
        return

def drop():
    if sys.argv[1] == "suppressed":
        with contextlib.suppress(BaseException):
            callback(None)
    if sys.argv[1] == "returned":
        returns()
    if sys.argv[1] == "converted":  # ctypes makes an error of its own of whatever is raised
        function = ctypes.pythonapi.PyErr_CheckSignals
        function.argtypes = [Number]
        with contextlib.suppress(ctypes.ArgumentError):
            function(1)

thing = Thing()
reference = weakref.ref(thing, callback) if sys.argv[1] == "callback" else None
try:
    del thing
    drop()
    for _ in range(1000 if sys.argv[2] == "kept" else 10):
        time.sleep(0.01)  # each end of it is a chance for the interrupt
    print("went on")
except KeyboardInterrupt:
    answered()
    time.sleep(0.1)
    print("interrupted")
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    # Python 3.14 warns of what one of the cases does: it returns in a `finally`.
    command = [sys.executable, "-W", "ignore::SyntaxWarning", "-c", SCRIPT, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "where", ["destructor", "callback", "suppressed", "returned", "converted"]
)
def test_an_interrupt_that_is_dropped_comes_again(where: str) -> None:
    assert run(where, "lost").stdout == "went on\n"  # by itself
    done = run(where, "kept")
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


def test_other_errors_in_destructors_are_shown_as_ever() -> None:
    script = (
        "from tilewright.base.interrupts import keep_interrupts; keep_interrupts()\n"
        "class Thing:\n"
        "    def __del__(self): raise ValueError('seven')\n"
        "del_me = Thing(); del del_me\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "Exception ignored " in done.stderr
    assert "ValueError: seven" in done.stderr
