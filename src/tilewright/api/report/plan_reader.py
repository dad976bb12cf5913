"""What a plan says about a call with certain sizes: tensors, where they flow, where they lie.

Not the times.  Called by `report_data`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import final

from tilewright.api.profiling import KernelRow
from tilewright.api.profiling.kernels import bytes_of
from tilewright.base.arena import Block, pack, peak_bytes
from tilewright.base.symbolic import Dim, evaluate
from tilewright.formats.plan import Plan, Step, operands_of, results_of


@final
@dataclass(frozen=True, slots=True)
class Tensor:
    """An operand or result in a call: `f32[1, 64, 56, 56]`, with its bytes."""

    text: str
    size_bytes: int


@final
@dataclass(frozen=True, slots=True)
class Edge:
    """A tensor from where it is made to where it is read.

    `source` and `target` are places of commands; inputs are sources -1, -2, … and outputs targets
    -1, -2, …, in their order.
    """

    source: int
    target: int
    tensor: Tensor


@final
@dataclass(frozen=True, slots=True)
class Lifetime:
    """A storage in the arena: bytes from `offset`, from command `first` through `last`.

    `tensor` is the first one that lies there.
    """

    name: str
    tensor: str
    size_bytes: int
    offset: int
    first: int
    last: int


@final
@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a call.  Units: bytes.

    `peak_bytes` is the most that is alive at once, which no arena can be smaller than.
    """

    lifetimes: tuple[Lifetime, ...]
    arena_bytes: int
    peak_bytes: int
    weights_bytes: int


Tensors = tuple[Tensor, ...]
_Range = tuple[int, int, int]  # storage, begin, end


def places_of(plan: Plan, taken: Sequence[Step]) -> Mapping[int, int] | None:
    """For each step of the plan that ran, which command that was; None if others ran."""
    place_of = {id(step): place for place, step in enumerate(taken)}
    steps = enumerate(plan.steps)
    ran = {index: place_of[id(s)] for index, s in steps if id(s) in place_of}
    return ran if len(ran) == len(taken) else None


@final
class PlanReader:
    """A plan (None if nobody knows it) with the sizes of a call."""

    def __init__(self, plan: Plan | None, dims: Mapping[str, int]) -> None:
        self._plan: Plan | None = plan
        self._dims: Mapping[str, int] = dims

    def row(self, step: Step, time_ns: int) -> KernelRow:
        """A step alone as a row of the table of kernels."""
        size_bytes = bytes_of(self._plan, step, self._dims)
        flops = self._number(step.flops)
        name = step.target or step.kind
        return KernelRow(name, 1, flops, size_bytes, time_ns, step.outcome, step.nodes)

    def grid(self, step: Step) -> tuple[int, ...]:
        """The workgroups of a step."""
        return tuple(map(self._number, step.grid))

    def tensors(self, step: Step) -> tuple[Tensors, Tensors, Tensors]:
        """Operands of the call, constants, and results."""
        if self._plan is None:
            return (), (), ()
        plan = self._plan
        taken: tuple[list[Tensor], list[Tensor]] = ([], [])
        for entry in operands_of(step):
            kind = plan.storages[plan.entries[entry].storage].kind
            taken[kind == "constant"].append(self._tensor(plan, entry))
        results = tuple(self._tensor(plan, entry) for entry in results_of(step))
        return tuple(taken[0]), tuple(taken[1]), results

    def edges(self, places: Mapping[int, int]) -> tuple[Edge, ...]:
        """Who reads what of whom, once per pair."""
        assert self._plan is not None
        plan = self._plan
        written: dict[int, list[tuple[int, int, int]]] = {}  # storage: (begin, end, by)
        found: dict[tuple[int, int], Tensor] = {}

        def read(entry: int, by: int) -> None:
            storage, begin, end = self._range(plan, entry)
            for other_begin, other_end, source in written.get(storage, ()):
                if other_begin < end and begin < other_end and source != by:
                    found.setdefault((source, by), self._tensor(plan, entry))

        def write(entry: int, by: int) -> None:
            storage, begin, end = self._range(plan, entry)
            kept = [w for w in written.get(storage, ()) if w[0] < begin or w[1] > end]
            written[storage] = [*kept, (begin, end, by)]

        for number, (_, entry) in enumerate(plan.inputs):
            write(entry, -1 - number)
        for index, step in enumerate(plan.steps):
            place = places.get(index)
            if place is None:  # nothing to do with these sizes
                continue
            for entry in operands_of(step):
                read(entry, place)
            for entry in results_of(step):
                write(entry, place)
        edges = [Edge(source, target, t) for (source, target), t in found.items()]
        found.clear()
        for number, (_, entry) in enumerate(plan.outputs):
            read(entry, -1 - number)
        edges += [Edge(source, target, t) for (source, target), t in found.items()]
        return tuple(edges)

    def memory(self, places: Mapping[int, int]) -> Memory:
        """Where the storages of a call lie, and when."""
        assert self._plan is not None
        plan = self._plan
        transients = [(i, s) for i, s in enumerate(plan.storages) if s.kind == "transient"]
        blocks = [Block(self._number(s.size_bytes), s.first, s.last) for _, s in transients]
        offsets: Sequence[int] = [s.offset_bytes for _, s in transients]
        arena_bytes = plan.arena_bytes
        if arena_bytes < 0:  # as the executor does once it knows the sizes
            packing = pack(blocks)
            offsets, arena_bytes = packing.offsets, packing.size_bytes
        content: dict[int, int] = {}
        for number, entry in enumerate(plan.entries):
            content.setdefault(entry.storage, number)
        before = list(accumulate((i in places for i in range(len(plan.steps))), initial=0))
        lifetimes = [
            Lifetime(
                storage.name,
                self._tensor(plan, content[index]).text if index in content else "unused",
                block.size_bytes,
                offset,
                before[block.first],
                max(before[min(block.last + 1, len(plan.steps))] - 1, before[block.first]),
            )
            for (index, storage), block, offset in zip(
                transients, blocks, offsets, strict=True
            )
            if block.size_bytes
        ]
        weights = (
            self._number(s.size_bytes) for s in plan.storages if s.kind == "constant"
        )
        return Memory(tuple(lifetimes), arena_bytes, peak_bytes(blocks), sum(weights))

    def _number(self, dim: Dim) -> int:
        return evaluate(dim, self._dims)

    def _tensor(self, plan: Plan, entry: int) -> Tensor:
        tensor = plan.entries[entry]
        shape = ", ".join(str(self._number(dim)) for dim in tensor.shape)
        return Tensor(f"{tensor.dtype}[{shape}]", self._number(tensor.size_bytes))

    def _range(self, plan: Plan, entry: int) -> _Range:
        tensor = plan.entries[entry]
        begin = self._number(tensor.offset_bytes)
        return tensor.storage, begin, begin + self._number(tensor.size_bytes)
