"""Worker processes that generate code.

Processes, not threads: LLVM's binding holds one lock, and what LLVM cannot go on with ends the process
it is in, which must not be the user's.  Plain pipes, not `multiprocessing`: nothing is
forked, no `__main__` guard is needed, and a worker ends when its input does, so none outlives us.
One pool per process, started at the first need and kept.  Called by `compile`.

Every request is answered, whatever happens to processes: one that dies is replaced, one that dies
twice of a request is an error with LLVM's last words, and where none can be started (no processes or
files left), code is generated in this process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, final

from tilewright.base.errors import InternalError, TargetError
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.record import record
from tilewright.compiler.backends.cpu.llvm_binding import Settings
from tilewright.compiler.backends.cpu.worker import (
    REPLY,
    TARGET_ERROR,
    Product,
    answer,
    read_exactly,
    request,
)

Outcome = tuple[bytes | Exception, float]

_RETRIES: Final = 1
_MODULE: Final = "tilewright.compiler.backends.cpu.worker"
_LAST_BYTES: Final = 4096  # of what a process that died wrote to its standard error
_LAST_WORDS: Final = "LLVM ERROR:"


@final
@record(eq=False)
class Process:
    """A worker, and the file that takes its standard error; None where it is ours."""

    popen: subprocess.Popen[bytes]
    errors: BinaryIO | None

    def last_words(self) -> str:
        """The line that says why it died, as far as there is one."""
        if self.errors is None:
            return ""
        self.errors.seek(max(0, self.errors.seek(0, os.SEEK_END) - _LAST_BYTES))
        text = self.errors.read().decode(errors="replace")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        ours = [line for line in lines if line.startswith(_LAST_WORDS)]
        return (ours or lines or [""])[-1]


@final
@record(eq=False)
class Task:
    """One request.

    Attributes:
        name: what errors call it (`kernel 'add'`).
        target: what for, as people write it.
        content: the text of a module, or a kernel (`handover`).
        done: called once from a thread of the pool, with the object or an error, and the seconds.
        is_wanted: asked before the work begins; requests that nobody wants any more are dropped.
    """

    name: str
    target: str
    settings: Settings
    content: str | bytes
    done: Callable[[bytes | Exception, float], None]
    is_wanted: Callable[[], bool] = lambda: True
    product: Product = "object"


@final
class WorkerPool:
    """Processes, and a thread for each that talks to it.  Thread-safe; owns its processes.

    Raises: OSError when not even one thread can be started.
    """

    def __init__(self, count: int) -> None:
        self.pid: int = os.getpid()
        self.processes: dict[int, Process] = {}
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._lock: threading.Lock = threading.Lock()
        self._closed: bool = False
        self._count: int = 0
        self.grow(count)

    @property
    def count(self) -> int:
        """Requests that are worked on at a time."""
        return self._count

    @property
    def closed(self) -> bool:
        """Whether requests fail."""
        return self._closed

    def grow(self, count: int) -> None:
        """Have at least `count` workers, or as many as the system grants."""
        with self._lock:
            while self._count < count and not self._closed:
                feeder = threading.Thread(
                    target=self._feed, args=(self._count,), daemon=True
                )
                try:
                    feeder.start()
                except RuntimeError as error:  # no threads left
                    if self._count == 0:
                        raise OSError(str(error)) from error
                    return
                self._count += 1

    def submit(self, task: Task) -> None:
        """Queue a request; it fails when the pool is closed."""
        with self._lock:
            if not self._closed:
                self._tasks.put(task)
                return
        task.done(_stopped(), 0.0)

    def close(self) -> None:
        """Kill the processes; requests under way and in the queue fail."""
        with self._lock:
            self._closed = True
            processes = list(self.processes.values())
            for _ in range(self._count):
                self._tasks.put(None)
        for process in processes:
            with contextlib.suppress(OSError):
                process.popen.kill()
        for slot in list(self.processes):
            self._discard(slot)

    def _feed(self, slot: int) -> None:
        """Answer requests with one process until the pool closes."""
        # A start takes as long as a kernel, so it begins before there is work.
        self._process(slot)
        while (task := self._tasks.get()) is not None:
            if not task.is_wanted():
                continue
            try:
                outcome = self._answer(slot, task)
            except Exception as error:  # for whoever waits; this thread goes on
                outcome = error, 0.0
            task.done(*outcome)

    def _answer(self, slot: int, task: Task) -> Outcome:
        deaths: list[Exception] = []
        words = ""
        while len(deaths) <= _RETRIES and (process := self._process(slot)) is not None:
            try:
                return _exchange(process, task)
            except (OSError, EOFError, ValueError, KeyError) as error:
                deaths.append(error)
                words = self._discard(slot) or words
        if self._closed:
            return _stopped(), 0.0
        if deaths:  # what ended a process could end this one
            return _death(task, deaths, words), 0.0
        return generate_here(task)

    def _process(self, slot: int) -> Process | None:
        """The process of a slot, started if there is none; None where that cannot be."""
        with self._lock:
            if self._closed:
                return None
            if slot not in self.processes:
                # Whatever it is: a thread that ended for it would keep its requests waiting for ever.
                with contextlib.suppress(Exception):
                    self.processes[slot] = _start()
            return self.processes.get(slot)

    def _discard(self, slot: int) -> str:
        """End a process and close its pipes; what it said at its end."""
        with self._lock:
            process = self.processes.pop(slot, None)
        if process is None:
            return ""
        popen, words = process.popen, ""
        with contextlib.suppress(OSError):
            popen.kill()
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            popen.wait(timeout=5)
        with contextlib.suppress(OSError, ValueError):  # closed by somebody else
            words = process.last_words()
        for stream in (popen.stdin, popen.stdout, process.errors):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        return words


def _start() -> Process:
    roots = [str(Path(__file__).resolve().parents[4])]  # not the façade: it stands above
    code = f"import sys; sys.path[:0] = {roots!r}; from {_MODULE} import main; main()"
    errors: BinaryIO | None = None
    with contextlib.suppress(OSError):  # no room for it: then LLVM speaks for itself
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
    try:
        popen = subprocess.Popen(
            # -P: a file of the current folder that is called as a module of Python's is none.
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            close_fds=True,
        )
    except BaseException:
        if errors is not None:
            errors.close()
        raise
    return Process(popen, errors)


def _exchange(process: Process, task: Task) -> Outcome:
    source, sink = process.popen.stdin, process.popen.stdout
    assert source is not None
    assert sink is not None
    source.write(request(task.product, task.settings, task.content))
    source.flush()
    status, seconds, length = REPLY.unpack(read_exactly(sink, REPLY.size))
    payload = read_exactly(sink, length)
    if status == 0:
        return payload, seconds
    message = payload.decode(errors="replace")
    if status == TARGET_ERROR:
        return TargetError(message, location=task.target), seconds
    return InternalError(message, location=task.name), seconds


def generate_here(task: Task) -> Outcome:
    """The answer of this process, where no other can be had.  Raises: as `worker.answer`."""
    started = time.perf_counter()
    code = answer(task.product, task.settings, task.content)
    return code, time.perf_counter() - started


def _stopped() -> InternalError:
    return InternalError("the code generator was stopped")


def _death(task: Task, deaths: list[Exception], words: str) -> InternalError:
    problem = "died twice" if len(deaths) > _RETRIES else "died and cannot be replaced"
    dead = InternalError(
        f"the process that generates code for '{task.target}' {problem}"
        + (f": {words}" if words else ""),
        location=task.name,
    )
    dead.__cause__ = deaths[0]
    return dead


_HOLDER_LOCK: Final = fork_lock(Rank.MODULE)


@functools.cache
def _holder() -> list[WorkerPool]:
    atexit.register(stop)
    return []


def shared_pool(count: int) -> WorkerPool:
    """The pool of this process, started now if need be, with at least `count` workers.

    Raises: OSError when the system grants no thread.
    """
    with _HOLDER_LOCK:
        holder = _holder()
        # The workers of a pool from before a fork belong to the parent.
        if holder and (holder[0].pid != os.getpid() or holder[0].closed):
            holder.clear()
        if not holder:
            holder.append(WorkerPool(count))
        holder[0].grow(count)
        return holder[0]


def stop() -> None:
    """End the workers; the next use starts new ones."""
    with _HOLDER_LOCK:
        pools = [pool for pool in _holder() if pool.pid == os.getpid()]
        _holder().clear()
    for pool in pools:
        pool.close()
