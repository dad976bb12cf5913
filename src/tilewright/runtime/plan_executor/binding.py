"""Binding a plan to the dimensions of a call: every size a number, every command recorded.

The plan's indices were verified when it was read; here the ranges that depend on the dimensions
are checked, by the C core's recorder.  Called by `executor`, once per set of dimensions.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import final

from tilewright.base.arena import Block, pack
from tilewright.base.errors import ArchiveError, InputError, UserError
from tilewright.base.record import record
from tilewright.base.status import StatusCode, failure
from tilewright.formats.plan import Plan
from tilewright.runtime import native
from tilewright.runtime.plan_executor.check_sizes import check_sizes, leaves_nothing
from tilewright.runtime.plan_executor.record_steps import Resources, StepRecorder
from tilewright.runtime.plan_executor.results import result_array
from tilewright.runtime.plan_executor.tensors import (
    TensorType,
    buffer_formats,
    wire_type,
)
from tilewright.runtime.recorder import CallRecorder, Command, Recorder


@final
@record
class BoundPlan:
    """A plan for one set of dimensions, recorded in the C core."""

    commands: native.CommandList
    call: native.RecordedCall
    command_steps: tuple[int | None, ...]  # the plan's step of each native command
    arena_bytes: int
    has_arena: bool
    row_count: int
    input_types: tuple[TensorType, ...]
    output_types: tuple[TensorType, ...]
    places: tuple[tuple[int, int], ...]  # slot and byte offset of each storage
    input_bits: bool  # whether some input travels as bits, which say nothing of its type
    output_bits: bool  # whether some output arrives as a bit pattern of its type
    over: Callable[..., native.RecordedCall]  # see `ReplayedCall`

    def scratch(self, heap: native.Heap) -> list[native.Memory | None]:
        """What the slots behind the constants are given: an arena, if there is one; rows have no memory."""
        arena = (
            [heap.lease(self.arena_bytes, native.MemoryUse.ARENA)] if self.has_arena else []
        )
        return [*arena, *([None] * self.row_count)]


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
    for step, command in zip(bound.command_steps, binder.recorder.commands, strict=True):
        if step is not None:
            parts[step].append(command)
    return bound, tuple(binder.recorder.build(commands=part) for part in parts)


def _bind(binder: _Binder) -> BoundPlan:
    try:
        return binder.bind()
    except (ValueError, OverflowError, struct.error, UserError) as error:
        if isinstance(error, ArchiveError | InputError):
            raise
        raise ArchiveError(f"plan cannot be bound: {error}", location="plan") from error


def _have_bits(types: Sequence[TensorType]) -> bool:
    """Whether some tensor travels as the bit pattern of its elements."""
    return any(wire_type(dtype) != dtype.numpy for dtype, _ in types)


@final
class _Binder:
    """Evaluates every symbolic size of a plan and records its commands."""

    def __init__(self, resources: Resources, dims: Sequence[int]) -> None:
        self.resources: Resources = resources
        self.plan: Plan = resources.plan
        self.slots: CallRecorder = CallRecorder()
        self.recorder: Recorder = self.slots.recorder
        env = {dim.name: value for dim, value in zip(self.plan.dims, dims, strict=True)}
        self.steps: StepRecorder = StepRecorder(resources, env, self.recorder)

    def bind(self) -> BoundPlan:
        plan = self.plan
        check_sizes(self.steps)
        is_empty = leaves_nothing(self.steps)
        input_types = tuple(self.steps.type_of(plan.entries[e]) for _, e in plan.inputs)
        output_types = tuple(self.steps.type_of(plan.entries[e]) for _, e in plan.outputs)
        arena_bytes = self._place_storages(is_used=not is_empty)
        output_bytes = sum(
            self.steps.number(s.size_bytes) for s in plan.storages if s.kind == "output"
        )
        self._check_capacity(arena_bytes, output_bytes)
        if not is_empty:
            self.steps.record(0, len(plan.steps))
        resources = self.resources
        built = self.slots.build(resources.pool, resources.heap, output_bytes)
        return BoundPlan(
            built.commands,
            built.call,
            tuple(self.steps.command_steps),
            arena_bytes,
            any(s.kind == "transient" for s in plan.storages),
            sum(s.kind == "row" for s in plan.storages) if not is_empty else 0,
            input_types,
            output_types,
            tuple(self.steps.places),
            _have_bits(input_types),
            _have_bits(output_types),
            built.over,
        )

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

    def _place_storages(self, *, is_used: bool) -> int:
        """Give every storage its slot and offset; the size of the arena."""
        plan, slots = self.plan, self.slots
        self.steps.places = [(-1, 0)] * len(plan.storages)
        for name, index in plan.inputs:
            entry = plan.entries[index]
            dtype, shape = self.steps.type_of(entry)
            slot = slots.input(
                name,
                buffer_formats(dtype),
                shape,
                self._size_of(entry.storage),
                wire_type(dtype).alignment,  # kernels count on it
            )
            self.steps.places[entry.storage] = (slot, 0)
        for _, index in plan.outputs:
            entry = plan.entries[index]
            dtype, shape = self.steps.type_of(entry)
            allocate = functools.partial(
                result_array, self.resources.heap, shape, wire_type(dtype)
            )
            slot = slots.output(allocate, self._size_of(entry.storage))
            self.steps.places[entry.storage] = (slot, 0)
        rows = [i for i, s in enumerate(plan.storages) if s.kind == "constant"]
        given = self.resources.constants
        if len(rows) != len(given):
            raise ArchiveError(
                f"the plan has {len(rows)} constants, got {len(given)}", location="plan"
            )
        for index, memory in zip(rows, given, strict=True):
            self.steps.places[index] = (slots.constant(memory, self._size_of(index)), 0)
        arena_bytes = self._place_transients(is_used=is_used)
        for index, storage in enumerate(plan.storages if is_used else ()):
            if storage.kind == "row":
                self.steps.places[index] = (slots.row(self._size_of(index)), 0)
        return arena_bytes

    def _size_of(self, storage: int) -> int:
        return self.steps.number(self.plan.storages[storage].size_bytes)

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
                [Block(self.steps.number(s.size_bytes), s.first, s.last) for _, s in rows]
            )
            offsets, size = packing.offsets, packing.size_bytes
        slot = self.slots.scratch(size) if rows else -1
        for (index, _), offset in zip(rows, offsets, strict=True):
            self.steps.places[index] = (slot, offset)
        return size
