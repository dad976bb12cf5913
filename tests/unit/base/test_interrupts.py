"""Ctrl-C, a moment later."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from tilewright.base.interrupts import deferred


@pytest.fixture(autouse=True)
def _pythons_own_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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
