"""Runs the `tilewright` command inside the test process.

The limits of the machine, which commands measure for a second each time, are measured once, and shortly.
"""

from __future__ import annotations

import contextlib
import functools
import io
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from unittest import mock

from tilewright.api import report
from tilewright.api.profiling import roofline
from tilewright.cli import main

_measure = roofline.measure


@dataclass(frozen=True)
class Finished:
    """What a run printed and its exit code."""

    code: int
    out: str
    err: str

    def row(self, name: str) -> str:
        """The rest of the line of a table that starts with `name`."""
        lines = [line for line in self.out.splitlines() if line.startswith(f"{name} ")]
        assert len(lines) == 1, f"{len(lines)} rows '{name}' in\n{self.out}"
        return lines[0].removeprefix(name).strip()


@functools.cache
def limits_of_machine(threads: int) -> roofline.Roofline:
    """What it can do with so many threads."""
    return _measure(threads, seconds=0.02)


def tilewright(*arguments: object) -> Finished:
    """Run with these arguments."""
    out, err = io.StringIO(), io.StringIO()
    on_interrupt = signal.getsignal(signal.SIGINT)  # the command leaves it to the system
    with (
        _redirected(out, err),
        mock.patch.object(sys, "argv", _argv(arguments)),
        mock.patch.object(roofline, "measure", limits_of_machine),
        mock.patch.object(report, "measure", limits_of_machine),
    ):
        try:
            main()
            code: object = 0
        except SystemExit as stop:
            code = stop.code
        finally:
            signal.signal(signal.SIGINT, on_interrupt)
    assert code is None or isinstance(code, int)
    return Finished(code or 0, out.getvalue(), err.getvalue())


def _argv(arguments: Sequence[object]) -> list[str]:
    return ["tilewright", *(str(a) for a in arguments)]


@contextlib.contextmanager
def _redirected(out: io.StringIO, err: io.StringIO) -> Iterator[None]:
    """Streams, and warnings as a process of its own would treat them."""
    show = warnings.showwarning
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.resetwarnings()
        warnings.simplefilter("default")
        try:
            yield
        finally:
            warnings.showwarning = show
