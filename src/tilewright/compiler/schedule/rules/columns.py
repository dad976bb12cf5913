"""Nests with inner loops where an outer axis is contiguous: windows, other-axis reductions.

Depthwise convolutions, poolings, reductions and softmax over an axis that is not the last.  Lanes
run along the contiguous outer axis; for windows several neighbouring results are computed
together, so that what their windows share is loaded once.  Windows a few elements apart, and rows
too short to fill a vector (`short_axis`), run side by side in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base.outcome import Outcome
from tilewright.base.symbolic import Dim
from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import For, Load, Space, Store
from tilewright.compiler.kernel.rewrite import dim_symbols, loads, loops, stores
from tilewright.compiler.schedule.primitives import (
    expand,
    reorder,
    specialize,
    split,
    subtotal,
    unroll,
    vectorize,
)
from tilewright.compiler.schedule.rules.micro_kernel import (
    MicroKernel,
    schedule_micro_kernel,
)
from tilewright.compiler.schedule.rules.pointwise import fuse_contiguous
from tilewright.compiler.schedule.rules.rows import keep_short_rows
from tilewright.compiler.schedule.rules.structure import (
    body_cost,
    depends,
    estimate,
    parallel_chain,
    short_axis,
    steps_in,
    stride,
)
from tilewright.compiler.schedule.rules.workgroups import (
    Grid,
    block,
    copies,
    fresh_stem,
    fuse_all,
    iterations,
)
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import find

_WORK_NS: Final = 20_000
_WINDOW_LIMIT: Final = 50
_ACROSS: Final = 24
"""Instructions to combine the lanes of one row."""
_LONG_SUM: Final = 4096
"""Terms beyond which one running sum loses digits: each addition rounds what is there already."""
_SUBTOTAL: Final = 512


def schedule_columns(s: Schedule, nest: str, target: Target, grid: Grid) -> Outcome | None:
    """Vectorize along a contiguous outer axis, or across short rows; None if there is neither."""
    chain = parallel_chain(find(s.kernel, nest))
    lane = _lane(chain, target)
    if lane is None:
        return None
    if any(stride(a, lane.var.name) != 1 for a in _moving(chain[-1], lane.var.name)):
        chain, lane = _lengthened(s, chain, lane)
    lanes = _lanes(chain[-1], lane, target)
    names = [x.var.name for x in chain if x is not lane] + [lane.var.name]
    s.apply(reorder, names)
    work = _work_ns(chain)
    if _is_simple(chain[-1]):
        _simple(s, names, lanes, work, grid)
    else:
        _take_subtotals(s, chain[-1])
        _several_passes(s, names, lanes, work, grid, short_axis(target))
        keep_short_rows(s, target)
    return Outcome.COLUMNS


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
            pair = (s.fresh(f"{name}_t"), s.fresh(f"{name}_s"))
            s.apply(split, name, _SUBTOTAL, into=pair)
            name = pair[1]
        s.attempt(subtotal, totals.pop().name, name)


def _terms(inner: For, loop: For) -> int:
    """How many terms the sum of `loop` and of the reductions around it has."""
    count = estimate(loop.extent)
    for around in loops(inner.body):
        if around.reduction and any(x is loop for x in loops(around.body)):
            count *= estimate(around.extent)
    return count


def _moving(inner: For, name: str) -> list[Load | Store]:
    return [a for a in (*stores(inner.body), *loads(inner.body)) if depends(a, name)]


def _lanes(inner: For, lane: For, target: Target) -> int:
    """Lanes of the widest type that moves with `lane`."""
    types = [a.buffer.dtype for a in _moving(inner, lane.var.name)]
    return target.vector_lanes(max(types, key=lambda t: t.bits))


def _lane(chain: Sequence[For], target: Target) -> For | None:
    """The loop along which memory is contiguous in all accesses that move with it.

    Else one along which the stores are, and the loads take one element of every few: vectors are
    read whole and shuffled.  Short rows are written that way, too.
    """
    if not chain or not any(True for _ in loops(chain[-1].body)):
        return None
    body, short = chain[-1].body, short_axis(target)
    narrow = all(_is_at_most(x.extent, short) for x in loops(body))
    for reach in (1, short):
        for loop in reversed(chain):
            name = loop.var.name
            written, read = (_steps(found, name) for found in (stores(body), loads(body)))
            most = reach if narrow else 1
            if not (written or read) or not all(_is_at_most(n, most) for n in written):
                continue
            if not all(_is_at_most(n, reach) for n in read):
                continue
            if reach == 1 or _picking_pays(chain[-1], loop, target):
                return loop
    return None


def _steps(found: Sequence[Load | Store], name: str) -> list[Dim | None]:
    """How far apart in memory neighbouring iterations of a loop meet what moves with it."""
    moving = [a for a in found if a.buffer.space is Space.DEVICE and depends(a, name)]
    return [stride(a, name) for a in moving]


def _is_at_most(distance: Dim | None, most: int) -> bool:
    """Whether a stride or an extent is a known number from 1 to `most`."""
    return isinstance(distance, int) and 1 <= distance <= most


def _picking_pays(inner: For, lane: For, target: Target) -> bool:
    """Whether elements a stride apart, picked out of vectors, take less than rows of their own.

    Counts instructions for one result: a tap picked costs a load and a shuffle for every vector
    that its lanes are spread over; a row costs a load per vector, and lanes to be combined.
    """
    taps = steps_in(inner.body)
    if taps <= short_axis(target):
        return True
    lanes = _lanes(inner, lane, target)
    along = 0
    for loop in loops(inner.body):
        if any(stride(a, loop.var.name) == 1 for a in loads(loop.body)):
            extent = max(1, estimate(loop.extent))
            along = max(along, taps // extent * -(-extent // lanes) + _ACROSS)
    steps = [stride(a, lane.var.name) for a in _moving(inner, lane.var.name)]
    spread = max((n for n in steps if isinstance(n, int)), default=1)
    return not along or 2 * taps * spread <= along * lanes


def _work_ns(chain: Sequence[For]) -> float:
    """Time of one iteration of the whole chain, in one lane."""
    inner = 1
    for loop in loops(chain[-1].body):
        inner = max(inner, estimate(loop.extent))
    steps = 1
    for loop in loops(chain[-1].body):
        if loop.reduction:
            steps *= max(1, estimate(loop.extent))
    return max(inner, steps) * (0.4 + 0.02 * body_cost(chain[-1].body))


def _is_simple(inner: For) -> bool:
    """Whether there is one group of perfectly nested reductions and no buffer inside."""
    outer = [x for x in inner.body if isinstance(x, For)]
    private = [w for w in stores(inner.body) if w.buffer.space is not Space.DEVICE]
    return (
        len(outer) == 1 and outer[0].reduction and all(not w.buffer.shape for w in private)
    )


def _simple(s: Schedule, names: list[str], lanes: int, work: float, grid: Grid) -> None:
    """One sum or extreme per element: accumulators for a few neighbours and vectors."""
    lane = names[-1]
    inner = find(s.kernel, lane)
    window = 1
    for loop in loops(inner.body):
        window *= loop.extent if isinstance(loop.extent, int) else _WINDOW_LIMIT + 1
    around = names[-2] if len(names) > 1 else None
    slides = around is not None and _slides(inner, around)
    near = window <= _WINDOW_LIMIT or slides
    rows, vectors = (4, 2) if near else (1, 4)
    if isinstance(inner.extent, int):
        vectors = max(1, min(vectors, inner.extent // lanes))
    row_stem, lane_stem = fresh_stem(s, "window"), fresh_stem(s, "channel")
    row = around if near else None
    tile: list[str] = []
    outer = names[:-1]
    if row is not None:
        extent = find(s.kernel, row).extent
        size = max(1, min(rows, extent)) if isinstance(extent, int) else rows
        pair = (s.fresh(f"{row}_t"), s.fresh(row_stem))
        s.apply(split, row, size, into=pair)
        outer = [*names[:-2], pair[0]]
        tile = [pair[1]]
    pair = (s.fresh(f"{lane}_t"), s.fresh(lane_stem))
    s.apply(split, lane, lanes * vectors, into=pair)
    tile.append(pair[1])
    order = [*outer[:-1], pair[0], *outer[-1:], *tile] if row else [*outer, pair[0], *tile]
    s.apply(reorder, order)
    grid.commit(_blocks(s, order[: -len(tile)], work * vectors * (rows if row else 1)))
    tail = "exact" if isinstance(inner.extent, int) else "guarded"
    s.attempt(specialize, pair[1], tile[0], tail)
    for loop in copies(s, row_stem) if row is not None else []:
        s.attempt(specialize, loop.var.name)
    ways = 1 if window <= _WINDOW_LIMIT else 2
    micro = MicroKernel(total="", left="", right="", lanes=lanes, ways=ways)
    for loop in copies(s, row_stem if row is not None else lane_stem):
        if isinstance(loop.extent, int):
            schedule_micro_kernel(s, loop.var.name, len(tile), micro)
    s.note(
        f"columns: window of {window}, {rows if row else 1} x {lanes * vectors} at a time"
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


def _blocks(s: Schedule, names: Sequence[str], work: float) -> list[str]:
    """Blocks of the outermost loops with enough work."""
    depth = len(names)
    size = max(1, int(_WORK_NS / max(work, 1.0)))
    while depth > 1 and iterations(s, names[depth - 1 :]) <= size:
        depth -= 1
    inner = iterations(s, names[depth:]) if depth < len(names) else 1
    name = fuse_all(s, names[:depth])
    return block(s, name, max(1, size // max(1, inner)))[0]


def _several_passes(
    s: Schedule, names: list[str], lanes: int, work: float, grid: Grid, short: int
) -> None:
    """Whole passes in lanes: every private value becomes a vector."""
    lane = names[-1]
    stem = fresh_stem(s, "channel")
    pair = (s.fresh(f"{lane}_t"), s.fresh(stem))
    s.apply(split, lane, lanes, into=pair)
    grid.commit(_blocks(s, [*names[:-1], pair[0]], work))
    s.attempt(specialize, pair[1])
    for loop in copies(s, stem):
        name = loop.var.name
        if isinstance(loop.extent, int):
            s.apply(expand, name)
            if s.attempt(vectorize, name):
                _write_out(s, name, short)
            elif loop.extent <= 4:
                s.attempt(unroll, name)
    s.note(f"columns: passes in {lanes} lanes along '{lane}'")


def _write_out(s: Schedule, lane: str, short: int) -> None:
    """Write out passes over rows of at most `short` elements, which then stay in registers."""
    inner = list(loops(find(s.kernel, lane).body))
    if all(_is_at_most(loop.extent, short) for loop in inner):
        for loop in inner:
            s.apply(unroll, loop.var.name)
