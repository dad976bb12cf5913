"""Nests with inner loops along a contiguous axis: softmax, normalisations, row reductions.

A workgroup takes a block of rows.  Each pass over a row is vectorized; sums and extremes keep
partial results in vectors and combine them once per row.  Other axes, and rows of a few elements: see
`columns`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from tilewright.base import symbolic
from tilewright.base.outcome import Outcome
from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import Body, For, If, Space, Statement, Store
from tilewright.compiler.kernel.rewrite import loads, loops, stores
from tilewright.compiler.schedule.accesses import accesses
from tilewright.compiler.schedule.dependence import live_outside, private_buffers
from tilewright.compiler.schedule.primitives import (
    rfactor,
    set_scope,
    split,
    unroll,
)
from tilewright.compiler.schedule.rules.pointwise import (
    fuse_contiguous,
    lanes_of,
    with_tail,
)
from tilewright.compiler.schedule.rules.structure import (
    body_cost,
    depends,
    estimate,
    parallel_chain,
    short_axis,
    stride,
)
from tilewright.compiler.schedule.rules.workgroups import Grid, block, fuse_all
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import chain as perfect_nest
from tilewright.compiler.schedule.tree import enclosing_loops, find, find_buffer

_WORK_NS: Final = 20_000
_VECTORS: Final = 4
_WRITTEN_OUT: Final = 16
"""Vectors of a row up to which a pass over it is no loop: only its last vector has a mask."""


def schedule_rows(s: Schedule, nest: str, target: Target, grid: Grid) -> Outcome | None:
    """Vectorize the passes over rows; None if no pass is contiguous."""
    chain = parallel_chain(find(s.kernel, nest))
    body = _with_joined_axes(s, chain[-1].body if chain else (find(s.kernel, nest),))
    chain = parallel_chain(find(s.kernel, nest)) if chain else ()
    passes = _passes(body)
    if not passes or not any(_contiguous(p) for p in passes):
        return None
    work = sum(_pass_ns(p) for p in passes)
    if chain:
        name = fuse_all(s, [loop.var.name for loop in chain])
        grid.commit(block(s, name, max(1, int(_WORK_NS / max(1.0, work))))[0])
    for each in passes:
        loop = find(s.kernel, each.var.name)
        if _contiguous(loop):
            _schedule_pass(s, loop.var.name, target)
    keep_short_rows(s, target)
    s.note(f"rows: {len(passes)} passes of about {estimate(passes[0].extent)} elements")
    return Outcome.ROWS


def keep_short_rows(s: Schedule, target: Target) -> None:
    """Leave what passes hand on in registers where it takes no more than half of them."""
    room = target.vector_registers * target.vector_bits // 2
    for buffer in s.kernel.locals:
        if buffer.space is not Space.WORKGROUP or not buffer.shape:
            continue
        size = symbolic.bounds(math.prod(buffer.shape, start=buffer.dtype.bits))[1]
        if size is not None and size <= room:
            s.apply(set_scope, buffer.name, "register")


def _with_joined_axes(s: Schedule, body: Body) -> Body:
    """`body` with one loop for neighbouring axes that a pass walks in one go.

    A row of many short ones is then a long one, and only its end is no whole vector.
    """
    joined: list[Statement] = []
    for statement in body:
        if isinstance(statement, For):
            nest = [loop.var.name for loop in perfect_nest(statement)]
            names = fuse_contiguous(s, nest)
            _with_joined_axes(s, find(s.kernel, names[-1]).body)
            joined.append(find(s.kernel, names[0]))
        else:
            joined.append(statement)
    return tuple(joined)


def _passes(body: Sequence[Statement]) -> list[For]:
    """The innermost loops in a body."""
    found: list[For] = []
    for statement in body:
        if isinstance(statement, For):
            inner = _passes(statement.body)
            found.extend(inner or [statement])
        elif isinstance(statement, If):
            found.extend(_passes(statement.body))
    return found


def _contiguous(loop: For) -> bool:
    """Whether lanes along the loop read and write memory in order."""
    name = loop.var.name
    moving = [a for a in (*loads(loop.body), *stores(loop.body)) if depends(a, name)]
    good = [a for a in moving if stride(a, name) == 1]
    return bool(good) and 2 * len(good) >= len(moving)


def _pass_ns(loop: For) -> float:
    return estimate(loop.extent) * (0.1 + 0.02 * body_cost(loop.body))


def _schedule_pass(s: Schedule, name: str, target: Target) -> None:
    loop = find(s.kernel, name)
    lanes = target.vector_lanes(
        max(
            (
                a.buffer.dtype
                for a in (*stores(loop.body), *loads(loop.body))
                if isinstance(a, Store) or depends(a, name)
            ),
            key=lambda t: t.bits,
        )
    )
    extent = loop.extent
    if isinstance(extent, int) and extent < lanes and not target.has_masks:
        return
    vectors = _VECTORS
    if isinstance(extent, int):
        vectors = max(1, min(vectors, -(-extent // lanes)))
    totals = _totals(s, loop)
    if any(op is None for op in totals.values()) or _adds_few(s, loop, totals, target):
        return
    before_all = s.kernel
    width = lanes * vectors
    outer, inner = s.fresh(f"{name}_o"), s.fresh(f"{name}_w")
    s.apply(split, name, width, into=(outer, inner))
    if isinstance(extent, int) and extent <= _WRITTEN_OUT * lanes:
        s.apply(unroll, outer)
    known = {x.var.name for x in loops(s.kernel.body)}
    for total in totals:
        if not s.attempt(rfactor, total, [inner], lanes):
            s.kernel = before_all
            return
    tail = "exact" if isinstance(extent, int) or not totals else "guarded"
    made = with_tail(s, inner, tail)
    starts = [x.var.name for x in loops(s.kernel.body) if x.var.name not in known]
    for each in dict.fromkeys((*made, *starts)):
        lanes_of(s, each, lanes)


def _adds_few(
    s: Schedule, loop: For, totals: Mapping[str, str | None], target: Target
) -> bool:
    """Whether a pass is a short sum, which `columns` adds up in order: so it is here.

    Otherwise a row alone, which has no other rows beside it, had other bits than in a batch.
    """
    short = short_axis(target)
    if not isinstance(loop.extent, int) or loop.extent > short:
        return False
    around = [x.extent for x in enclosing_loops(s.kernel, loop) if x.reduction]
    terms = math.prod((estimate(n) for n in around), start=loop.extent)
    return terms <= short * short and any(
        op in ("add", "mul") and find_buffer(s.kernel, name).dtype.is_float
        for name, op in totals.items()
    )


def _totals(s: Schedule, loop: For) -> dict[str, str | None]:
    """Buffers whose one element every iteration updates, with the operator."""
    found: dict[str, str | None] = {}
    own = [
        b for b in private_buffers(loop.body) if not live_outside(s.kernel.body, loop, b)
    ]
    for access in accesses(loop.body):
        if not access.write or any(access.buffer is b for b in own):
            continue
        if loop.var.name not in _symbols(access.indices):
            found[access.buffer.name] = access.update
    return found


def _symbols(indices: Sequence[object]) -> set[str]:
    return {
        s.name
        for index in indices
        if isinstance(index, int | symbolic.Expr)
        for s in symbolic.symbols(index)
    }
