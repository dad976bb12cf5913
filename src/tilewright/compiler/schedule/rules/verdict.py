"""What scheduling came to: how much of a kernel runs in lanes, and what the rest costs.

Looks at the loops that a rule left, not at what the rule meant to do.  Sizes that are not known
count as `sizes.GUESS`; costs rank kernels, they do not predict times to better than a factor
of two.  Called by `schedule`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import final

from tilewright.base.outcome import Outcome, Verdict
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.analysis.footprints import footprints
from tilewright.compiler.analysis.sizes import estimate, likely_sizes, with_numbers
from tilewright.compiler.analysis.strides import depends
from tilewright.compiler.kernel.fields import payloads
from tilewright.compiler.kernel.ir import For, If, Kernel, LoopKind, Space, Statement, Store
from tilewright.compiler.kernel.rewrite import buffers_written, dim_symbols, loads, stores
from tilewright.compiler.schedule.cost import Demand, cost
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.tree import enclosing_loops, nested


@final
@record
class Work:
    """Cycles of all elements of some code, one at a time.

    Attributes:
        single: of stores outside of lanes.
        lanes: of stores in lanes, as if they were single.
        waits: what stores outside of lanes wait for the one before them, beyond `single`.
    """

    single: float = 0.0
    lanes: float = 0.0
    waits: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.single + other.single, self.lanes + other.lanes, self.waits + other.waits
        )


@final
@record
class _Place:
    """Where a statement stands: the loops around it, and two of their iterations as values.

    A loop counts as long as the longer one of the first and the last iteration around it: so a tile
    counts as whole though the last one may not be, and a triangle as its square.

    `room` bounds loops whose lengths stand in memory: all of them together write each element of
    their largest result once, so nests of them do not multiply one guess by the next.
    """

    machine: MachineModel
    around: tuple[For, ...]
    times: float
    first: Mapping[str, Dim]
    last: Mapping[str, Dim]
    room: float | None = None

    def inside(self, loop: For) -> _Place:
        """The place of what `loop` holds."""
        first, last = (_count(loop.extent, end) for end in (self.first, self.last))
        longest: float = max(first, last)
        room = self.room
        if any(payloads(loop.extent)):
            if room is None:
                room = max(map(self._elements, stores(loop.body)), default=1.0)
            longest = min(longest, room)
            room /= max(longest, 1.0)
        return _Place(
            self.machine,
            (*self.around, loop),
            self.times * longest,
            {**self.first, loop.var.name: 0},
            {**self.last, loop.var.name: max(0, int(longest) - 1)},
            room,
        )

    def _elements(self, store: Store) -> float:
        """How many elements a store may reach while the loops around it stand still."""
        names = {loop.var.name for loop in self.around}
        pairs = zip(store.buffer.shape, store.indices, strict=True)
        free = [d for d, at in pairs if names.isdisjoint(s.name for s in dim_symbols(at))]
        return math.prod(float(_count(extent, self.last)) for extent in free)


def _count(dim: Dim, values: Mapping[str, Dim]) -> int:
    return max(0, estimate(with_numbers(dim, values)))


def work_of(
    kernel: Kernel,
    body: Sequence[Statement],
    machine: MachineModel,
    around: Sequence[For] = (),
) -> Work:
    """The work of all runs of `body`, a part of `kernel` in the loops `around`."""
    sizes = _sizes(kernel)
    place = _Place(machine, (), 1.0, sizes, sizes)
    for loop in around:
        place = place.inside(loop)
    return _work(body, place)


def _sizes(kernel: Kernel) -> Mapping[str, Dim]:
    """One guess per size, wherever it stands."""
    shapes = (dim for p in kernel.parameters for dim in p.buffer.shape)
    return likely_sizes(kernel.dims, shapes)


def _work(body: Sequence[Statement], place: _Place) -> Work:
    total = Work()
    for statement in body:
        match statement:
            case For():
                total += _work(statement.body, place.inside(statement))
            case If():
                total += _guard_work(statement, place)
            case Store():
                total += _store_work(statement, place)
            case _:
                pass
    return total


def _guard_work(guard: If, place: _Place) -> Work:
    """The test, every time, and the body as often as it is likely to run."""
    likely = replace(place, times=place.times * _likelihood(guard, place))
    body = _work(guard.body, likely)
    if not loads(guard.condition):
        return body  # a border: schedules take it out of the loops
    asked = Demand(operations=cost(guard.condition))
    cycles = place.times * asked.cycles(place.machine)
    if any(loop.kind is LoopKind.VECTOR for loop in place.around):
        return body + Work(lanes=cycles)
    share = likely.times / place.times if place.times else 0.0
    waits = place.times * min(share, 1 - share) * place.machine.core.miss
    return body + Work(single=cycles, waits=waits)


def _likelihood(guard: If, place: _Place) -> float:
    """How often of all times a guard is likely to hold.

    Where the code behind it changes what it reads, it keeps a record (the best so far, the room
    that is left): in n elements without order, about log n of them are one.  Any other question to
    data is taken to be answered one way as often as the other.
    """
    read = {load.buffer for load in loads(guard.condition)}
    if not read:
        return 1.0
    if place.around and not read.isdisjoint(buffers_written(guard.body)):
        loop = place.around[-1]
        longest = max(_count(loop.extent, end) for end in (place.first, place.last))
        return min(1.0, (1 + math.log2(max(1, longest))) / max(1, longest))
    return 0.5


def _store_work(store: Store, place: _Place) -> Work:
    around, machine = place.around, place.machine
    asked = Demand(operations=1 + cost(store.value), stores=1)
    cycles = place.times * asked.cycles(machine)
    if any(loop.kind is LoopKind.VECTOR for loop in around):
        return Work(lanes=cycles)
    if store.value.lanes > 1:  # a tile of an instruction
        return Work(lanes=cycles * store.value.lanes)
    waits = around != () and _follows_itself(store, around[-1].var.name)
    return Work(
        single=cycles, waits=place.times * (machine.core.latency - 1) if waits else 0.0
    )


def _follows_itself(store: Store, loop: str) -> bool:
    """Whether an iteration of `loop` reads what the one before it wrote: a sum, a recurrence."""
    own = [load for load in loads(store.value) if load.buffer is store.buffer]
    return any(x.indices != store.indices or not depends(store, loop) for x in own)


@final
@record
class NestVerdict:
    """One nest: what was to be done in it, and the part of it that came to run in lanes.

    Attributes:
        outcome: the word of the rule that took it.
        work: before the rule, all of it outside of lanes.
        share: of `work.single` that runs in lanes now, 0 to 1.
        lanes: elements of its widest type in a vector.
        size_bytes: of the cache lines in memory that it reads and writes, once each.
    """

    machine: MachineModel
    outcome: Outcome
    work: Work
    share: float
    lanes: int
    size_bytes: float

    @property
    def expected_ns(self) -> float:
        """What the nest takes on one core."""
        alone = (1 - self.share) * (self.work.single + self.work.waits)
        cycles = alone + self.share * self.work.single / self.lanes
        return max(cycles * self.machine.cycle_ns, self._memory_ns)

    @property
    def lanes_ns(self) -> float:
        """What it would take if all of it ran in lanes."""
        return max(self.work.single / self.lanes * self.machine.cycle_ns, self._memory_ns)

    @property
    def _memory_ns(self) -> float:
        return self.size_bytes * self.machine.ns_per_byte


def nest_verdict(
    nest: For, outcome: Outcome, before: Kernel, after: Kernel, machine: MachineModel
) -> NestVerdict:
    """What became of `nest` of `before` when a rule made `after`; `generic` if mostly not lanes."""
    around = enclosing_loops(before, nest)
    work = work_of(before, (nest,), machine, around)
    gained = _lanes_of(after, machine) - _lanes_of(before, machine)
    share = min(1.0, max(0.0, gained / work.single)) if work.single else 0.0
    touched = footprints(nested(around, (nest,)))
    return NestVerdict(
        machine=machine,
        outcome=outcome if share > 0.5 else Outcome.GENERIC,
        work=work,
        share=share,
        lanes=min((machine.lanes(buffer.dtype) for buffer in touched), default=1),
        size_bytes=sum(
            found.lines(machine.line_bytes) * machine.line_bytes
            for buffer, found in touched.items()
            if buffer.space is Space.DEVICE
        ),
    )


@functools.lru_cache(maxsize=4)
def _lanes_of(kernel: Kernel, machine: MachineModel) -> float:
    """The work of a kernel that is done in lanes; what one rule left is where the next one starts."""
    return work_of(kernel, kernel.body, machine).lanes


def unscheduled(
    elements: int, lanes: int, size_bytes: int, machine: MachineModel
) -> NestVerdict:
    """Code that no rule will see: one operation per element, each behind the one before it."""
    work = Work(single=elements, waits=elements * (machine.core.latency - 1))
    return NestVerdict(machine, Outcome.GENERIC, work, 0.0, lanes, size_bytes)


def kernel_verdict(nests: Sequence[NestVerdict]) -> Verdict:
    """The outcome of the nest that takes longest, and the cost of all."""
    if not nests:
        return Verdict(Outcome.GENERIC)
    return Verdict(
        max(nests, key=lambda nest: nest.expected_ns).outcome,
        sum(nest.expected_ns for nest in nests),
        sum(nest.lanes_ns for nest in nests),
    )
