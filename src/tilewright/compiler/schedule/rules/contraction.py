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

import re
from dataclasses import dataclass, replace
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.outcome import Outcome
from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import Body, For, If, LoopKind
from tilewright.compiler.kernel.rewrite import loads, loops
from tilewright.compiler.schedule.primitives import (
    fuse,
    prefetch,
    reorder,
    specialize,
    split,
    split_powers,
)
from tilewright.compiler.schedule.primitives.tails import guard_of
from tilewright.compiler.schedule.rules.micro_kernel import (
    MicroKernel,
    schedule_micro_kernel,
)
from tilewright.compiler.schedule.rules.structure import (
    NS_PER_BYTE,
    Contraction,
    estimate,
    find_contraction,
    parallel_chain,
    stride,
    trip_count,
)
from tilewright.compiler.schedule.rules.tiles import Tile, choose_tile, row_sizes
from tilewright.compiler.schedule.rules.workgroups import Grid, copies, fresh_stem
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import enclosing_loops, find

_WORK_NS: Final = 40_000
"""A workgroup should run about this long."""
_NS_PER_FLOP: Final = 0.01
_LEAST_LINES: Final = 128
_MOST_HINTS: Final = 4
_SHARED_ROWS: Final = 128
_MOST_STREAMS: Final = 4


def schedule_contraction(
    s: Schedule, nest: str, target: Target, threads: int, grid: Grid
) -> Outcome | None:
    """Tile the contraction in `nest`; None if there is none."""
    chain = parallel_chain(find(s.kernel, nest))
    found = find_contraction(chain)
    if found is None or not found.contiguous:
        return None
    _Rule(s, found, target, threads).run(grid)
    return Outcome.TILED


@final
@dataclass(slots=True)
class _Blocks:
    """How many panels and row tiles one workgroup takes."""

    panels: int
    tiles: int
    panels_inside: bool = False


@final
class _Rule:
    """One contraction on its way to tiles."""

    def __init__(
        self, s: Schedule, found: Contraction, target: Target, threads: int
    ) -> None:
        self.s: Schedule = s
        self.found: Contraction = found
        self.target: Target = target
        self.threads: int = max(1, threads)
        self.dtype = found.total.buffer.dtype
        self.lanes: int = target.vector_lanes(self.dtype)
        self.rows: list[str] = [loop.var.name for loop in found.rows]
        self.panels: list[str] = [loop.var.name for loop in found.panels]
        self.batches: list[str] = [loop.var.name for loop in found.batches]
        self.lane: str = found.lane.var.name
        self.inside_panel: str = self.lane
        self.panel: str = self.lane
        self.streams: int = 1
        self.row_stem: str = fresh_stem(s, "tile_row")
        self.lane_stem: str = fresh_stem(s, "tile_lane")

    def run(self, grid: Grid) -> None:
        """Apply the whole recipe."""
        tile = self._tile()
        self._split_columns(tile)
        width = find(self.s.kernel, self.lane).extent
        assert isinstance(width, int), "columns were split by a number"
        row_tiles = self._split_panels() if self._is_one_row else self._split_rows(tile)
        grid.commit(self._arrange(tile, row_tiles))
        self._specialize(row_tiles)
        micro = MicroKernel(
            total=self.found.total.buffer.name,
            left=self.found.left.buffer.name,
            right=self.found.right.buffer.name,
            lanes=self.lanes,
            streams=self.streams,
        )
        for top, depth in self._leaves():
            schedule_micro_kernel(self.s, top, depth, micro)
        self._fetch_panels(micro.right)

    # --- tiles ---------------------------------------------------------------------------

    def _tile(self) -> Tile:
        found = self.found
        extents = [max(1, estimate(loop.extent)) for loop in found.rows]
        width = found.lane.extent
        fixed = self._panel_width()
        columns = estimate(width) * trip_count(found.panels)
        row_bytes = 0
        if found.rows:
            step = stride(found.left, self.rows[-1])
            row_bytes = (step if isinstance(step, int) else 0) * self.dtype.itemsize
        tile = choose_tile(
            self.target,
            extents or [1],
            max(1, columns),
            found.depth,
            self.lanes,
            row_bytes=row_bytes,
            panel=fixed,
        )
        if self._is_one_row and fixed is None and isinstance(width, int):
            tile = self._widened(tile, width)
        rows = " x ".join(map(str, extents)) or "1"
        self.s.note(
            f"contraction: {tile.rows} x {tile.columns} accumulators for {rows} rows, "
            f"{columns} columns, depth {found.depth}"
        )
        return tile

    @property
    def _is_one_row(self) -> bool:
        return all(loop.extent == 1 for loop in self.found.rows)

    def _streams(self, width: int) -> int:
        """Panels of so many columns whose sums fit the registers."""
        vectors = -(-width // self.lanes)
        return min(_MOST_STREAMS, (self.target.vector_registers - 2) // vectors)

    def _widened(self, tile: Tile, width: int) -> Tile:
        """One row of columns that lie in order: as many sums as hide the time of one.

        Panels side by side would each have a guard for the end of the columns.
        """
        panels = max(1, min(self._streams(tile.columns), width // tile.columns))
        return replace(tile, columns=panels * tile.columns)

    def _panel_width(self) -> int | None:
        """The width the operand's layout fixes: that of its panels."""
        width = self.found.lane.extent
        most = 4 * self.lanes
        if isinstance(width, int) and (width <= most or self._is_packed(width)):
            vectors = -(-width // self.lanes)
            return vectors * self.lanes
        return None

    def _is_packed(self, width: int) -> bool:
        """Whether the right operand is read panel by panel, each step of the sum one row of it."""
        step = stride(self.found.right, self.found.reductions[-1].var.name)
        return bool(self.panels) and step == width

    def _split_columns(self, tile: Tile) -> None:
        """From here `self.lane` runs over the columns of one panel."""
        width = self.found.lane.extent
        names = (self.s.fresh("panel"), self.s.fresh(self.lane_stem))
        if isinstance(width, int) and width <= tile.columns:
            # One name for all micro-kernels: a split by the whole width renames the loop.
            self.s.apply(split, self.lane, max(1, width), into=names)
            self.panels.append(names[0])
        else:
            self.s.apply(split, self.lane, tile.columns, into=names)
            self.batches += self.panels
            self.panels = [names[0]]
        self.lane = names[1]

    def _split_rows(self, tile: Tile) -> list[str]:
        """Split the innermost row loops into tiles; returns the inner loops, outermost first."""
        inner: list[str] = []
        extents = [find(self.s.kernel, name).extent for name in self.rows]
        sizes = row_sizes(extents, tile.rows)
        first = len(self.rows) - len(sizes)
        for position, size in reversed([*enumerate(sizes, first)]):
            name = self.rows[position]
            names = (self.s.fresh(f"{name}_t"), self.s.fresh(self.row_stem))
            self.s.apply(split, name, size, into=names)
            self.rows[position] = names[0]
            inner.insert(0, names[1])
        return inner

    def _split_panels(self) -> list[str]:
        """One row: several panels side by side; the inner loop over them.

        Nothing of the right operand is used twice, so memory decides, and one stream of loads
        keeps fewer of them in flight than several streams do.
        """
        longer = [n for n in self.panels if find(self.s.kernel, n).extent != 1]
        width = estimate(find(self.s.kernel, self.lane).extent)
        most = self._streams(width)
        if not longer or most < 2:
            return []
        name = longer[-1]
        panels = find(self.s.kernel, name).extent
        even = (n for n in range(most, 1, -1) if symbolic.is_multiple(panels, n))
        self.streams = next(even, most)
        names = (self.s.fresh("panels"), self.s.fresh(self.row_stem))
        self.s.apply(split, name, self.streams, into=names)
        self.panels[self.panels.index(name)] = names[0]
        self.s.note(f"{self.streams} panels side by side, each a stream of loads")
        return [names[1]]

    # --- order and workgroups ------------------------------------------------------------

    def _arrange(self, tile: Tile, row_tiles: list[str]) -> list[str]:
        """Order the loops: workgroups, panels, row tiles, the tile itself."""
        s = self.s
        blocks = self._blocks(tile)
        # What is fused must stand side by side.
        s.apply(reorder, [*self.batches, *self.rows, *self.panels, *row_tiles, self.lane])
        panel = self._fuse(self.panels)
        outer_rows = self.rows[:-1] if len(self.rows) > 1 else self.rows
        inner_rows = self.rows[-1:] if len(self.rows) > 1 else []
        row = self._fuse(outer_rows) if outer_rows else None
        batch = self._fuse(self.batches) if self.batches else None
        grid: list[str] = [] if batch is None else [batch]
        per_inner = trip_count(find(s.kernel, n) for n in inner_rows)
        if row is not None:
            count = max(1, blocks.tiles // per_inner)
            block, row = self._block(row, count)
            grid += block
        panel_block, panel = self._block(panel, blocks.panels)
        grid += panel_block
        rows = [*([row] if row else []), *inner_rows]
        # The right operand stays in the second level cache, or one panel of it does.
        between = [*rows, panel] if blocks.panels_inside else [panel, *rows]
        inside = [*between, *row_tiles, self.lane]
        s.apply(reorder, [*grid, *inside])
        self.inside_panel = inside[inside.index(panel) + 1]
        self.panel = panel
        return grid

    def _fuse(self, names: list[str]) -> str:
        name = names[0]
        for inner in names[1:]:
            into = self.s.fresh(f"{name}_f")
            self.s.apply(fuse, name, inner, into)
            name = into
        return name

    def _block(self, name: str, size: int) -> tuple[list[str], str]:
        """Split off workgroups of `size` iterations: (grid loops, the loop inside)."""
        most = symbolic.bounds(find(self.s.kernel, name).extent)[1]
        if most is not None and most <= size:
            return [], name
        names = (self.s.fresh(f"{name}_b"), self.s.fresh(f"{name}_n"))
        self.s.apply(split, name, size, "tight", names)
        return [names[0]], names[1]

    def _blocks(self, tile: Tile) -> _Blocks:
        """Work per workgroup: enough to be worth its start, little enough to share out."""
        found = self.found
        kernel = self.s.kernel
        panels = trip_count(find(kernel, n) for n in self.panels)
        tiles = trip_count(find(kernel, n) for n in self.rows)
        batches = trip_count(find(kernel, n) for n in self.batches)
        size = self.dtype.itemsize
        columns = tile.columns * self.streams
        flops = 2 * tile.rows * columns * found.depth
        panel_bytes = found.depth * columns * size
        rows_bytes = tile.rows * found.depth * size
        unit = max(flops * _NS_PER_FLOP, panel_bytes * NS_PER_BYTE / max(1, tiles))
        whole = unit * panels * tiles * batches
        work = min(max(_WORK_NS, whole / (8 * self.threads)), 10 * _WORK_NS)
        units = max(1, round(work / max(unit, 1e-3)))
        half = max(self.target.l2_bytes // 2, 1 << 15)
        if panels * panel_bytes <= half and panels <= units:
            chosen = _Blocks(panels, max(1, units // panels), panels_inside=True)
        else:
            # Rows stay in the second level cache if they can; but so many share a panel that
            # bringing it takes a small part of the memory's rate.
            shared = -(-_SHARED_ROWS // tile.rows)
            most = max(1, shared, half // max(1, rows_bytes))
            rows = max(1, min(tiles, most, units))
            chosen = _Blocks(max(1, min(panels, units // rows)), rows)
        self.s.note(
            f"workgroups: {chosen.panels} of {panels} panels x {chosen.tiles} of {tiles} tiles, "
            f"about {unit * chosen.panels * chosen.tiles / 1000:.0f} us"
        )
        return chosen

    # --- partial tiles -------------------------------------------------------------------

    def _specialize(self, row_tiles: list[str]) -> None:
        """Own code for the last panel and the last rows."""
        s = self.s
        found = guard_of(find(s.kernel, self.lane))
        tail = "exact" if found is None or isinstance(found[2], int) else "guarded"
        s.attempt(specialize, self.lane, self.inside_panel, tail)
        for level in range(len(row_tiles), 0, -1):
            for clone in self._rows_at(level):
                s.attempt(specialize, clone, self._top_of(clone))
        for loop in copies(s, self.row_stem):
            if not isinstance(loop.extent, int):
                largest = 1
                upper = symbolic.bounds(loop.extent)[1] or 1
                while largest * 2 <= upper:
                    largest *= 2
                s.apply(split_powers, loop.var.name, largest)

    def _rows_at(self, level: int) -> list[str]:
        """The row loops, with the copies that `specialize` made, that have `level` row loops."""
        return [
            x.var.name for x in copies(self.s, self.row_stem) if self._depth(x) == level
        ]

    def _depth(self, loop: For) -> int:
        """How many row loops there are from here to the lanes."""
        return sum(self._is_row(x) for x in parallel_chain(loop))

    def _is_row(self, loop: For) -> bool:
        return re.fullmatch(rf"{self.row_stem}(_\d+)?", loop.var.name) is not None

    def _is_lane(self, loop: For) -> bool:
        return re.fullmatch(rf"{self.lane_stem}(_\d+)?", loop.var.name) is not None

    def _top_of(self, name: str) -> str:
        """The outermost row-tile loop around `name`, perfectly nested."""
        for loop in copies(self.s, self.row_stem):
            if name in [x.var.name for x in parallel_chain(loop)]:
                return loop.var.name
        return name

    def _leaves(self) -> list[tuple[str, int]]:
        """The outermost tile loop of every micro-kernel and the number of tile loops."""
        found: list[tuple[str, int]] = []
        inside: set[str] = set()
        for loop in loops(self.s.kernel.body):
            if loop.var.name in inside or not (self._is_row(loop) or self._is_lane(loop)):
                continue
            chain = parallel_chain(loop)
            depth = next(n for n, x in enumerate(chain) if self._is_lane(x))
            found.append((loop.var.name, depth + 1))
            inside |= {x.var.name for x in loops(loop.body)}
        return found

    # --- memory --------------------------------------------------------------------------

    def _fetch_panels(self, right: str) -> None:
        """While one panel is multiplied, bring the next one into the second level cache.

        Weights come from main memory in every run of a model that is larger than the caches;
        one panel at a time they are too short a stream for the hardware to foresee.
        """
        s = self.s
        around = self._panel_loop(right)
        paths = [] if around is None else _step_loops(around.body)
        if around is None or not paths:
            return
        path = max(paths, key=trip_count)
        panel = self._panel_elements(around, right)
        steps = trip_count(path)
        line = self.target.line_bytes // self.dtype.itemsize
        step = max(1, -(-panel // steps))
        if panel < line * _LEAST_LINES or step > line * _MOST_HINTS:
            return  # there as soon as it is missed; or hardly used, memory decides
        loop = path[-1].var.name
        if s.attempt(prefetch, right, loop, around.var.name, step, line):
            s.note(f"the next panel is fetched {step} elements per turn of '{loop}'")

    def _panel_loop(self, right: str) -> For | None:
        """The loop that goes from panel to panel: in a workgroup, or from one to the next."""
        inside = find(self.s.kernel, self.panel)
        for loop in (inside, *reversed(enclosing_loops(self.s.kernel, inside))):
            if loop.extent != 1 and self._panel_elements(loop, right):
                return loop
        return None

    def _panel_elements(self, around: For, right: str) -> int:
        for load in loads(around.body):
            if load.buffer.name == right:
                apart = stride(load, around.var.name)
                return apart if isinstance(apart, int) else 0
        return 0


def _step_loops(body: Body, outer: tuple[For, ...] = ()) -> list[tuple[For, ...]]:
    """The loops that take the steps of a sum, each with the loops around it."""
    found: list[tuple[For, ...]] = []
    for statement in body:
        if isinstance(statement, If):
            found += _step_loops(statement.body, outer)
        elif isinstance(statement, For) and statement.kind is LoopKind.SERIAL:
            path = (*outer, statement)
            inner = _step_loops(statement.body, path)
            found += inner
            if statement.reduction and not inner:
                found.append(path)
    return found
