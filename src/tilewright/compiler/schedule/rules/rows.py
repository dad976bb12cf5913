"""Nests with inner loops along a contiguous axis: softmax, normalisations, row reductions.

A workgroup takes a block of rows.  Each pass over a row is vectorized; sums and extremes keep
partial results in vectors and combine them once per row.  Other axes, and rows of a few elements: see
`columns`.  Rows whose length only a call knows have code for few elements, too, in which lanes go across the rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final, final

from tilewright.base import symbolic
from tilewright.base.dtypes import f32
from tilewright.base.errors import ScheduleError
from tilewright.base.outcome import Outcome
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.analysis.accesses import accesses
from tilewright.compiler.analysis.dependence import (
    lines_of_an_iteration,
    only_inside,
    private_buffers,
)
from tilewright.compiler.analysis.sizes import MAY_BE_LARGER, estimate, trip_count
from tilewright.compiler.analysis.strides import depends, stride
from tilewright.compiler.kernel.ir import Body, For, If, Space, Statement, Store
from tilewright.compiler.kernel.rewrite import loads, loops, only_statement, stores
from tilewright.compiler.schedule import decisions
from tilewright.compiler.schedule import primitives as do
from tilewright.compiler.schedule.cost import body_cost, element_ns
from tilewright.compiler.schedule.handles import WHOLE, Piece
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.primitives.tails import guard_of
from tilewright.compiler.schedule.rules.pointwise import fuse_contiguous
from tilewright.compiler.schedule.rules.structure import (
    numbers_of,
    parallel_chain,
    short_axis,
)
from tilewright.compiler.schedule.rules.vectors import lanes_of, vectorize_loop
from tilewright.compiler.schedule.rules.workgroups import Grid, block, cut, fuse_all
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import chain as perfect_nest
from tilewright.compiler.schedule.tree import enclosing_loops, find, find_buffer

_VECTORS: Final = 4
_WRITTEN_OUT: Final = 16
_ROWS_OF_A_LINE: Final = 4
"""Rows that keep a temporary in the same line of memory, at least: the first of them brings it near."""
_IN_REGISTERS: Final = 8
"""Vectors up to which rows of open length have code of their own: half of the registers that machines have at least."""
_COUNTS: Final = (1, 2, 3, 4, 6)
"""Vectors up to which such a row has code that it shares only with longer ones than the number before."""
_SHORT_VECTORS: Final = 2
"""Vectors (of f32) up to which a row of open length is short: its passes take as long as those of four."""


@final
@record(kw_only=True)
class Rows(decisions.Decision):
    """What is chosen for passes over rows.

    How many partial results a sum has is no choice: it follows from the length of the row, for else a row had other
    bits on another machine, or in another batch.

    Attributes:
        block: rows of one workgroup.
        written_out: vectors of a row up to which a pass over it is no loop: only its last vector has a mask.
    """

    rule: ClassVar[str] = "rows"
    block: int = 1
    written_out: int = 0


def match_rows(
    s: Schedule, nest: str, machine: MachineModel, threads: int
) -> RowsSite | None:
    """Passes over rows, if one is contiguous."""
    chain = parallel_chain(find(s.kernel, nest))
    body = _with_joined_axes(s, chain[-1].body if chain else (find(s.kernel, nest),))
    chain = parallel_chain(find(s.kernel, nest)) if chain else ()
    passes = tuple(passes_of(body))
    if not passes or not any(is_contiguous(p) for p in passes):
        return None
    has_line = bool(chain) and bool(lines_of_an_iteration(s.kernel, chain[0]))
    names = tuple(loop.var.name for loop in chain)
    return RowsSite(s, machine, threads, names, passes, has_line)


@final
@record
class RowsSite:
    """Rows, and the passes over each."""

    s: Schedule
    machine: MachineModel
    threads: int
    names: tuple[str, ...]
    passes: tuple[For, ...]
    has_line: bool
    """Whether rows have temporaries in memory, of which workgroups on several threads have their own."""

    def space(self) -> decisions.ChoiceSpace[Rows]:
        """Rows per workgroup, and how much is written out."""
        size = self._rows_of_a_workgroup() if self.names else 1
        sizes = decisions.powers_around(size) if self.names else (1,)
        return decisions.space_from(
            Rows(),
            decisions.plain("block", sizes, size),
            decisions.plain("written_out", (0, 4, _WRITTEN_OUT), _WRITTEN_OUT),
        )

    def _rows_of_a_workgroup(self) -> int:
        """Rows that are worth the start of a workgroup; of those that may be short, as many as lanes go across, or several times that."""
        work = max(1.0, sum(_pass_ns(p, self.machine) for p in self.passes))
        is_open = not all(isinstance(p.extent, int) for p in self.passes)
        if is_open and self.threads > 1:
            work *= MAY_BE_LARGER  # they shall be work for several threads then
        size = max(1, int(self.machine.workgroup_ns / work))
        rows = self._known_rows()
        if self.threads > 1 and self.has_line:
            shared = -(-rows // self.threads) if rows else _ROWS_OF_A_LINE
            size = max(size, min(_ROWS_OF_A_LINE, shared))
        lanes = self.machine.lanes(f32)
        are_many = rows is None or rows >= lanes * self.threads
        if are_many and all(map(self._is_short_in_some_call, self.passes)):
            size = -(-size // lanes) * lanes
        return size

    def _known_rows(self) -> int | None:
        """How many rows there are; None where only a call knows."""
        nest = [find(self.s.kernel, name) for name in self.names]
        is_known = all(isinstance(loop.extent, int) for loop in nest)
        return trip_count(nest) if is_known else None

    def _is_short_in_some_call(self, passed: For) -> bool:
        """Whether only a call knows how long a row is, and it may be short, so that lanes may go across rows."""
        if isinstance(passed.extent, int) or not self.machine.has_partial_vectors:
            return False
        return (symbolic.bounds(passed.extent)[0] or 0) <= self._most

    def apply(self, chosen: Rows, grid: Grid) -> Outcome:
        """Rewrite the nest as was decided."""
        s, are_long, few = self.s, False, None
        if self.names:
            blocks, row = block(s, fuse_all(s, self.names), chosen.block)
            grid.commit(blocks)
            are_whole = False
            if row not in blocks:
                self._windows_in_one_piece(row, chosen.written_out)
                are_whole = self._whole_windows(row, chosen.written_out)
            if row not in blocks and self._may_be_short(row):
                are_long = self._across_rows(row)
                if are_long and not are_whole:
                    few = self._in_registers(row, chosen.written_out)
        for each in self.passes:
            if is_contiguous(find(s.kernel, each.var.name)):
                if not are_long:
                    self._add_few_in_order(each.var.name)
                for part in _inside(s, each.var.name):
                    name = part[each.var.name]
                    schedule_pass(s, name, self.machine, chosen.written_out, is_parted=True)
        keep_short_rows(s, self.machine)
        if few is not None:
            lanes = self._lanes
            limits = [n * lanes for n in _COUNTS if n * lanes > self._most]
            s.apply(do.version_by_limits, few, self.passes[0].extent, limits)
        length = estimate(self.passes[0].extent)
        s.note(f"rows: {len(self.passes)} passes of about {length} elements")
        return Outcome.ROWS

    def _may_be_short(self, row: str) -> bool:
        """Whether only a call knows how long rows are, and all that an iteration does are passes over one, which reduce it."""
        inner = loops(find(self.s.kernel, row).body)
        extents = {loop.extent for loop in inner}
        known = any(isinstance(extent, int) for extent in extents)
        if len(extents) != 1 or known or not self.machine.has_partial_vectors:
            return False
        totals = [(x, *total) for x in inner for total in _totals(self.s, x).items()]
        return bool(totals) and not any(
            op is None or _runs(loop, name) for loop, name, op in totals
        )

    def _windows_in_one_piece(self, row: str, written_out: int) -> None:
        """Give code of its own to the size of a picture whose rows a window holds whole: those of the window follow each other."""
        s, name = self.s, self.passes[0].var.name
        found = _whole_rows(s, find(s.kernel, name)) if len(self.passes) == 1 else None
        if found is None:
            return
        around, size, numbers = found
        *known, _ = s.parts(do.version_of_sizes, row, size, numbers)
        for piece in known:
            window = s.apply(do.fuse, piece[around], piece[name], s.fresh("window"))
            schedule_pass(s, window, self.machine, written_out)
            s.note(f"rows: windows are in one piece where {size} is {numbers[0]}")

    def _whole_windows(self, row: str, written_out: int) -> bool:
        """Give code of its own to windows all of whose taps a picture of open size has room for, and say whether they have it.

        Of these, windows that are all inside test no place.
        """
        s, name = self.s, self.passes[0].var.name
        passed = find(s.kernel, name)
        length, most = passed.extent, symbolic.bounds(passed.extent)[1]
        tests = any(load.mask is not None for load in loads(passed.body))
        counted = len(self.passes) == 1 and tests and _is_count_of_taps(s, length)
        if most is None or not counted:
            return False
        if most > _IN_REGISTERS * self._lanes or not self.machine.has_partial_vectors:
            return False
        _, whole = s.apply(do.version, row, -length, 1 - most)
        s.apply(do.widen, whole[name], most)
        s.apply(do.settle_tests, whole[row])
        _, window = cut(s, whole[row], 1, f"{row}_w", "window")
        for part in s.parts(do.interior, window):
            schedule_pass(s, part[whole[name]], self.machine, written_out)
        s.note(f"rows: windows of {most} have code of their own")
        return True

    @property
    def _most(self) -> int:
        """The longest row that is short where only a call knows how long rows are.

        Its sums are taken in order, be there one row or many, whatever code it has: for a row has the same bits in every batch.
        """
        return _SHORT_VECTORS * self.machine.lanes(f32)

    def _add_few_in_order(self, name: str) -> None:
        """Give short rows code of their own for a sum in a pass, which is left as it is."""
        s, loop = self.s, find(self.s.kernel, name)
        is_open = not isinstance(loop.extent, int) and self.machine.has_partial_vectors
        if is_open and _depends_on_order(s, _totals(s, loop)):
            s.apply(do.version, name, loop.extent, self._most + 1)

    def _across_rows(self, row: str) -> bool:
        """Give short rows code of their own, whose lanes are rows side by side, and say whether they have.

        Where passes meet elements again, these lie in lines in workgroup memory, those of the lanes side by side.
        """
        s, body = self.s, find(self.s.kernel, row).body
        lanes = min(
            self.machine.lanes(a.buffer.dtype) for a in (*loads(body), *stores(body))
        )
        most, length = self._most, self.passes[0].extent
        before = s.kernel
        try:
            *_, short = s.apply(do.version, row, length, most + 1)
            near = short[row]
            known = numbers_of(length)
            for part in s.parts(do.version_of_sizes, near, length, known):
                _lanes_of_rows(s, part[near], lanes, most)
        except ScheduleError as error:
            s.kernel = before
            s.note(f"rows of few elements are no lanes: {error.message}")
            return False
        s.note(f"rows: {lanes} rows of up to {most} elements side by side")
        return True

    def _in_registers(self, row: str, written_out: int) -> str | None:
        """Give rows of up to eight vectors code of their own: read once, and no loops; the loop over them, if they have it.

        As long as nothing else is known of their lengths, all vectors are asked how much of them there is.
        """
        s, length = self.s, self.passes[0].extent
        again = _read_again(find(s.kernel, row).body)
        most = _IN_REGISTERS * self._lanes
        if written_out < _VECTORS or self._most >= most:
            return None
        before = s.kernel
        try:
            *_, short = s.apply(do.version, row, length, most + 1)
            row = short[row]
            for buffer in again:
                s.attempt(do.keep_line, buffer, row, most)
            for each in filter(is_contiguous, passes_of(find(s.kernel, row).body)):
                s.apply(do.widen, each.var.name, most)
                schedule_pass(s, each.var.name, self.machine, 0, is_wide=True)
        except ScheduleError as error:
            s.kernel = before
            s.note(f"rows of few vectors have no code of their own: {error.message}")
            return None
        s.note(f"rows: up to {most} elements stay in registers")
        return row

    @property
    def _lanes(self) -> int:
        """Lanes of the widest type of all passes."""
        return min(_lanes_along(p, self.machine) for p in self.passes)


def _is_count_of_taps(s: Schedule, length: Dim) -> bool:
    """Whether the sizes of a call alone tell a length, and it is not one of them: of those, each is as likely as the largest."""
    found = symbolic.symbols(length)
    is_size = isinstance(symbolic.only_atom(length), Symbol)
    return bool(found) and not is_size and all(x in s.kernel.dims for x in found)


def _whole_rows(s: Schedule, passed: For) -> tuple[str, Dim, list[int]] | None:
    """The loop over the rows of a window, which `passed` goes along, the size that says how far apart they lie, and at which they are in one piece."""
    length, around = passed.extent, enclosing_loops(s.kernel, passed)
    if not isinstance(length, int) or not around or not around[-1].reduction:
        return None
    if only_statement(around[-1].body) is not passed:
        return None
    outer = around[-1].var.name
    moving = [x for x in loads(passed.body) if depends(x, passed.var.name)]
    steps = {(stride(x, outer), stride(x, passed.var.name)) for x in moving}
    far, near = steps.pop() if len(steps) == 1 else (None, None)
    tests = any(x.mask is not None for x in moving)
    numbers = [] if far is None else numbers_of(far, (length,))
    if far is None or near != 1 or tests or not numbers:
        return None
    return outer, far, numbers


def _lanes_of_rows(s: Schedule, row: str, lanes: int, most: int) -> None:
    """Lanes across rows of at most so many elements; passes over a known number of them are written out."""
    body = find(s.kernel, row).body
    inner = list(loops(body))
    for buffer in _read_again(body):
        extents = [x.extent for x in inner if isinstance(x.extent, int)]
        s.attempt(do.keep_line, buffer, row, max(extents, default=most))
    _, side = cut(s, row, lanes, f"{row}_t", "side")
    for part in s.parts(do.specialize, side, tail="guarded"):
        s.apply(do.expand, part[side])
        s.apply(do.vectorize, part[side])
        for loop in list(loops(find(s.kernel, part[side]).body)):
            if isinstance(loop.extent, int):
                s.apply(do.unroll, loop.var.name)


def _inside(s: Schedule, name: str) -> Sequence[Piece]:
    """Code of their own for windows of known size that are all inside, where others test places."""
    loop = find(s.kernel, name)
    tests = any(load.mask is not None for load in loads(loop.body))
    around = [x for x in enclosing_loops(s.kernel, loop) if x.reduction]
    known = all(isinstance(x.extent, int) for x in (*around, loop))
    if not tests or not around or not known:
        return (WHOLE,)
    return s.parts(do.interior, around[0].var.name)


def _read_again(body: Body) -> list[str]:
    """What passes of a body in device memory meet more than once."""
    found = [a.buffer for a in accesses(body) if a.buffer.space is Space.DEVICE]
    return [b.name for b in dict.fromkeys(found) if found.count(b) > 1]


def _runs(loop: For, total: str) -> bool:
    """Whether a pass reads a total on its way, as running sums do."""
    return sum(load.buffer.name == total for load in loads(loop.body)) > 1


def keep_short_rows(s: Schedule, machine: MachineModel) -> None:
    """Leave what passes hand on in registers where it takes no more than half of them."""
    room = machine.vector_registers * machine.vector_bits // 2
    for buffer in s.kernel.locals:
        if buffer.space is not Space.WORKGROUP or not buffer.shape:
            continue
        size = symbolic.bounds(math.prod(buffer.shape, start=buffer.dtype.bits))[1]
        if size is not None and size <= room:
            s.apply(do.set_scope, buffer.name, "register")


def _with_joined_axes(s: Schedule, body: Body) -> Body:
    """`body` with one loop for neighbouring axes that a pass walks in one go.

    A row of many short ones is then a long one, and only its end is no whole vector.
    """
    joined: list[Statement] = []
    for statement in body:
        if isinstance(statement, For):
            names = fuse_contiguous(s, [x.var.name for x in perfect_nest(statement)])
            _with_joined_axes(s, find(s.kernel, names[-1]).body)
            joined.append(find(s.kernel, names[0]))
        else:
            joined.append(statement)
    return tuple(joined)


def passes_of(body: Sequence[Statement]) -> list[For]:
    """The innermost loops in a body."""
    found: list[For] = []
    for statement in body:
        if isinstance(statement, For):
            inner = passes_of(statement.body)
            found.extend(inner or [statement])
        elif isinstance(statement, If):
            found.extend(passes_of(statement.body))
    return found


def is_contiguous(loop: For) -> bool:
    """Whether lanes along the loop read and write memory in order."""
    name = loop.var.name
    moving = [a for a in (*loads(loop.body), *stores(loop.body)) if depends(a, name)]
    good = [a for a in moving if stride(a, name) == 1]
    return bool(good) and 2 * len(good) >= len(moving)


def _pass_ns(loop: For, machine: MachineModel) -> float:
    each = element_ns(machine, machine.elements.row, body_cost(loop.body))
    return estimate(loop.extent) * each


def _lanes_along(loop: For, machine: MachineModel) -> int:
    """Lanes of the widest type that a pass stores, or loads along a row."""
    return min(
        machine.lanes(a.buffer.dtype)
        for a in (*stores(loop.body), *loads(loop.body))
        if isinstance(a, Store) or depends(a, loop.var.name)
    )


def schedule_pass(
    s: Schedule,
    name: str,
    machine: MachineModel,
    written_out: int,
    *,
    is_wide: bool = False,
    is_parted: bool = False,
) -> None:
    """Lanes along one pass over a row, unless it is too short for them.

    `is_wide`: the loop may be longer than the row (`widen`).
    `is_parted`: what is left of several vectors, of a row of open length, has a mask on its last vector only.
    """
    loop = find(s.kernel, name)
    lanes = _lanes_along(loop, machine)
    extent = loop.extent
    if isinstance(extent, int) and extent < lanes and not _fill_most(loop, lanes, machine):
        return
    vectors = _VECTORS
    if isinstance(extent, int):
        vectors = max(1, min(vectors, -(-extent // lanes)))
    totals = _totals(s, loop)
    if any(op is None for op in totals.values()) or _adds_few(s, loop, totals, machine):
        return
    is_parted = is_parted and not isinstance(extent, int) and machine.has_partial_vectors
    if is_parted and not totals:
        vectorize_loop(s, name, lanes, vectors, machine)
        return
    before_all = s.kernel
    outer, inner = cut(s, name, lanes * vectors, f"{name}_o", f"{name}_w")
    if isinstance(extent, int) and extent <= written_out * lanes:
        s.apply(do.unroll, outer)
    starts: list[str] = []
    for total in totals:
        try:
            _, start = s.apply(do.rfactor, total, [inner], lanes)
        except ScheduleError:
            s.kernel = before_all
            return
        starts.append(start)
    if is_wide:
        _lanes_of_wide(s, outer, inner, lanes, machine)
    elif is_parted:
        _lanes_of_parts(s, outer, inner, lanes)
    else:
        tail = "exact" if isinstance(extent, int) or not totals else "guarded"
        for part in s.parts(do.specialize, inner, tail=tail):
            lanes_of(s, part[inner], lanes)
    for each in starts:
        lanes_of(s, each, lanes)


def _fill_most(loop: For, lanes: int, machine: MachineModel) -> bool:
    """Whether a vector of which a row fills a part is worth it: where masks are no registers, most of one that is only read."""
    if machine.has_masks:
        return True
    is_read = all(x.buffer.dtype.bits >= f32.bits for x in loads(loop.body)) and not any(
        depends(x, loop.var.name) for x in stores(loop.body)
    )
    is_most = isinstance(loop.extent, int) and 2 * loop.extent > lanes
    return machine.has_partial_vectors and is_most and is_read


def _lanes_of_wide(
    s: Schedule, outer: str, inner: str, lanes: int, machine: MachineModel
) -> None:
    """Vectors of a row, written out; each is asked how much of it there is.

    Where a store to memory under a mask takes long, or a load of few bits, whole ones have code without one.
    """
    body = find(s.kernel, inner).body
    slow = [*stores(body), *(x for x in loads(body) if x.buffer.dtype.bits < f32.bits)]
    is_slow = any(x.buffer.space is Space.DEVICE for x in slow)
    vector, lane = cut(s, inner, lanes, "v", "lane")
    s.apply(do.unroll, s.apply(do.fuse, outer, vector))
    _lanes_that_may_end(s, lane, has_whole=is_slow and not machine.has_masks)


def _lanes_that_may_end(s: Schedule, lane: str, *, has_whole: bool) -> None:
    """Make lanes of which some, or all, may not be there: with a mask, and if that `has_whole` ones, with code for these without."""
    if has_whole:
        whole, *last = (part[lane] for part in s.apply(do.specialize, lane, tail="guarded"))
        s.apply(do.vectorize, whole)
        if not last:
            raise ScheduleError(f"all of '{lane}' is there, or none")
        (lane,) = last
        s.apply(do.shorten, lane, 0)
    s.apply(do.vectorize, lane)


def _lanes_of_parts(s: Schedule, outer: str, inner: str, lanes: int) -> None:
    """Whole groups of vectors in a loop of their own, in which nothing is asked and no constant gives way to those of the rest.

    The rest is there or not in all rows of a call alike: it is no loop, which would change what is asked.
    """
    loop = find(s.kernel, inner)
    found = guard_of(loop)
    assert isinstance(loop.extent, int), "vectors in a group"
    if found is None:  # groups are surely whole
        lanes_of(s, inner, lanes)
        return
    for part in s.apply(do.partition, outer, symbolic.floordiv(found[2], loop.extent)):
        s.apply(do.settle_tests, part[outer])
        name = part[inner]
        if s.attempt(do.widen, part[outer], 1):
            s.apply(do.unroll, part[outer])
        if guard_of(find(s.kernel, name)) is None or not _lanes_of_rest(s, name, lanes):
            lanes_of(s, name, lanes)


def _lanes_of_rest(s: Schedule, name: str, lanes: int) -> bool:
    """Make lanes of what several vectors leave of a row of open length: a mask on the last vector only, and no code behind it.

    Vectors are written out, as their partial sums stay in registers, and each is asked how much of it there is.
    Returns: False where lanes are not possible so; nothing has changed then.
    """
    before = s.kernel
    try:
        vector, lane = cut(s, name, lanes, "v", "lane")
        s.apply(do.unroll, vector)
        _lanes_that_may_end(s, lane, has_whole=True)
    except ScheduleError:
        s.kernel = before
        return False
    return True


def _adds_few(
    s: Schedule, loop: For, totals: Mapping[str, str | None], machine: MachineModel
) -> bool:
    """Whether a pass is a short sum, which `columns` adds up in order: so it is here.

    Otherwise a row alone, which has no other rows beside it, had other bits than in a batch.
    """
    short = short_axis(machine)
    if not isinstance(loop.extent, int) or loop.extent > short:
        return False
    around = [x.extent for x in enclosing_loops(s.kernel, loop) if x.reduction]
    terms = math.prod((estimate(n) for n in around), start=loop.extent)
    return terms <= short * short and _depends_on_order(s, totals)


def _depends_on_order(s: Schedule, totals: Mapping[str, str | None]) -> bool:
    """Whether the last digits of totals depend on the order of what they add up or multiply."""
    return any(
        op in ("add", "mul") and find_buffer(s.kernel, name).dtype.is_float
        for name, op in totals.items()
    )


def _totals(s: Schedule, loop: For) -> dict[str, str | None]:
    """Buffers whose one element every iteration updates, with the operator."""
    found: dict[str, str | None] = {}
    own = only_inside(private_buffers(loop.body), s.kernel.body, loop)
    for access in accesses(loop.body):
        if not access.write or any(access.buffer is b for b in own):
            continue
        if loop.var.name not in symbolic.names_in(access.indices):
            found[access.buffer.name] = access.update
    return found
