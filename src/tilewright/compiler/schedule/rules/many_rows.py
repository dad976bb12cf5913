"""A product whose right operand is made on the way, for rows of which only a call knows how many there are.

    for panel:                                                 workgroups
        if rows >= 8:
            for step, column: t[step, column] = …              workgroup memory
            for row: for column: sum of left[row, step] * t[step, column]
        if rows < 8:
            for row: for column: sum of left[row, step] * …

Weights that lie as integers become numbers once for all rows where these are many, panel by panel; a single row, with
which a language model speaks, makes them in registers.  The nests in a workgroup are those of other rules.  Called by
`schedule` before any nest is.
"""

from __future__ import annotations

import math
from typing import ClassVar, Final, final

from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.schedule import primitives as do
from tilewright.compiler.schedule.cost import cost
from tilewright.compiler.schedule.decisions import ChoiceSpace, Decision, plain, space_from
from tilewright.compiler.schedule.handles import Piece
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.primitives.versions import common_factors
from tilewright.compiler.schedule.rules.prepare import INVARIANT_COST
from tilewright.compiler.schedule.rules.structure import (
    find_contraction,
    parallel_chain,
    top_nests,
)
from tilewright.compiler.schedule.rules.workgroups import Grid, cut, fuse_all
from tilewright.compiler.schedule.trace import Schedule

_ROWS: Final = (8, 16, 32)
"""Rows from which numbers may be made once; the first is what is worth it where a tile of rows makes them again."""
_MOST_VECTORS: Final = 2
"""Of columns in a workgroup: sums of a word's products stand beside the totals, more would leave room for too few rows."""


@final
@record(kw_only=True)
class ManyRows(Decision):
    """What is chosen for a product of what is made on the way, by rows of an open number.

    Attributes:
        columns: of a workgroup, and of the tiles in it.
        least: rows from which what is made is made once.
    """

    rule: ClassVar[str] = "many_rows"
    columns: int = 0
    least: int = _ROWS[0]


def match_many_rows(s: Schedule, machine: MachineModel) -> ManyRowsSite | None:
    """The only nest of sums, over rows of an open number, whose right operand is dear and lies in panels of whole vectors."""
    nests = {n.var.name: find_contraction(parallel_chain(n)) for n in top_nests(s.kernel)}
    sums = [found for found in nests.values() if found is not None]
    if len(sums) != 1 or sums[0].batches or len(sums[0].panels) != 1 or not sums[0].rows:
        return None
    (found,) = sums
    (panel,), lane = found.panels, found.lane
    count: Dim = math.prod(row.extent for row in found.rows)
    if (isinstance(count, int) and count < _ROWS[0]) or not isinstance(lane.extent, int):
        return None
    common = common_factors(found.rows[0], lane.var.name)
    if common is None or sum(map(cost, common.factors)) < INVARIANT_COST:
        return None
    lanes = machine.lanes(common.factors[0].dtype)
    if lane.extent % lanes:
        return None
    most = _MOST_VECTORS * lanes
    columns = most if lane.extent % most == 0 else lanes
    rows = tuple(row.var.name for row in found.rows)
    beside = tuple(name for name, other in nests.items() if other is None)
    return ManyRowsSite(
        s, panel.var.name, rows, lane.var.name, beside, count, lanes, columns
    )


@final
@record
class ManyRowsSite:
    """A nest of sums.

    Attributes:
        panel, rows, lane: the loops over panels, over rows, and over the columns of a panel.
        beside: the outermost loops of other nests.
        count: rows that a call has.
        lanes: columns of one vector.
        columns: of which a workgroup makes what it multiplies: whole vectors.
    """

    s: Schedule
    panel: str
    rows: tuple[str, ...]
    lane: str
    beside: tuple[str, ...]
    count: Dim
    lanes: int
    columns: int

    def space(self) -> ChoiceSpace[ManyRows]:
        """From how many rows on; what may be chosen for the nests in a workgroup follows from its columns."""
        return space_from(
            ManyRows(),
            plain("columns", (self.columns,), self.columns),
            plain("least", _ROWS[:1] if isinstance(self.count, int) else _ROWS, _ROWS[0]),
        )

    def apply(self, chosen: ManyRows, grid: Grid) -> list[str]:
        """Make some columns of a panel a workgroup that has code for many rows and for few.

        Returns: the outermost loops of what makes factors, of many rows and of few, then the nests beside them.

        Raises: ScheduleError where it is not proven that a workgroup needs nothing of another.
        """
        s, first = self.s, self.rows[0]
        part, lane = cut(s, self.lane, chosen.columns, "columns", "column")
        s.apply(do.reorder, [self.panel, part, *self.rows, lane])
        grid.commit([fuse_all(s, [self.panel, part])])
        few: list[str] = []
        if not isinstance(self.count, int):
            _, piece = s.apply(do.version, first, self.count, chosen.least)
            few.append(self._with_narrow_tiles(piece, lane))
        factors, maker = s.apply(do.precompute_factors, first, lane)
        which = f" where there are {chosen.least} or more" if few else ""
        s.note(f"many_rows: '{factors}' is made once for all rows{which}")
        return [maker, first, *few, *self.beside]

    def _with_narrow_tiles(self, few: Piece, lane: str) -> str:
        """Columns of one vector, where what is made stands beside sums in registers: the loop over these."""
        vectors, column = cut(self.s, few[lane], self.lanes, "vectors", "column")
        self.s.apply(do.reorder, [vectors, *(few[row] for row in self.rows), column])
        return vectors
