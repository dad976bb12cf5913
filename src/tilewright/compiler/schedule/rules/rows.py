"""Nests with inner loops along a contiguous axis: softmax, normalisations, row reductions.

A workgroup takes a block of rows.  Each pass over a row is vectorized; sums and extremes keep
partial results in vectors and combine them once per row.  Other axes: see `columns`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base import symbolic
from tilewright.base.outcome import Outcome
from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import For, If, Statement, Store
from tilewright.compiler.kernel.rewrite import loads, loops, stores
from tilewright.compiler.schedule.accesses import accesses
from tilewright.compiler.schedule.dependence import live_outside, private_buffers
from tilewright.compiler.schedule.primitives import (
    rfactor,
    split,
)
from tilewright.compiler.schedule.rules.pointwise import lanes_of, with_tail
from tilewright.compiler.schedule.rules.structure import (
    body_cost,
    depends,
    estimate,
    parallel_chain,
    stride,
)
from tilewright.compiler.schedule.rules.workgroups import Grid, block, fuse_all
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import find

_WORK_NS: Final = 20_000
_VECTORS: Final = 4


def schedule_rows(s: Schedule, nest: str, target: Target, grid: Grid) -> Outcome | None:
    """Vectorize the passes over rows; None if no pass is contiguous."""
    chain = parallel_chain(find(s.kernel, nest))
    passes = _passes(chain[-1].body if chain else (find(s.kernel, nest),))
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
    s.note(f"rows: {len(passes)} passes of about {estimate(passes[0].extent)} elements")
    return Outcome.ROWS


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
        vectors = max(1, min(vectors, extent // lanes))
    totals = _totals(s, loop)
    if any(op is None for op in totals.values()):
        return
    before_all = s.kernel
    width = lanes * vectors
    outer, inner = s.fresh(f"{name}_o"), s.fresh(f"{name}_w")
    s.apply(split, name, width, into=(outer, inner))
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
