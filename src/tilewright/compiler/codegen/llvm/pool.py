"""Worker processes that generate code in parallel.

Processes, not threads: LLVM's binding holds one lock.  Plain pipes, not `multiprocessing`: nothing is
forked, no `__main__` guard is needed, and a worker ends when its input does, so none outlives us.
One pool per process, started at the first need and kept.  Called by `compile`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from tilewright.base.errors import InternalError
from tilewright.compiler.codegen.llvm.worker import REPLY, read_exactly, request

_RETRIES: Final = 1
_MODULE: Final = "tilewright.compiler.codegen.llvm.worker"


@final
@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """One request.  `done` is called from a thread of the pool."""

    name: str
    settings: dict[str, str | int]
    text: str
    done: Callable[[bytes | Exception, float], None]


@final
class WorkerPool:
    """A fixed number of processes.  Thread-safe; owns its processes."""

    def __init__(self, count: int) -> None:
        self.count: int = count
        self.pid: int = os.getpid()
        self.tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.closed: bool = False
        self._threads: list[threading.Thread] = []
        for slot in range(count):
            self._start(slot)
            thread = threading.Thread(target=self._feed, args=(slot,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def submit(self, task: Task) -> None:
        """Queue a request."""
        self.tasks.put(task)

    def close(self) -> None:
        """Kill the processes; requests under way fail."""
        self.closed = True
        for _ in range(self.count):
            self.tasks.put(None)
        for process in list(self.processes.values()):
            with contextlib.suppress(OSError):
                process.kill()
        for process in list(self.processes.values()):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                process.wait(timeout=5)
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        self.processes.clear()

    def _start(self, slot: int) -> subprocess.Popen[bytes]:
        roots = [
            str(Path(__file__).resolve().parents[4])
        ]  # not the façade: it stands above
        code = f"import sys; sys.path[:0] = {roots!r}; from {_MODULE} import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            close_fds=True,
        )
        self.processes[slot] = process
        return process

    def _feed(self, slot: int) -> None:
        """Hand requests to one process until the pool closes."""
        while (task := self.tasks.get()) is not None:
            for attempt in range(_RETRIES + 1):
                try:
                    result, seconds = self._exchange(self.processes[slot], task)
                    task.done(result, seconds)
                    break
                except (OSError, EOFError, ValueError, KeyError) as error:
                    if self.closed:
                        task.done(InternalError("the code generator was stopped"), 0.0)
                        return
                    self._restart(slot)
                    if attempt == _RETRIES:
                        task.done(self._death(task, error), 0.0)

    def _restart(self, slot: int) -> None:
        old = self.processes[slot]
        with contextlib.suppress(OSError):
            old.kill()
        old.wait()
        for stream in (old.stdin, old.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._start(slot)

    def _death(self, task: Task, error: Exception) -> InternalError:
        dead = InternalError(
            "the process that generates code died twice", location=f"kernel '{task.name}'"
        )
        dead.__cause__ = error
        return dead

    def _exchange(
        self, process: subprocess.Popen[bytes], task: Task
    ) -> tuple[bytes | Exception, float]:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(request(task.settings, task.text))
        process.stdin.flush()
        status, seconds, length = REPLY.unpack(read_exactly(process.stdout, REPLY.size))
        payload = read_exactly(process.stdout, length)
        if status == 0:
            return payload, seconds
        message = payload.decode(errors="replace")
        return InternalError(message, location=f"kernel '{task.name}'"), seconds


@functools.cache
def _holder() -> list[WorkerPool]:
    atexit.register(stop)
    return []


def shared_pool(count: int) -> WorkerPool:
    """The pool of this process, started now if need be, with at least `count` workers."""
    holder = _holder()
    if holder and holder[0].pid != os.getpid():
        holder.clear()  # the workers belong to the process we were forked from
    if holder and (holder[0].count < count or holder[0].closed):
        stop()
    if not holder:
        holder.append(WorkerPool(count))
    return holder[0]


def stop() -> None:
    """End the workers; the next use starts new ones."""
    holder = _holder()
    if holder and holder[0].pid == os.getpid():
        holder[0].close()
    holder.clear()
