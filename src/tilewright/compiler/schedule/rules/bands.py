"""Two sums in a row where the second reads, band by band, what the first made.

    for band:                                                  workgroups
        for row, column, channel: t[row, column, channel]      workgroup memory
        for position: for column: sum of t[position, channel] * right[channel, column]

A depthwise convolution and the product of matrices behind it: a band of the tensor between stays in the cache of the
core that made it.  Bands are equal, so the first loop has a whole number of them.  The two nests in a band are those
of other rules.  Called by `schedule` before any nest is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Final, final

from tilewright.base import symbolic
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel.ir import Buffer, For, Kernel, Load, Space, Store
from tilewright.compiler.kernel.rewrite import (
    buffers_read,
    buffers_written,
    dim_symbols,
    loads,
    stores,
)
from tilewright.compiler.schedule import primitives as do
from tilewright.compiler.schedule.decisions import ChoiceSpace, Decision, plain, space_from
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules.algorithms import band_rows
from tilewright.compiler.schedule.rules.structure import (
    parallel_chain,
    sums_of_products,
    top_nests,
)
from tilewright.compiler.schedule.rules.workgroups import Grid, cut
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import find

_MOST_LOOPS: Final = 2
"""Loops of the first nest that bands go over: images, and their rows."""


@final
@record(kw_only=True)
class Bands(Decision):
    """What is chosen for two sums in a row.

    Attributes:
        rows: of the first nest in one workgroup.
    """

    rule: ClassVar[str] = "bands"
    rows: int = 1


def match_bands(s: Schedule, machine: MachineModel) -> BandsSite | None:
    """Two nests of sums, of which the second reads rows of the first's results as they lie."""
    pair = _pair(s.kernel)
    if pair is None:
        return None
    first, second, between = pair
    for _ in range(_MOST_LOOPS):
        rows = find(s.kernel, first)
        positions = _positions(rows, find(s.kernel, second), between)
        if positions and isinstance(rows.extent, int):
            row_bytes = positions * _size_bytes(between.shape[1:], between)
            count = band_rows(machine, rows.extent, row_bytes)
            if count:
                return BandsSite(s, first, second, between.name, positions, count)
        first = _with_next_loop(s, first)
        if not first:
            return None
    return None


@final
@record
class BandsSite:
    """Two nests that bands go over.

    Attributes:
        first, second: the outermost loops of the nests.
        between: the temporary that one writes and the other reads.
        positions: iterations of `second` for each of `first`.
        rows: of a band, by the cost model.
    """

    s: Schedule
    first: str
    second: str
    between: str
    positions: int
    rows: int

    def space(self) -> ChoiceSpace[Bands]:
        """One point: what may be chosen for the nests in a band follows from its rows."""
        return space_from(Bands(), plain("rows", (self.rows,), self.rows))

    def apply(self, chosen: Bands, grid: Grid) -> list[str]:
        """Make every band a workgroup with both nests in it.

        Returns: the outermost loops of both there, then the nests beside them.

        Raises: ScheduleError where it is not proven that a band needs nothing of another.
        """
        s, rows = self.s, chosen.rows
        nests = [nest.var.name for nest in top_nests(s.kernel)]
        beside = [name for name in nests if name not in (self.first, self.second)]
        band, mine = cut(s, self.first, rows, "band", "band_row")
        positions = rows * self.positions
        other, position = cut(s, self.second, positions, "other_band", "position")
        s.apply(do.fuse_nests, band, other)
        s.apply(do.privatize, self.between, band, "workgroup")
        grid.commit([band])
        s.note(f"bands: {rows} rows of '{self.between}' stay near until they are read")
        return [mine, position, *beside]


def _pair(kernel: Kernel) -> tuple[str, str, Buffer] | None:
    """The two nests of sums of a kernel and the temporary through which the first serves the second."""
    nests = [nest for nest in top_nests(kernel) if sums_of_products(nest)]
    if len(nests) != 2:
        return None
    first, second = nests
    read = buffers_read((second,))
    made = [b for b in buffers_written((first,)) if b.space is Space.DEVICE and b in read]
    if len(made) != 1 or made[0] not in kernel.locals:
        return None
    return first.var.name, second.var.name, made[0]


def _positions(rows: For, reader: For, between: Buffer) -> int:
    """How many steps of `reader` go over what a step of `rows` writes, in the same order; 0 where it is not so."""
    written = {_step(s, rows) for s in stores((rows,)) if s.buffer is between}
    read = {_step(x, reader) for x in loads((reader,)) if x.buffer is between}
    if len(written) != 1 or read != {1}:
        return 0
    (step,) = written
    return step if rows.extent * step == reader.extent else 0


def _step(access: Load | Store, loop: For) -> int:
    """How far the first index moves with a loop; 0 where others move, too, or it does not move evenly."""
    first, *others = access.indices
    found = symbolic.linear(first, loop.var.name)
    moves = {symbol.name for index in others for symbol in dim_symbols(index)}
    if found is None or not isinstance(found[0], int) or loop.var.name in moves:
        return 0
    return found[0]


def _size_bytes(shape: Sequence[Dim], buffer: Buffer) -> int:
    """Of a part of a buffer; 0 where it is not known."""
    return math.prod(n if isinstance(n, int) else 0 for n in shape) * buffer.dtype.itemsize


def _with_next_loop(s: Schedule, name: str) -> str:
    """One loop of `name` and the one in it; "" where they are not alone in each other."""
    nest = parallel_chain(find(s.kernel, name))
    into = s.fresh("row")
    if len(nest) < 2 or not s.attempt(do.fuse, name, nest[1].var.name, into):
        return ""
    return into
