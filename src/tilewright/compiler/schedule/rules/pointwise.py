"""Nests without inner loops: elementwise chains and movement.

Loops that walk memory in one go become one; the axis along which the result is contiguous becomes
lanes; what is left is cut into workgroups.  A transposition writes along lanes and reads strided,
in square tiles so that the lines it reads are used up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from tilewright.base import symbolic
from tilewright.base.outcome import Outcome
from tilewright.base.symbolic import Dim
from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import Body, For, If, Index, Load, Statement, Store
from tilewright.compiler.kernel.rewrite import expressions, loads, loops, stores
from tilewright.compiler.schedule.primitives import (
    expand,
    fuse,
    reorder,
    specialize,
    split,
    unroll,
    vectorize,
)
from tilewright.compiler.schedule.rules.structure import (
    body_cost,
    depends,
    estimate,
    parallel_chain,
    stride,
)
from tilewright.compiler.schedule.rules.workgroups import Grid, block, fuse_all, iterations
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import find

_WORK_NS: Final = 20_000
_CHEAP: Final = 8
_MODERATE: Final = 24
_SQUARE: Final = 16
_ROWS: Final = 8
_LEAST_BITS: Final = 128
_BLOCK: Final = 64
"""A block of so many rows and columns, once as it is read and once as it is written, stays in the
first level cache."""


def schedule_pointwise(
    s: Schedule, nest: str, target: Target, grid: Grid
) -> Outcome | None:
    """Vectorize a nest without inner loops; None if it has inner loops."""
    chain = parallel_chain(find(s.kernel, nest))
    if not chain or any(True for _ in loops(chain[-1].body)):
        return None
    names = fuse_contiguous(s, [loop.var.name for loop in chain])
    body = find(s.kernel, names[-1]).body
    lanes = _lanes(target, body)
    lane = lane_loop(s, names, body, lanes)
    effort = body_cost(body)
    if lane is None:
        s.note("pointwise: no axis is contiguous, scalar code")
        grid.commit(_workgroups(s, names, effort, 1))
        return Outcome.GENERIC
    lanes = _lanes(target, body, lane)
    names = [*(n for n in names if n != lane), lane]
    s.apply(reorder, names)
    factor = 4 if effort <= _CHEAP else 2 if effort <= _MODERATE else 1
    names, row = _square(s, names, body, lanes)
    if row is None:
        names = _rows_side_by_side(s, names, body, target)
    lane = names[-1]
    if len(names) == 1:
        blocks, lane = block(s, lane, _chunk(effort, lanes * factor))
    else:
        blocks = _workgroups(s, names[:-1], effort, estimate(find(s.kernel, lane).extent))
    grid.commit(blocks)
    if row is None:
        lanes = _filled_lanes(lanes, find(s.kernel, lane))
    vectorize_loop(s, lane, lanes, factor, target, row)
    if row is not None:
        _write_out_blocks(s, row, lanes)
    s.note(f"pointwise: '{lane}' in {lanes} lanes x {factor}")
    return Outcome.POINTWISE


def _lanes(target: Target, body: Body, lane: str | None = None) -> int:
    """Lanes of the widest type stored, or loaded (anew in every iteration of `lane`)."""
    types = [w.buffer.dtype for w in stores(body)]
    types += [v.buffer.dtype for v in loads(body) if lane is None or depends(v, lane)]
    widest = max(types, key=lambda t: t.bits)
    return target.vector_lanes(widest)


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


def _accesses(body: Body) -> list[Load | Store]:
    return [*stores(body), *loads(body)]


def fuse_contiguous(s: Schedule, names: list[str]) -> list[str]:
    """Join neighbours that every access walks as if they were one loop; what is left of `names`."""
    position = len(names) - 2
    while position >= 0:
        outer, inner = names[position], names[position + 1]
        into = s.fresh(f"{outer}_f")
        if _joint(s, outer, inner) and s.attempt(fuse, outer, inner, into):
            names[position : position + 2] = [into]
        position -= 1
    return names


def _joint(s: Schedule, outer: str, inner: str) -> bool:
    around, loop = find(s.kernel, outer), find(s.kernel, inner)
    if around.reduction != loop.reduction:
        return False
    if any(isinstance(x, If) for x in _statements(loop.body)):
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


def _statements(body: Body) -> list[Statement]:
    found: list[Statement] = []
    for statement in body:
        found.append(statement)
        if isinstance(statement, For | If):
            found.extend(_statements(statement.body))
    return found


def lane_loop(s: Schedule, names: Sequence[str], body: Body, lanes: int) -> str | None:
    """The loop to make lanes of: contiguous in the stores, else in the loads."""
    written = stores(body)
    read = [n for n in names if any(stride(v, n) == 1 for v in loads(body))]
    long = [n for n in read if estimate(find(s.kernel, n).extent) >= lanes]
    for name in reversed(names):
        if written and all(stride(w, name) == 1 for w in written):
            # A few elements in a row, such as the colours of a picture, fill no vector.
            short = 4 * estimate(find(s.kernel, name).extent) <= lanes
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


def _square(
    s: Schedule, names: list[str], body: Body, lanes: int
) -> tuple[list[str], str | None]:
    """For a transposition, put the axis contiguous in the loads next to the lanes, in blocks.

    Returns: the loops in order, and the one over the rows of square blocks, if there are any.
    """
    lane = names[-1]
    strided = [v for v in loads(body) if stride(v, lane) not in (0, 1, None)]
    if not strided or len(names) < 2:
        return names, None
    for name in names[:-1]:
        if not any(stride(v, name) == 1 for v in strided):
            continue
        extent = find(s.kernel, name).extent
        if isinstance(extent, int) and extent <= _SQUARE:
            order = [*(n for n in names[:-1] if n != name), name, lane]
            s.apply(reorder, order)
            return order, name if extent == lanes else None
        far = max(_far(stride(w, name)) for w in stores(body))
        near = max(_far(stride(v, lane)) for v in strided)
        row_block, row_tile, row = _cut(s, name, lanes)
        lane_block, lane_tile, lane = _cut(s, lane, lanes)
        # Few lines at a time on the side where they lie further apart, each to its end.
        tiles = [row_tile, lane_tile] if far > near else [lane_tile, row_tile]
        others = [n for n in names[:-1] if n != name]
        order = [*others, *lane_block, *row_block, *tiles, row, lane]
        s.apply(reorder, order)
        return order, row
    return names, None


def _rows_side_by_side(
    s: Schedule, names: list[str], body: Body, target: Target
) -> list[str]:
    """For a copy that reads short pieces of rows far apart, go along a few rows at a time.

    Packing a matrix into panels writes panel by panel; read in that order, every piece lies in a
    page of its own, and the rest of its line is gone from the caches when the next panel comes.
    """
    if len(names) < 3:
        return names
    inner = names[-2]
    near, far = 4 * target.line_bytes, 16 * target.line_bytes
    for view in loads(body):
        size = view.buffer.dtype.itemsize
        if _far(stride(view, inner)) * size < far:
            continue
        for name in names[:-2]:
            if not 0 < _far(stride(view, name)) * size <= near:
                continue
            if any(_far(stride(w, name)) <= _far(stride(w, inner)) for w in stores(body)):
                continue
            blocks, rows = s.fresh(f"{inner}_b"), s.fresh(f"{inner}_n")
            s.apply(split, inner, _ROWS, "tight", (blocks, rows))
            others = [n for n in names[:-2] if n != name]
            order = [*others, blocks, name, rows, names[-1]]
            s.apply(reorder, order)
            return order
    return names


def _cut(s: Schedule, name: str, lanes: int) -> tuple[list[str], str, str]:
    """A loop as blocks (if it is long and they fit) of tiles of `lanes` iterations."""
    extent = find(s.kernel, name).extent
    blocks: list[str] = []
    fitting = range(_BLOCK, lanes, -lanes)
    size = next((n for n in fitting if symbolic.is_multiple(extent, n)), None)
    if size is not None and estimate(extent) > 2 * size:
        blocks, inside = [s.fresh(f"{name}_b")], s.fresh(f"{name}_n")
        s.apply(split, name, size, "tight", (blocks[0], inside))
        name = inside
    tile, inner = s.fresh(f"{name}_t"), s.fresh(f"{name}_i")
    s.apply(split, name, lanes, into=(tile, inner))
    return blocks, tile, inner


def _far(distance: Dim | None) -> int:
    """How far apart elements lie, estimated."""
    return 0 if distance is None else abs(estimate(distance))


def _write_out_blocks(s: Schedule, row: str, lanes: int) -> None:
    """Write out the rows of whole square blocks, which are then transposed in registers."""
    for part in with_tail(s, row):
        if find(s.kernel, part).extent == lanes:
            s.apply(unroll, part)


def vectorize_loop(
    s: Schedule, lane: str, lanes: int, factor: int, target: Target, at: str | None = None
) -> None:
    """`lane` as `factor` vectors at a time, the rest masked (or scalar without masks).

    The rest has its own code from the loop `at` on, around `lane`; by default from `lane` on.
    """
    loop = find(s.kernel, lane)
    extent = loop.extent
    if isinstance(extent, int):
        factor = max(1, min(factor, extent // lanes))
        if extent < lanes and not _masks(target):
            s.attempt(unroll, lane) if extent <= 4 else None
            return
    width = lanes * factor
    names = (s.fresh(f"{lane}_o"), s.fresh(f"{lane}_w"))
    s.apply(split, lane, width, into=names)
    for name in with_tail(s, names[1], at=at):
        if name == names[1] or _masks(target):
            lanes_of(s, name, lanes)


def with_tail(
    s: Schedule, name: str, tail: str = "exact", at: str | None = None
) -> list[str]:
    """Give a guarded loop's partial run its own code; the loops that there are then."""
    before = {x.var.name for x in loops(s.kernel.body)} - {name}
    s.attempt(specialize, name, at, tail)
    stem = re.compile(re.escape(name) + r"(_\d+)?")
    return [
        x.var.name
        for x in loops(s.kernel.body)
        if x.var.name not in before and stem.fullmatch(x.var.name)
    ]


def _masks(target: Target) -> bool:
    return target.has_masks or target.has("avx") or target.arch != "x86_64"


def lanes_of(s: Schedule, name: str, lanes: int) -> None:
    """Cut a loop into vectors, written out when their number is known."""
    if find(s.kernel, name).extent == lanes:
        _vector(s, name)
        return
    vector, lane = s.fresh("v"), s.fresh("lane")
    s.apply(split, name, lanes, into=(vector, lane))
    if _vector(s, lane) and isinstance(find(s.kernel, vector).extent, int):
        s.apply(unroll, vector)


def _vector(s: Schedule, lane: str) -> bool:
    """Make lanes of a loop, with private values in vectors where it has any."""
    if s.attempt(vectorize, lane):
        return True
    before = s.kernel
    s.attempt(expand, lane)
    if s.attempt(vectorize, lane):
        return True
    s.kernel = before
    return False


def _chunk(effort: int, width: int) -> int:
    """Elements that make a workgroup worth its start."""
    elements = int(_WORK_NS / _element_ns(effort))
    return max(width, elements // width * width)


def _element_ns(effort: int) -> float:
    return 0.3 + effort * 0.02


def _workgroups(s: Schedule, names: Sequence[str], effort: int, inner: int) -> list[str]:
    """Fuse the outer loops and cut them into blocks of enough work."""
    if not names:
        return []
    per_iteration = _element_ns(effort) * max(1, inner)
    if inner == 1:
        per_iteration *= 4
    size = max(1, int(_WORK_NS / per_iteration))
    depth = len(names)
    # Only as many loops as it takes: inner ones keep their simple indices.
    while depth > 1 and iterations(s, names[depth - 1 :]) <= size:
        depth -= 1
    inner_count = iterations(s, names[depth:]) if depth < len(names) else 1
    name = fuse_all(s, names[:depth])
    return block(s, name, max(1, size // max(1, inner_count)))[0]
