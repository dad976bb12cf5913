"""Steps of a plan as commands: every size a number, every tensor a range of a slot, every label a command.

Knows which slot a storage has, not how it got there.  Called by `binding`, for a plan that is one list of commands,
and by `flow`, for the parts of one that is several.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, cast, final

from tilewright.base.errors import ArchiveError, InputError
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, evaluate
from tilewright.formats.byte_view import Buffer
from tilewright.formats.plan import CHECK_BYTES, FLOW_KINDS, Entry, Plan, Step
from tilewright.formats.plan.findings import IndexReport
from tilewright.formats.plan.kernel_plan import misfit_of
from tilewright.formats.plan.size_relations import Relation, relation_of
from tilewright.runtime import native
from tilewright.runtime.loaders.executable_library import LoadedExecutable
from tilewright.runtime.plan_executor.host_call import BoundHostCall, HostFunction
from tilewright.runtime.plan_executor.tensors import TensorType
from tilewright.runtime.recorder import Grid, Range, Recorder

_LARGEST: Final = (1 << 63) - 1
_LARGEST_GRID: Final = ((1 << 32) - 1, (1 << 32) - 1, (1 << 16) - 1)
"""What kernels are told of a workgroup's place: 32, 32 and 16 bits."""
_MOST_WORKGROUPS: Final = (1 << 39) - 1
"""So many workers can share in 64 bits."""

FindFunction = Callable[[str], Callable[..., object] | None]

BROADCAST_HINT: Final = "an axis of 1 is broadcast where it is known to be 1: fix it when compiling (--input-shape)"
"""Where one of two sizes is 1.  The words stand in native/src/program/bound.c, too."""


@final
@record
class Resources:
    """What a plan runs on; shared by all its bindings."""

    plan: Plan
    executable: LoadedExecutable | None
    constants: tuple[Buffer, ...]
    pool: native.Pool | None
    host_function: HostFunction | None
    heap: native.Heap | None = None  # None: one without bound
    find_function: FindFunction | None = None  # packed functions of modules, by symbol


def _fail(error: Exception) -> None:
    raise error


@final
class StepRecorder:
    """Records steps for certain sizes.

    Args:
        resources: what the plan runs on.
        env: the value of each symbol.
        recorder: where the commands go.

    Attributes:
        places: slot and byte offset of each storage, to be set before a step that uses it.
        command_steps: the step of each command; None for one that looks at what checks found.
    """

    def __init__(
        self, resources: Resources, env: Mapping[str, int], recorder: Recorder
    ) -> None:
        self.resources: Resources = resources
        self.plan: Plan = resources.plan
        self.env: Mapping[str, int] = env
        self.recorder: Recorder = recorder
        self.places: list[tuple[int, int]] = [(-1, 0)] * len(self.plan.storages)
        self.command_steps: list[int | None] = []
        self._labels: dict[int, int] = {}  # step -> the command behind it
        self._gotos: list[tuple[int, int]] = []  # command, step where it leads
        self._unread: set[int] = (
            set()
        )  # records of checks that were written since the last look

    @property
    def given(self) -> str:
        """The sizes, for errors."""
        return ", ".join(f"{name} = {value}" for name, value in self.env.items())

    def number(self, value: Dim) -> int:
        """The value of a size.  Raises: InputError for one that no 64 bits hold."""
        if isinstance(value, int):
            return value
        found = evaluate(value, self.env)
        if not -_LARGEST <= found <= _LARGEST:
            raise InputError(f"sizes are too large for this model: for {self.given}")
        return found

    def type_of(self, entry: Entry) -> TensorType:
        """The type of an entry."""
        return entry.dtype, tuple(self.number(d) for d in entry.shape)

    def expect(self, left: Dim, right: Dim, location: str | None = None) -> None:
        """Refuse sizes of which does not hold what their pair says.  Raises: InputError."""
        if self.number(left) == self.number(right):
            return
        found = relation_of((left, right))
        text, hint = found.broken_text(self.number), None
        if found.relation is Relation.NOT_NEGATIVE:
            text = f"{text} for {self.given}"
        elif found.relation is Relation.EQUAL:
            sides = self.number(found.size), self.number(found.other)
            hint = BROADCAST_HINT if 1 in sides else None
        raise InputError(text, location=location, hint=hint)

    def _range(self, entry: Entry) -> Range:
        slot, start = self.places[entry.storage]
        offset = self.number(entry.offset_bytes)
        size = math.prod(map(self.number, entry.shape), start=entry.dtype.itemsize)
        room = self.number(self.plan.storages[entry.storage].size_bytes)
        if offset < 0 or size < 0 or offset + size > room:
            raise ArchiveError("a tensor lies outside its storage", location="plan")
        return slot, start + offset, size

    def record(self, start: int, stop: int) -> None:
        """Record steps `start .. stop - 1`; those among them that go elsewhere go to one of them.

        What checks of indices find is looked at before anybody decides where to go on, and behind the last step.
        """
        for index in range(start, stop):
            step = self.plan.steps[index]
            if step.kind in FLOW_KINDS:
                self._look_at_checks()
                self._record_flow(index, step)
            elif self._gotos:
                self._record_or_fail(step)
            else:
                self._record(step)
            self._note(index)
        self._look_at_checks()
        for command, step in self._gotos:
            self.recorder.lead(command, self._labels[step])

    def _record_or_fail(self, step: Step) -> None:
        """Record a step that perhaps never runs: sizes may be such that only another branch makes sense.

        Where it does run it raises what recording it did.
        """
        try:
            self._record(step)
        except (ArchiveError, InputError) as error:
            self.recorder.host_call(partial(_fail, error), ())

    def _note(self, step: int | None) -> None:
        """Say whose the commands are that were recorded since the last time."""
        count = self.recorder.command_count - len(self.command_steps)
        self.command_steps += [step] * count

    def _record_flow(self, index: int, step: Step) -> None:
        if step.kind == "label":
            self._labels[index] = self.recorder.command_count
            return
        unless = None
        if step.kind == "branch":
            unless = self._range(self.plan.entries[step.arguments[0]])
        self._gotos.append((self.recorder.goto(unless=unless), step.goto))

    def _record(self, step: Step) -> None:
        entries = [self.plan.entries[e] for e in step.arguments]
        ranges = [self._range(entry) for entry in entries]
        self._unread |= {
            cast("int", e.offset_bytes)
            for e in entries
            if e.storage == self.plan.check_storage
        }
        match step.kind:
            case "dispatch":
                self._dispatch(step, ranges)
            case "copy":
                source, target = ranges
                if source[2] != 0:
                    self.recorder.copy(target, source, barrier=step.barrier)
            case "row":
                place, table, row = ranges
                self.recorder.row(row[0], table, place)
            case "call":
                self._call(step, entries, ranges)
            case "expect":
                self._expect(step)
            case _:
                self._host_call(step, entries, ranges)

    def _expect(self, step: Step) -> None:
        """Nothing is recorded for sizes that agree."""
        for left, right in step.pairs:
            self.expect(left, right, step.target or None)

    def _look_at_checks(self) -> None:
        """Read what the kernels found since the last look, each row of neighbours at once."""
        plan, waiting = self.plan, sorted(self._unread)
        self._unread.clear()
        while waiting:
            first = waiting[0]
            count = next(
                (i for i, at in enumerate(waiting) if at != first + CHECK_BYTES * i),
                len(waiting),
            )
            place = first // CHECK_BYTES
            report = IndexReport.bound(plan.checks[place : place + count], self.number)
            slot, start = self.places[plan.check_storage]
            self.recorder.on_finding(report, (slot, start + first, CHECK_BYTES * count))
            self._note(None)
            del waiting[:count]

    def _dispatch(self, step: Step, ranges: Sequence[Range]) -> None:
        executable = self.resources.executable
        export = None if executable is None else executable.exports.get(step.target)
        if export is None or executable is None:
            raise ArchiveError(f"executable has no kernel '{step.target}'", location="plan")
        problem = misfit_of(step, export)
        if problem is not None:
            raise ArchiveError(problem, location="plan")
        constants = tuple(self.number(d) for d in step.dims)
        if self.env and any(value >= 1 << 32 for value in constants):
            raise InputError(
                f"sizes are too large for this model: {max(constants)} in kernel '{step.target}' "
                f"for {self.given}, expected less than {1 << 32}"
            )
        if any(not 0 <= value < 1 << 32 for value in constants):
            raise ArchiveError(
                f"kernel '{step.target}': dimensions {constants} do not fit 32 bits",
                location="plan",
            )
        grid = tuple(self.number(d) for d in step.grid)
        self._check_grid(step.target, grid)
        self.recorder.kernel(
            executable, export, ranges, cast("Grid", grid), constants, barrier=step.barrier
        )

    def _check_grid(self, kernel: str, grid: Sequence[int]) -> None:
        """Raises: InputError for more workgroups than kernels count where sizes of the call say so; else ArchiveError."""
        x, y, z = grid
        fits = all(0 <= n <= most for n, most in zip(grid, _LARGEST_GRID, strict=True))
        if fits and x * y * max(z, 1) <= _MOST_WORKGROUPS:
            return
        problem = f"{' x '.join(map(str, grid))} workgroups in kernel '{kernel}'"
        most = f"expected at most {' x '.join(map(str, _LARGEST_GRID))}, and {_MOST_WORKGROUPS} in all"
        if self.env:
            raise InputError(
                f"sizes are too large for this model: {problem} for {self.given}, {most}"
            )
        raise ArchiveError(f"{problem}, {most}", location="plan")

    def _host_call(
        self, step: Step, entries: Sequence[Entry], ranges: Sequence[Range]
    ) -> None:
        function = self.resources.host_function
        if function is None:
            raise ArchiveError(
                f"step '{step.name}' needs the reference implementation of '{step.target}'",
                location="plan",
                hint="load the artifact with tilewright.load, which brings them",
            )
        assert step.host is not None, "verified: host steps have a host call"
        types = [self.type_of(entry) for entry in entries]
        count = len(entries) - step.result_count
        self.recorder.host_call(
            BoundHostCall(step, step.host, function, types, self.env),
            ranges,
            writable=tuple(i >= count for i in range(len(entries))),
            barrier=True,
        )

    def _call(self, step: Step, entries: Sequence[Entry], ranges: Sequence[Range]) -> None:
        """A packed function: its tensors are described here, so that a call only adds addresses."""
        find = self.resources.find_function
        function = None if find is None else find(step.target)
        if function is None:
            raise ArchiveError(
                f"step '{step.name}' needs the function '{step.target}', which no module has",
                location="plan",
                hint="load the modules that were made with the plan",
            )
        # Imported here: tvm-ffi takes longer to import than a session without such a step to load.
        with LATE_IMPORTS:
            from tilewright.runtime.packed.tensor_call import bind_tensors  # noqa: PLC0415

        types = [self.type_of(entry) for entry in entries]
        place = ", ".join(f"'{name}'" for name in step.nodes) or f"step '{step.name}'"
        count = len(entries) - step.result_count
        self.recorder.host_call(
            bind_tensors(function, types, f"{place}: function '{step.target}'"),
            ranges,
            writable=tuple(i >= count for i in range(len(entries))),
            barrier=True,
        )
