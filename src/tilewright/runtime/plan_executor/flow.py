"""Calls of plans whose sizes data decides: the host reads them, and decides which commands are replayed next.

A plan is cut where the host decides (`flow_layout`).  Each run between two decisions is recorded once per set of
sizes that it depends on, and replayed natively, its loops too; the host reads sizes back, or the condition of a
loop around them, and goes on.  Storages
whose size the data decides are placed when it is known, in an arena per read.  Not here: plans that read
no sizes, which are one list of commands (`binding`).  Called by `executor`.

Thread-safety: calls from several threads are independent; what they record is shared under a lock.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast, final

import numpy as np

from tilewright.base.arena import Block, pack
from tilewright.base.errors import ArchiveError, InputError, UserError, size_error
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, evaluate, names_in
from tilewright.formats.plan import FLOW_KINDS, Step
from tilewright.formats.plan.flow_layout import FROM_INPUTS, FlowLayout, Run
from tilewright.runtime import native
from tilewright.runtime.plan_executor.check_sizes import SizeChecks, leaves_nothing
from tilewright.runtime.plan_executor.native_flow import NativeFlow, native_flow
from tilewright.runtime.plan_executor.record_steps import Resources, StepRecorder
from tilewright.runtime.plan_executor.results import result_for
from tilewright.runtime.plan_executor.tensors import (
    Array,
    TensorType,
    as_bits,
    wire_type,
)
from tilewright.runtime.recorder import Recorder

RECORDED_LIMIT: Final = 256
"""Arrangements of memory that are kept."""
COMMAND_LIMIT: Final = 1 << 15
"""Commands of recorded runs that are kept, of all sizes together, one more for each run: some 60 MB at most; the last run
always is."""

Memories = tuple[tuple[str, int], ...]
"""What the slots of a run are given: ("storage", index), ("arena", group), or ("row", storage)."""


@final
@record
class _Recorded:
    """A run for certain sizes."""

    commands: native.CommandList
    memories: Memories
    steps: tuple[int | None, ...]


@final
class FlowCall:
    """One call under way.

    Attributes:
        env: the sizes known so far.
        is_done: whether there is nothing to compute.
        outputs: the results, by position.
        times: where to note each step with its times.
        types: of the outputs that were placed, by position.
        version: counts up whenever sizes or memory changed.
        sizes: counts up whenever sizes changed.
        settled: by step that reads sizes, `sizes` behind it and what it read, when it ran last.
        storages: memory of inputs, outputs, constants and blocks, by storage.
        arenas: memory of transients, by group.
        placed: by group, the sizes that its memory was made for.
        ready: by first step, the version for which a run was found, its commands and what it is given.
        views: by step, the same for what the host reads.
    """

    __slots__ = (
        "arenas",
        "env",
        "is_done",
        "outputs",
        "placed",
        "ready",
        "settled",
        "sizes",
        "storages",
        "times",
        "types",
        "version",
        "views",
    )

    def __init__(
        self,
        env: dict[str, int],
        outputs: Sequence[Array | None],
        times: list[tuple[Step, native.Timing]] | None,
    ) -> None:
        self.env: dict[str, int] = env
        self.outputs: list[Array | None] = list(outputs)
        self.times: list[tuple[Step, native.Timing]] | None = times
        self.version: int = 0
        self.sizes: int = 0
        self.settled: dict[int, tuple[int, list[int]]] = {}
        self.is_done: bool = False
        self.types: dict[int, TensorType] = {}
        self.storages: dict[int, Any] = {}
        self.arenas: dict[int, Any] = {}
        self.placed: dict[int, tuple[int, ...]] = {}
        self.ready: dict[int, tuple[int, _Recorded, list[Any]]] = {}
        self.views: dict[int, tuple[int, memoryview]] = {}


@final
class FlowRunner:
    """Runs one plan whose sizes data decides.

    Args:
        resources: what it runs on.
        is_stepwise: each step is a run of its own.
    """

    def __init__(self, resources: Resources, *, is_stepwise: bool = False) -> None:
        self.resources: Resources = resources
        self.plan = resources.plan
        self.layout: FlowLayout = FlowLayout(resources.plan, is_stepwise=is_stepwise)
        self._checks: dict[int, SizeChecks] = {
            group: SizeChecks(found.equalities, found.extents)
            for group, found in self.layout.conditions.items()
        }
        self._is_stepwise: bool = is_stepwise
        self._heap: native.Heap = resources.heap or native.Heap()
        self._recorded: OrderedDict[tuple[int, ...], _Recorded] = OrderedDict()
        self._offsets: OrderedDict[tuple[int, ...], tuple[dict[int, int], int]] = (
            OrderedDict()
        )
        self._transients: dict[int, list[int]] = {}  # by group
        for index, storage in enumerate(self.plan.storages):
            if storage.kind == "transient":
                group = self.layout.groups[index]
                self._transients.setdefault(group, []).append(index)
        self._command_count: int = 0
        self._lock = fork_lock(Rank.BINDING)
        rows = [i for i, s in enumerate(self.plan.storages) if s.kind == "constant"]
        if len(rows) != len(resources.constants):
            raise ArchiveError(
                f"the plan has {len(rows)} constants, got {len(resources.constants)}",
                location="plan",
            )
        self._constants: dict[int, Any] = dict(zip(rows, resources.constants, strict=True))
        self._native: NativeFlow | None = (
            None if is_stepwise else native_flow(resources, self.layout, self._heap)
        )
        self._outputs: dict[int, int] = {
            self.plan.entries[entry].storage: place
            for place, (_, entry) in enumerate(self.plan.outputs)
        }

    def input_types(self, env: dict[str, int]) -> tuple[TensorType, ...]:
        """The types of the inputs for sizes that they decide."""
        steps = StepRecorder(self.resources, env, Recorder())
        return tuple(steps.type_of(self.plan.entries[e]) for _, e in self.plan.inputs)

    def output_types(self, env: dict[str, int]) -> tuple[TensorType | None, ...]:
        """The types of the outputs for sizes that the inputs decide; None where data decides some."""
        steps = StepRecorder(self.resources, env, Recorder())
        rows = [self.plan.entries[e] for _, e in self.plan.outputs]
        return tuple(
            steps.type_of(e) if self.layout.groups[e.storage] == FROM_INPUTS else None
            for e in rows
        )

    def run(
        self,
        env: dict[str, int],
        inputs: Sequence[Array],
        outputs: Sequence[Array | None],
        times: list[tuple[Step, native.Timing]] | None = None,
    ) -> tuple[Array, ...]:
        """The results of a call.

        Args:
            env: the sizes that the inputs decide.
            inputs: dense, of the right types, as bit patterns where need be.
            outputs: memory of results, or None to make it.
            times: where to note each step with its times.

        Raises: InputError for sizes that the plan does not run with; what a step raises.
        """
        if times is None and self._native is not None:
            return self._native.run(env, inputs, outputs)
        call = self.begin(env, inputs, outputs, times)
        for place in self.walk(call):
            run = self.layout.runs.get(place)
            if run is not None:
                self.replay(call, run)
        if any(output is None for output in call.outputs):
            raise ArchiveError("the plan leaves an output without a size", location="plan")
        return tuple(cast("list[Array]", call.outputs))

    def begin(
        self,
        env: dict[str, int],
        inputs: Sequence[Array],
        outputs: Sequence[Array | None],
        times: list[tuple[Step, native.Timing]] | None = None,
    ) -> FlowCall:
        """A call of which nothing ran yet; arguments and errors as of `run`."""
        call = FlowCall(env, outputs, times)
        steps = StepRecorder(self.resources, env, Recorder())
        self._check(steps, FROM_INPUTS)
        call.storages.update(self._constants)
        for (_, entry), array in zip(self.plan.inputs, inputs, strict=True):
            call.storages[self.plan.entries[entry].storage] = array
        is_empty = leaves_nothing(steps)
        self._place(call, FROM_INPUTS)
        call.is_done = is_empty and all(o is not None for o in call.outputs)
        return call

    def walk(self, call: FlowCall) -> Iterator[int]:
        """The first steps of runs, which whoever asks replays, and labels, in the order of the call."""
        steps, runs, place = self.plan.steps, self.layout.runs, 0
        while place < len(steps) and not call.is_done:
            run = runs.get(place)
            if run is not None:
                yield place
                place = run.stop
                continue
            step = steps[place]
            place += 1
            match step.kind:
                case "branch":
                    if not self._bytes_of(call, place - 1, step)[0]:
                        place = step.goto
                case "jump":
                    place = step.goto
                case "label":
                    yield place - 1
                case "read":
                    self._read_sizes(call, place - 1, step)
                case "allocate":
                    self._allocate(call, step)
                case "rebind":
                    self._rebind(call, step)
                case _:
                    self._pick_row(call, step)

    # --- runs

    def replay(self, call: FlowCall, run: Run) -> None:
        """Run the steps of a run."""
        ready = call.ready.get(run.start)
        if ready is None or ready[0] != call.version:
            recorded = self._record(call.env, run)
            buffers = [self._memory(call, *memory) for memory in recorded.memories]
            ready = call.ready[run.start] = (call.version, recorded, buffers)
        _, recorded, buffers = ready
        if call.times is None:
            recorded.commands.run(self.resources.pool, buffers, self._heap)
            return
        times = recorded.commands.run_timed(self.resources.pool, buffers, self._heap)
        call.times += [
            (self._sized(call, self.plan.steps[step]), native.Timing.of(time))
            for step, time in zip(recorded.steps, times, strict=True)
            if step is not None and self.plan.steps[step].kind not in FLOW_KINDS
        ]

    def _sized(self, call: FlowCall, step: Step) -> Step:
        """The step with the numbers that its sizes are now, which nobody knows when the call is over."""
        entries = [self.plan.entries[entry] for entry in step.arguments]
        moved = step.bytes_moved
        if moved is None:
            moved = sum(self.number(call, entry.size_bytes) for entry in entries)
        x, y, z = (self.number(call, extent) for extent in step.grid)
        return replace(
            step,
            grid=(x, y, z),
            flops=self.number(call, step.flops),
            bytes_moved=self.number(call, moved),
        )

    @staticmethod
    def _memory(call: FlowCall, kind: str, index: int) -> Any:
        """What a slot is given; rows have no memory of their own."""
        if kind == "row":
            return None
        memory = (call.storages if kind == "storage" else call.arenas).get(index)
        if memory is None:
            raise ArchiveError("memory is used before it is there", location="plan")
        return memory

    def _record(self, env: dict[str, int], run: Run) -> _Recorded:
        """The commands of a run for these sizes; kept, least recently used dropped."""
        key = (run.start, *(self._known(env, name) for name in run.symbols))
        with self._lock:
            found = self._recorded.get(key)
            if found is not None:
                self._recorded.move_to_end(key)
                return found
            found = self._recorded[key] = self._made(env, run)
            self._command_count += len(found.steps) + 1
            while self._command_count > COMMAND_LIMIT and len(self._recorded) > 1:
                _, dropped = self._recorded.popitem(last=False)
                self._command_count -= len(dropped.steps) + 1
            return found

    @staticmethod
    def _known(env: Mapping[str, int], name: str) -> int:
        if name not in env:
            raise ArchiveError(f"size '{name}' is used before it is read", location="plan")
        return env[name]

    def _made(self, env: dict[str, int], run: Run) -> _Recorded:
        recorder = Recorder()
        steps = StepRecorder(self.resources, env, recorder)
        memories: dict[tuple[str, int], int] = {}
        try:
            for storage in run.storages:
                self._give_slot(steps, storage, memories)
            steps.record(run.start, run.stop)
            commands = recorder.build()
        except (ValueError, OverflowError, struct.error, UserError) as error:
            if isinstance(error, ArchiveError | InputError):
                raise
            raise ArchiveError(f"plan cannot be bound: {error}", location="plan") from error
        return _Recorded(commands, tuple(memories), tuple(steps.command_steps))

    def _give_slot(
        self, steps: StepRecorder, storage: int, memories: dict[tuple[str, int], int]
    ) -> None:
        """Let a storage have the slot of its memory, a new one where it is the first there."""
        row, start, alignment = self.plan.storages[storage], 0, 1
        size = steps.number(row.size_bytes)
        memory = ("storage", storage)
        if row.kind == "row" and not self._is_stepwise:
            memories[("row", storage)] = slot = steps.recorder.row_slot(size)
            steps.places[storage] = (slot, 0)
            return
        if row.kind == "transient":
            group = self.layout.groups[storage]
            offsets, size = self._arranged(steps, group)
            memory, start = ("arena", group), offsets[storage]
        elif row.kind == "input":
            (dtype,) = {
                self.plan.entries[e].dtype
                for _, e in self.plan.inputs
                if self.plan.entries[e].storage == storage
            }
            alignment = wire_type(dtype).alignment
        if memory not in memories:
            writable = row.kind in ("transient", "output", "block")
            memories[memory] = steps.recorder.slot(size, writable, alignment)
        steps.places[storage] = (memories[memory], start)

    # --- memory

    def _arranged(self, steps: StepRecorder, group: int) -> tuple[dict[int, int], int]:
        """Offsets of the transients of a group in its arena, and the arena's size."""
        names = self.layout.group_symbols.get(group, ())
        key = (group, *(self._known(steps.env, name) for name in names))
        with self._lock:
            found = self._offsets.get(key)
            if found is None:
                rows = self._transients.get(group, [])
                storages = [self.plan.storages[index] for index in rows]
                packing = pack(
                    [Block(steps.number(s.size_bytes), s.first, s.last) for s in storages]
                )
                offsets = dict(zip(rows, packing.offsets, strict=True))
                found = self._offsets[key] = (offsets, packing.size_bytes)
                if len(self._offsets) > RECORDED_LIMIT:
                    self._offsets.popitem(last=False)
            return found

    def _place(self, call: FlowCall, group: int) -> None:
        """Give what is sized now its memory."""
        steps = StepRecorder(self.resources, call.env, Recorder())
        _, size = self._arranged(steps, group)
        call.arenas[group] = self._heap.lease(size, native.MemoryUse.ARENA)
        for storage, place in self._outputs.items():
            if self.layout.groups[storage] == group:
                self._place_output(call, steps, storage, place)
        call.version += 1

    def _place_output(
        self, call: FlowCall, steps: StepRecorder, storage: int, place: int
    ) -> None:
        name, entry = self.plan.outputs[place]
        type_ = steps.type_of(self.plan.entries[entry])
        if call.types.setdefault(place, type_) != type_:
            raise ArchiveError("an output has two sizes", location="plan")
        result = result_for(self._heap, type_, call.outputs[place], name)
        call.outputs[place] = result
        call.storages[storage] = as_bits(result, type_[0])

    # --- decisions

    def _bytes_of(self, call: FlowCall, index: int, step: Step) -> memoryview:
        """The bytes of what a step reads, as they are now."""
        found = call.views.get(index)
        if found is None or found[0] != call.version:
            view = self.bytes_of(call, step.arguments[0])
            found = call.views[index] = (call.version, view)
        return found[1]

    def bytes_of(self, call: FlowCall, index: int) -> memoryview:
        """The bytes of an entry, as they are now.  Raises: ArchiveError where it has no memory now."""
        entry = self.plan.entries[index]
        steps = StepRecorder(self.resources, call.env, Recorder())
        start, size = steps.number(entry.offset_bytes), steps.number(entry.size_bytes)
        if self.plan.storages[entry.storage].kind == "transient":
            group = self.layout.groups[entry.storage]
            offsets, _ = self._arranged(steps, group)
            start += offsets[entry.storage]
            memory = self._memory(call, "arena", group)
        else:
            memory = self._memory(call, "storage", entry.storage)
        if isinstance(memory, np.ndarray):
            flat = cast("Array", memory).reshape(-1).view(np.uint8).data
        else:
            flat = memoryview(memory).cast("B")
        if start < 0 or size < 0 or len(flat) < start + size:
            raise ArchiveError("an entry is larger than its memory", location="plan")
        return flat[start : start + size]

    def _pick_row(self, call: FlowCall, step: Step) -> None:
        """Stepwise a row is memory as any other: the part of its table where it lies."""
        (place,) = self.bytes_of(call, step.arguments[0]).cast("q").tolist()
        table = self.bytes_of(call, step.arguments[1])
        row = self.plan.entries[step.arguments[2]]
        size = self.number(call, row.size_bytes)
        count = len(table) // max(size, 1)
        place = min(max(place + count if place < 0 else place, 0), count - 1)
        call.storages[row.storage] = table[place * size : (place + 1) * size]
        call.version += 1

    def _read_sizes(self, call: FlowCall, index: int, step: Step) -> None:
        numbers = self._bytes_of(call, index, step).cast("q").tolist()
        if call.settled.get(index) == (call.sizes, numbers):
            return  # as in the trip before, and so is every other size
        self._check_bounds(step, numbers)
        names = [size.name for size in step.sizes]
        if self._bind(call, names, numbers):
            call.version += 1
        self._complete(call, names)
        call.settled[index] = (call.sizes, numbers)

    @staticmethod
    def _bind(call: FlowCall, names: Sequence[str], numbers: Sequence[int]) -> bool:
        """Let sizes have these values; whether one has another than before."""
        is_new = any(call.env.get(n) != m for n, m in zip(names, numbers, strict=True))
        if is_new:
            call.env.update(zip(names, numbers, strict=True))
            call.sizes += 1
        return is_new

    def _rebind(self, call: FlowCall, step: Step) -> None:
        """New sizes, and memory that changes hands; blocks that lose theirs have none until they are given some."""
        numbers = [self.number(call, dim) for dim in step.dims]
        self._check_bounds(step, numbers)
        storages = [self.plan.entries[entry].storage for entry in step.arguments]
        count = len(storages) - step.result_count
        memories = [self._memory(call, "storage", source) for source in storages[:count]]
        for source in storages[:count]:
            call.storages.pop(source, None)
        call.storages.update(zip(storages[count:], memories, strict=True))
        names = [size.name for size in step.sizes]
        self._bind(call, names, numbers)
        call.version += 1
        self._complete(call, names, storages[count:])

    def _allocate(self, call: FlowCall, step: Step) -> None:
        storage = self.plan.entries[step.arguments[0]].storage
        size = self.number(call, self.plan.storages[storage].size_bytes)
        if size < 0:
            raise ArchiveError(f"memory of {size} bytes", location="plan")
        call.storages[storage] = self._heap.lease(size, native.MemoryUse.TRANSIENT)
        call.version += 1

    def number(self, call: FlowCall, size: Dim) -> int:
        """The value of a size now.  Raises: ArchiveError where it has none."""
        if isinstance(size, int):
            return size
        try:
            return evaluate(size, call.env)
        except UserError:
            for name in names_in((size,)):
                self._known(call.env, name)
            raise

    @staticmethod
    def _check_bounds(step: Step, numbers: Sequence[int]) -> None:
        for size, number in zip(step.sizes, numbers, strict=True):
            problem = size_error(number, size.minimum, size.maximum, step.target or None)
            if problem is not None:
                raise problem

    def _complete(
        self, call: FlowCall, names: Sequence[str], moved: Iterable[int] = ()
    ) -> None:
        """Look at, and place, what depends on sizes that have just been bound, and on none that is bound later.

        Of blocks those are looked at whose size may be another, and those whose memory is: `moved`.
        """
        steps = StepRecorder(self.resources, call.env, Recorder())
        for group in self.layout.groups_of(names):
            self._check(steps, group)
            symbols = self.layout.group_symbols.get(group, ())
            if not all(name in call.env for name in symbols):
                continue
            key = tuple(call.env[name] for name in symbols)
            if call.placed.get(group) != key:
                call.placed[group] = key
                self._place(call, group)
        blocks = set(moved).union(*(self.layout.blocks_of.get(n, ()) for n in names))
        for storage in blocks & call.storages.keys():
            self._check_block(call, storage)

    def _check_block(self, call: FlowCall, storage: int) -> None:
        """A block, whose size may have been bound again, is no larger than its memory."""
        size = self.number(call, self.plan.storages[storage].size_bytes)
        if size > memoryview(call.storages[storage]).nbytes:
            raise ArchiveError("a block is larger than its memory", location="plan")

    def _check(self, steps: StepRecorder, group: int) -> None:
        checks = self._checks.get(group)
        if checks is not None:
            checks(steps)
