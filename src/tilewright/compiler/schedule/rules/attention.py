"""Attention: rows of queries side by side as lanes, keys and values read where they lie.

    for head, some tiles of rows:                              workgroups
        query[tile, size, rows] = q                            near caches
        for block of keys:
            keys, values = copies                              where the cache would not keep them, and all tiles read them
            for tile of rows:
                for tile of keys: scores[keys, rows] = k query     registers
                top, powers of the scores, total                   lanes
                for tile of size: sums[size, rows] += v scores     registers
        out = sums

Every sum has rows of queries as lanes: one element of keys and values after the other is multiplied
with vectors, whatever their layout, and a row's largest score and total are a lane, too.
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
from tilewright.compiler.analysis.sizes import estimate, trip_count
from tilewright.compiler.analysis.strides import depends, stride
from tilewright.compiler.kernel.ir import For, Load
from tilewright.compiler.kernel.rewrite import loads, loops, stores
from tilewright.compiler.schedule import decisions
from tilewright.compiler.schedule import primitives as do
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules.attention_streams import few_rows, stream_rows
from tilewright.compiler.schedule.rules.micro_kernel import MicroKernel
from tilewright.compiler.schedule.rules.online_blocks import (
    BlockWalk,
    from_memory,
    is_block,
    privatize_all,
    split_off_last_block,
    unguard,
    unguarded,
)
from tilewright.compiler.schedule.rules.structure import parallel_chain, sums_of_products
from tilewright.compiler.schedule.rules.tiles import STAYS, choose_tile, most_rows
from tilewright.compiler.schedule.rules.workgroups import Grid, cut, divided
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import chain as perfect_nest
from tilewright.compiler.schedule.tree import find

_WAYS: Final = 4
"""Elements of a row that a pass combines side by side: part of the order of a sum, so no choice."""
_MOST_TILES: Final = 8
_OPEN_TILE: Final = 8
"""Keys of a tile at most, where their number is not known: what is left over of it is made in powers of two."""


@final
@record(kw_only=True)
class RowTiles(decisions.Decision):
    """What is chosen for the rows of an online softmax.

    Attributes:
        vectors: vectors of rows in a tile: as many as leave room for a tile of sums that needs few loads.
        tiles: tiles of a workgroup, which follow each other while keys and values of a block are near.
        staged: keys and values of a block are copied to where rows follow each other, once for all tiles of a workgroup.
    """

    rule: ClassVar[str] = "attention"
    vectors: int = 2
    tiles: int = 1
    staged: bool = False


@final
@record
class _BlockRead:
    """What a sum reads of a block: rows, bytes of each, and bytes from one to the next."""

    rows: int
    row_bytes: int
    apart: int


def match_attention(
    s: Schedule, nest: str, machine: MachineModel, threads: int
) -> AttentionSite | None:
    """Rows with several sums of products, one after the other."""
    chain = parallel_chain(find(s.kernel, nest))
    if not chain or len(sums_of_products(chain[-1])) < 2:
        return None
    lanes = machine.lanes(sums_of_products(chain[-1])[0].buffer.dtype)
    sizes = tuple(max(1, estimate(x.extent)) for x in chain)
    return AttentionSite(
        s,
        machine,
        threads,
        tuple(x.var.name for x in chain),
        sizes,
        lanes,
        tuple(_blocks_read(s, chain[-1])),
        tuple(x.extent for x in chain[-1].body if is_block(x)),
    )


@final
@record
class AttentionSite:
    """The loops over heads, and over rows innermost; how often they run, about, rows in a vector, what is read of a block, and how many there are."""

    s: Schedule
    machine: MachineModel
    threads: int
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    lanes: int
    reads: tuple[_BlockRead, ...]
    blocks: tuple[Dim, ...]

    def space(self) -> decisions.ChoiceSpace[RowTiles]:
        """Vectors per tile, tiles per workgroup."""
        return decisions.space_from(
            RowTiles(),
            decisions.plain("vectors", (1, 2), 2),
            decisions.Choice(
                "tiles",
                lambda at: decisions.ladder(_MOST_TILES, self._tiles(at)),
                self._tiles,
            ),
            decisions.Choice("staged", self._stagings, lambda at: self._stagings(at)[-1]),
        )

    def _tiles(self, at: RowTiles) -> int:
        """As many as share keys and values, as long as there are workgroups for all threads."""
        tiles = -(-self.sizes[-1] // (at.vectors * self.lanes))
        heads = math.prod(self.sizes[:-1])
        wanted = max(1, tiles * heads // (4 * self.threads))
        groups = max(-(-tiles // min(_MOST_TILES, wanted)), 1)
        return -(-tiles // groups)

    def _stagings(self, at: RowTiles) -> tuple[bool, ...]:
        """Copies pay where tiles share them and what is read of a block would push itself out of the second level cache."""
        l2 = self.machine.l2
        taken = sum(l2.ways_taken(x.rows, x.row_bytes, x.apart) for x in self.reads)
        size = sum(x.rows * x.row_bytes for x in self.reads)
        pays = at.tiles > 1 and taken > STAYS * l2.ways and size < STAYS * l2.size_bytes
        return (False, True) if pays and self._are_shared(at) else (False,)

    def _are_shared(self, at: RowTiles) -> bool:
        """Whether the tiles of half of the workgroups read blocks together: those of the row before, if rows decide."""
        rows, together = self.names[-1], at.tiles * at.vectors * self.lanes
        before: Dim = self.sizes[-1] // 2 // together * together - 1
        decided = [x for x in self.blocks if rows in symbolic.names_in((x,))]
        counts = (symbolic.substitute(x, {rows: before}) for x in decided)
        return all(isinstance(count, int) and count >= 1 for count in counts)

    def apply(self, chosen: RowTiles, grid: Grid) -> Outcome:
        """Rewrite the nest as was decided."""
        s, lanes = self.s, self.lanes
        width = chosen.vectors * lanes
        if self._may_have_few_rows():
            return self._apply_open(width, chosen.tiles, grid)
        split_off_last_block(s, self.names[-1])
        short = _split_off_last_rows(s, self.names, width)
        _tile(s, self.machine, self.names, width, chosen, grid)
        if short:
            rest = estimate(find(s.kernel, short[-1]).extent)
            few = -(-rest // lanes) * lanes
            _tile(s, self.machine, short, few, RowTiles(), Grid(s, main=False))
        s.note(f"attention: {width} rows as lanes, {chosen.tiles} tiles in a workgroup")
        return Outcome.TILED

    def _may_have_few_rows(self) -> bool:
        """Whether the number of rows is not known, and there are heads for all threads."""
        heads = math.prod(self.sizes[:-1])
        open_ = not isinstance(find(self.s.kernel, self.names[-1]).extent, int)
        return open_ and len(self.names) > 1 and heads >= 2 * self.threads

    def _apply_open(self, width: int, count: int, grid: Grid) -> Outcome:
        """Tiles of rows, and a rest of few rows one by one: a call may have no more than those."""
        s, (*outer, rows) = self.s, self.names
        grid.commit(outer)
        extent, few = find(s.kernel, rows).extent, few_rows(self.lanes)
        full = symbolic.floordiv(extent + (width - 1 - few), width) * width
        first, last = s.apply(do.partition, rows, symbolic.minimum(full, extent))
        split_off_last_block(s, first[rows])
        tile, lane = cut(s, first[rows], width, f"{rows}_t", "row")
        _, near = cut(s, tile, count, f"{tile}_g", f"{tile}_n", "tight")
        _LaneRows(s, self.machine, staged=False).run([near, lane])
        split_off_last_block(s, last[rows])
        _, one = cut(s, last[rows], 1, f"{rows}_t", "row")
        stream_rows(s, self.machine, one)
        s.note(f"attention: {width} rows as lanes, {few} and fewer one by one")
        return Outcome.TILED


def _tile(
    s: Schedule,
    machine: MachineModel,
    names: Sequence[str],
    width: int,
    chosen: RowTiles,
    grid: Grid,
) -> None:
    """Tiles of `width` rows, as many in a workgroup as were chosen, of the nest called `names`."""
    (*outer, rows), count = names, chosen.tiles
    tile, lane = cut(s, rows, width, f"{rows}_t", "row")
    tiles = symbolic.bounds(find(s.kernel, tile).extent)[1]
    inner = [tile]
    if count == 1 and tiles != 1:
        outer, inner = [*outer, tile], []
    elif tiles is None or tiles > count:
        group, near = cut(s, tile, count, f"{tile}_g", f"{tile}_n", "tight")
        outer, inner = [*outer, group], [near]
    grid.commit(outer)
    staged = chosen.staged and bool(inner)
    if staged:
        for block in filter(is_block, unguarded(find(s.kernel, lane).body)):
            s.attempt(do.split_alike, block.var.name, inner[0])
    _LaneRows(s, machine, staged=staged).run([*inner, lane])


def _split_off_last_rows(s: Schedule, names: Sequence[str], width: int) -> list[str]:
    """Give a last tile that would be half empty a nest of its own: the names of its loops."""
    *outer, rows = names
    extent = find(s.kernel, rows).extent
    if (
        not isinstance(extent, int)
        or extent < width
        or not 0 < extent % width <= width // 2
    ):
        return []
    _, last = s.apply(do.partition, rows, extent // width * width)
    if not outer:
        return [last[rows]]
    _, apart = s.apply(do.fission, outer[0], len(outer))
    return [*(apart[name] for name in outer), apart[last[rows]]]


def _blocks_read(s: Schedule, rows: For) -> list[_BlockRead]:
    """The operands in memory that sums of a block read row by row, where sizes and strides are known."""
    blocks = [x for x in loops(rows.body) if is_block(x)]
    block = blocks[-1] if blocks else rows
    around = {x.var.name for x in (rows, *blocks)} if blocks else set[str]()
    inner = [x.extent for x in loops(block.body)]
    if not isinstance(rows.extent, int) or not symbolic.names_in(inner) <= around:
        return []  # a call may have no tile, or decides how long blocks are
    reads = [x for store in sums_of_products(block) for x in from_memory(s, store)]
    return [x for x in (_crossed(block, read) for read in reads) if x is not None]


def _crossed(around: For, read: Load) -> _BlockRead | None:
    """The rows that loops inside of `around` read; None where they are no rows, or only a call knows where they lie."""
    moving = [x for x in loops(around.body) if depends(read, x.var.name)]
    extents = {stride(read, x.var.name): symbolic.bounds(x.extent)[1] for x in moving}
    apart = max((x for x in extents if isinstance(x, int)), default=0)
    rows, columns = extents.get(apart), extents.get(1)
    if len(moving) != 2 or apart < 2 or rows is None or columns is None:
        return None
    size = read.dtype.itemsize
    return _BlockRead(rows, columns * size, apart * size)


def _stays_in_lanes(loop: For, lane: str) -> bool:
    """Whether a pass over a row's elements reads the rows beside it as vectors."""
    near = all(stride(x, lane) in (0, 1) for x in loads(loop.body))
    return near and not sums_of_products(loop)


@final
class _LaneRows(BlockWalk):
    """The code of a tile of rows, each row a lane."""

    together: ClassVar[str] = "iterations"

    def __init__(self, s: Schedule, machine: MachineModel, *, staged: bool) -> None:
        super().__init__(s, machine)
        self.staged: bool = staged

    def stage(self, around: str) -> None:
        """Copy keys, and values the other way round, to where rows follow each other, for all tiles of a workgroup."""
        s = self.s
        stored = sums_of_products(find(s.kernel, around)) if self.staged else []
        for read in [x for store in stored for x in from_memory(s, store)]:
            if not _crossed(find(s.kernel, around), read):
                continue
            try:
                _, copy = s.apply(do.cache_read, read.buffer.name, around, "workgroup")
            except ScheduleError as error:
                s.note(f"attention: '{read.buffer.name}' stays: {error.message}")
                continue
            s.note(f"attention: rows of '{read.buffer.name}' meet in few sets: copied")
            across, lane = copy
            (read,) = loads(find(s.kernel, lane).body)
            is_square = stride(read, lane) != 1
            self._steps(across, lane, self._width(lane) if is_square else _WAYS)

    def inside(self, lane: str) -> None:
        """Move the rows of a tile inside of every part of a row's code."""
        self._join_passes(lane)
        parts = [part[lane] for part in self.s.apply(do.fission, lane, 1, "workgroup")]
        for one in parts:
            unguard(self.s, one)
        for one in parts:
            self.part(one)

    def _join_passes(self, lane: str) -> None:
        """Passes over the same elements, one after the other, are one; but what is moved is not."""
        s = self.s
        first: For | None = None
        for statement in unguarded(find(s.kernel, lane).body):
            is_pass = isinstance(statement, For) and _stays_in_lanes(statement, lane)
            if isinstance(statement, For) and is_pass and first is not None:
                s.attempt(do.fuse_nests, first.var.name, statement.var.name)
            first = statement if isinstance(statement, For) and is_pass else None

    def part(self, lane: str) -> None:
        """Schedule the one statement of the tile's code that `lane` goes over."""
        s = self.s
        inner = find(s.kernel, lane).body
        if len(inner) != 1 or not isinstance(inner[0], For):
            self._vectors(lane)
            return
        name = inner[0].var.name
        if sums_of_products(inner[0]) and not inner[0].reduction:
            s.apply(do.reorder, [name, lane])
            self._contract(name, lane)
        elif inner[0].reduction:
            self._combine(lane, name)
        else:
            s.apply(do.reorder, [name, lane])
            self._pass(name, lane)

    # --- passes --------------------------------------------------------------------------

    def _vectors(self, lane: str) -> None:
        """Rows as lanes, nothing else."""
        s = self.s
        vector, inner = self._lanes(lane)
        for part in s.apply(do.fission, vector, 2):
            s.apply(do.unroll, part[vector])
            s.apply(do.vectorize, part[inner])

    def _lanes(self, lane: str) -> tuple[str, str]:
        return cut(self.s, lane, self._width(lane), "v", "lane")

    def _width(self, lane: str) -> int:
        """Lanes of the widest vectors that a nest stores."""
        found = stores(find(self.s.kernel, lane).body)
        return min(self.machine.lanes(x.buffer.dtype) for x in found)

    def _pass(self, across: str, lane: str) -> None:
        """A pass over a row's elements, for all rows; blocks that are transposed lie side by side."""
        s, row = self.s, lane
        body = find(s.kernel, across).body
        if any(stride(x, across) == 1 and stride(x, lane) != 1 for x in stores(body)):
            s.apply(do.reorder, [lane, across])
            across, lane = lane, across
        if not any(stride(x, across) == 1 and stride(x, lane) != 1 for x in loads(body)):
            self._steps(across, lane, _WAYS)
            return
        # Only the last tile may lack rows: there alone lanes are left out of blocks.
        for part in s.parts(do.specialize, row, across, "guarded"):
            self._steps(part[across], part[lane], self._width(part[lane]))

    def _steps(self, across: str, lane: str, count: int) -> None:
        """`count` elements of every row at a time."""
        s = self.s
        for part in divided(s, across, count):
            _, steps = cut(s, part[across], count, f"{across}_o", "s")
            vector, inner = self._lanes(part[lane])
            s.apply(do.reorder, [vector, steps, inner])
            s.apply(do.unroll, steps)
            s.apply(do.vectorize, inner)

    def _combine(self, lane: str, across: str) -> None:
        """A pass that combines a row's elements: some side by side, in registers."""
        s = self.s
        _, inner = self._lanes(lane)
        totals = [
            x.buffer.name
            for x in stores(find(s.kernel, across).body)
            if stride(x, across) in (0, None)
        ]
        if len(totals) != 1:
            raise ScheduleError(f"'{across}' combines {len(totals)} values, expected 1")
        first = divided(s, across, _WAYS)[0][across]
        _, steps = cut(s, first, _WAYS, f"{across}_o", "s")
        s.apply(do.rfactor, totals[0], [steps])
        for part in s.apply(do.fission, inner, 1):
            nest = [x.var.name for x in perfect_nest(find(s.kernel, part[inner]))]
            if len(nest) > 1:
                s.apply(do.reorder, [*nest[1:], nest[0]])
            for name in nest[1:]:
                if find(s.kernel, name).extent == _WAYS:
                    s.apply(do.unroll, name)
            s.apply(do.vectorize, nest[0])

    # --- sums of products ------------------------------------------------------------------

    def _contract(self, name: str, lane: str) -> None:
        """Register tiles of a sum whose lanes are rows."""
        s = self.s
        privatize_all(s, lane)
        (store,) = sums_of_products(find(s.kernel, name))
        factors = [x for x in loads(store.value) if x.buffer is not store.buffer]
        if len(factors) != 2:
            raise ScheduleError(f"'{store.buffer.name}' adds no product of two elements")
        left, right = factors if stride(factors[1], lane) == 1 else reversed(factors)
        micro = MicroKernel(
            left=left.buffer.name,
            right=right.buffer.name,
            lanes=self.machine.lanes(store.buffer.dtype),
        )
        for tile in self._tiles(name, lane, left, micro.lanes):
            micro.schedule(s, tile, 2)

    def _tiles(self, name: str, lane: str, left: Load, lanes: int) -> list[str]:
        """Split the loop over what a sum is for; the loops over one tile, full and partial ones."""
        s = self.s
        rows = self._tile_rows(name, lane, left, lanes)
        _, tile = cut(s, name, rows, f"{name}_t", "tile_row")
        found: list[str] = []
        for part in s.parts(do.specialize, tile, tile):
            one = part[tile]
            extent = find(s.kernel, one).extent
            if isinstance(extent, int):
                found.append(one)
                continue
            largest = 1 << ((symbolic.bounds(extent)[1] or 1).bit_length() - 1)
            found += [power[one] for power in s.apply(do.split_powers, one, largest)]
        return found

    def _tile_rows(self, name: str, lane: str, left: Load, lanes: int) -> int:
        loop, width = find(self.s.kernel, name), find(self.s.kernel, lane).extent
        apart = stride(left, name)
        if not isinstance(loop.extent, int):
            vectors = max(1, estimate(width) // lanes)
            return min(_OPEN_TILE, most_rows(self.machine, vectors))
        return choose_tile(
            self.machine,
            (max(1, estimate(loop.extent)),),
            estimate(width),
            trip_count(x for x in loops(loop.body) if x.reduction),
            lanes,
            row_bytes=(apart if isinstance(apart, int) else 0) * left.dtype.itemsize,
            panel=estimate(width),
        ).rows
