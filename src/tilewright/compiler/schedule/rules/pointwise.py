"""Nests without inner loops: elementwise chains and movement.

Loops that walk memory in one go become one; the axis along which the result is contiguous becomes
lanes; what is left is cut into workgroups.  A transposition writes along lanes and reads strided,
in square tiles so that the lines it reads are used up; short rows, such as the colours of a picture, are written
strided, a strip of each in turn.  Where only a call knows how long rows are, there is code for both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Final, final

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.outcome import Outcome
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.analysis.sizes import estimate, trip_count
from tilewright.compiler.analysis.strides import depends, is_folded, stride
from tilewright.compiler.kernel.fields import payloads
from tilewright.compiler.kernel.grid import GRID_KINDS
from tilewright.compiler.kernel.ir import Body, Expression, For, Index, Load, Store
from tilewright.compiler.kernel.rewrite import (
    expressions,
    loads,
    loops,
    stores,
    subexpressions,
)
from tilewright.compiler.schedule import decisions
from tilewright.compiler.schedule import primitives as do
from tilewright.compiler.schedule.cost import body_cost, element_ns
from tilewright.compiler.schedule.handles import WHOLE
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules.squares import tiles_apart, write_out_blocks
from tilewright.compiler.schedule.rules.structure import numbers_of, parallel_chain
from tilewright.compiler.schedule.rules.vectors import (
    only_moves,
    vectorize_loop,
    whole_part,
)
from tilewright.compiler.schedule.rules.workgroups import (
    Grid,
    block,
    blocks_of_work,
    cut,
)
from tilewright.compiler.schedule.rules.written_lines import ask_for_written_lines
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import enclosing_loops, find

_CHEAP: Final = 8
_MODERATE: Final = 24
_SQUARE: Final = 16
_ROWS: Final = 8
_LEAST_BITS: Final = 128
_BLOCK: Final = 64
"""A block of so many rows and columns, once as it is read and once as it is written, stays in the
first level cache."""
_STRIP: Final = 4 * _BLOCK
"""Elements of a row that is written in between others, before the next of them is written."""
_SHORT_FOLD: Final = 8
"""Up to so many elements at places that a division by an open size tells are written one by one."""


@final
@record(kw_only=True)
class Pointwise(decisions.Decision):
    """What is chosen for a nest without inner loops.

    Attributes:
        vectors: side by side in one turn of the innermost loop.
        squares: go through a transposition in square blocks.
        rows: go along a few rows at a time, where short pieces of them lie far apart.
        work: elements of one workgroup.
    """

    rule: ClassVar[str] = "pointwise"
    vectors: int = 1
    squares: bool = False
    rows: bool = False
    work: int = 1


def match_pointwise(
    s: Schedule, nest: str, machine: MachineModel, _: int
) -> PointwiseSite | None:
    """A nest without inner loops; what memory walks in one go becomes one loop."""
    chain = parallel_chain(find(s.kernel, nest))
    if not chain or any(True for _ in loops(chain[-1].body)):
        return None
    if not any(True for _ in stores(chain[-1].body)):
        return None  # of a table that never has a row nothing is picked
    names = fuse_contiguous(s, [loop.var.name for loop in chain])
    body = find(s.kernel, names[-1]).body
    lane = lane_loop(s, names, body, _lanes(machine, body))
    if lane is not None:
        names = [*(n for n in names if n != lane), lane]
        s.apply(do.reorder, names)
    return PointwiseSite(s, machine, tuple(names), body, lane is not None)


@final
@record
class PointwiseSite:
    """A nest without inner loops, the loop of the lanes innermost if it has one."""

    s: Schedule
    machine: MachineModel
    names: tuple[str, ...]
    body: Body
    has_lanes: bool

    def space(self) -> decisions.ChoiceSpace[Pointwise]:
        """Every way to go through the elements."""
        effort = body_cost(self.body)
        work = int(
            self.machine.workgroup_ns
            / element_ns(self.machine, self.machine.elements.pointwise, effort)
        )
        size = decisions.plain("work", decisions.powers_around(work), work)
        if not self.has_lanes:
            return decisions.space_from(Pointwise(), size)
        vectors = 4 if effort <= _CHEAP else 2 if effort <= _MODERATE else 1
        squares, rows = self._far_row() is not None, len(self.names) > 2
        return decisions.space_from(
            Pointwise(),
            decisions.plain("vectors", (1, 2, 4, 8), vectors),
            decisions.plain("squares", decisions.may(squares), squares),
            decisions.plain("rows", decisions.may(rows), rows),
            size,
        )

    def apply(self, chosen: Pointwise, grid: Grid) -> Outcome:
        """Rewrite the nest as was decided."""
        s, names = self.s, [*self.names]
        if not self.has_lanes:
            s.note("pointwise: no axis is contiguous, scalar code")
            grid.commit(blocks_of_work(s, names, chosen.work))
            return Outcome.GENERIC
        lanes, sides = _lanes(self.machine, self.body, names[-1]), tuple[str, ...]()
        length, strips = estimate(find(s.kernel, names[-1]).extent), list[str]()
        if chosen.squares and self._has_rows_of_open_length(lanes):
            return self._squares_or_strips(names, lanes, chosen, grid)
        if chosen.squares:
            names, sides = self._square(names, lanes, chosen.work)
            strips = [n for n in names[:-1] if not sides and n not in self.names]
        row = names[-2] if sides else None
        if row is None and chosen.rows:
            names = _rows_side_by_side(s, names, self.body, self.machine)
        lane = names[-1]
        if row is None and not isinstance(find(s.kernel, lane).extent, int):
            s.attempt(do.trim, lane)  # each vector of whole panels would ask for their end
        if len(names) == 1:
            width = lanes * chosen.vectors
            blocks, lane = block(s, lane, max(width, chosen.work // width * width))
        else:
            # All rows of a square are one workgroup's.
            outer = names[: -1 if row is None else -2]
            inside = [find(s.kernel, name) for name in names[len(outer) :]]
            elements = trip_count(inside, dict.fromkeys(names, 0))
            # A size that a cut divides is taken for a large one, but a row may be no longer than a strip.
            counts = dict.fromkeys(strips, -(-length // _STRIP))
            blocks = blocks_of_work(s, outer, chosen.work, elements, counts)
        grid.commit(blocks)
        if row is None and _is_short_fold(find(s.kernel, lane)):
            s.apply(do.unroll, lane)
            s.note(
                f"pointwise: '{lane}' one by one, at places that are the same in all rows"
            )
            return Outcome.POINTWISE
        if row is None:
            lanes = _filled_lanes(lanes, find(s.kernel, lane))
        known = {loop.var.name for loop in loops(s.kernel.body)}
        if row is None:
            vectorize_loop(s, lane, lanes, chosen.vectors, self.machine)
        else:
            self._transposed(sides, row, lane, lanes, chosen.vectors)
        if row is None and body_cost(self.body) <= _CHEAP:
            ask_for_written_lines(s, self.machine, known)
        s.note(f"pointwise: '{lane}' in {lanes} lanes x {chosen.vectors}")
        return Outcome.POINTWISE

    def _transposed(
        self, sides: Sequence[str], row: str, lane: str, lanes: int, vectors: int
    ) -> None:
        """Make square blocks of whole tiles; where nothing tells tiles apart, the last of a side begins earlier and is whole."""
        s = self.s
        parts = tiles_apart(s, row)
        for side in sides if parts == (WHOLE,) else ():
            s.attempt(do.overlap, side)
        for part in parts:
            at = part[row]
            if WHOLE in vectorize_loop(s, part[lane], lanes, vectors, self.machine, at):
                write_out_blocks(s, at, lanes)

    def _far_row(self) -> str | None:
        """The loop along which what the lanes access far apart is contiguous: a transposition."""
        apart = self._apart()
        along = (n for n in self.names[:-1] if any(stride(a, n) == 1 for a in apart))
        return next(along, None)

    def _apart(self) -> Sequence[Load | Store]:
        """What the lanes read far apart; where they read all side by side, what they write."""
        return self._strided(loads(self.body)) or self._strided(stores(self.body))

    def _strided(self, found: Iterable[Load | Store]) -> Sequence[Load | Store]:
        return [a for a in found if stride(a, self.names[-1]) not in (0, 1, None)]

    def _has_rows_of_open_length(self, lanes: int) -> bool:
        """Whether only a call knows if there are square blocks: neither side is known to fill no vector."""
        row = self._far_row()
        assert row is not None, "there are squares"
        across, along = (find(self.s.kernel, n).extent for n in (row, self.names[-1]))
        is_short = isinstance(across, int) and across < lanes
        return not isinstance(along, int) and not is_short

    def _square(
        self, names: list[str], lanes: int, work: int
    ) -> tuple[list[str], tuple[str, ...]]:
        """Put the axis along which the far accesses are contiguous next to the lanes, in blocks.

        Returns: the loops in order, and the sides of square blocks, if there are any, that of the outer tiles first.
        """
        s, lane, name = self.s, names[-1], self._far_row()
        assert name is not None, "there are squares"
        others = [n for n in names[:-1] if n != name]
        extent = find(s.kernel, name).extent
        if isinstance(extent, int) and extent <= _SQUARE:
            blocks: list[str] = []
            strip = self._strip(lane, extent, lanes, work)
            if strip:
                strips, lane = cut(s, lane, strip, f"{lane}_b", f"{lane}_n", "tight")
                blocks.append(strips)
            order = [*others, *blocks, name, lane]
            s.apply(do.reorder, order)
            return order, (name,) if extent == lanes else ()
        is_far = self._is_written_further_apart(name)
        row_block, row = _block(s, name, lanes)
        lane_block, lane = _block(s, lane, lanes)
        tiled = _tiled(s, row, lane, lanes, is_far=is_far)
        order = [*others, *lane_block, *row_block, *tiled]
        s.apply(do.reorder, order)
        sides = order[-2:]
        return order, tuple(sides if is_far else reversed(sides))

    def _strip(self, lane: str, rows: int, lanes: int, work: int) -> int:
        """Elements of each of a few rows that are met before the next row; 0: all of them."""
        if self._strided(stores(self.body)):
            # The lines that one row leaves half written are still near when the next one comes.
            return _STRIP
        if rows != lanes or rows * estimate(find(self.s.kernel, lane).extent) <= work:
            return 0
        return max(1, work // rows // _STRIP) * _STRIP

    def _is_written_further_apart(self, row: str) -> bool:
        """Whether lines of the result lie further apart than those that are read."""
        written = [stride(w, row) for w in stores(self.body)]
        read = [stride(a, self.names[-1]) for a in self._apart()]
        far, near = (max(map(_far, found)) for found in (written, read))
        # Of distances that only a call knows either may be the larger; a line that is left half written costs more.
        is_open = any(not isinstance(distance, int) for distance in (*written, *read))
        return far > near or (is_open and far == near)

    def _squares_or_strips(
        self, names: list[str], lanes: int, chosen: Pointwise, grid: Grid
    ) -> Outcome:
        """Square blocks for rows that fill vectors; others have a strip of each written in turn, strided."""
        s, lane, name = self.s, names[-1], self._far_row()
        assert name is not None, "there are squares"
        height, length = (find(s.kernel, n).extent for n in (name, lane))
        inner = estimate(length) * estimate(height)
        is_far = self._is_written_further_apart(name)
        row_block, row = _block(s, name, lanes)
        lane_block, lane = _block(s, lane, lanes)
        others = [n for n in names[:-1] if n != name]
        s.apply(do.reorder, [*others, *lane_block, *row_block, row, lane])
        if others:
            grid.commit(blocks_of_work(s, others, chosen.work, inner))
        else:
            grid.commit(_grid_of_blocks(s, [*lane_block, *row_block], chosen.work))
        for few, size, long in ((row, height, lane), (lane, length, row)):
            self._few_side_by_side(few, size, long, lanes * chosen.vectors)
        wide = lanes * chosen.vectors
        if not self._whole_squares(row, lane, lanes, wide, is_far=is_far):
            short = s.parts(do.version, row, length, lanes)[-1]
            self._squares_and_rests(row, lane, lanes, is_far=is_far)
            self._strips(short[row], short[lane], lanes, wide)
        return Outcome.POINTWISE

    def _strips(self, strip: str, few: str, lanes: int, width: int) -> None:
        """Lanes along the other side for rows shorter than a vector, strided, a strip of each written in turn."""
        s = self.s
        s.apply(do.reorder, [few, strip])
        vectorize_loop(s, strip, lanes, width // lanes, self.machine)
        s.note(
            f"pointwise: '{strip}' in {lanes} lanes where rows are shorter than a vector"
        )

    def _whole_squares(
        self, row: str, lane: str, lanes: int, width: int, *, is_far: bool
    ) -> bool:
        """Make only whole squares of a block that holds one, of which the last of either side begins earlier.

        Returns: False where what is made again might be seen, or tests tell squares apart; nothing has changed then.
        """
        s, before = self.s, self.s.kernel
        if not only_moves(self.body):
            return False
        try:
            short, low = (
                s.parts(do.version, row, find(s.kernel, name).extent, lanes)[-1]
                for name in (lane, row)
            )
            tiled = _tiled(s, row, lane, lanes, is_far=is_far)
            s.apply(do.reorder, tiled)
            height, side = tiled[-2:]
            for name in (height, side):
                s.apply(do.overlap, name)
        except ScheduleError as error:
            s.kernel = before
            s.note(f"pointwise: no square begins earlier: {error.message}")
            return False
        vectorize_loop(s, side, lanes, 1, self.machine, height)
        write_out_blocks(s, height, lanes)
        s.note(f"pointwise: '{side}' in {lanes} lanes, in whole squares")
        vectorize_loop(s, low[lane], lanes, 1, self.machine)
        self._strips(short[row], short[lane], lanes, width)
        return True

    def _squares_and_rests(self, row: str, lane: str, lanes: int, *, is_far: bool) -> None:
        """Make square blocks, and lanes of a row at a time of what none of them has."""
        s = self.s
        rests = _rests_of_blocks(s, row, lane, lanes)
        tiled = _tiled(s, row, lane, lanes, is_far=is_far)
        s.apply(do.reorder, tiled)
        row, lane = tiled[-2:]
        parts = vectorize_loop(s, lane, lanes, 1, self.machine, row)
        if WHOLE in parts:
            write_out_blocks(s, row, lanes)
        for rest in rests:
            vectorize_loop(s, rest, lanes, 1, self.machine)
        s.note(f"pointwise: '{lane}' in {lanes} lanes, in squares")

    def _few_side_by_side(self, few: str, size: Dim, long: str, width: int) -> None:
        """Give two to four elements side by side code of their own: lanes run along the other side, a known distance apart.

        Vectors are read or written whole and shuffled then; the colours of a picture are such elements.  `width`: elements in
        one turn of the other code, whose lanes may be those of a wider type.
        """
        s = self.s
        numbers = numbers_of(size)
        if not numbers:
            return
        around = enclosing_loops(s.kernel, find(s.kernel, long))
        inside = [x.var.name for x in around if x.kind not in GRID_KINDS]
        lanes = _lanes(self.machine, self.body, long)
        vectors = max(1, width // lanes)
        *pieces, _ = s.parts(do.version_of_sizes, [*inside, long][0], size, numbers)
        known = [find(s.kernel, piece[few]).extent for piece in pieces]
        for piece in pieces:
            others = [piece[n] for n in inside if n not in (few, long)]
            order = _in_strips(s, others, piece[few], piece[long])
            s.apply(do.reorder, order)
            vectorize_loop(s, order[-1], lanes, vectors, self.machine)
        if pieces:
            s.note(f"pointwise: '{long}' in {lanes} lanes where '{few}' has {known}")


def _lanes(machine: MachineModel, body: Body, lane: str | None = None) -> int:
    """Lanes of the widest type stored, or loaded (anew in every iteration of `lane`) for more than a place in memory."""
    types = [w.buffer.dtype for w in stores(body)]
    places = {id(part) for v in loads(body) for part in _place_parts(v)}
    types += [
        v.buffer.dtype
        for v in loads(body)
        if id(v) not in places and (lane is None or depends(v, lane))
    ]
    return min(map(machine.lanes, types))


def _place_parts(load: Load) -> Iterator[Expression]:
    """What is computed or loaded to know where `load` reads."""
    for dim in load.indices:
        for payload in payloads(dim):
            yield from subexpressions(payload)


def _filled_lanes(lanes: int, loop: For) -> int:
    """Lanes for a loop that may be shorter than a register.

    Half a register without a mask is as fast as a whole one with it, and some processors slow down for their widest
    registers.
    """
    if not isinstance(loop.extent, int):
        return lanes
    bits = max(a.buffer.dtype.bits for a in _accesses(loop.body))
    while 2 * loop.extent <= lanes and lanes * bits > _LEAST_BITS:
        lanes //= 2
    return lanes


def _is_short_fold(loop: For) -> bool:
    """Whether the few elements of a loop lie at remainders by a size that only a call knows, as those of a mirrored border.

    Each place by itself is one number for all rows; in lanes they would be gathered.
    """
    is_short = isinstance(loop.extent, int) and loop.extent <= _SHORT_FOLD
    return is_short and any(is_folded(v, loop.var.name) for v in loads(loop.body))


def _accesses(body: Body) -> list[Load | Store]:
    return [*stores(body), *loads(body)]


def fuse_contiguous(s: Schedule, names: list[str]) -> list[str]:
    """Join neighbours that every access walks as if they were one loop; what is left of `names`."""
    position = len(names) - 2
    while position >= 0:
        outer, inner = names[position], names[position + 1]
        into = s.fresh(f"{outer}_f")
        if _joint(s, outer, inner) and s.attempt(do.fuse, outer, inner, into):
            names[position : position + 2] = [into]
        position -= 1
    return names


def _joint(s: Schedule, outer: str, inner: str) -> bool:
    around, loop = find(s.kernel, outer), find(s.kernel, inner)
    if around.reduction != loop.reduction:
        return False
    for access in _accesses(loop.body):
        far, near = stride(access, outer), stride(access, inner)
        if far is None or near is None or far != near * loop.extent:
            return False
    return not any(
        isinstance(value, Index) and not _is_joint_number(value.dim, outer, loop)
        for value in expressions(loop.body)
    )


def _is_joint_number(number: Dim, outer: str, inner: For) -> bool:
    """Whether a number made of loop variables needs no division when both loops are one."""
    far, near = (symbolic.linear(number, name) for name in (outer, inner.var.name))
    return far is not None and near is not None and far[0] == near[0] * inner.extent


def lane_loop(s: Schedule, names: Sequence[str], body: Body, lanes: int) -> str | None:
    """The loop to make lanes of: contiguous in the stores, else in the loads."""
    written = stores(body)
    read = [n for n in names if any(stride(v, n) == 1 for v in loads(body))]
    long = [n for n in read if estimate(find(s.kernel, n).extent) >= lanes]
    for name in reversed(names):
        if written and all(stride(w, name) == 1 for w in written):
            # A few elements in a row, such as the colours of a picture, fill no vector, and are read far apart.
            short = estimate(find(s.kernel, name).extent) < lanes
            return long[-1] if short and long and name not in long else name
    for name in reversed(names):
        if any(stride(w, name) == 1 for w in written):
            return name
    for name in reversed(names):
        if any(stride(v, name) == 1 for v in loads(body)) and all(
            depends(w, name) for w in written
        ):
            return name
    return None


def _rows_side_by_side(
    s: Schedule, names: list[str], body: Body, machine: MachineModel
) -> list[str]:
    """For a copy that reads short pieces of rows far apart, go along a few rows at a time.

    Packing a matrix into panels writes panel by panel; read in that order, every piece lies in a
    page of its own, and the rest of its line is gone from the caches when the next panel comes.
    """
    if len(names) < 3:
        return names
    inner = names[-2]
    near, far = 4 * machine.line_bytes, 16 * machine.line_bytes
    for view in loads(body):
        size = view.buffer.dtype.itemsize
        if _far(stride(view, inner)) * size < far:
            continue
        for name in names[:-2]:
            if not 0 < _far(stride(view, name)) * size <= near:
                continue
            if any(_far(stride(w, name)) <= _far(stride(w, inner)) for w in stores(body)):
                continue
            blocks, rows = cut(s, inner, _ROWS, f"{inner}_b", f"{inner}_n", "tight")
            others = [n for n in names[:-2] if n != name]
            order = [*others, blocks, name, rows, names[-1]]
            s.apply(do.reorder, order)
            return order
    return names


def _block(s: Schedule, name: str, lanes: int) -> tuple[list[str], str]:
    """A loop as blocks (if it is long and they fit), and the loop inside of one."""
    size = _block_of(find(s.kernel, name).extent, lanes)
    if not size:
        return [], name
    blocks, inside = cut(s, name, size, f"{name}_b", f"{name}_n", "tight")
    return [blocks], inside


def _grid_of_blocks(s: Schedule, blocks: Sequence[str], work: int) -> list[str]:
    """Loops over blocks as workgroups of about `work` elements that are as wide as they are high."""
    size = max(1, math.isqrt(work) // _BLOCK)
    grid: list[str] = []
    inside: list[str] = []
    for name in blocks:
        outer, inner = block(s, name, size)
        grid += outer
        inside += [inner] if inner not in outer else []
    s.apply(do.reorder, [*grid, *inside])
    return grid


def _in_strips(s: Schedule, others: Sequence[str], few: str, long: str) -> list[str]:
    """An order of loops in which a few elements side by side are met strip by strip of the long side.

    What one of them leaves of a line is still near when the next one comes.
    """
    used = symbolic.names_in((find(s.kernel, long).extent,))
    blocks = next((n for n in reversed(others) if n in used), None)
    if blocks is None:
        return [*others, few, long]
    rest = [n for n in others if n != blocks]
    most = symbolic.bounds(find(s.kernel, blocks).extent)[1]
    if most is not None and most * _BLOCK <= _STRIP:
        return [*rest, few, blocks, long]
    size = _STRIP // _BLOCK
    strips, inside = cut(s, blocks, size, f"{blocks}_s", f"{blocks}_n", "tight")
    return [*rest, strips, few, inside, long]


def _tiled(s: Schedule, row: str, lane: str, lanes: int, *, is_far: bool) -> list[str]:
    """Both loops of a block as tiles of `lanes` iterations: the order in which they shall stand."""
    pairs = [cut(s, name, lanes, f"{name}_t", f"{name}_i") for name in (row, lane)]
    tiles, inside = zip(*pairs, strict=True)
    # Few lines at a time on the side where they lie further apart, each to its end.
    return [*(tiles if is_far else reversed(tiles)), *inside]


def _rests_of_blocks(s: Schedule, row: str, lane: str, lanes: int) -> list[str]:
    """Leave only whole square blocks to two loops: in their code nothing is asked, and no constant of other code has a register.

    Returns: the loops of lanes of what no block has, inside those of rows.
    """
    s.apply(do.reorder, [lane, row])
    _, *right = s.apply(do.partition, lane, whole_part(s, lane, lanes))
    for piece in (WHOLE, *right):
        s.apply(do.reorder, [piece[row], piece[lane]])
    _, *below = s.apply(do.partition, row, whole_part(s, row, lanes))
    return [piece[lane] for piece in (*right, *below)]


def _block_of(extent: Dim, lanes: int) -> int:
    """Iterations of a block; 0 where none fits.  Of a number that only a call counts, the last block may be shorter."""
    if not isinstance(extent, int):
        return _BLOCK
    fitting = (n for n in range(_BLOCK, lanes, -lanes) if symbolic.is_multiple(extent, n))
    size = next(fitting, 0)
    return size if extent > 2 * size else 0


def _far(distance: Dim | None) -> int:
    """How far apart elements lie, estimated."""
    return 0 if distance is None else abs(estimate(distance))
