"""The innermost part of a contraction: accumulators in registers, one tile at a time.

Takes the loops of one tile (rows, then lanes) around `init; sum; epilogue` and gives each part its
own unrolled and vectorized code.  Called by `contraction`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.record import record
from tilewright.compiler.analysis.strides import stride
from tilewright.compiler.kernel.ir import For, LoopKind, Space, Store
from tilewright.compiler.kernel.rewrite import buffers_read, loads, loops, only_statement
from tilewright.compiler.schedule import primitives as do
from tilewright.compiler.schedule.cost import body_cost
from tilewright.compiler.schedule.handles import Piece
from tilewright.compiler.schedule.rules.workgroups import cut, divided, ends_open
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import chain, find

_SMALL_DEPTH: Final = 8
_MOST_FMAS: Final = 640
_MOST_DOTS: Final = 64
"""Of words: each of the left operand takes a register, which longer straight code has in the wrong place."""
_SHORT_BLOCK: Final = 32
_LONGEST_WHOLE: Final = 4 * _SHORT_BLOCK
"""Multiply-adds of vectors up to which a whole sum is straight code.

Nothing parts such a sum from what is done with it.  Code generators mix the two if they are long, and
operands of the sum then wait on the stack.
"""
_HEAVY_EPILOGUE: Final = 20
"""Operations behind a sum that are not written out for every row: sums wait for them in memory."""
_MANY_SUMS: Final = 16
"""Vectors of sums in a tile beside which half as many operations are too many: with their constants they have no registers."""


@final
@record
class MicroKernel:
    """Names and sizes all micro-kernels of one contraction share.

    `rest` is read in the place of `right` in panels that are not whole; "" if nothing is.
    A step of the sum adds `products`, or the product of two `words`.  `streams` panels stand side by side (1 for tiles of several rows); `unroll` steps of the sum are written out.
    `ways` steps of the sum run side
    by side: it must follow from the extent of the sum alone, never from the tile, for else a row
    would have other bits in another batch, or at its end.  `interleaved`: the products of one step are added up in
    turn, each for all rows and vectors.  `instruction`: what does a step for two rows and two columns at once, or "".
    `slow_masks`: a store of some lanes takes much longer than one of a whole vector.
    """

    left: str
    right: str
    lanes: int
    streams: int = 1
    unroll: int = 4
    ways: int = 1
    products: int = 1
    words: bool = False
    interleaved: bool = False
    instruction: str = ""
    rest: str = ""
    slow_masks: bool = False

    def schedule(self, s: Schedule, top: str, depth: int) -> None:
        """Turn `depth` tile loops from `top` inward into straight vector code."""
        tile = [loop.var.name for loop in chain(find(s.kernel, top))[:depth]]
        lane = tile[-1]
        names = [*tile[:-1], *cut(s, lane, self.lanes, "v", "lane")]
        _split_sum(s, names[-1], self.ways)
        for each in s.apply(do.fission, names[0], depth + 1):
            part = each[names[0]]
            s.apply(do.drop_guards, part)
            innermost = chain(find(s.kernel, part))[depth]
            if any(loop.reduction for loop in loops(innermost.body)):
                _schedule_sum(s, part, depth + 1, self)
            else:
                for piece in _without_masks(s, part, depth + 1, self):
                    _schedule_plain(s, piece, depth + 1)


# --- the sum -----------------------------------------------------------------------------------


def _split_sum(s: Schedule, lane: str, ways: int) -> None:
    """Let `ways` steps of the sum run side by side."""
    inner = [x for x in loops(find(s.kernel, lane).body) if x.reduction]
    if ways == 1 or not inner:
        return
    last = inner[-1]
    extent = last.extent
    if isinstance(extent, int) and extent < 4 * ways:
        return
    # A rest beside the steps would stand between the loops around and the tile.
    while len(inner) > 1 and ways > 1 and not symbolic.is_multiple(extent, ways):
        ways //= 2
    if ways == 1:
        return
    name = last.var.name
    divided(s, name, ways)
    _, steps = cut(s, name, ways, f"{name}_o", "step")
    s.attempt(do.rfactor, _total_in(s, lane), [steps])


def _total_in(s: Schedule, lane: str) -> str:
    """The accumulator that the sum inside `lane` updates."""
    sums = (loop for loop in loops(find(s.kernel, lane).body) if loop.reduction)
    return next(x.buffer.name for loop in sums for x in loop.body if isinstance(x, Store))


def _schedule_sum(s: Schedule, top: str, depth: int, micro: MicroKernel) -> None:
    """Steps of the sum outside, the tile inside and written out, operands in registers."""
    s.apply(do.sink_guards, top)
    nest = chain(find(s.kernel, top))
    tile = [x.var.name for x in nest[:depth]]
    steps = [x.var.name for x in nest[depth:]]
    s.apply(do.reorder, [*steps, *tile])
    if micro.instruction and s.attempt(
        do.multiply_tiles, steps[0], tile[0], micro.instruction
    ):
        s.note(
            f"'{micro.instruction}' adds the products of two rows and two columns at once"
        )
        return
    extents = [find(s.kernel, n).extent for n in steps]
    size, most = micro.products, _MOST_DOTS if micro.words else _MOST_FMAS
    for name in tile[:-1]:
        extent = find(s.kernel, name).extent
        size *= extent if isinstance(extent, int) else 1
    if micro.products > 1 and size >= _SHORT_BLOCK:
        # Making numbers of a word, for all rows, is worth a jump: written out, such code is long, not faster.
        _schedule_step(s, steps[-1], depth, micro)
        return
    position = len(steps) - 1
    written_out: list[str] = []
    while position >= 0:
        extent = extents[position]
        if not isinstance(extent, int) or extent > 3 * _SMALL_DEPTH:
            break
        if size * extent > most or (written_out and size * extent > most // 2):
            break
        if written_out and (
            extent > _SMALL_DEPTH or _overlaps(s, steps[position], tile, micro)
        ):
            break
        written_out.insert(0, steps[position])
        size *= extent
        position -= 1
    if micro.words and not written_out and _overlaps(s, steps[-1], tile, micro):
        _schedule_step(s, steps[-1], depth, micro)
        return
    if not written_out or _is_long_whole(s, steps, tile[-1], size, micro):
        _unroll_steps(s, steps[-1], depth, micro)
        return
    if position >= 0:
        more = _lengthened(s, steps[position], size)
        written_out = [*more, *written_out]
    for name in written_out:
        s.apply(do.unroll, name)
    _schedule_step(s, written_out[-1], depth, micro)


def _is_long_whole(
    s: Schedule, steps: Sequence[str], lane: str, size: int, micro: MicroKernel
) -> bool:
    """Whether a sum of one loop over elements that all lanes share would be long straight code."""
    loop = find(s.kernel, steps[0])
    if len(steps) > 1 or not isinstance(loop.extent, int) or loop.extent <= micro.unroll:
        return False
    # What a loop leaves over is rounded with what is done to the sum: tiles of other rows, whose sums are whole,
    # would have other bits.
    if size <= _LONGEST_WHOLE or loop.extent % micro.unroll:
        return False
    left = [load for load in loads(loop.body) if load.buffer.name == micro.left]
    return bool(left) and all(stride(load, lane) == 0 for load in left)


def _lengthened(s: Schedule, step: str, size: int) -> list[str]:
    """Several iterations of `step` in a row, so that a short block is worth a jump."""
    extent = find(s.kernel, step).extent
    for times in (8, 4, 2):
        if size * times <= 2 * _SHORT_BLOCK and symbolic.is_multiple(extent, times):
            return [cut(s, step, times, f"{step}_o", "u")[1]]
    return []


def _overlaps(s: Schedule, step: str, tile: Sequence[str], micro: MicroKernel) -> bool:
    """Whether another row reads the same elements of the left operand some steps later.

    Written out, such loads would be one and keep their values in registers all the while.
    """
    loop = find(s.kernel, step)
    for load in loads(loop.body):
        if load.buffer.name != micro.left:
            continue
        along = stride(load, step)
        for row in tile[:-2]:
            across, count = stride(load, row), find(s.kernel, row).extent
            if not (isinstance(along, int) and isinstance(across, int)):
                return True
            if not (isinstance(count, int) and isinstance(loop.extent, int)) or not along:
                return True
            reached = {along * n for n in range(1, loop.extent)}
            if any(across * n in reached for n in range(1, count)):
                return True
    return False


def _unroll_steps(s: Schedule, step: str, depth: int, micro: MicroKernel) -> None:
    for name in (part[step] for part in divided(s, step, micro.unroll)):
        loop, inner = find(s.kernel, name), name
        if not loop.reduction:
            continue
        few = isinstance(loop.extent, int) and loop.extent < micro.unroll
        if micro.unroll > 1 and not few and symbolic.is_multiple(loop.extent, micro.unroll):
            _, inner = cut(s, name, micro.unroll, f"{name}_o", "u")
        if few or inner != name:
            s.apply(do.unroll, inner)
        _schedule_step(s, inner, depth, micro)


def _schedule_step(s: Schedule, step: str, depth: int, micro: MicroKernel) -> None:
    """One step: the right operand's vectors and one element per row, each loaded once."""
    nest = chain(find(s.kernel, step))[1 : depth + 1]
    tile = [x.var.name for x in nest]
    if len(tile) < depth:
        raise ScheduleError(f"the tile inside '{step}' is not a perfect nest")
    vector = tile[-2]
    # Of panels side by side nothing is used twice.
    once = vector if micro.streams > 1 else tile[0]
    for right in filter(None, (micro.right, micro.rest)):
        s.attempt(do.cache_read, right, once)
    if micro.streams == 1 and len(tile) > 2:
        s.attempt(do.cache_read, micro.left, vector)
    s.apply(do.drop_guards, step)
    _load_whole_half(s, step)
    if micro.interleaved and s.attempt(do.term_by_term, tile[-1]):
        s.apply(do.fission, tile[0], len(tile))
        s.note("the numbers of a word are multiplied in turn, each with all vectors")
    for loop in loops((find(s.kernel, step),)):
        name = loop.var.name
        if name == step or loop.kind is not LoopKind.SERIAL:
            continue
        if loop.extent == micro.lanes and not any(isinstance(x, For) for x in loop.body):
            s.apply(do.vectorize, name)
        elif isinstance(loop.extent, int):
            s.apply(do.unroll, name)


def _load_whole_half(s: Schedule, step: str) -> None:
    """Of vectors of which only a call knows how many are there, more than half are: a mask would take a register for each."""
    for loop in loops((find(s.kernel, step),)):
        lane, count = only_statement(loop.body), loop.extent
        if ends_open(lane) and isinstance(count, int) and count > 1:
            _settled_half(s, loop.var.name, count)


def _settled_half(s: Schedule, vector: str, count: int) -> tuple[Piece, Piece]:
    """Vectors side by side in two halves; the first asks nothing where what is known of the tile answers it."""
    whole, last = s.apply(do.partition, vector, -(-count // 2))
    s.apply(do.settle_tests, whole[vector])
    return whole, last


# --- everything else ---------------------------------------------------------------------------


def _without_masks(s: Schedule, top: str, depth: int, micro: MicroKernel) -> list[str]:
    """Parts of what is done with a tile's sums, where only a call knows how many columns there are: whole vectors without a mask.

    More than half of the vectors are there, or the tile would be half as wide; of one vector all may be, and is asked
    once for all rows where a store under a mask takes long.
    """
    nest = chain(find(s.kernel, top))[:depth]
    names, vectors = [loop.var.name for loop in nest], nest[-2].extent
    if not ends_open(nest[-1]) or not isinstance(vectors, int) or _is_heavy(nest):
        return [top]
    *rows, vector, lane = names
    if vectors == 1:
        pieces = s.parts(do.specialize, lane, top, "guarded") if micro.slow_masks else ()
        return [piece[top] for piece in pieces] or [top]
    before = s.kernel
    try:
        s.apply(do.reorder, [vector, *rows, lane])
        whole, last = _settled_half(s, vector, vectors)
        if not ends_open(find(s.kernel, whole[lane])):
            return [whole[vector], last[vector]]
    except ScheduleError:
        pass
    s.kernel = before
    return [top]


def _is_heavy(nest: Sequence[For]) -> bool:
    """Whether what is done with the sums of several rows is too much to be written out for every row; the nest is that over the tile."""
    extents = [x.extent if isinstance(x.extent, int) else 1 for x in nest[:-1]]
    many = math.prod(extents) > _MANY_SUMS
    limit = _HEAVY_EPILOGUE // 2 if many else _HEAVY_EPILOGUE
    return math.prod(extents[:-1]) > 1 and body_cost((nest[0],)) >= limit


def _schedule_plain(s: Schedule, top: str, depth: int) -> None:
    """Initial values and epilogues: vectors, written out unless that would be long."""
    nest = chain(find(s.kernel, top))
    tile = [x.var.name for x in nest[:depth]]
    is_heavy = _is_heavy(nest[:depth])
    if is_heavy:
        _spill(s, top)
    for name in tile[-2:-1] if is_heavy else tile[:-1]:
        s.apply(do.unroll, name)
    for loop in nest[depth:]:
        if isinstance(loop.extent, int):
            s.attempt(do.unroll, loop.var.name)
    s.apply(do.vectorize, tile[-1])


def _spill(s: Schedule, top: str) -> None:
    """Let a long epilogue read the tile from memory, so that its row loop need not unroll."""
    loop = find(s.kernel, top)
    for buffer in buffers_read((loop,)):
        if buffer.space is not Space.REGISTER or not buffer.shape:
            continue
        _, copy = s.apply(do.cache_read, buffer.name, top, "workgroup")
        for name in copy[:-1]:
            s.apply(do.unroll, name)
        s.apply(do.vectorize, copy[-1])
