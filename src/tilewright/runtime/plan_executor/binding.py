"""Binding a plan to the dimensions of a call: every size a number, every command recorded.

The plan's indices were verified when it was read; here the ranges that depend on the dimensions
are checked, by the C core's recorder.  Called by `executor`, once per set of dimensions.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import cast, final

from tilewright.base.arena import Block, pack
from tilewright.base.errors import ArchiveError, InputError, UserError
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.record import record
from tilewright.base.status import StatusCode, failure
from tilewright.base.symbolic import Dim, bounds, evaluate
from tilewright.formats.byte_view import Buffer
from tilewright.formats.plan import CHECK_BYTES, Entry, Plan, Step
from tilewright.formats.plan.findings import IndexReport
from tilewright.runtime import native
from tilewright.runtime.loaders.executable_library import LoadedExecutable
from tilewright.runtime.plan_executor.host_call import BoundHostCall, HostFunction
from tilewright.runtime.plan_executor.results import result_array
from tilewright.runtime.plan_executor.tensors import (
    TensorType,
    buffer_formats,
    wire_type,
)
from tilewright.runtime.recorder import CallRecorder, Command, Grid, Range, Recorder

FindFunction = Callable[[str], Callable[..., object] | None]


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


@final
@record
class BoundPlan:
    """A plan for one set of dimensions, recorded in the C core."""

    commands: native.CommandList
    call: native.RecordedCall
    command_steps: tuple[int, ...]  # the plan's step of each native command
    arena_bytes: int
    input_types: tuple[TensorType, ...]
    output_types: tuple[TensorType, ...]
    places: tuple[tuple[int, int], ...]  # slot and byte offset of each storage
    output_bits: bool  # whether some output arrives as a bit pattern of its type


def bind_plan(resources: Resources, dims: Sequence[int]) -> BoundPlan:
    """Record the plan for these values of `plan.dims`.

    Raises: ArchiveError when the plan does not fit its executable or its own storages; DeviceError
    (RESOURCE_EXHAUSTED) when one call needs more than the heap may ever have.
    """
    return _bind(_Binder(resources, dims))


def bind_steps(
    resources: Resources, dims: Sequence[int]
) -> tuple[BoundPlan, tuple[native.CommandList, ...]]:
    """Record the plan, and each of its steps as a list of its own.  Raises: as `bind_plan`."""
    binder = _Binder(resources, dims)
    bound = _bind(binder)
    parts: list[list[Command]] = [[] for _ in resources.plan.steps]
    # Behind the commands of the steps may stand one that looks at what they found.
    for step, command in zip(bound.command_steps, binder.recorder.commands, strict=False):
        parts[step].append(command)
    return bound, tuple(binder.recorder.build(commands=part) for part in parts)


def _bind(binder: _Binder) -> BoundPlan:
    try:
        return binder.bind()
    except (ValueError, OverflowError, struct.error, UserError) as error:
        if isinstance(error, ArchiveError | InputError):
            raise
        raise ArchiveError(f"plan cannot be bound: {error}", location="plan") from error


@final
class _Binder:
    """Evaluates every symbolic size of a plan and records its commands."""

    def __init__(self, resources: Resources, dims: Sequence[int]) -> None:
        self.resources: Resources = resources
        self.plan: Plan = resources.plan
        self.env: dict[str, int] = {
            dim.name: value for dim, value in zip(self.plan.dims, dims, strict=True)
        }
        self.slots: CallRecorder = CallRecorder()
        self.recorder: Recorder = self.slots.recorder
        self.places: list[tuple[int, int]] = []  # (slot, byte offset) per storage
        self.command_steps: list[int] = []

    def bind(self) -> BoundPlan:
        plan = self.plan
        is_empty = self._is_empty()
        for left, right in plan.equalities:
            if self._number(left) != self._number(right):
                raise InputError(
                    f"sizes do not agree: {left} is {self._number(left)}, "
                    f"{right} is {self._number(right)}"
                )
        self._check_sizes()
        input_types = tuple(self._type(plan.entries[e]) for _, e in plan.inputs)
        output_types = tuple(self._type(plan.entries[e]) for _, e in plan.outputs)
        arena_bytes = self._place_storages(is_used=not is_empty)
        output_bytes = sum(
            self._number(s.size_bytes) for s in plan.storages if s.kind == "output"
        )
        self._check_capacity(arena_bytes, output_bytes)
        if not is_empty:
            for index, step in enumerate(plan.steps):
                self._record(index, step)
            self._check_indices()
        resources = self.resources
        built = self.slots.build(resources.pool, resources.heap, output_bytes)
        return BoundPlan(
            built.commands,
            built.call,
            tuple(self.command_steps),
            arena_bytes,
            input_types,
            output_types,
            tuple(self.places),
            any(wire_type(dtype) != dtype.numpy for dtype, _ in output_types),
        )

    def _is_empty(self) -> bool:
        """Whether a dimension of 0 leaves nothing to compute.  Raises: InputError for sizes out of range."""
        plan, is_empty = self.plan, False
        for dim in plan.dims:
            size, limit = self.env[dim.name], ""
            if size == 0 and dim.leaves_nothing(
                plan.entries[e].shape for _, e in plan.outputs
            ):
                is_empty = True
            elif size < dim.minimum:
                limit = f"at least {dim.minimum}"
            elif dim.maximum is not None and size > dim.maximum:
                limit = f"at most {dim.maximum}"
            if limit:
                raise InputError(
                    f"dimension '{dim.name}' (axis {dim.axis}) is {size}, expected {limit}",
                    location=f"input '{plan.inputs[dim.input][0]}'",
                )
        return is_empty

    def _check_capacity(self, arena_bytes: int, output_bytes: int) -> None:
        """Refuse what could not run even if nobody else ran."""
        heap, needed = self.resources.heap, arena_bytes + output_bytes
        capacity = None if heap is None else heap.capacity_bytes
        if capacity is not None and needed > capacity:
            raise failure(
                StatusCode.RESOURCE_EXHAUSTED,
                f"a call needs {needed} bytes ({arena_bytes} for intermediate tensors, "
                f"{output_bytes} for outputs), the device may use {capacity}",
                location=self.plan.name,
                hint="give the device more with ?memory=, or call with smaller inputs",
            )

    def _check_sizes(self) -> None:
        """Refuse images smaller than the windows that slide over them."""
        extents = (d for e in self.plan.entries for d in e.shape if not isinstance(d, int))
        # In the order in which exported libraries look at them: errors name the first.
        for size in dict.fromkeys(extents):
            lowest = bounds(size)[0]
            if (lowest is None or lowest < 0) and self._number(size) < 0:
                raise InputError(
                    f"sizes are too small for this model: {size} is {self._number(size)} "
                    f"for {self._given}"
                )

    @property
    def _given(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.env.items())

    def _number(self, value: Dim) -> int:
        return value if isinstance(value, int) else evaluate(value, self.env)

    def _type(self, entry: Entry) -> TensorType:
        return entry.dtype, tuple(self._number(d) for d in entry.shape)

    def _place_storages(self, *, is_used: bool) -> int:
        """Give every storage its slot and offset; the size of the arena."""
        plan, slots = self.plan, self.slots
        self.places = [(-1, 0)] * len(plan.storages)
        for name, index in plan.inputs:
            entry = plan.entries[index]
            dtype, shape = self._type(entry)
            slot = slots.input(
                name,
                buffer_formats(dtype),
                shape,
                self._size_of(entry.storage),
                wire_type(dtype).alignment,  # kernels count on it
            )
            self.places[entry.storage] = (slot, 0)
        for _, index in plan.outputs:
            entry = plan.entries[index]
            dtype, shape = self._type(entry)
            allocate = functools.partial(
                result_array, self.resources.heap, shape, wire_type(dtype)
            )
            slot = slots.output(allocate, self._size_of(entry.storage))
            self.places[entry.storage] = (slot, 0)
        rows = [i for i, s in enumerate(plan.storages) if s.kind == "constant"]
        given = self.resources.constants
        if len(rows) != len(given):
            raise ArchiveError(
                f"the plan has {len(rows)} constants, got {len(given)}", location="plan"
            )
        for index, memory in zip(rows, given, strict=True):
            self.places[index] = (slots.constant(memory, self._size_of(index)), 0)
        return self._place_transients(is_used=is_used)

    def _size_of(self, storage: int) -> int:
        return self._number(self.plan.storages[storage].size_bytes)

    def _place_transients(self, *, is_used: bool) -> int:
        """The arena's size; planned by the compiler, or here once the sizes are known."""
        rows = [(i, s) for i, s in enumerate(self.plan.storages) if s.kind == "transient"]
        offsets: Sequence[int]
        if not is_used:  # its slot stays, with nothing in it
            offsets, size = [0] * len(rows), 0
        elif self.plan.arena_bytes >= 0:
            offsets = [s.offset_bytes for _, s in rows]
            size = self.plan.arena_bytes
        else:
            packing = pack(
                [Block(self._number(s.size_bytes), s.first, s.last) for _, s in rows]
            )
            offsets, size = packing.offsets, packing.size_bytes
        slot = self.slots.scratch(size) if rows else -1
        for (index, _), offset in zip(rows, offsets, strict=True):
            self.places[index] = (slot, offset)
        return size

    def _check_indices(self) -> None:
        """Read what the kernels found once, behind the last step."""
        plan = self.plan
        if not plan.checks:
            return
        report = IndexReport.bound(plan.checks, self._number)
        slot, start = self.places[plan.check_storage]
        self.recorder.on_finding(report, (slot, start, CHECK_BYTES * len(plan.checks)))

    def _range(self, entry: Entry) -> Range:
        slot, start = self.places[entry.storage]
        offset, size = self._number(entry.offset_bytes), self._number(entry.size_bytes)
        room = self._number(self.plan.storages[entry.storage].size_bytes)
        if offset < 0 or size < 0 or offset + size > room:
            raise ArchiveError("a tensor lies outside its storage", location="plan")
        return slot, start + offset, size

    def _record(self, index: int, step: Step) -> None:
        entries = [self.plan.entries[e] for e in step.arguments]
        ranges = [self._range(entry) for entry in entries]
        match step.kind:
            case "dispatch":
                self._dispatch(step, ranges)
            case "copy":
                source, target = ranges
                if source[2] == 0:
                    return
                self.recorder.copy(target, source, barrier=step.barrier)
            case "call":
                self._call(step, entries, ranges)
            case _:
                self._host_call(step, entries, ranges)
        self.command_steps.append(index)

    def _dispatch(self, step: Step, ranges: Sequence[Range]) -> None:
        executable = self.resources.executable
        export = None if executable is None else executable.exports.get(step.target)
        if export is None or executable is None:
            raise ArchiveError(f"executable has no kernel '{step.target}'", location="plan")
        constants = tuple(self._number(d) for d in step.dims)
        if export.binding_count != len(ranges) or export.constant_count != len(constants):
            raise ArchiveError(
                f"kernel '{step.target}' takes {export.binding_count} bindings and "
                f"{export.constant_count} constants, the plan passes {len(ranges)} and "
                f"{len(constants)}",
                location="plan",
            )
        if self.env and any(value >= 1 << 32 for value in constants):
            raise InputError(
                f"sizes are too large for this model: {max(constants)} in kernel '{step.target}' "
                f"for {self._given}, expected less than {1 << 32}"
            )
        if any(not 0 <= value < 1 << 32 for value in constants):
            raise ArchiveError(
                f"kernel '{step.target}': dimensions {constants} do not fit 32 bits",
                location="plan",
            )
        grid = tuple(self._number(d) for d in step.grid)
        self.recorder.kernel(
            executable, export, ranges, cast("Grid", grid), constants, barrier=step.barrier
        )

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
        types = [self._type(entry) for entry in entries]
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

        types = [self._type(entry) for entry in entries]
        place = ", ".join(f"'{name}'" for name in step.nodes) or f"step '{step.name}'"
        count = len(entries) - step.result_count
        self.recorder.host_call(
            bind_tensors(function, types, f"{place}: function '{step.target}'"),
            ranges,
            writable=tuple(i >= count for i in range(len(entries))),
            barrier=True,
        )
