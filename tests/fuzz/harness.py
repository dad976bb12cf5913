"""What the fuzz harnesses share: findings, ranges of inputs, counting, limits on time and memory.

What it is: the part around a function that says what became of input `number`, and the end of inputs that have none.  An input that takes
more than `INPUT_S` of this process's time each time that it is run, or `INPUT_BYTES` beyond what the process had, is a
finding like a wrong exception is.
What it is not: mutations (`bytecode_mutations.py`, `format_mutations.py`).
"""

from __future__ import annotations

import argparse
import faulthandler
import resource
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_AGAIN_S = 1.0
INPUT_S = 1.0
SLOW_RUNS = 3  # a paused or crowded machine makes one run slow, an input all of them
INPUT_BYTES = 256 << 20
HANG_S = 60
REPORT_EVERY = 10_000
_STATM = Path("/proc/self/statm")


@dataclass(frozen=True)
class FindingError(Exception):
    """Something that must not happen."""

    number: int
    outcome: str


class CircleError(Exception):
    """An input goes in circles; Ctrl-C ends such a call."""


Outcome = tuple[str, FindingError | None]


def run_range(run_one: Callable[[int], str], first: int, count: int) -> Iterator[Outcome]:
    """What became of a range of inputs, one after the other."""
    for number in range(first, first + count):
        try:
            yield _watched(run_one, number), None
        except FindingError as finding:
            yield "FOUND", finding


def _watched(run_one: Callable[[int], str], number: int) -> str:
    """Run an input, again where it was slow.  Raises: FindingError, also for time and memory."""
    peak = _peak_bytes()
    outcome, seconds = _timed(run_one, number)
    grown = _peak_bytes() - peak
    if grown > INPUT_BYTES:
        raise FindingError(number, f"{outcome} with {grown >> 20} MiB more than before")
    for _ in range(1, SLOW_RUNS):
        if seconds <= INPUT_S:
            break
        outcome, seconds = _timed(run_one, number)
    if seconds > INPUT_S:
        raise FindingError(number, f"{outcome} after {seconds:.1f} s, expected {INPUT_S} s")
    return outcome


def _timed(run_one: Callable[[int], str], number: int) -> tuple[str, float]:
    """What became of an input, and the processor time of all threads that it took, in seconds."""
    begin = time.process_time()
    outcome = run_one(number)
    return outcome, time.process_time() - begin


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def limit_memory() -> None:
    """From now on the process gets `INPUT_BYTES` more, asked for or used; where the system says."""
    if _STATM.exists():
        pages = int(_STATM.read_text().split()[0])
        room = pages * resource.getpagesize() + INPUT_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))


@contextmanager
def circles_end(seconds: float) -> Iterator[None]:
    """A call that goes in circles so long hears a signal, as it would hear Ctrl-C.  Raises: CircleError."""

    def stop(*_: object) -> None:
        raise CircleError

    before = signal.signal(signal.SIGALRM, stop)
    try:
        # Again and again: what is raised in a callback of the garbage collector, as hypothesis has one, is lost.
        signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN_S)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def counts_of(outcomes: Iterable[Outcome]) -> Counter[str]:
    """How many inputs ended in which way, for tests: there must be no finding."""
    counts: Counter[str] = Counter()
    findings: list[str] = []
    for outcome, finding in outcomes:
        counts[outcome] += 1
        if finding is not None:
            findings.append(f"input {finding.number}: {finding.outcome}")
    assert not findings, findings
    return counts


def add_options(parser: argparse.ArgumentParser, seed: str) -> None:
    """--seed, --first, --count."""
    parser.add_argument("--seed", default=seed)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)


def report(outcomes: Iterator[Outcome]) -> int:
    """Print findings and counts; the exit code.  A hang ends the process with a traceback."""
    faulthandler.enable()
    counts: Counter[str] = Counter()
    begin = time.monotonic()
    for done, (outcome, finding) in enumerate(outcomes, 1):
        if done == 1:
            limit_memory()  # what all inputs begin with is there by now
        counts[outcome] += 1
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        if finding is not None:
            print(f"input {finding.number}: {finding.outcome}", flush=True)  # noqa: T201
            traceback.print_exception(finding.__cause__)
        if done % REPORT_EVERY == 0:
            print(f"{done} inputs: {dict(counts)}", flush=True)  # noqa: T201
    seconds, peak = time.monotonic() - begin, _peak_bytes() >> 20
    print(  # noqa: T201
        f"{counts.total()} inputs in all: {dict(counts)}, {seconds:.0f} s, peak {peak} MiB",
        flush=True,
    )
    return 1 if counts["FOUND"] else 0
