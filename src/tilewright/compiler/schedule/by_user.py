"""A user's own schedules, carried out: functions and traces.

A function gets a `KernelSchedule`, whose methods are the primitives; a trace is replayed.  Either way every
step checks itself, so what comes out computes what the naive kernel computes; it may be slow.
Called by the pipeline (`trace_for`) and by whoever makes the kernel (`schedule_by_user`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, Final, TypeAlias, cast, final

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError, TilewrightError, UserError
from tilewright.base.outcome import Outcome
from tilewright.base.text import did_you_mean, format_duration
from tilewright.compiler.analysis.accesses import accesses
from tilewright.compiler.kernel.ir import Body, For, If, Kernel, LoopKind, Space
from tilewright.compiler.kernel.local_memory import STACK_LIMIT_BYTES, local_elements
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.kernel.verifier import verify
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules.structure import top_nests
from tilewright.compiler.schedule.rules.verdict import kernel_verdict, nest_verdict
from tilewright.compiler.schedule.trace import (
    PRIMITIVES,
    Primitive,
    Schedule,
    Step,
    from_json,
    replay,
    to_json,
)
from tilewright.compiler.schedule.user import UserTrace

_MOST_LANES: Final = 256
_MOST_COPIES: Final = 4096
_WRITTEN_OUT: Final = (LoopKind.UNROLL, LoopKind.VECTOR)


@final
class KernelSchedule:
    """A kernel in the hands of a user: each primitive is a method, which records and checks itself.

    `outer, inner = kernel.split("i0", 8)`, `kernel.vectorize(inner)`, ...  Primitives and their arguments
    are those of `compiler.schedule.primitives`; each returns the names of what it made.

    Attributes:
        name: of the kernel.
    """

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.name: str = name
        self._schedule: Schedule = Schedule(kernel)

    @property
    def loops(self) -> tuple[str, ...]:
        """The names of all loops, outer before inner."""
        return tuple(loop.var.name for loop in loops(self._schedule.kernel.body))

    @property
    def buffers(self) -> tuple[str, ...]:
        """The names of the parameters and of the temporaries."""
        return tuple(buffer.name for buffer in self._schedule.kernel.buffers)

    @property
    def trace(self) -> tuple[Step, ...]:
        """What was done so far, as data."""
        return cast("tuple[Step, ...]", self._schedule.kernel.trace)

    def __str__(self) -> str:
        """The loops as they are now."""
        return kernel_text(replace(self._schedule.kernel, name=self.name))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = PRIMITIVES.get(name)
        if function is not None:
            return partial(self._apply, function)
        if name.startswith("_"):
            raise AttributeError(name)
        raise ScheduleError(
            f"there is no primitive '{name}'",
            location=_place(self.name),
            hint=did_you_mean(name, PRIMITIVES)
            or f"primitives: {' '.join(sorted(PRIMITIVES))}",
        )

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *PRIMITIVES})

    def _apply(self, step: Primitive[..., Any], /, *args: Any, **named: Any) -> object:
        before = self._schedule.kernel
        try:
            made = self._schedule.apply(step, *args, **named)
            verify(self._schedule.kernel)
        except (TypeError, TilewrightError) as error:
            self._schedule.kernel = before
            raise _failure(self.name, f"primitive '{step.name}'", error) from error
        return made


ScheduleFunction: TypeAlias = Callable[[KernelSchedule], object]
ScheduleSpec: TypeAlias = "ScheduleFunction | Sequence[Step] | str"
"""A function, the steps of a trace, or a trace as JSON."""


def trace_for(
    schedules: Mapping[str, ScheduleSpec], name: str, naive: Kernel
) -> UserTrace | None:
    """The steps for the kernel called `name`: those of the first pattern that fits, if one does.

    Raises: ScheduleError naming the kernel and the primitive that does not apply.
    """
    for pattern, spec in schedules.items():
        if fnmatchcase(name, pattern):
            steps = _steps(spec, name, naive)
            return UserTrace(pattern, steps, to_json(steps))
    return None


def _steps(spec: ScheduleSpec, name: str, naive: Kernel) -> tuple[Step, ...]:
    steps = _trace_of(spec, name, naive) if callable(spec) else _read(spec, name)
    try:
        kernel = replay(naive, steps)
        _check_temporaries(kernel)
        verify(kernel)
        _check_size(kernel)
    except TilewrightError as error:
        raise _failure(name, "", error) from error
    return steps


def _trace_of(function: ScheduleFunction, name: str, naive: Kernel) -> tuple[Step, ...]:
    """What a function did.  Raises: what it raises, with a note that says of which kernel."""
    kernel = KernelSchedule(naive, name)
    try:
        function(kernel)
    except Exception as error:
        error.add_note(f"in the {_place(name)}")
        raise
    return kernel.trace


def _read(trace: Sequence[Step] | str, name: str) -> tuple[Step, ...]:
    try:
        return from_json(trace if isinstance(trace, str) else to_json(trace))
    except ScheduleError as error:
        raise _failure(name, "", error) from error


def _check_size(kernel: Kernel) -> None:
    """Refuse what a code generator would choke on."""
    for loop in loops(kernel.body):
        most = {LoopKind.VECTOR: _MOST_LANES, LoopKind.UNROLL: _MOST_COPIES}.get(loop.kind)
        if most is not None and isinstance(loop.extent, int) and loop.extent > most:
            raise ScheduleError(
                f"loop '{loop.var.name}' of {loop.extent} is marked {loop.kind.value}, "
                f"expected at most {most}",
                hint="split it first",
            )
    copies = _copies(kernel.body)
    if copies > _MOST_COPIES:
        raise ScheduleError(
            f"loops inside each other are marked unroll, {copies} copies of what is in them, "
            f"expected at most {_MOST_COPIES}",
            hint="split them first, and unroll the inner halves",
        )


def _check_temporaries(kernel: Kernel) -> None:
    """Refuse temporaries that fit neither registers nor the memory of a workgroup.

    Those in registers whose places are constants, once loops are written out, take no memory.
    """
    kept = {each.var.name for each in loops(kernel.body) if each.kind not in _WRITTEN_OUT}
    in_memory = {
        access.buffer
        for access in accesses(kernel.body)
        if not symbolic.names_in(access.indices).isdisjoint(kept)
    }
    on_stack = 0
    for buffer in kernel.locals:
        if buffer.space is Space.DEVICE:
            continue
        if not all(isinstance(extent, int) for extent in buffer.shape):
            raise ScheduleError(
                f"temporary '{buffer.name}' has the shape {list(map(str, buffer.shape))}, "
                f"expected constant sizes in the scope '{buffer.space.value}'",
                hint="keep a part of it (privatize, compute_at), or leave it in device memory",
            )
        if buffer.space is Space.REGISTER and buffer in in_memory:
            on_stack += local_elements(kernel, buffer) * buffer.dtype.itemsize
    if on_stack > STACK_LIMIT_BYTES:
        raise ScheduleError(
            f"temporaries in registers that loops go through have {on_stack} bytes, expected at most {STACK_LIMIT_BYTES}",
            hint="unroll these loops, keep a part (privatize, compute_at), or set_scope(..., 'workgroup')",
        )


def _copies(body: Body) -> int:
    """How often the statement that is written out most often stands in the code."""
    most = 1
    for statement in body:
        if isinstance(statement, For | If):
            is_copied = isinstance(statement, For) and statement.kind is LoopKind.UNROLL
            extent = statement.extent if isinstance(statement, For) and is_copied else 1
            factor = extent if isinstance(extent, int) else 1
            most = max(most, factor * _copies(statement.body))
    return most


def _failure(name: str, subject: str, error: Exception) -> ScheduleError:
    text = error.message if isinstance(error, TilewrightError) else str(error)
    hint = error.hint if isinstance(error, UserError) else None  # a step's fault is no bug
    message = f"{subject}: {text}" if subject else text
    return ScheduleError(message, location=_place(name), hint=hint)


def _place(name: str) -> str:
    return f"user schedule of kernel '{name}'"


def schedule_by_user(naive: Kernel, trace: UserTrace, machine: MachineModel) -> Kernel:
    """The naive kernel after the user's steps, with notes and verdict."""
    kernel = replay(naive, trace.steps)
    nests = [
        nest_verdict(nest, Outcome.USER, naive, kernel, machine)
        for nest in top_nests(naive)
    ]
    verdict = replace(kernel_verdict(nests), outcome=Outcome.USER)
    note = f"outcome: {verdict.outcome}, about {format_duration(verdict.expected_ns)}"
    return replace(kernel, notes=(*kernel.notes, note), verdict=verdict)
