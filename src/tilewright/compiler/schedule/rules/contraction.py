"""Matrix products and convolutions: register tiles over packed panels.

    for block of panels, block of rows:                        workgroups
        for panel: for tile of rows:
            acc[rows, columns] = 0                             registers
            for k: acc += splat(left[row, k]) * right[k, columns]
            store(epilogue(acc))

A convolution is the same with several row loops and several reduction loops: the left operand is
read through its affine index, no matrix is built.  Partial tiles get their own code.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.outcome import Outcome
from tilewright.compiler.analysis.sizes import estimate, trip_count
from tilewright.compiler.analysis.strides import stride
from tilewright.compiler.kernel.ir import Call, Space
from tilewright.compiler.kernel.rewrite import loops, subexpressions
from tilewright.compiler.schedule import primitives as do
from tilewright.compiler.schedule.decisions import ChoiceSpace
from tilewright.compiler.schedule.handles import WHOLE, Piece
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.primitives.tails import guard_of
from tilewright.compiler.schedule.rules.micro_kernel import MicroKernel
from tilewright.compiler.schedule.rules.read_ahead import ReadAhead
from tilewright.compiler.schedule.rules.structure import (
    Contraction,
    find_contraction,
    groups_around,
    parallel_chain,
)
from tilewright.compiler.schedule.rules.tilings import ContractionShape, Tiling
from tilewright.compiler.schedule.rules.workgroups import (
    Grid,
    block,
    cut,
    ends_open,
    fuse_all,
    halved,
    parts_of,
)
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import enclosing_loops, find

_FEW_ROWS: Final = 4
"""Of a rest that each have a tile of their own; more would be long code."""


def match_contraction(
    s: Schedule, nest: str, machine: MachineModel, threads: int
) -> ContractionSite | None:
    """The contraction in `nest`, if there is one that can be tiled."""
    chain = parallel_chain(find(s.kernel, nest))
    found = find_contraction(chain)
    if found is None or not found.contiguous:
        return None
    lanes = machine.lanes(found.total.buffer.dtype)
    if groups_around(chain, found.lane, lanes) is not None:
        return None  # `columns` fills vectors with several groups
    return ContractionSite(s, found, machine, threads)


@final
class ContractionSite:
    """One contraction on its way to tiles."""

    def __init__(
        self, s: Schedule, found: Contraction, machine: MachineModel, threads: int
    ) -> None:
        self.s: Schedule = s
        self.found: Contraction = found
        self.machine: MachineModel = machine
        self.dtype = found.total.buffer.dtype
        self.lanes: int = machine.lanes(self.dtype)
        self.rows: list[str] = [loop.var.name for loop in found.rows]
        self.panels: list[str] = [loop.var.name for loop in found.panels]
        self.batches: list[str] = [loop.var.name for loop in found.batches]
        self.lane: str = found.lane.var.name
        self.inside_panel: str = self.lane
        self.panel: str = self.lane
        self.inside: list[str] = []
        self.rest: str = "" if found.rest is None else found.rest.buffer.name
        self.shape: ContractionShape = self._shape(max(1, threads))

    def space(self) -> ChoiceSpace[Tiling]:
        """Every tiling that `apply` can carry out."""
        return self.shape.space()

    def apply(self, tiling: Tiling, grid: Grid) -> Outcome:
        """Rewrite the nest as was decided."""
        self._explain(tiling)
        self._place_sums()
        if tiling.lanes:
            self.s.attempt(do.trim, self.lane)  # no vector of columns that nobody asks for
        self._split_columns(tiling.columns)
        if self.shape.is_one_row:
            row_tiles = self._split_panels(tiling.streams)
        else:
            row_tiles = self._split_rows(tiling.rows)
        grid.commit(self._arrange(tiling, row_tiles))
        parts = self._in_steps(tiling, row_tiles) or self._specialize(row_tiles)
        found, has_tiles = self.found, "long_bytes" in self.machine.word_products
        micro = MicroKernel(
            left=found.left.buffer.name,
            right=found.right.buffer.name,
            rest=self.rest,
            lanes=tiling.lanes or self.lanes,
            streams=tiling.streams,
            unroll=tiling.unroll,
            products=found.products,
            words=found.multiplies_words,
            interleaved=self._has_room_for_terms(tiling),
            instruction=found.tile_instruction if has_tiles else "",
            slow_masks=not self.machine.has_masks,
        )
        tiles = [*row_tiles, self.lane]
        for part in parts:
            micro.schedule(self.s, part[tiles[0]], len(tiles))
        ahead = ReadAhead(
            s=self.s,
            machine=self.machine,
            right=micro.right,
            panel=self.panel,
            sums=self.dtype,
            words_of_one_row=found.products > 1 and self.shape.is_one_row,
        )
        if tiling.prefetch:
            ahead.fetch_panels(tiling)
        if tiling.near:
            ahead.fetch_steps(tiling.columns)
        return Outcome.TILED

    def _place_sums(self) -> None:
        """What is added to sums of integers is what they begin with; sums that would be results under masks get registers."""
        s, total = self.s, self.found.total.buffer
        inner = enclosing_loops(s.kernel, self.found.reductions[0])[-1].var.name
        if s.attempt(do.begin_with, total.name, inner):
            s.note(f"'{total.name}' begins with what is added to it")
        if total.space is Space.DEVICE and not isinstance(self.shape.width, int):
            s.attempt(do.cache_write, total.name, inner)

    def _explain(self, tiling: Tiling) -> None:
        shape = self.shape
        extents = " x ".join(str(max(1, estimate(n))) for n in shape.rows) or "1"
        self.s.note(
            f"contraction: {math.prod(tiling.rows)} x {tiling.columns} accumulators for {extents} rows, "
            f"{shape.columns} columns, depth {shape.depth}"
        )
        if tiling.streams > 1:
            self.s.note(f"{tiling.streams} panels side by side, each a stream of loads")
        self.s.note(
            f"workgroups: {tiling.panels} of {shape.panel_count(tiling)} panels x {tiling.tiles} of "
            f"{shape.tile_count(tiling)} tiles"
        )

    def _has_room_for_terms(self, tiling: Tiling) -> bool:
        """Whether registers hold a tile's sums, the sums of one step and its words, all at the same time."""
        shape = self.shape
        vectors = -(-tiling.columns // (tiling.lanes or self.lanes))
        registers = shape.machine.vector_registers
        if not self.found.multiplies_words or shape.is_one_row:
            room = 3 * vectors + 2 <= registers
            return shape.products > 1 and shape.is_one_row and room
        # Else every word of a step waits in a register of its own, or on the stack, for the next row.
        return 2 * math.prod(tiling.rows) * vectors + vectors + 2 <= registers

    # --- tiles ---------------------------------------------------------------------------

    def _shape(self, threads: int) -> ContractionShape:
        found = self.found
        step = stride(found.left, self.rows[-1]) if self.rows else 0
        apart = 0 if step is None else step
        grain = self._grain()
        panels = tuple(loop.extent for loop in found.panels)
        width = found.lane.extent
        return ContractionShape(
            machine=self.machine.for_sums_of(self.dtype),
            dtype=self.dtype,
            rows=tuple(loop.extent for loop in found.rows),
            width=panels[0] * width if grain else width,
            panels=() if grain else panels,
            has_lines=self._has_lines(),
            batches=trip_count(found.batches),
            depth=found.depth,
            sums=tuple(loop.extent for loop in found.reductions),
            left=math.prod(max(1, estimate(n)) for n in found.left.buffer.shape),
            row_bytes=apart * self.dtype.itemsize if isinstance(apart, int) else None,
            fixed=None if grain else self._panel_width(),
            grain=grain,
            used=self._used(),
            products=found.products,
            words=self._words(),
            threads=threads,
        )

    def _has_lines(self) -> bool:
        """Whether windows go over the innermost of what only the right operand has; not over images side by side."""
        found = self.found
        if not found.panels:
            return False
        line, steps = found.panels[-1].var.name, {x.var.name for x in found.reductions}
        read = (symbolic.names_in((index,)) for index in found.right.indices)
        return any(line in names and not steps.isdisjoint(names) for names in read)

    def _words(self) -> int:
        """Of the right operand in one step of a column: several where a step is a whole block."""
        found = self.found
        if found.products == 1:
            return 1
        panels = math.prod(max(1, estimate(loop.extent)) for loop in found.panels)
        read = symbolic.names_in(found.right.indices)
        batches = trip_count(loop for loop in found.batches if loop.var.name in read)
        columns = panels * max(1, estimate(found.lane.extent)) * batches
        held = math.prod(max(1, estimate(n)) for n in found.right.buffer.shape)
        return max(1, held // max(1, columns * found.depth))

    def _used(self) -> int:
        """Columns that are asked for, where no instruction has a number of lanes of its own; else 0."""
        width = self.found.lane.extent
        if not isinstance(width, int) or any(
            isinstance(part, Call) for part in subexpressions(self.found.total.value)
        ):
            return 0
        guard = guard_of(self.found.lane)
        if guard is None or guard[1] != 0 or not isinstance(guard[2], int):
            return width
        return min(width, guard[2])

    def _panel_width(self) -> int | None:
        """The width the operand's layout fixes: that of its panels."""
        width = self.found.lane.extent
        if isinstance(width, int) and (width <= 4 * self.lanes or self._is_packed(width)):
            vectors = -(-width // self.lanes)
            return vectors * self.lanes
        return None

    def _grain(self) -> int:
        """Columns of a panel, where tiles may take several panels or parts of one; else 0."""
        found, width = self.found, self.found.lane.extent
        if all(loop.extent == 1 for loop in found.rows) or len(found.panels) != 1:
            return 0
        if not isinstance(width, int) or not self._is_packed(width) or width % self.lanes:
            return 0
        if self.rest:
            return 0  # what is read of a part of a panel would depend on whether the panel is whole
        return width

    def _is_packed(self, width: int) -> bool:
        """Whether the right operand is read panel by panel, each step of the sum one row of it."""
        step = stride(self.found.right, self.found.reductions[-1].var.name)
        return bool(self.panels) and step == width

    def _split_columns(self, columns: int) -> None:
        """From here `self.lane` runs over the columns of one tile."""
        if self.shape.grain not in (0, columns):
            self._join_panels()
        width = find(self.s.kernel, self.lane).extent
        if isinstance(width, int) and width <= columns:
            # One name for all micro-kernels: a split by the whole width renames the loop.
            columns = max(1, width)
        else:
            self.batches += self.panels
            self.panels = []
        panel, self.lane = cut(self.s, self.lane, columns, "panel", "tile_lane")
        self.panels.append(panel)

    def _join_panels(self) -> None:
        """One loop over the columns of all panels, for tiles of several panels or of a part of one."""
        s, (panel,) = self.s, self.panels
        s.apply(do.reorder, [*self.batches, *self.rows, panel, self.lane])
        into = s.fresh("column")
        s.apply(do.fuse, panel, self.lane, into)
        s.attempt(do.trim, into)  # the last panel may have columns that nobody asks for
        self.panels, self.lane = [], into

    def _split_rows(self, sizes: Sequence[int]) -> list[str]:
        """Split the innermost row loops into tiles; returns the inner loops, outermost first."""
        inner: list[str] = []
        first = len(self.rows) - len(sizes)
        for position, size in reversed([*enumerate(sizes, first)]):
            name = self.rows[position]
            self.rows[position], row = cut(self.s, name, size, f"{name}_t", "tile_row")
            inner.insert(0, row)
        return inner

    def _split_panels(self, streams: int) -> list[str]:
        """One row: several panels side by side; the inner loop over them."""
        if streams == 1:
            return []
        name = [n for n in self.panels if find(self.s.kernel, n).extent != 1][-1]
        panels, row = cut(self.s, name, streams, "panels", "tile_row")
        self.panels[self.panels.index(name)] = panels
        return [row]

    # --- order and workgroups ------------------------------------------------------------

    def _arrange(self, tiling: Tiling, row_tiles: list[str]) -> list[str]:
        """Order the loops: workgroups, panels, row tiles, the tile itself."""
        s = self.s
        # What is fused must stand side by side.
        s.apply(
            do.reorder, [*self.batches, *self.rows, *self.panels, *row_tiles, self.lane]
        )
        panel = fuse_all(s, self.panels)
        outer_rows = self.rows[:-1] if len(self.rows) > 1 else self.rows
        inner_rows = self.rows[-1:] if len(self.rows) > 1 else []
        row = fuse_all(s, outer_rows) if outer_rows else None
        beside = self._batches_beside(tiling)
        grid: list[str] = [fuse_all(s, self.batches)] if self.batches else []
        per_inner = trip_count(find(s.kernel, n) for n in inner_rows)
        if row is not None:
            blocks, row = block(s, row, max(1, tiling.tiles // per_inner), cuts_ones=True)
            grid += blocks
        blocks, panel = block(s, panel, tiling.panels, cuts_ones=True)
        grid += blocks
        rows = [*([row] if row else []), *inner_rows]
        # The right operand stays in the second level cache, or one panel of it does.
        between = [*rows, panel] if tiling.outer == "rows" else [panel, *rows]
        inside = [*between, *row_tiles, self.lane]
        s.apply(do.reorder, [*grid, *beside, *inside])
        self.inside_panel = inside[inside.index(panel) + 1]
        self.inside = inside
        self.panel = panel
        return grid

    def _batches_beside(self, tiling: Tiling) -> list[str]:
        """The loop over the products that one workgroup takes, where only a call counts them and one is too little work.

        Rows of an image of any width are such products.
        """
        if not self.batches or isinstance(
            find(self.s.kernel, self.batches[-1]).extent, int
        ):
            return []
        most = self.shape.batches_at_once(tiling)
        if most == 1:
            return []
        blocks, name = block(self.s, self.batches[-1], most, cuts_ones=True)
        self.batches[-1:] = blocks
        return [name]

    # --- steps of the sum ----------------------------------------------------------------

    def _in_steps(self, tiling: Tiling, row_tiles: list[str]) -> list[Piece]:
        """All tiles of a workgroup take so many steps of the sum, then the next ones: the parts of all that; none: it cannot be.

        Sums wait in the workgroup's memory, where each starts from zero; the order of their terms stays.
        """
        if not tiling.steps:
            return []
        s, before = self.s, self.s.kernel
        total = self.found.total.buffer.name
        try:
            *outer, last = [loop.var.name for loop in self.found.reductions]
            if find(s.kernel, last).extent != tiling.steps:
                around, last = cut(s, last, tiling.steps, f"{last}_b", f"{last}_n")
                outer.append(around)
            nests = s.apply(do.fission, self.inside[0], len(self.inside), "workgroup")
            summed = next(nest for nest in nests if self._sums(nest))
            inside = [summed[name] for name in self.inside]
            s.apply(do.sink_guards, inside[0])
            steps = [summed[name] for name in outer]
            s.apply(do.reorder, [*steps, *inside])
            sums = self._specialize(row_tiles, summed)
            for part in sums:
                s.apply(do.cache_write, total, part[self.lane])
            rest = [nest for nest in nests if nest is not summed]
            others = [part for nest in rest for part in self._specialize(row_tiles, nest)]
        except ScheduleError:
            s.kernel = before
            return []
        self.panel = summed[self.panel]
        s.note(f"sums wait in memory after {tiling.steps} steps, which all tiles take")
        return [*sums, *others]

    def _sums(self, nest: Piece) -> bool:
        """Whether a nest has the steps of the sum."""
        outermost = find(self.s.kernel, nest[self.inside[0]])
        return any(loop.reduction for loop in loops(outermost.body))

    # --- partial tiles -------------------------------------------------------------------

    def _specialize(self, row_tiles: list[str], nest: Piece = WHOLE) -> list[Piece]:
        """Own code for the last panel and the last rows of a nest."""
        s = self.s
        lane = nest[self.lane]
        tail = "guarded" if ends_open(find(s.kernel, lane)) else "exact"
        cut = s.parts(do.specialize, lane, nest[self.inside_panel], tail)
        parts = [nest.then(part) for part in cut]
        if tail == "guarded":
            # Of columns that are read where they lie, in the place of such a panel, half of a half may be left, too.
            times, top = 2 if self.rest or self.shape.is_one_row else 1, self.inside_panel
            parts = [
                p
                for part in parts
                for p in halved(s, part, self.lane, top, self.lanes, times)
            ]
        if self.rest:
            for part in parts:
                s.apply(do.settle_tests, part[self.inside_panel])
        for row in row_tiles:
            parts = parts_of(s, parts, row, row_tiles[0])
        for row in row_tiles:
            parts = [p.then(more) for p in parts for more in self._in_tiles(p[row])]
        return parts

    def _in_tiles(self, row: str) -> tuple[Piece, ...]:
        """Rows of a number known at run time as a tile of so many where these are few, else as tiles of powers of two.

        What is left of a row of an image is a large part of it: half a tile, and a tile of as many as are left then.
        """
        extent = find(self.s.kernel, row).extent
        if isinstance(extent, int):
            return (WHOLE,)
        most = symbolic.bounds(extent)[1] or 1
        if most <= _FEW_ROWS:
            return self.s.apply(do.split_counts, row)
        if len(self.rows) > 1:
            return self.s.apply(do.split_counts, row, (most + 2) // 2)
        return self.s.apply(do.split_powers, row, 1 << (most.bit_length() - 1))
