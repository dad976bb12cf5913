"""Nests with inner loops where an outer axis is contiguous: windows, other-axis reductions.

Depthwise convolutions, poolings, reductions and softmax over an axis that is not the last.  Lanes
run along the contiguous outer axis; for windows several neighbouring results are computed
together, so that what their windows share is loaded once.  Windows a few elements apart, and rows
too short to fill a vector (`short_axis`), run side by side in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Final, final

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.outcome import Outcome
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.analysis.footprints import footprints
from tilewright.compiler.analysis.sizes import estimate, steps_in
from tilewright.compiler.analysis.strides import depends, stride
from tilewright.compiler.kernel.fields import payloads
from tilewright.compiler.kernel.grid import GRID_KINDS
from tilewright.compiler.kernel.ir import For, Load, Space, Store
from tilewright.compiler.kernel.rewrite import (
    dim_symbols,
    expression_symbols,
    loads,
    loops,
    stores,
)
from tilewright.compiler.schedule import decisions
from tilewright.compiler.schedule import primitives as do
from tilewright.compiler.schedule.cost import body_cost, element_ns
from tilewright.compiler.schedule.handles import WHOLE, Piece
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules.micro_kernel import MicroKernel
from tilewright.compiler.schedule.rules.pointwise import fuse_contiguous
from tilewright.compiler.schedule.rules.rows import keep_short_rows
from tilewright.compiler.schedule.rules.structure import (
    groups_around,
    is_from_1_to,
    parallel_chain,
    short_axis,
)
from tilewright.compiler.schedule.rules.workgroups import (
    Grid,
    blocks_of,
    cut,
    halved,
    parts_of,
)
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import find

_WINDOW_LIMIT: Final = 50
_NEIGHBOURS: Final = 4
_MOST_VECTORS: Final = 4
_INTERIOR: Final = 3
"""Tiles in a row from which on one of them is surely between the borders."""
_CHEAP: Final = 8
"""Operations in all of passes that mostly wait."""
_LONG_SUM: Final = 4096
"""Terms beyond which one running sum loses digits: each addition rounds what is there already."""
_SUBTOTAL: Final = 512


@final
@record(kw_only=True)
class Columns(decisions.Decision):
    """What is chosen for a nest with inner loops in the lanes of an outer axis.

    Attributes:
        rows: neighbouring results that are computed together; 0: each by itself.
        vectors: side by side along the lanes; of several passes, in one go through all of them.
        interior: windows that are all inside have code of their own, which tests no place.
        places: all vectors of some neighbours before the next ones, not all neighbours of some vectors: memory in order.
        work: iterations of the outer loops in one workgroup.
    """

    rule: ClassVar[str] = "columns"
    rows: int = 0
    vectors: int = 1
    places: bool = False
    interior: bool = False
    work: int = 1


def match_columns(
    s: Schedule, nest: str, machine: MachineModel, _: int
) -> ColumnsSite | None:
    """A contiguous outer axis, or short rows side by side, if there is either."""
    chain = parallel_chain(find(s.kernel, nest))
    lane = lane_across(chain, machine)
    if lane is None:
        return None
    lanes, count = _lanes(chain[-1], lane, machine), len(chain)
    moving = _moving(chain[-1], lane.var.name)
    is_picked = any(stride(a, lane.var.name) != 1 for a in moving)
    if is_picked or not symbolic.is_multiple(lane.extent, lanes):
        chain, lane = _lengthened(s, chain, lane)
        lanes = _lanes(chain[-1], lane, machine)
    is_joined = not is_picked and len(chain) < count
    if (groups := groups_around(chain, lane, lanes)) is not None:
        joined = s.fresh("filter")
        s.apply(do.fuse, groups.var.name, lane.var.name, joined)
        outermost = joined if groups is chain[0] else chain[0].var.name
        chain = parallel_chain(find(s.kernel, outermost))
        lane = find(s.kernel, joined)
    names = [x.var.name for x in chain if x is not lane] + [lane.var.name]
    s.apply(do.reorder, names)
    inner = find(s.kernel, lane.var.name)
    beside = find(s.kernel, names[-2]) if len(names) > 1 else None
    whole = find(s.kernel, names[0])
    work_ns = _work_ns(chain, machine)
    return ColumnsSite(
        s, machine, tuple(names), whole, inner, beside, lanes, work_ns, is_joined
    )


@final
@record
class ColumnsSite:
    """A nest with the loop of the lanes innermost, around inner loops.

    Attributes:
        nest: all of it, as it was found.
        inner: the loop of the lanes.
        beside: the loop around it, whose results are neighbours.
        work_ns: of one iteration of all the loops.
        is_joined: whether the loop of the lanes is several, which memory walks in one go: neighbours are vectors of it.
    """

    s: Schedule
    machine: MachineModel
    names: tuple[str, ...]
    nest: For
    inner: For
    beside: For | None
    lanes: int
    work_ns: float
    is_joined: bool

    def space(self) -> decisions.ChoiceSpace[Columns]:
        """How many results are computed together, and how many are a workgroup's."""
        simple = _is_simple(self.inner)
        rows = self._most_rows() if simple else 0
        vectors = self._vectors() if simple else 1
        size: decisions.Choice[Columns] = decisions.Choice(
            "work", lambda c: decisions.powers_around(self._size(c)), self._size
        )
        if not simple:
            wide = decisions.plain("vectors", (1, 2, 4, 8), self._vectors_of_passes())
            return decisions.space_from(Columns(), wide, size)
        return decisions.space_from(
            Columns(),
            decisions.plain("rows", self._row_counts(rows), rows),
            decisions.plain("vectors", self._vector_counts(), vectors),
            decisions.Choice(
                "places",
                lambda at: decisions.may(at.rows > 0),
                lambda at: bool(at.rows) and self._comes_from_far(),
            ),
            decisions.Choice(
                "interior",
                lambda _: decisions.may(self._tests_places()),
                self._has_interior,
            ),
            size,
        )

    def _row_counts(self, best: int) -> tuple[int, ...]:
        if self.beside is None:
            return (0,)
        return tuple(sorted({0, 1, 2, 3, 4, 6, best}))

    def _vector_counts(self) -> tuple[int, ...]:
        extent = self.inner.extent
        most = extent // self.lanes if isinstance(extent, int) else _MOST_VECTORS
        return tuple(range(1, max(1, min(_MOST_VECTORS, most)) + 1))

    def _most_rows(self) -> int:
        """Windows share what they load with a few neighbours, where they are short or slide."""
        if self.beside is None or self.is_joined or not self._is_near():
            return 0
        extent = self.beside.extent
        return max(1, min(_NEIGHBOURS, extent)) if isinstance(extent, int) else _NEIGHBOURS

    def _is_near(self) -> bool:
        slides = self.beside is not None and _slides(self.inner, self.names[-2])
        return _window(self.inner) <= _WINDOW_LIMIT or slides

    def _vectors(self) -> int:
        """Where some lanes may be outside and others not, one: as little as possible is done under masks."""
        near = 1 if self._masks_lanes() else 2
        shares = self._is_near() and not self.is_joined
        return min(near if shares else _MOST_VECTORS, self._vector_counts()[-1])

    def _masks_lanes(self) -> bool:
        """Whether tiles at an end have lanes of which some are left out."""
        known = isinstance(self.inner.extent, int)
        return not known or (self._tests_lanes() and self._has_interior(Columns()))

    def _tests_lanes(self) -> bool:
        """Whether places are tested that differ along the lanes."""
        lane = self.names[-1]
        masks = [v.mask for v in loads(self.inner.body) if v.mask is not None]
        return any(s.name == lane for mask in masks for s in expression_symbols(mask))

    def _vectors_of_passes(self) -> int:
        """Cheap passes wait for one sum after the other, and read whole lines: as many side by side as registers hold."""
        kept = {
            w.buffer for w in stores(self.inner.body) if w.buffer.space is not Space.DEVICE
        }
        if body_cost(self.inner.body) > _CHEAP or any(buffer.shape for buffer in kept):
            return 1
        room = 3 * self.machine.vector_registers // 4 // max(1, len(kept))
        fits = min(room, estimate(self.inner.extent) // self.lanes)
        return next(n for n in (8, 4, 2, 1) if n <= max(1, fits))

    def _comes_from_far(self) -> bool:
        """Whether what the windows read is several times what the second level cache holds, or may be in a call.

        From there vectors of one place after the other are read faster than the same vector of all places.
        """
        if not isinstance(self.inner.extent, int):
            return True
        read = footprints((self.nest,)).values()
        most = max((found.read_bytes for found in read), default=0)
        return most > 2 * self.machine.l2.size_bytes

    def _tests_places(self) -> bool:
        return any(load.mask is not None for load in loads(self.inner.body))

    def _has_interior(self, chosen: Columns) -> bool:
        """Whether most tiles read nothing outside: there are some between the first and the last."""
        width = self.lanes * chosen.vectors
        return self._tests_places() and estimate(self.inner.extent) >= _INTERIOR * width

    def _size(self, chosen: Columns) -> int:
        if not _is_simple(self.inner):
            return max(1, int(self.machine.workgroup_ns / max(self.work_ns, 1.0)))
        rows = _NEIGHBOURS if chosen.rows else 1
        work = self.work_ns * chosen.vectors * rows
        return max(1, int(self.machine.workgroup_ns / max(work, 1.0)))

    def apply(self, chosen: Columns, grid: Grid) -> Outcome:
        """Rewrite the nest as was decided."""
        s = self.s
        if _is_simple(self.inner):
            self._side_by_side(chosen, grid)
        else:
            _take_subtotals(s, self.inner)
            self._several_passes(chosen, grid)
            keep_short_rows(s, self.machine)
        return Outcome.COLUMNS

    def _side_by_side(self, chosen: Columns, grid: Grid) -> None:
        """One sum or extreme per element: accumulators for a few neighbours and vectors."""
        s, lane, inner = self.s, self.names[-1], self.inner
        window = _window(inner)
        _keep_total(s, inner)
        tile: list[str] = []
        outer = [*self.names[:-1]]
        if chosen.rows:
            row = outer[-1]
            outer[-1], window_row = cut(s, row, chosen.rows, f"{row}_t", "window")
            tile.append(window_row)
        width = self.lanes * chosen.vectors
        vectors, channel = cut(s, lane, width, f"{lane}_t", "channel")
        tile.append(channel)
        lanes_first = [*outer[:-1], vectors, *outer[-1:]]
        places = chosen.places or not chosen.rows
        order = [*outer, vectors] if places else lanes_first
        s.apply(do.reorder, [*order, *tile])
        grid.commit(blocks_of(s, order, chosen.work))
        parts = self._whole_tiles(chosen, order[-2:], tile) if places else []
        if not parts:
            parts = self._ends_apart(chosen, vectors, tile)
        ways = 1 if window <= _WINDOW_LIMIT else 2
        slow = not self.machine.has_masks
        micro = MicroKernel(left="", right="", lanes=self.lanes, ways=ways, slow_masks=slow)
        for part in parts:
            # Of lanes only a call counts, one is computed after the other.
            counted = [isinstance(find(s.kernel, part[x]).extent, int) for x in tile]
            if any(counted):
                first = counted.index(True)
                micro.schedule(s, part[tile[first]], len(tile) - first)
        s.note(f"columns: window of {window}, {max(1, chosen.rows)} x {width} at a time")

    def _whole_tiles(
        self, chosen: Columns, lines: Sequence[str], tile: Sequence[str]
    ) -> list[Piece]:
        """Tiles of which the last of an open length begins earlier, where it is whole, and code for what is shorter than a tile.

        `lines`: the loops over tiles, that along rows last.  Returns: nothing where no tile begins earlier.
        """
        s, before, beside = self.s, self.s.kernel, self.beside
        inside = [x.var.name for x in loops(before.body) if x.kind not in GRID_KINDS]
        lines = [name for name in lines if name in inside]
        is_open = not isinstance(self.inner.extent, int)
        if not is_open or not lines or not chosen.rows or chosen.vectors > 1:
            return []
        (row, channel), top, along = tile, lines[0], lines[-1]
        short: list[Piece] = []
        try:
            # Neighbours first: rows that fill no vector have as many of them side by side.
            if beside and top != along and not isinstance(beside.extent, int):
                short += self._shorter(top, top, row, beside.extent, row)
                s.apply(do.overlap, row)
            short += self._shorter(top, along, channel, self.inner.extent, row)
            has_ends = chosen.interior and self._tests_lanes()
            parts = s.apply(do.overlap, channel, "alone" if has_ends else "joined")
        except ScheduleError as error:
            s.kernel = before
            s.note(f"columns: no tile begins earlier: {error.message}")
            return []
        if not has_ends:
            whole = self._neighbours([WHOLE], row, along)
            return [*self._inside(chosen, whole, along), *short]
        return [*self._between_ends(along, row, parts), *short]

    def _between_ends(self, along: str, row: str, parts: Sequence[Piece]) -> list[Piece]:
        """Code of its own for the first and for the last tile along a row, each of which is known to pass the tests at the other end.

        `parts`: the last tile, behind all others.
        """
        s = self.s
        first, *others = s.apply(do.partition, along, 1)
        ends = (first, *parts[1:])
        for part in (*ends, *others):
            s.apply(do.settle_tests, part[along])
        for end in ends:
            s.attempt(do.unroll, end[along])
        found = self._neighbours(ends, row)
        for part in others:
            whole, *rest = self._neighbours([part], row)
            found += [*map(whole.then, s.parts(do.interior, whole[row])), *rest]
        return found

    def _shorter(
        self, top: str, runs: str, name: str, length: Dim, row: str
    ) -> list[Piece]:
        """The code for lengths that are shorter than a tile."""
        s, size = self.s, find(self.s.kernel, name).extent
        assert isinstance(size, int), "of a tile"
        taps = (x.extent for x in loops(self.inner.body) if isinstance(x.extent, int))
        # What the first tile reads is inside at the other end of such a row.
        reach = max(taps, default=0) // 2 if self._tests_lanes() and name != row else 0
        _, short = s.apply(do.version, top, length, size + reach)
        if s.attempt(do.widen, short[runs], 1):
            s.apply(do.unroll, short[runs])
        found = parts_of(s, [short], row)
        s.apply(do.settle_tests, short[top])
        left = {x.var.name for x in loops(s.kernel.body)}
        return [piece for piece in found if piece[row] in left]

    def _ends_apart(
        self, chosen: Columns, vectors: str, tile: Sequence[str]
    ) -> list[Piece]:
        """Whole tiles, what is left of rows, and what is left of neighbours, each in code of its own."""
        s, top, channel = self.s, tile[0], tile[-1]
        width = self.lanes * chosen.vectors
        tail = "exact" if isinstance(self.inner.extent, int) else "guarded"
        parts = parts_of(s, self._at_known_places(vectors, width), channel, top, tail)
        parts = [p for part in parts for p in halved(s, part, channel, top, self.lanes)]
        if chosen.rows:
            parts = self._neighbours(parts, top)
        return self._inside(chosen, parts, top)

    def _inside(self, chosen: Columns, parts: list[Piece], at: str) -> list[Piece]:
        """Code of their own for windows that are all inside: of whole tiles only, as there are few others."""
        if not chosen.interior or WHOLE not in parts:
            return parts
        return [*self.s.parts(do.interior, at), *(p for p in parts if p != WHOLE)]

    def _at_known_places(self, vectors: str, width: int) -> Sequence[Piece]:
        """Code of their own for whole tiles and for the rest of a row too short for an interior: what is known of their places is not tested."""
        s, extent = self.s, self.inner.extent
        is_short = isinstance(extent, int) and extent < _INTERIOR * width
        if not is_short or not self._tests_lanes():
            return (WHOLE,)
        parts = s.parts(do.partition, vectors, extent // width)
        for part in parts if len(parts) > 1 else ():
            s.apply(do.settle_tests, part[vectors])
            if find(s.kernel, part[vectors]).extent == 1:
                s.apply(do.unroll, part[vectors])
        return parts

    def _neighbours(self, parts: Sequence[Piece], row: str, at: str = "") -> list[Piece]:
        """Code for whole tiles and for what is left over: of a number that only a call knows, one alone waits for its sum."""
        s, found = self.s, list[Piece]()
        for part in parts_of(self.s, parts, row, at):
            is_known = isinstance(find(s.kernel, part[row]).extent, int)
            counts = (WHOLE,) if is_known else s.parts(do.split_counts, part[row])
            found += map(part.then, counts)
        return found

    def _several_passes(self, chosen: Columns, grid: Grid) -> None:
        """Whole passes in lanes: every private value becomes a vector."""
        s, lane = self.s, self.names[-1]
        width = self.lanes * chosen.vectors
        vectors, channel = cut(s, lane, width, f"{lane}_t", "channel")
        grid.commit(blocks_of(s, [*self.names[:-1], vectors], chosen.work))
        tail = "guarded" if self._may_mask_rest() else "exact"
        for part in s.parts(do.specialize, channel, tail=tail):
            name = part[channel]
            if find(s.kernel, name).extent == width or chosen.vectors == 1:
                for piece in halved(s, part, channel, channel, self.lanes):
                    self._in_lanes(piece[channel])
            else:
                self._rest_in_lanes(name)
        s.note(f"columns: passes in {width} lanes along '{lane}'")

    def _may_mask_rest(self) -> bool:
        """Whether only a call knows how much is left over of whole vectors, and that may be a vector with a mask.

        Where no lane is active nothing is loaded, so no length of a loop may lie in memory.
        """
        if isinstance(self.inner.extent, int) or not self.machine.has_masks:
            return False
        return not any(any(payloads(x.extent)) for x in loops(self.inner.body))

    def _in_lanes(self, name: str) -> None:
        """Lanes of a whole loop, if its length is known."""
        s, extent = self.s, find(self.s.kernel, name).extent
        if not isinstance(extent, int):
            return
        s.apply(do.expand, name)
        if s.attempt(do.vectorize, name):
            _write_out(s, name, short_axis(self.machine))
        elif extent <= 4:
            s.attempt(do.unroll, name)

    def _rest_in_lanes(self, name: str) -> None:
        """What is left over of several vectors: single ones, and what is left over of these."""
        _, channel = cut(self.s, name, self.lanes, f"{name}_t", f"{name}_n")
        for part in self.s.parts(do.specialize, channel):
            self._in_lanes(part[channel])


def _window(inner: For) -> int:
    """Steps of the loops inside; more than `_WINDOW_LIMIT` where their number is not known."""
    extents = (loop.extent for loop in loops(inner.body))
    return math.prod(n if isinstance(n, int) else _WINDOW_LIMIT + 1 for n in extents)


def _lengthened(s: Schedule, chain: Sequence[For], lane: For) -> tuple[Sequence[For], For]:
    """One loop of the lane and those around it that go on where it ends: fewer partial vectors."""
    names = [x.var.name for x in chain]
    at = names.index(lane.var.name)
    while at > 0:
        joined = fuse_contiguous(s, names[at - 1 : at + 1])
        if len(joined) > 1:
            break
        at -= 1
        names[at : at + 2] = joined
    chain = parallel_chain(find(s.kernel, names[0]))
    return chain, find(s.kernel, names[at])


def _keep_total(s: Schedule, inner: For) -> None:
    """Let a total wait in a register where a call may have no step: LLVM leaves it in memory, as it may never be written there."""
    totals = [a.buffer for a in stores(inner.body) if a.buffer.space is Space.DEVICE]
    if totals and not all(isinstance(loop.extent, int) for loop in loops(inner.body)):
        s.attempt(do.cache_write, totals[0].name, inner.var.name)


def _take_subtotals(s: Schedule, inner: For) -> None:
    """Cut long sums into pieces, so that what additions round does not add up over all terms."""
    for loop in list(loops(inner.body)):
        if not loop.reduction or any(True for _ in loops(loop.body)):
            continue
        totals = {w.buffer for w in stores(loop.body) if w.buffer.dtype.is_float}
        if len(totals) != 1 or _terms(inner, loop) <= _LONG_SUM:
            continue
        name = loop.var.name
        if estimate(loop.extent) > 2 * _SUBTOTAL:
            _, name = cut(s, name, _SUBTOTAL, f"{name}_t", f"{name}_s")
        s.attempt(do.subtotal, totals.pop().name, name)


def _terms(inner: For, loop: For) -> int:
    """How many terms the sum of `loop` and of the reductions around it has."""
    around = (x for x in loops(inner.body) if x.reduction and loop in loops(x.body))
    return estimate(loop.extent) * math.prod(estimate(x.extent) for x in around)


def _moving(inner: For, name: str) -> list[Load | Store]:
    return [a for a in (*stores(inner.body), *loads(inner.body)) if depends(a, name)]


def _lanes(inner: For, lane: For, machine: MachineModel) -> int:
    """Lanes of the widest type that moves with `lane`."""
    return min(machine.lanes(a.buffer.dtype) for a in _moving(inner, lane.var.name))


def lane_across(chain: Sequence[For], machine: MachineModel) -> For | None:
    """The loop along which memory is contiguous in all accesses that move with it.

    Else one along which the stores are, and the loads take one element of every few: vectors are
    read whole and shuffled.  Short rows are written that way, too.
    """
    if not chain or not any(True for _ in loops(chain[-1].body)):
        return None
    body, short = chain[-1].body, short_axis(machine)
    narrow = all(is_from_1_to(x.extent, short) for x in loops(body))
    for reach in (1, short):
        for loop in reversed(chain):
            name = loop.var.name
            written, read = (_steps(found, name) for found in (stores(body), loads(body)))
            most = reach if narrow else 1
            if not (written or read) or not all(is_from_1_to(n, most) for n in written):
                continue
            if not all(is_from_1_to(n, reach) for n in read):
                continue
            if reach == 1 or _picking_pays(chain[-1], loop, machine):
                return loop
    return None


def _steps(found: Sequence[Load | Store], name: str) -> list[Dim | None]:
    """How far apart in memory neighbouring iterations of a loop meet what moves with it."""
    moving = [a for a in found if a.buffer.space is Space.DEVICE and depends(a, name)]
    return [stride(a, name) for a in moving]


def _picking_pays(inner: For, lane: For, machine: MachineModel) -> bool:
    """Whether elements a stride apart, picked out of vectors, take less than rows of their own.

    Counts instructions for one result: a tap picked costs a load and a shuffle for every vector
    that its lanes are spread over; a row costs a load per vector, and lanes to be combined.
    """
    taps = steps_in(inner.body)
    if taps <= short_axis(machine):
        return True
    lanes = _lanes(inner, lane, machine)
    along = 0
    for loop in loops(inner.body):
        if any(stride(a, loop.var.name) == 1 for a in loads(loop.body)):
            extent = max(1, estimate(loop.extent))
            along = max(along, taps // extent * -(-extent // lanes) + machine.core.across)
    steps = [stride(a, lane.var.name) for a in _moving(inner, lane.var.name)]
    spread = max((n for n in steps if isinstance(n, int)), default=1)
    return not along or 2 * taps * spread <= along * lanes


def _work_ns(chain: Sequence[For], machine: MachineModel) -> float:
    """Time of one iteration of the whole chain, in one lane."""
    inside = loops(chain[-1].body)
    inner = max((estimate(loop.extent) for loop in inside), default=1)
    sums = (loop for loop in inside if loop.reduction)
    steps = math.prod(max(1, estimate(loop.extent)) for loop in sums)
    each = element_ns(machine, machine.elements.column, body_cost(chain[-1].body))
    return max(inner, steps) * each


def _is_simple(inner: For) -> bool:
    """Whether there is one group of perfectly nested reductions and no buffer inside."""
    outer = [x for x in inner.body if isinstance(x, For)]
    # What moves with the lane is not private to an iteration, though a workgroup may own it.
    private = [
        w
        for w in stores(inner.body)
        if w.buffer.space is not Space.DEVICE and not depends(w, inner.var.name)
    ]
    return (
        len(outer) == 1 and outer[0].reduction and all(not w.buffer.shape for w in private)
    )


def _slides(inner: For, row: str) -> bool:
    """Whether what neighbouring iterations of `row` read overlaps: a window of known size slides."""
    taps = {x.var.name for x in loops(inner.body) if isinstance(x.extent, int)}
    if len(taps) < sum(1 for _ in loops(inner.body)):
        return False
    for load in loads(inner.body):
        for index in load.indices:
            names = {v.name for v in dim_symbols(index)}
            if row in names and names & taps:
                return True
    return False


def _write_out(s: Schedule, lane: str, short: int) -> None:
    """Write out passes over rows of at most `short` elements, which then stay in registers."""
    inner = list(loops(find(s.kernel, lane).body))
    if all(is_from_1_to(loop.extent, short) for loop in inner):
        for loop in inner:
            s.apply(do.unroll, loop.var.name)
