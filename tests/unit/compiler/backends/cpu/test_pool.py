"""Every request is answered, whatever happens to the processes; several compilations share them."""

from __future__ import annotations

import errno
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.base.errors import InternalError
from tilewright.base.target import Target
from tilewright.compiler.backends.cpu import compile as compile_module
from tilewright.compiler.backends.cpu import pool
from tilewright.compiler.backends.cpu.options import Options
from tilewright.compiler.backends.cpu.pool import Outcome, Process, Task, WorkerPool

WAIT_SECONDS = 60
SETTINGS = dict(compile_module.settings_of(Target.host(), Options()))


def text(n: int) -> str:
    return f"define i32 @f{n}() {{ ret i32 {n} }}\n"


class Answers:
    """Collects what tasks are answered with."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[tuple[str, Outcome]] = queue.SimpleQueue()

    def task(self, n: int = 0, code: str | None = None, **options: object) -> Task:
        name = f"k{n}"
        return Task(
            name,
            "x86_64",
            SETTINGS,
            text(n) if code is None else code,
            lambda result, seconds: self.queue.put((name, (result, seconds))),
            **options,  # type: ignore[arg-type]
        )

    def next(self) -> tuple[str, bytes | Exception]:
        name, (result, _) = self.queue.get(timeout=WAIT_SECONDS)
        return name, result

    def all(self, count: int) -> dict[str, bytes | Exception]:
        return dict(self.next() for _ in range(count))


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def workers() -> Iterator[WorkerPool]:
    made = WorkerPool(2)
    yield made
    made.close()


def no_processes_left() -> Process:
    raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


def is_object(result: bytes | Exception) -> bool:
    return isinstance(result, bytes) and result.startswith(b"\x7fELF")


def test_requests_are_answered_by_processes(workers: WorkerPool, answers: Answers) -> None:
    for n in range(7):
        workers.submit(answers.task(n))
    results = answers.all(7)
    assert sorted(results) == [f"k{n}" for n in range(7)]
    assert all(map(is_object, results.values()))
    assert len(workers.processes) == 2


def test_without_processes_code_is_generated_here(
    monkeypatch: pytest.MonkeyPatch, answers: Answers
) -> None:
    monkeypatch.setattr(pool, "_start", no_processes_left)
    workers = WorkerPool(2)
    for n in range(5):
        workers.submit(answers.task(n))
    workers.submit(answers.task(9, "this is no LLVM IR"))
    results = answers.all(6)
    assert all(is_object(results[f"k{n}"]) for n in range(5))
    assert isinstance(results["k9"], InternalError)
    assert not workers.processes
    workers.close()


@pytest.mark.parametrize("executable", [None, ""])
def test_an_interpreter_that_is_part_of_a_program_generates_code_itself(
    monkeypatch: pytest.MonkeyPatch, answers: Answers, executable: str | None
) -> None:
    """Its path is not known there, so that no process can be started: requests waited for ever."""
    monkeypatch.setattr(sys, "executable", executable)
    workers = WorkerPool(1)
    workers.submit(answers.task(1))
    assert is_object(answers.all(1)["k1"])
    assert not workers.processes
    workers.close()


def test_processes_are_tried_again_when_there_are_some(
    monkeypatch: pytest.MonkeyPatch, answers: Answers
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pool, "_start", no_processes_left)
        workers = WorkerPool(1)
        workers.submit(answers.task())
        assert is_object(answers.next()[1])
    workers.submit(answers.task())
    assert is_object(answers.next()[1])
    assert len(workers.processes) == 1
    workers.close()


def test_a_process_that_cannot_be_replaced_is_an_error_and_the_next_request_works(
    monkeypatch: pytest.MonkeyPatch, answers: Answers
) -> None:
    workers = WorkerPool(1)
    workers.submit(answers.task())
    assert is_object(answers.next()[1])
    monkeypatch.setattr(pool, "_start", no_processes_left)
    for process in tuple(workers.processes.values()):
        process.popen.kill()
        process.popen.wait()
    workers.submit(answers.task(1))
    name, result = answers.next()
    assert isinstance(result, InternalError)
    assert str(result).startswith(
        f"{name}: the process that generates code for 'x86_64' died and cannot be replaced"
    )
    assert isinstance(result.__cause__, (OSError, EOFError))
    workers.submit(answers.task(2))
    assert is_object(answers.next()[1])
    workers.close()


def test_files_of_the_current_folder_are_no_modules_of_a_worker(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answers: Answers
) -> None:
    (tmp_path / "struct.py").write_text(
        "raise ImportError('of the user, who called a file so')"
    )
    monkeypatch.chdir(tmp_path)
    workers = WorkerPool(1)
    workers.submit(answers.task())
    assert is_object(answers.next()[1])
    workers.close()


def test_processes_that_die_at_once_are_an_error(
    monkeypatch: pytest.MonkeyPatch, answers: Answers
) -> None:
    def dead() -> Process:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        popen = subprocess.Popen([sys.executable, "-c", ""], **pipes)  # type: ignore[call-overload]
        return Process(popen, None)

    monkeypatch.setattr(pool, "_start", dead)
    workers = WorkerPool(1)
    workers.submit(answers.task())
    _, result = answers.next()
    assert isinstance(result, InternalError)
    assert "died twice" in str(result)
    workers.close()


def test_whatever_goes_wrong_is_told_and_the_thread_goes_on(
    monkeypatch: pytest.MonkeyPatch, workers: WorkerPool, answers: Answers
) -> None:
    def broken(*args: object) -> Outcome:
        raise MemoryError("no memory left")

    with monkeypatch.context() as patch:
        patch.setattr(pool, "_exchange", broken)
        for n in range(4):
            workers.submit(answers.task(n))
        assert all(isinstance(r, MemoryError) for r in answers.all(4).values())
    workers.submit(answers.task())
    assert is_object(answers.next()[1])


def test_closing_answers_what_is_under_way_queued_and_submitted_later(
    monkeypatch: pytest.MonkeyPatch, answers: Answers
) -> None:
    started, go_on = threading.Event(), threading.Event()
    exchange = pool._exchange

    def slow(process: Process, task: Task) -> Outcome:
        started.set()
        assert go_on.wait(WAIT_SECONDS)
        return exchange(process, task)

    monkeypatch.setattr(pool, "_exchange", slow)
    workers = WorkerPool(1)
    for n in range(5):
        workers.submit(answers.task(n))
    assert started.wait(WAIT_SECONDS)
    workers.close()
    workers.submit(answers.task(5))
    go_on.set()
    results = answers.all(6)
    assert all("was stopped" in str(result) for result in results.values())
    assert not workers.processes


def test_requests_that_nobody_wants_are_dropped(
    workers: WorkerPool, answers: Answers
) -> None:
    for n in range(20):
        workers.submit(answers.task(n, is_wanted=lambda: False))
    workers.submit(answers.task(20))
    assert answers.next()[0] == "k20"
    assert answers.queue.empty()


def test_a_larger_pool_keeps_the_workers_it_has(answers: Answers) -> None:
    try:
        first = pool.shared_pool(1)
        first.submit(answers.task())
        answers.next()
        (process,) = first.processes.values()
        second = pool.shared_pool(3)
        assert second is first
        assert first.count == 3
        assert process.popen.poll() is None
        assert pool.shared_pool(1).count == 3
    finally:
        pool.stop()
    assert pool.shared_pool(1) is not first
    pool.stop()


def test_fewer_threads_than_asked_for_are_enough(
    monkeypatch: pytest.MonkeyPatch, answers: Answers
) -> None:
    start, granted = threading.Thread.start, iter([True, False])

    def limited(thread: threading.Thread) -> None:
        if not next(granted, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    workers = WorkerPool(4)
    assert workers.count == 1
    workers.submit(answers.task())
    assert is_object(answers.next()[1])
    workers.close()
    with pytest.raises(OSError, match="can't start new thread"):
        WorkerPool(1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no resource limits")
def test_a_compilation_ends_when_no_files_are_left_for_pipes() -> None:
    script = f"""
import os, resource
from tilewright.compiler.backends.cpu import llvm_binding, pool
settings = {SETTINGS!r}
llvm_binding.generate('object', {text(0)!r}, settings)  # from here on LLVM needs no file
lowest = os.dup(0); os.close(lowest)
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, lowest))
import queue
results = queue.SimpleQueue()
workers = pool.shared_pool(2)
for _ in range(6):
    done = lambda result, seconds: results.put(result)
    workers.submit(pool.Task('k', 'host', settings, {text(1)!r}, done))
print([type(results.get(timeout=60)).__name__ for _ in range(6)])
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == f"{['bytes'] * 6}\n", done.stderr
