"""From the nests of a fused kernel to as few as its dependences allow.

Temporaries are inlined, consumers run where their operands are finished, values stay in
registers.  Target-independent; the same for every class of kernel.  Called first by `schedule`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tilewright.base.errors import ScheduleError
from tilewright.compiler.analysis.strides import depends
from tilewright.compiler.kernel.ir import Buffer, For, If, Kernel, Space, Statement, Store
from tilewright.compiler.kernel.rewrite import (
    buffers_read,
    buffers_written,
    loads,
    loops,
    stores,
)
from tilewright.compiler.schedule import primitives as do
from tilewright.compiler.schedule.cost import cost
from tilewright.compiler.schedule.primitives.inlining import definition
from tilewright.compiler.schedule.rules.structure import (
    FEW,
    sites,
    sums_of_products,
    top_nests,
    written_size,
    written_uses,
)
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import (
    enclosing_loops,
    find,
    find_buffer,
    used_buffers,
)

WRITTEN_LIMIT: Final = 1024
"""Nodes up to which an expression may grow, shared parts counted each time they are read.

A value that is read twice by what is read twice grows with a power of two; beyond the limit it stays
in a temporary of its own, which becomes a register.
"""
INVARIANT_COST: Final = 4
"""Operations that are as well done again in loops where they do not change, or after a sum of products.

In a temporary they would stand between the sum and what is done with it, which then could not be joined.
"""
WORKGROUP_LIMIT_BYTES: Final = 64 << 10
"""Temporaries of one iteration up to this size move into workgroup memory."""


def prepare(s: Schedule) -> None:
    """Bring the kernel down to few nests."""
    inline_temporaries(s, only_cheap=True)
    join_consumers(s)
    if len(_parts(s.kernel)) > 1:
        inline_temporaries(s, only_cheap=False)
        join_consumers(s)
    for nest in top_nests(s.kernel):
        # Several sums of products in a row become tiles of their own.
        if len(sums_of_products(nest)) < 2:
            fuse_inside(s, nest.var.name)
    localize(s)


def _parts(kernel: Kernel) -> list[Statement]:
    """What stands side by side: nests, and numbers that all of a nest reads."""
    return [part for part in kernel.body if isinstance(part, For | Store)]


def _temporaries(kernel: Kernel) -> list[Buffer]:
    used = used_buffers(kernel.body)
    return [b for b in kernel.locals if b.space is Space.DEVICE and b in used]


def inline_temporaries(s: Schedule, *, only_cheap: bool) -> None:
    """Inline what is defined element by element and not expensive to compute again."""
    for buffer in _temporaries(s.kernel):
        if (not only_cheap or _cheap(s.kernel, buffer)) and not _swells(s.kernel, buffer):
            s.attempt(do.inline, buffer.name)


def _swells(kernel: Kernel, buffer: Buffer) -> bool:
    """Whether writing the values of a buffer out where it is read makes too much of them."""
    sizes = [written_size(w.value) for w in stores(kernel.body) if w.buffer is buffer]
    return bool(sizes) and max(sizes) * written_uses(kernel.body, buffer) > WRITTEN_LIMIT


def _cheap(kernel: Kernel, buffer: Buffer) -> bool:
    try:
        producer, store = definition(kernel, buffer)
    except ScheduleError:
        return False
    effort, found = cost(store.value), sites(kernel.body, buffer)
    summed = any(loop.reduction for around, _ in found for loop in around)
    if summed and _is_made_of_sums(kernel, store):
        return False
    if effort == 0 or (producer is store and effort <= INVARIANT_COST):
        return True
    # A value that is multiplied by itself is read twice, and computed once.
    if len({(around, load.indices, load.mask) for around, load in found}) != 1:
        return False
    around, load = found[0]
    # A nest of products does much more for each result than what its epilogue computes again.
    nests = top_nests(kernel)
    if effort <= INVARIANT_COST and not summed and any(map(sums_of_products, nests)):
        return True
    if effort <= INVARIANT_COST and _has_few_side_by_side(kernel, around):
        return True
    return all(depends(load, loop.var.name) or loop.extent == 1 for loop in around)


def _has_few_side_by_side(kernel: Kernel, around: Sequence[For]) -> bool:
    """Whether a kernel without sums walks few elements innermost: alone in its loops, it has lanes along another of them."""
    extent = around[-1].extent if len(around) > 1 else 1
    return extent in FEW and not any(loop.reduction for loop in loops(kernel.body))


def _is_made_of_sums(kernel: Kernel, store: Store) -> bool:
    """Whether a store reads sums of products: where they are finished, it is done once for each of them.

    Another sum would do it for every column, and would read them in the order that they are made in.
    """
    read = {load.buffer for load in loads((store,))}
    totals = (x for nest in top_nests(kernel) for x in sums_of_products(nest))
    return any(total.buffer in read for total in totals)


def join_consumers(s: Schedule) -> None:
    """Move each nest to where what it reads is finished, as long as that is possible."""
    position = 1
    while position < len(s.kernel.body):
        if _join_one(s, position):
            position = 1
        else:
            position += 1


def _join_one(s: Schedule, position: int) -> bool:
    nest = s.kernel.body[position]
    if not isinstance(nest, For):
        return False
    earlier = s.kernel.body[:position]
    written = buffers_written(earlier)
    linked = [b for b in buffers_read((nest,)) if b in written]
    for buffer in reversed(linked):
        if s.attempt(do.reverse_inline, nest.var.name, buffer.name):
            return True
    if not linked:
        return False
    for before in reversed(earlier):
        if not isinstance(before, For) or before.extent != nest.extent:
            continue
        if any(b in linked for b in buffers_written((before,))):
            return s.attempt(do.fuse_nests, before.var.name, nest.var.name)
    return False


def fuse_inside(s: Schedule, loop: str) -> None:
    """Join loops of equal extent inside a loop, deeper and deeper."""
    while _fuse_pair(s, loop):
        pass
    for inner in _loops_inside(s.kernel, loop):
        fuse_inside(s, inner.var.name)


def _loops_inside(kernel: Kernel, loop: str) -> list[For]:
    return [s for s in find(kernel, loop).body if isinstance(s, For)]


def _fuse_pair(s: Schedule, loop: str) -> bool:
    inside = _loops_inside(s.kernel, loop)
    for second in range(1, len(inside)):
        for first in range(second - 1, -1, -1):
            a, b = inside[first], inside[second]
            if a.extent == b.extent and s.attempt(do.fuse_nests, a.var.name, b.var.name):
                return True
    return False


def localize(s: Schedule) -> None:
    """Keep temporaries of one iteration in registers or workgroup memory, or not at all."""
    for buffer in _temporaries(s.kernel):
        loop = _deepest(s.kernel.body, buffer)
        if loop is None:
            continue
        if not s.attempt(do.privatize, buffer.name, loop.var.name):
            continue
        _place(s, buffer.name)
    for buffer in s.kernel.locals:
        if buffer.space is Space.REGISTER and not buffer.shape and _worth(s.kernel, buffer):
            s.attempt(do.forward, buffer.name)
    for parameter in s.kernel.parameters:
        buffer = parameter.buffer
        if sites(s.kernel.body, buffer) and not _swells(s.kernel, buffer):
            s.attempt(do.forward, buffer.name)


def _place(s: Schedule, name: str) -> None:
    """Choose the memory of a private temporary by its size."""
    buffer = find_buffer(s.kernel, name)
    if not buffer.shape:
        return
    sizes = [size for size in buffer.shape if isinstance(size, int)]
    size_bytes = math.prod(sizes, start=buffer.dtype.itemsize)
    is_small = len(sizes) == len(buffer.shape) and size_bytes <= WORKGROUP_LIMIT_BYTES
    s.apply(do.set_scope, name, "workgroup" if is_small else "device")


def _worth(kernel: Kernel, buffer: Buffer) -> bool:
    writes = [w for w in stores(kernel.body) if w.buffer is buffer]
    if len(writes) != 1 or _swells(kernel, buffer):
        return False
    found = sites(kernel.body, buffer)
    depth = len(enclosing_loops(kernel, writes[0]))
    return cost(writes[0].value) == 0 or (len(found) == 1 and len(found[0][0]) == depth)


def _deepest(body: tuple[Statement, ...], buffer: Buffer) -> For | None:
    """The innermost loop that contains every use of a buffer."""
    found: For | None = None
    level = body
    while True:
        users = [statement for statement in level if buffer in used_buffers((statement,))]
        if len(users) != 1 or not isinstance(users[0], For | If):
            return found
        if isinstance(users[0], For):
            if users[0].reduction:
                return found
            found = users[0]
        level = users[0].body
