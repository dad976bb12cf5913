"""Interleaved rounds over several worker processes on the same cores.

What it is: starts the workers pinned, lets one at a time work, repeats what other processes
disturbed, keeps medians.
What it is not: aware of any bar; that is ``rows.py``.
Who calls it: ``figures_of`` in ``rows.py``.
"""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, final

from figures.machine import foreign_share, read_load

HARNESS: Final = Path(__file__).resolve().parent.parent
LOAD_TIMEOUT_S: Final = 900.0
CALL_TIMEOUT_S: Final = 300.0
QUIET_SHARE: Final = 0.05
ATTEMPTS: Final = 4
LIMIT_SECONDS: Final = 0.15
SETTLE_SECONDS: Final = 0.03


class WorkerError(Exception):
    """A contender could not load, run or answer in time."""


@contextmanager
def pinned(cores: tuple[int, ...]) -> Generator[None, None, None]:
    """Confine this process to ``cores`` for a while."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def environment_of(threads: int, *folders: Path) -> dict[str, str]:
    """Return the environment of a worker: the rooms of the harness on its path, threads told."""
    paths = [str(HARNESS), *map(str, folders), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "OMP_NUM_THREADS": str(threads),
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


def start(
    command: Sequence[str], threads: int, cores: tuple[int, ...]
) -> subprocess.Popen[bytes]:
    """Start a worker on ``cores`` that answers on standard output."""
    with pinned(cores):  # the child inherits it before it starts a thread of its own
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment_of(threads),
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """End a worker, whatever it does."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


class Worker:
    """A worker process and the line protocol spoken with it."""

    def __init__(
        self, name: str, model: Path, threads: int, cores: tuple[int, ...]
    ) -> None:
        self.name = name
        command = [sys.executable, "-m", "figures.worker", name, str(model), str(threads)]
        self.process = start(command, threads, cores)
        self.load_seconds = float(self.receive(LOAD_TIMEOUT_S)["load_seconds"])

    def receive(self, timeout_s: float) -> dict[str, Any]:
        """Return the next answer."""
        stream = self.process.stdout
        assert stream is not None
        ready, _, _ = select.select([stream], [], [], timeout_s)
        line = stream.readline() if ready else b""
        if not line:
            self.close()
            reason = (
                "ended without an answer" if ready else f"no answer in {timeout_s:.0f} s"
            )
            raise WorkerError(f"{self.name}: {reason}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            self.close()
            raise WorkerError(f"{self.name}: {answer['failed']}")
        return answer

    def ask(self, **request: object) -> dict[str, Any]:
        """Send a request and return its answer."""
        stream = self.process.stdin
        assert stream is not None
        stream.write(json.dumps(request).encode() + b"\n")
        stream.flush()
        return self.receive(CALL_TIMEOUT_S)

    def close(self) -> None:
        """End the process."""
        end(self.process)


@final
@dataclass(slots=True, kw_only=True)
class Series:
    """What was measured of one contender: a median per round, the calls' times pooled."""

    medians: list[float] = field(default_factory=list[float])
    times: list[float] = field(default_factory=list[float])
    foreign: list[float] = field(default_factory=list[float])
    error: float | None = None
    load_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """The median of the rounds' medians."""
        return statistics.median(self.medians)


@final
@dataclass(slots=True, kw_only=True)
class Measurement:
    """One model on some threads: the contenders, and the limits read between their rounds."""

    series: dict[str, Series] = field(default_factory=dict[str, Series])
    failures: dict[str, str] = field(default_factory=dict[str, str])
    fma_flops: list[float] = field(default_factory=list[float])
    tile_flops: list[float] = field(default_factory=list[float])
    read_bytes: list[float] = field(default_factory=list[float])


class Arena:
    """The cores of a measurement and the limits worker that stays for all models.

    Args:
        threads: Threads each contender may use; as many cores are taken.
        rounds: Rounds per model.
        seconds: Least time per contender and round.
        attempts: How often a measurement that others disturb is taken; 1 never waits for them.
    """

    def __init__(
        self, *, threads: int, rounds: int, seconds: float, attempts: int = ATTEMPTS
    ) -> None:
        allowed = sorted(os.sched_getaffinity(0))
        if threads > len(allowed):
            raise SystemExit(f"{threads} threads asked for, {len(allowed)} cores allowed")
        self.threads = threads
        self.rounds = rounds
        self.attempts = attempts
        self.seconds = seconds
        self.cores = tuple(allowed[:threads])
        self.limits = Worker("limits", Path("-"), threads, self.cores)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.limits.close()

    def wait_until_quiet(self, longest_s: float = 20.0) -> None:
        """Wait until others leave the cores alone, or give up waiting."""
        end = time.monotonic() + longest_s
        while time.monotonic() < end:
            before = read_load(self.cores, (os.getpid(),))
            time.sleep(0.2)
            after = read_load(self.cores, (os.getpid(),))
            if foreign_share(before, after, self.threads) <= QUIET_SHARE:
                return

    def ask_quietly(
        self, worker: Worker, **request: object
    ) -> tuple[dict[str, Any], float]:
        """Ask, and ask again while others disturb; return the calmest answer and its share."""
        pids = (worker.process.pid, os.getpid())
        calmest: tuple[dict[str, Any], float] | None = None
        for attempt in range(self.attempts):
            if attempt:
                self.wait_until_quiet()
            before = read_load(self.cores, pids)
            answer = worker.ask(**request)
            share = foreign_share(before, read_load(self.cores, pids), self.threads)
            if calmest is None or share < calmest[1]:
                calmest = (answer, share)
            if share <= QUIET_SHARE:
                break
        assert calmest is not None
        return calmest

    def measure(self, names: tuple[str, ...], model: Path) -> Measurement:
        """Load ``model`` in every contender and measure them in turns."""
        result = Measurement()
        workers: list[Worker] = []
        try:
            for name in names:
                self.start(name, model, workers, result)
            for number in range(self.rounds):
                self.read_limits(result)
                # the order alternates, so that no contender always follows the same one
                for worker in workers[:: 1 if number % 2 == 0 else -1]:
                    if worker.name in result.series:
                        self.time_round(worker, result)
            self.read_limits(result)
        finally:
            for worker in workers:
                worker.close()
        return result

    def start(
        self, name: str, model: Path, workers: list[Worker], result: Measurement
    ) -> None:
        """Start a contender and check its numbers; a failure is kept as text."""
        try:
            worker = Worker(name, model, self.threads, self.cores)
            workers.append(worker)
            error = float(worker.ask(do="check")["error"])
        except WorkerError as failure:
            result.failures[name] = str(failure)
            return
        result.series[name] = Series(error=error, load_seconds=worker.load_seconds)

    def time_round(self, worker: Worker, result: Measurement) -> None:
        """Time one contender for one round."""
        time.sleep(SETTLE_SECONDS)  # a peer's spinning threads go to sleep first
        try:
            answer, share = self.ask_quietly(worker, do="time", seconds=self.seconds)
        except WorkerError as failure:
            result.failures[worker.name] = str(failure)
            del result.series[worker.name]
            return
        series = result.series[worker.name]
        series.medians.append(statistics.median(answer["times"]))
        series.times.extend(answer["times"])
        series.foreign.append(share)

    def read_limits(self, result: Measurement) -> None:
        """Read every limit once."""
        time.sleep(SETTLE_SECONDS)
        for kind, readings in (
            ("fma", result.fma_flops),
            ("tile", result.tile_flops),
            ("read", result.read_bytes),
        ):
            answer, _ = self.ask_quietly(self.limits, do=kind, seconds=LIMIT_SECONDS)
            readings.append(float(answer["rate"]))
