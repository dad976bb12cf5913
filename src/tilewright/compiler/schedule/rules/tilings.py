"""What is chosen for a contraction: its tile, panels and workgroups; the space, and the best point of it.

Both who packs weights and who schedules the kernel ask here, so that packing and tile are one decision.  Called by
`contraction`, and through `contraction_panel` by the passes that pack.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final, final

from tilewright.base import symbolic
from tilewright.base.dtypes import DType
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.analysis.sizes import estimate
from tilewright.compiler.schedule import decisions
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules.shares import even_shares
from tilewright.compiler.schedule.rules.tiles import (
    STAYS,
    TALL,
    Tile,
    choose_tile,
    in_first_level,
    most_rows,
    row_sizes,
    step_cycles,
)

_LIKELY_COLUMNS: Final = 128
"""Columns that are known only at run time: positions of a sequence, more often than not a
multiple of a power of two; a panel should divide it, and be narrow where it does not."""
_LIKELY_ROWS: Final = 1 << 10
_LIKELY_WIDTHS: Final = (7, 14, 28, 56, 10, 20, 40, 80)
"""Places in a row of an image that may have any size: of 224 and of 640 pixels, after strides of 32, 16, 8 and 4 or 64."""
_LIKELY_DEPTH: Final = 1 << 10
_MOST_VECTORS: Final = 4
"""Vectors in the columns of a tile: more of them leave room for few rows."""
_WORTH_JOINING: Final = 0.97
"""Of the cost of tiles of one panel each: the model does not tell apart what is nearer."""
_UNROLL: Final = 4
_MOST_UNROLL: Final = 8
_MOST_PARTS: Final = 8
"""Of a short sum, that may wait for each other."""
_LEAST_STEPS: Final = 256
"""Of a sum, that are worth reading and writing the sums of a tile once more."""
_LEFT_SHARE: Final = 0.25
"""Of a tile's cycles, that it may take to bring its rows from the third level cache: more is not hidden."""
_FEWEST_WORKGROUPS: Final = 4
"""For each thread, where all of them read the same rows."""
_LONGER: Final = 2
"""Workgroups of tiles run longer than others: each starts with operands that are in no cache."""
_SHARED_ROWS: Final = 128
_HIDDEN: Final = 8
"""Times what memory takes to bring a right operand, below which the work on it shall hide that."""
_MOST_STREAMS: Final = 4


@final
@record(kw_only=True)
class Tiling(decisions.Decision):
    """What is chosen for a contraction.  Units: elements, unless said otherwise.

    Attributes:
        columns: of one tile; panels of packed operands have as many, or it takes several of them, or a part.
        lanes: of one vector, where one of half the bits leaves fewer of them unused; 0: all that a vector has.
        rows: of one tile, for each of the innermost loops over rows; none for a single row.
        streams: panels side by side, for a single row.
        outer: which of `panels` and `rows` a workgroup takes one by one, each with all of the other.
        panels, tiles: how many panels, and tiles of rows, one workgroup takes.
        steps: of the sum that all tiles of a workgroup take before any takes the next ones; 0: each takes all of them at once.
        unroll: steps of the sum that are written out.
        prefetch: whether the next panel is fetched while one is multiplied, where panels are long.
        near: whether the next steps of a panel are brought into the first level cache while some are multiplied.
    """

    rule: ClassVar[str] = "contraction"
    columns: int = 0
    lanes: int = 0
    rows: tuple[int, ...] = ()
    streams: int = 1
    outer: str = "panels"
    panels: int = 1
    tiles: int = 1
    steps: int = 0
    unroll: int = 4
    prefetch: bool = False
    near: bool = False


@final
@record(kw_only=True)
class ContractionShape:
    """How much there is to multiply, as far as choices depend on it.

    Attributes:
        rows: the extents of the loops over rows, outermost first.
        width: columns that lie in order.
        panels: the extents of the loops over what else only the right operand has.
        has_lines: the innermost of them goes over lines of an image, along which the columns lie.
        batches: products of that size beside each other, estimated.
        depth: steps of each sum, estimated.
        sums: the extents of the loops over those steps, outermost first; none where that is not known.
        left: elements of the left operand: fewer than rows and steps come to where windows overlap; 0 where that is not known.
        row_bytes: from a row of the left operand to the next; 0 where rules cannot tell, None where only a call does.
        fixed: the columns of every tile, where there is no choice.
        grain: the columns of a panel, where the right operand lies in panels side by side already and
            `width` goes over all of them; else 0.
        used: how many of the columns are asked for, where vectors of any size may compute them; else 0.
        packs: whether it will lie in panels, as wide as a tile.
        products: those of one step, of the numbers in one word, or in several.
        words: of the right operand in one step of a column.
    """

    machine: MachineModel
    dtype: DType
    rows: tuple[Dim, ...]
    width: Dim
    panels: tuple[Dim, ...] = ()
    has_lines: bool = False
    batches: int = 1
    depth: int
    sums: tuple[Dim, ...] = ()
    left: int = 0
    row_bytes: int | None = 0
    fixed: int | None = None
    grain: int = 0
    used: int = 0
    packs: bool = False
    products: int = 1
    words: int = 1
    threads: int = 1

    @property
    def lanes(self) -> int:
        """Elements in one vector."""
        return self.machine.lanes(self.dtype)

    @property
    def is_one_row(self) -> bool:
        """Whether no element of the right operand is used twice."""
        return all(extent == 1 for extent in self.rows)

    @property
    def columns(self) -> int:
        """Columns in all, estimated."""
        return max(1, estimate(self.width) * _product(self.panels))

    # --- the space -------------------------------------------------------------------------

    def space(self) -> decisions.ChoiceSpace[Tiling]:
        """Every way to tile it, and the best by the cost model."""
        return decisions.space_from(
            Tiling(),
            decisions.Choice(
                "columns", lambda _: self._widths(), lambda _: self.best_tile().columns
            ),
            decisions.Choice("lanes", self._lane_counts, self._best_lanes),
            decisions.Choice("rows", self._row_sizes, self._best_rows),
            decisions.Choice("streams", self._stream_counts, self._best_streams),
            decisions.Choice(
                "outer", lambda _: ("panels", "rows"), lambda t: self._blocks(t).outer
            ),
            decisions.Choice(
                "panels",
                lambda t: decisions.ladder(self.panel_count(t), self._blocks(t).panels),
                lambda t: self._blocks(t).panels,
            ),
            decisions.Choice(
                "tiles",
                lambda t: decisions.ladder(self.tile_count(t), self._blocks(t).tiles),
                lambda t: self._blocks(t).tiles,
            ),
            decisions.Choice("steps", self._step_counts, self._best_steps),
            decisions.Choice(
                "unroll", lambda _: (1, 2, 4, _MOST_UNROLL), self._best_unroll
            ),
            decisions.plain("prefetch", decisions.may(True), best=True),
            decisions.Choice("near", lambda _: decisions.may(True), self._best_near),
        )

    def _widths(self) -> tuple[int, ...]:
        if self.fixed is not None:
            return (self.fixed,)
        if self.grain:
            return self._widths_beside(self.grain)
        most = self.machine.vector_registers // 2 if self.is_one_row else _MOST_VECTORS
        return self._widths_beside(self.best_tile().columns, most)

    def _widths_beside(self, own: int, most: int = _MOST_VECTORS) -> tuple[int, ...]:
        """So many columns, and those of up to so many vectors: where panels are whole vectors, any vectors of any panels."""
        found = [v * self.lanes for v in range(1, most + 1)]
        fitting = {w for w in found if w <= self.lanes or w < self.columns + self.lanes}
        return tuple(sorted(fitting | {own}))

    def best_tile(self, panel: int | None = None) -> Tile:
        """The tile of the cost model, with so many columns if that is said."""
        if self.packs and self.is_one_row:
            # Memory decides: wide panels keep several streams of loads in flight.
            vectors = min(_MOST_VECTORS, -(-self.columns // self.lanes))
            return Tile(1, vectors * self.lanes, 0.0)
        if self.grain and not panel:
            return self.best_tile_on(self.grain)
        tile = self._tile_of(panel or self.fixed)
        if panel or self.fixed or not self.is_one_row:
            return tile
        # One row of columns that lie in order: as many sums as hide the time of one.  Panels side by
        # side would each have a guard for the end of the columns.
        width = estimate(self.width)
        streams = max(1, min(self._most_streams(tile.columns), width // tile.columns))
        if not isinstance(self.width, int):
            # Of a likely number of columns, a power of two, none are left over.
            streams = math.gcd(1 << streams.bit_length() - 1, width // tile.columns)
        return replace(tile, columns=streams * tile.columns)

    def best_tile_on(self, panel: int) -> Tile:
        """The best tile that panels of so many columns allow."""
        most = _MOST_VECTORS * self.lanes
        tiles = [self._tile_of(w) for w in self._widths_beside(panel) if w <= most]
        cheapest = min(tiles, key=lambda tile: tile.cost)
        same = next((tile for tile in tiles if tile.columns == panel), None)
        if same is None or cheapest.cost < _WORTH_JOINING * same.cost:
            return cheapest
        return same

    def _tile_of(self, columns: int | None) -> Tile:
        """The tile that the cost model takes, with so many columns if that is said."""
        rows = likely_rows(self.rows)
        # Lines of an image each have a last tile of their own.
        are_lines = self.has_lines and not isinstance(self.width, int)
        choose = functools.partial(
            choose_tile,
            self.machine,
            columns=_LIKELY_WIDTHS if are_lines else self.columns,
            depth=self.steps_at_once or self.depth,
            lanes=self.lanes,
            row_bytes=self.row_bytes,
            products=self.products,
        )
        tile = choose(rows, panel=columns)
        if len(rows) == 1 or isinstance(self.rows[-1], int):
            return tile
        # What is left over of a row of an image is more of it than what is left over of all columns.
        return choose((*rows[:-1], _LIKELY_WIDTHS), panel=tile.columns)

    def _halved(self, tiling: Tiling) -> ContractionShape | None:
        """The same for vectors of half the bits, where a tile has all columns and they may be so short."""
        machine = self.machine.halved
        whole = self._fits(tiling) and _product(self.panels) == 1
        if machine is None or not self.used or self.is_one_row or not whole:
            return None
        lanes = machine.lanes(self.dtype)
        columns = -(-self.used // lanes) * lanes
        if (
            self.grain not in (0, tiling.columns)
            or columns >= machine.vector_registers * lanes // 2
        ):
            return None
        return replace(
            self,
            machine=machine,
            width=self.used,
            panels=(),
            grain=0,
            used=0,
            fixed=columns,
        )

    def _lane_counts(self, tiling: Tiling) -> tuple[int, ...]:
        halved = self._halved(tiling)
        return (0,) if halved is None else (0, halved.lanes)

    def _best_lanes(self, tiling: Tiling) -> int:
        halved = self._halved(tiling)
        if halved is None:
            return 0
        worth = _WORTH_JOINING * self._tile_of(tiling.columns).cost
        return halved.lanes if halved.best_tile().cost < worth else 0

    def _row_sizes(self, tiling: Tiling) -> tuple[tuple[int, ...], ...]:
        if self.is_one_row:
            return ((),)
        halved = self._halved(tiling)
        if tiling.lanes and halved is not None:
            return halved._row_sizes(Tiling(columns=halved.fixed or 0))
        vectors = -(-tiling.columns // self.lanes)
        most = min(most_rows(self.machine, vectors, self.products), _product(self.rows))
        found = {row_sizes(self.rows, n) for n in range(1, most + 1)}
        return tuple(sorted(found | {self._best_rows(tiling)}, key=math.prod))

    def _best_rows(self, tiling: Tiling) -> tuple[int, ...]:
        if self.is_one_row:
            return ()
        halved = self._halved(tiling)
        if tiling.lanes and halved is not None:
            return halved._best_rows(Tiling(columns=halved.fixed or 0))
        best = self.best_tile()
        if best.columns != tiling.columns:
            best = self.best_tile(tiling.columns)
        return row_sizes(self.rows, best.rows)

    def _most_streams(self, width: int) -> int:
        """Panels of so many columns whose sums fit the registers."""
        # The sum of one word's products, and what it is made of, stand beside the total.
        each = 1 if self.products == 1 else 6
        vectors = each * -(-width // self.lanes)
        return min(_MOST_STREAMS, (self.machine.vector_registers - 2) // vectors)

    def _stream_counts(self, tiling: Tiling) -> tuple[int, ...]:
        longer = self._longer(tiling)
        if not self.is_one_row or longer is None:
            return (1,)
        width = self.width if isinstance(self.width, int) else tiling.columns
        width = min(tiling.columns, width)
        return tuple(range(1, max(1, self._most_streams(width)) + 1))

    def _best_streams(self, tiling: Tiling) -> int:
        # Nothing of the right operand is used twice, so memory decides, and one stream of loads
        # keeps fewer of them in flight than several streams do.
        *_, most = self._stream_counts(tiling)
        longer = self._longer(tiling)
        if longer is None or not isinstance(self.width, int):
            return 1  # every panel of an open number of columns would ask for their end
        even = (n for n in range(most, 1, -1) if symbolic.is_multiple(longer, n))
        return next(even, most)

    def _best_unroll(self, tiling: Tiling) -> int:
        # Each element of one vector's rows meets a single sum: of steps side by side LLVM reads them ahead, and sums wait
        # on the stack, if there is no register for what was read.  With masks elements are read as they are multiplied.
        alone = tiling.columns <= self.lanes and not self.machine.has_masks
        return 1 if alone and self._fills_registers(tiling) else _UNROLL

    def _fills_registers(self, tiling: Tiling) -> bool:
        """Whether a tile's sums and what one step of them meets leave no register for more."""
        vectors = -(-tiling.columns // self.lanes)
        held = (math.prod(tiling.rows) + 1) * vectors + 1
        return held >= self.machine.vector_registers - 1

    def _best_near(self, tiling: Tiling) -> bool:
        if self.is_one_row or self.products > 1 or not self.machine.core.fill:
            return False
        # Behind a hint no compiler looks for something to load ahead, for which a tile of most sums has no register.
        if self._fills_registers(tiling):
            return True
        vectors = -(-tiling.columns // self.lanes)
        return not in_first_level(self.machine, vectors, tiling.steps or self.depth)

    # --- steps of the sum ------------------------------------------------------------------

    @property
    def steps_at_once(self) -> int:
        """Steps that all tiles should take before any takes the next ones; 0: each takes its whole sum at once.

        Where the second level cache does not hold the rows of a workgroup, each panel brings them all from the third. So
        many steps of them stay in the second, while panel after panel meets them.
        """
        machine, size = self.machine, self.dtype.itemsize
        if not self._may_wait() or not _left_is_far(machine, size):
            return 0
        count, room = math.prod(likely_rows(self.rows)), machine.l2.size_bytes // 2 // size
        shared = min(count, _SHARED_ROWS)
        overlaps = 0 < self.left < count * self.depth
        if overlaps or shared * self.depth <= room:
            return 0
        long = [n for n in self._parts_of_sum() if n >= _LEAST_STEPS]
        whole, some = ([n for n in long if held * n <= room] for held in (count, shared))
        return max(whole or some, default=0)

    def _may_wait(self) -> bool:
        """Whether sums of floats may wait in memory for their next steps: how many there are is known."""
        known = (*self.rows, *self.panels, self.width, *self.sums)
        return (
            bool(self.sums)
            and self.dtype.is_float
            and self.products == 1
            and not self.is_one_row
            and all(isinstance(extent, int) for extent in known)
        )

    def _parts_of_sum(self) -> list[int]:
        """Lengths that the innermost loop over the sum may be cut to, its own among them.

        Each is a whole number of turns, so that no step is rounded in another way than in a sum of all steps.
        """
        last = estimate(self.sums[-1])
        counts = range(1, max(_MOST_PARTS, last // _LEAST_STEPS) + 1)
        return [last // n for n in counts if last % (n * _MOST_UNROLL) == 0]

    def _step_counts(self, tiling: Tiling) -> tuple[int, ...]:
        sums = tiling.panels * tiling.tiles * math.prod(tiling.rows) * tiling.columns
        if (
            not self._may_wait()
            or sums * self.dtype.itemsize > self.machine.l2.size_bytes // 2
        ):
            return (0,)
        return (0, *sorted(n for n in self._parts_of_sum() if 0 < n < self.depth))

    def _best_steps(self, tiling: Tiling) -> int:
        best = self.steps_at_once
        return best if best in self._step_counts(tiling) else 0

    def _steps_in_blocks(self, tiling: Tiling, steps: int, most: int) -> Tiling:
        """Work per workgroup where all its tiles take so many steps and then the next ones: many panels for the same rows."""
        rows, tiles = math.prod(tiling.rows), self.tile_count(tiling)
        room = self.machine.l2.size_bytes // 2 // self.dtype.itemsize
        most = max(most, room // (rows * steps))
        blocks = -(-tiles // most)
        count = -(-tiles // blocks)
        groups = max(1, _FEWEST_WORKGROUPS * self.threads // blocks)
        beside = min(
            self.panel_count(tiling) // groups, room // (count * rows * tiling.columns)
        )
        return replace(tiling, outer="panels", panels=max(1, beside), tiles=count)

    # --- what stands beside each other -----------------------------------------------------

    def _fits(self, tiling: Tiling) -> bool:
        return isinstance(self.width, int) and self.width <= tiling.columns

    def _panel_extents(self, tiling: Tiling) -> tuple[Dim, ...]:
        """The loops over panels, when columns are split so."""
        if self._fits(tiling):
            return (*self.panels, 1)
        return (symbolic.ceildiv(self.width, tiling.columns),)

    def _longer(self, tiling: Tiling) -> Dim | None:
        """The innermost loop over panels that takes more than one turn."""
        longer = [n for n in self._panel_extents(tiling) if n != 1]
        return longer[-1] if longer else None

    def panel_count(self, tiling: Tiling) -> int:
        count = _product(self._panel_extents(tiling))
        longer = self._longer(tiling)
        if tiling.streams == 1 or longer is None:
            return count
        together = estimate(symbolic.ceildiv(longer, tiling.streams))
        return count // max(1, estimate(longer)) * max(1, together)

    def tile_count(self, tiling: Tiling) -> int:
        outer = len(self.rows) - len(tiling.rows)
        inner = zip(self.rows[outer:], tiling.rows, strict=True)
        return _product(
            (*self.rows[:outer], *(symbolic.ceildiv(n, size) for n, size in inner))
        )

    def _panels_of_a_thread(self, panels: int, batches: int, work_ns: float) -> int:
        """How many panels a single row meets in a workgroup, if all threads that are worth it get as many."""
        worth = int(work_ns / self.machine.awake_ns)
        threads = max(1, min(self.threads, worth) // max(1, batches))
        return -(-panels // threads)

    def batches_at_once(self, tiling: Tiling) -> int:
        """How many products beside each other one workgroup takes: several where all of one is too little work.

        Of a number that only a call knows, long workgroups would leave the last ones to few of several threads.
        """
        units, unit = self._units(tiling)
        if self.threads > 1:
            units = min(units, round(_LONGER * self.machine.workgroup_ns / unit))
        return max(1, units // (self.panel_count(tiling) * self.tile_count(tiling)))

    def _units(self, tiling: Tiling) -> tuple[int, float]:
        """Panels times tiles of rows that are worth a workgroup, and what one of them takes: ns."""
        panels, tiles = self.panel_count(tiling), self.tile_count(tiling)
        batches = self.batches * (1 if self._fits(tiling) else _product(self.panels))
        rows, columns = math.prod(tiling.rows), tiling.columns * tiling.streams
        unit = max(
            1e-3,  # of sums without steps, too
            2 * rows * columns * self.depth * self.machine.elements.flop,
            self._panel_bytes(tiling) * self.machine.ns_per_byte / max(1, tiles),
        )
        least = _LONGER * self.machine.workgroup_ns
        whole = unit * panels * tiles * batches
        work = min(max(least, whole / (8 * self.threads)), 10 * least)
        units = max(1, round(work / unit))
        if tiles * rows == 1 and self.threads > 1:
            units = min(units, self._panels_of_a_thread(panels, batches, whole))
        return units, unit

    def _panel_bytes(self, tiling: Tiling) -> int:
        """Of what a tile reads of the right operand."""
        size = self.depth * tiling.columns * tiling.streams * self.dtype.itemsize
        is_one_row = self.tile_count(tiling) * math.prod(tiling.rows) == 1
        return size * self.words if is_one_row else size

    def _blocks(self, tiling: Tiling) -> Tiling:
        """Work per workgroup: enough to be worth its start, little enough to share out."""
        panels, tiles = self.panel_count(tiling), self.tile_count(tiling)
        rows, panel_bytes = math.prod(tiling.rows), self._panel_bytes(tiling)
        rows_bytes = rows * self.depth * self.dtype.itemsize
        units, unit = self._units(tiling)
        half = max(self.machine.l2.size_bytes // 2, 1 << 15)
        # All work on a panel takes no more than some times what memory takes to bring it: nothing else hides that.
        bringing = panel_bytes * self.machine.ns_per_byte
        few = panels > 1 and unit * tiles < _HIDDEN * bringing
        if panels * panel_bytes <= half and panels <= units and not few:
            count = max(1, units // panels)
            return self._evenly(replace(tiling, outer="rows", panels=panels, tiles=count))
        # Rows stay in the second level cache if they can; but so many share a panel that
        # bringing it takes a small part of the memory's rate.
        shared = -(-_SHARED_ROWS // rows)
        if self.steps_at_once:
            return self._steps_in_blocks(tiling, self.steps_at_once, shared)
        most = max(1, shared, half // max(1, rows_bytes))
        if tiles * rows_bytes <= STAYS * self.machine.l2.size_bytes:
            # A few tiles behind the others would bring all panels once more.
            most = max(most, tiles)
        count = max(1, min(tiles, most, units))
        beside = max(1, min(panels, units // count))
        return self._evenly(replace(tiling, outer="panels", panels=beside, tiles=count))

    def _evenly(self, tiling: Tiling) -> Tiling:
        """The same with workgroups that threads share alike, where all sizes are known; those of images take whole lines."""
        known = all(isinstance(n, int) for n in (*self.rows, *self.panels, self.width))
        if not known or self.batches > 1 or not tiling.tiles:
            return tiling
        line = 1
        if len(self.rows) > 1 and tiling.rows:
            line = max(1, -(-estimate(self.rows[-1]) // tiling.rows[-1]))
        panels, tiles = even_shares(
            self.panel_count(tiling),
            self.tile_count(tiling) // line,
            (tiling.panels, max(1, tiling.tiles // line)),
            self.threads,
            shared_panels=tiling.outer == "rows",
        )
        if (panels, tiles) == (tiling.panels, max(1, tiling.tiles // line)):
            return tiling
        return replace(tiling, panels=panels, tiles=tiles * line)


def _product(extents: Sequence[Dim]) -> int:
    return math.prod(max(1, estimate(extent)) for extent in extents)


def likely_rows(extents: Sequence[Dim]) -> tuple[int, ...]:
    """Rows by which a tile is chosen: so many where a call decides that no choice is one for what is left of them."""
    return tuple(max(1, x) if isinstance(x, int) else _LIKELY_ROWS for x in extents) or (1,)


def _left_is_far(machine: MachineModel, element: int) -> bool:
    """Whether bringing rows of elements of so many bytes from the third level cache takes a good part of a tile's time."""
    tall = most_rows(machine, TALL)
    reached = step_cycles(machine, tall, TALL)
    return tall * element / machine.core.third_level > _LEFT_SHARE * reached


def contraction_panel(
    machine: MachineModel,
    m: Sequence[Dim],
    n: Dim,
    k: Dim,
    dtype: DType,
    products: int = 1,
    *,
    row: int = 0,
    others: Sequence[MachineModel] = (),
) -> int:
    """Columns per panel that the right operand of a contraction is packed in.

    Those of the tile of `machine`; where `others` read the same panels, one vector of the widest
    machine, of which each makes tiles of its own.  Units: elements.  `m` rows (images and positions:
    one extent for each loop over rows that the kernel will have), `n` columns, `k` steps of `products`
    each.  `row`: from a row of the left operand to the next, where that is not all steps.
    """
    depth = max(1, k) if isinstance(k, int) else _LIKELY_DEPTH
    known = len(m) == 1 and isinstance(m[0], int)
    shape = ContractionShape(
        machine=machine.for_sums_of(dtype),
        dtype=dtype,
        rows=tuple(max(1, x) if isinstance(x, int) else x for x in m) or (1,),
        width=n if isinstance(n, int) else _LIKELY_COLUMNS,
        depth=depth,
        sums=(k,) if known else (),  # windows overlap, and sums of open rows do not wait
        row_bytes=(row or depth * products) * dtype.itemsize,
        packs=True,
        products=products,
    )
    own = shape.best_tile().columns
    widest = max(each.lanes(dtype) for each in (machine, *others))
    if not others or shape.columns <= widest or (shape.is_one_row and own % widest == 0):
        return own
    return widest
