"""Attention of few rows of queries: keys and values stream by once, in vectors as they lie.

    for head:                                                  workgroups
        for block of keys:
            for key: for row: scores[row, key] = key query     lanes along the key
            top, powers of the scores, total                   lanes along the keys
            for tile of size: sums[row, size] += scores v      lanes along the value, registers

A row, or the few that share keys, fill no lanes; reading is what takes time, and each element is read once.
"""

from __future__ import annotations

import math
from typing import ClassVar, Final, final

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.outcome import Outcome
from tilewright.base.record import record
from tilewright.compiler.analysis.sizes import estimate
from tilewright.compiler.analysis.strides import depends, stride
from tilewright.compiler.kernel.ir import For, Load
from tilewright.compiler.kernel.rewrite import loads
from tilewright.compiler.schedule import primitives as do
from tilewright.compiler.schedule.decisions import ChoiceSpace, Decision, plain, space_from
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules.micro_kernel import MicroKernel
from tilewright.compiler.schedule.rules.online_blocks import (
    BlockWalk,
    from_memory,
    privatize_all,
    split_off_last_block,
    unguard,
)
from tilewright.compiler.schedule.rules.rows import schedule_pass
from tilewright.compiler.schedule.rules.structure import parallel_chain, sums_of_products
from tilewright.compiler.schedule.rules.workgroups import Grid, cut, fuse_all
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import find

_WRITTEN_OUT: Final = 16
_GROUPS_PER_THREAD: Final = 2


def few_rows(lanes: int) -> int:
    """Rows up to which lanes along keys and values do more than lanes along rows."""
    return max(1, lanes // 2)


@final
@record(kw_only=True)
class KeyStreams(Decision):
    """What is chosen for few rows of an online softmax.

    Attributes:
        together: rows that read the same keys are one workgroup, which reads them once.
        vectors: vectors of sums side by side, over all rows of a tile.
    """

    rule: ClassVar[str] = "key_streams"
    together: bool = True
    vectors: int = 8


def match_key_streams(
    s: Schedule, nest: str, machine: MachineModel, threads: int
) -> StreamSite | None:
    """Few rows, or one, with several sums of products one after the other."""
    chain = parallel_chain(find(s.kernel, nest))
    sums = sums_of_products(chain[-1]) if chain else []
    if len(sums) < 2:
        return None
    lanes = machine.lanes(sums[0].buffer.dtype)
    read = from_memory(s, sums[0])
    if len(read) != 1:
        return None
    outer, rows, count = [*chain], list[For](), 1
    while outer and not depends(read[0], outer[-1].var.name):
        extent = outer[-1].extent
        if not isinstance(extent, int) or count * extent > few_rows(lanes):
            break
        count *= extent
        rows.insert(0, outer.pop())
    if outer and not rows and not depends(read[0], outer[-1].var.name):
        return None  # too many for one tile
    heads = math.prod(estimate(x.extent) for x in outer)
    return StreamSite(
        s,
        machine,
        tuple(x.var.name for x in outer),
        tuple(x.var.name for x in rows),
        count,
        heads >= _GROUPS_PER_THREAD * threads or threads == 1,
    )


@final
@record
class StreamSite:
    """Loops over heads, those over rows that share keys, how many rows, and whether there are heads for all threads."""

    s: Schedule
    machine: MachineModel
    outer: tuple[str, ...]
    rows: tuple[str, ...]
    count: int
    many_heads: bool

    def space(self) -> ChoiceSpace[KeyStreams]:
        """Rows per workgroup, vectors per tile."""
        is_one = self.count == 1
        return space_from(
            KeyStreams(),
            plain(
                "together", (True,) if is_one else (True, False), self.many_heads or is_one
            ),
            plain("vectors", (2, 4, 8, 16), side_by_side(self.machine)),
        )

    def apply(self, chosen: KeyStreams, grid: Grid) -> Outcome:
        """Rewrite the nest as was decided."""
        s, outer = self.s, [*self.outer]
        row = fuse_all(s, self.rows) if self.rows else outer.pop()
        if not chosen.together or not self.rows:
            each, row = cut(s, row, 1, f"{row}_t", "row")
            outer.append(each)
        split_off_last_block(s, row)
        grid.commit(outer)
        stream_rows(s, self.machine, row, chosen.vectors)
        s.note(f"attention: {self.count} rows share a stream of keys")
        return Outcome.TILED


def side_by_side(machine: MachineModel) -> int:
    """Vectors of sums that hide the latency of each other and leave registers for what is read."""
    return machine.vector_registers // 2


def stream_rows(
    s: Schedule, machine: MachineModel, row: str, vectors: int | None = None
) -> None:
    """Schedule the code of a loop over few rows; what is around it stays."""
    vectors = side_by_side(machine) if vectors is None else vectors
    _StreamedRows(s, machine, vectors).run([row])


@final
class _StreamedRows(BlockWalk):
    """The code of few rows, lanes along what is read."""

    together: ClassVar[str] = "elements"

    def __init__(self, s: Schedule, machine: MachineModel, vectors: int) -> None:
        super().__init__(s, machine)
        self.vectors: int = vectors

    def stage(self, around: str) -> None:
        """Leave all where it lies: each element is read once."""

    def inside(self, row: str) -> None:
        """Give every part of a row's code rows of its own."""
        for part in self.s.apply(do.fission, row, 1, "workgroup", self.together):
            self.part(part[row])

    def part(self, row: str) -> None:
        """Schedule the one statement of the loop `row`."""
        s = self.s
        inner = find(s.kernel, row).body
        if len(inner) != 1 or not isinstance(inner[0], For):
            return  # a number per row
        name = inner[0].var.name
        if not sums_of_products(inner[0]):
            schedule_pass(s, name, self.machine, _WRITTEN_OUT)
        elif any(stride(x, name) == 1 for x in self._read(name)):
            self._contract(row, name)
        else:
            self._dot(row, name)

    def _read(self, name: str) -> list[Load]:
        """Elements of memory in the sum of products inside of a loop."""
        (store,) = sums_of_products(find(self.s.kernel, name))
        return from_memory(self.s, store)

    def _dot(self, row: str, name: str) -> None:
        """A sum along what lies in memory; what is read serves all rows."""
        s = self.s
        s.apply(do.reorder, [name, row])
        privatize_all(s, row)
        (along,) = [
            x.var.name
            for x in find(s.kernel, row).body
            if isinstance(x, For) and x.reduction
        ]
        schedule_pass(s, along, self.machine, _WRITTEN_OUT)
        if isinstance(find(s.kernel, row).extent, int):
            s.apply(do.unroll, row)

    def _contract(self, row: str, name: str) -> None:
        """Sums side by side for all rows, over keys one after the other."""
        s = self.s
        (store,) = sums_of_products(find(s.kernel, name))
        lanes = self.machine.lanes(store.buffer.dtype)
        factors = [x for x in loads(store.value) if x.buffer is not store.buffer]
        memory = from_memory(s, store)
        if len(factors) != 2 or len(memory) != 1:
            raise ScheduleError(
                f"'{store.buffer.name}' adds no product with one element read"
            )
        (right,) = memory
        (left,) = (x for x in factors if x is not right)
        micro = MicroKernel(left=left.buffer.name, right=right.buffer.name, lanes=lanes)
        rows = estimate(find(s.kernel, row).extent)
        for own, part, size in self._cut(row, name, max(1, self.vectors // rows), lanes):
            tile, lane = cut(s, part, size, f"{name}_t", "column")
            unguard(s, own)
            s.apply(do.reorder, [tile, own, lane])
            privatize_all(s, own)
            micro.schedule(s, own, 2)

    def _cut(
        self, row: str, name: str, vectors: int, lanes: int
    ) -> list[tuple[str, str, int]]:
        """Whole tiles and a rest, each in code of its own: rows, what is cut up, and columns of a tile."""
        s, width = self.s, vectors * lanes
        extent = find(s.kernel, name).extent
        if symbolic.is_multiple(extent, width):
            return [(row, name, width)]
        whole = symbolic.floordiv(extent, width) * width
        if whole == 0:
            return [(row, name, -(-estimate(extent) // lanes) * lanes)]
        _, last = s.apply(do.partition, name, whole)
        rest = find(s.kernel, last[name]).extent
        _, apart = s.apply(do.fission, row, 1, "workgroup", self.together)
        few = -(-rest // lanes) * lanes if isinstance(rest, int) else lanes
        return [(row, name, width), (apart[row], apart[last[name]], few)]
