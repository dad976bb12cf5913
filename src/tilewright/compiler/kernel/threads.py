"""The threads of a workgroup, run in turns from barrier to barrier, with their accesses watched.

Every thread runs up to its next barrier before any goes on.  What two of them touch in between, one of them
writing, is a race; threads that come to different barriers have parted: both are errors that say where.
Called by the evaluator, which runs everything that holds no barrier.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, final

import numpy as np

from tilewright.base.errors import InternalError
from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.grid import has_barrier

_NOBODY: Final = -1
_SEVERAL: Final = -2


class Evaluation(Protocol):
    """What is run: the state of an evaluator, of which each thread has an `env` and registers."""

    kernel: ir.Kernel
    env: dict[str, Any]
    storage: dict[ir.Buffer, Any]
    values: dict[int, Any]
    watch: SharedAccesses | None

    def body(self, body: Sequence[ir.Statement], guard: None) -> None:
        """Run statements."""
        ...

    def value(self, e: ir.Expression) -> Any:
        """The value of an expression."""
        ...

    def dim(self, dim: Dim) -> Any:
        """The value of an index."""
        ...

    def allocate(self, *spaces: ir.Space) -> None:
        """Make new local buffers."""
        ...


@final
class SharedAccesses:
    """Who has read and written which elements since the last barrier."""

    def __init__(self, kernel: str, names: Sequence[str]) -> None:
        self.kernel: str = kernel
        self.names: Sequence[str] = names
        self.thread: int = 0
        self._readers: dict[ir.Buffer, np.ndarray] = {}
        self._writers: dict[ir.Buffer, np.ndarray] = {}

    def barrier(self) -> None:
        """From here on nobody has touched anything."""
        self._readers.clear()
        self._writers.clear()

    def record(
        self,
        buffer: ir.Buffer,
        positions: Sequence[Any],
        shape: tuple[int, ...],
        mask: Any,
        *,
        is_store: bool,
    ) -> None:
        """The thread touches these elements, where the mask holds.  Raises: InternalError on a race."""
        if buffer.space not in (ir.Space.DEVICE, ir.Space.WORKGROUP):
            return
        places = _flat(positions, shape, mask)
        size = int(np.prod(shape))
        readers = self._readers.setdefault(buffer, np.full(size, _NOBODY))
        writers = self._writers.setdefault(buffer, np.full(size, _NOBODY))
        self._check(buffer, places, writers, "written", is_store=is_store)
        if is_store:
            self._check(buffer, places, readers, "read", is_store=True)
            writers[places] = self.thread
            return
        alone = np.isin(readers[places], (_NOBODY, self.thread))
        readers[places] = np.where(alone, self.thread, _SEVERAL)

    def _check(
        self,
        buffer: ir.Buffer,
        places: np.ndarray,
        touched: np.ndarray,
        verb: str,
        *,
        is_store: bool,
    ) -> None:
        apart = places[~np.isin(touched[places], (_NOBODY, self.thread))]
        if not apart.size:
            return
        other = int(touched[apart[0]])
        toucher = "others" if other == _SEVERAL else self.names[other]
        raise InternalError(
            f"kernel '{self.kernel}': race on {buffer!r} at element {apart[0]}: "
            f"{'written' if is_store else 'read'} by thread {self.names[self.thread]}, {verb} by "
            f"{toucher}, without a barrier between them"
        )


def _flat(positions: Sequence[Any], shape: tuple[int, ...], mask: Any) -> np.ndarray:
    """The elements as places in a flat array."""
    if not positions:
        return np.zeros(1, np.int64)
    arrays = np.broadcast_arrays(*positions, *([] if mask is None else [mask]))
    indices = arrays[: len(positions)]
    flat = np.ravel_multi_index(indices, shape[-len(positions) :])
    return np.atleast_1d(flat if mask is None else flat[arrays[-1]])


@final
class _Thread:
    """One thread: the variables and registers it sees, and what it still has to run."""

    def __init__(
        self, run: Evaluation, place: Mapping[str, int], body: Sequence[ir.Statement]
    ):
        self.names: frozenset[str] = frozenset(place)
        self.name: str = f"({', '.join(f'{n}={v}' for n, v in place.items())})"
        self.env: dict[str, Any] = {**run.env, **place}
        shared = run.storage
        run.storage = dict(shared)
        run.allocate(ir.Space.REGISTER)
        self.storage: dict[ir.Buffer, Any] = run.storage
        run.storage = shared
        self.steps: Iterator[ir.Barrier] = _steps(run, body)

    def place(self, barrier: ir.Barrier | None) -> tuple[object, ...]:
        """Where it waits: the barrier, and how often the loops around have run."""
        around = [(n, v) for n, v in self.env.items() if n not in self.names]
        return (id(barrier), *sorted(around))


def _steps(run: Evaluation, body: Sequence[ir.Statement]) -> Iterator[ir.Barrier]:
    """Run statements; stop at each barrier."""
    for statement in body:
        if isinstance(statement, ir.Barrier):
            yield statement
        elif isinstance(statement, ir.For | ir.If) and has_barrier(statement):
            yield from _around(run, statement)
        else:
            run.body((statement,), None)


def _around(run: Evaluation, statement: ir.For | ir.If) -> Iterator[ir.Barrier]:
    """A loop or conditional with a barrier inside."""
    run.values.clear()  # of another thread
    if isinstance(statement, ir.If):
        if np.all(run.value(statement.condition)):
            yield from _steps(run, statement.body)
        return
    for step in range(int(run.dim(statement.extent))):
        run.env[statement.var.name] = step
        yield from _steps(run, statement.body)
    run.env.pop(statement.var.name, None)


def run_threads(run: Evaluation, loops: Sequence[ir.For]) -> None:
    """Run the body of loops over threads, all of them together.

    Raises: InternalError for a race, or a barrier that only some threads come to.
    """
    names = [loop.var.name for loop in loops]
    counts = [range(int(run.dim(loop.extent))) for loop in loops]
    env, storage = run.env, run.storage
    threads = [
        _Thread(run, dict(zip(names, place, strict=True)), loops[-1].body)
        for place in itertools.product(*counts)
    ]
    run.watch = SharedAccesses(run.kernel.name, [thread.name for thread in threads])
    try:
        while _to_next_barrier(run, run.watch, threads):
            run.watch.barrier()
    finally:
        run.env, run.storage, run.watch = env, storage, None


def _to_next_barrier(
    run: Evaluation, watch: SharedAccesses, threads: Sequence[_Thread]
) -> bool:
    """Run every thread to its next barrier; whether they are at one."""
    first: tuple[object, ...] = ()
    waits = False
    for number, thread in enumerate(threads):
        run.env, run.storage, watch.thread = thread.env, thread.storage, number
        at = next(thread.steps, None)
        place = thread.place(at)
        if number == 0:
            first, waits = place, at is not None
        elif place != first:
            raise InternalError(
                f"kernel '{run.kernel.name}': barrier in divergent control flow: thread "
                f"{thread.name} {_state(at)}, {threads[0].name} {_state(at, waits=waits)}"
            )
    return waits


def _state(at: ir.Barrier | None, *, waits: bool | None = None) -> str:
    is_waiting = at is not None if waits is None else waits
    return "waits at one" if is_waiting else "has ended"
