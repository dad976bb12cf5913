"""One loop as vectors: several at a time, and what is left of them.

A loop whose length only a call knows has whole vectors in loops in which nothing is asked.  What is left of a row that
is only moved is a vector that begins earlier, shorter where it fills none; of others it has a mask.  Called by `pointwise` and `rows`.
"""

from __future__ import annotations

from typing import Final

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel.ir import Body
from tilewright.compiler.kernel.rewrite import loads, stores
from tilewright.compiler.schedule import primitives as do
from tilewright.compiler.schedule.handles import WHOLE, Piece
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules.workgroups import cut, divided
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import find

_FEWEST: Final = 4
"""Lanes of which rows that fill no vector are moved one by one."""


def vectorize_loop(
    s: Schedule,
    lane: str,
    lanes: int,
    factor: int,
    machine: MachineModel,
    at: str | None = None,
) -> tuple[Piece, ...]:
    """`lane` as `factor` vectors at a time, the rest masked (or scalar without masks).

    The rest has its own code from the loop `at` on, around `lane`; by default from `lane` on.
    """
    loop = find(s.kernel, lane)
    extent = loop.extent
    if isinstance(extent, int):
        factor = max(1, min(factor, extent // lanes))
        if extent < lanes and not machine.has_partial_vectors:
            s.attempt(do.unroll, lane) if extent <= 4 else None
            return (WHOLE,)
    width = lanes * factor
    if at is None:
        return _whole_then_rest(s, lane, lanes, width, machine)
    _, vectors = cut(s, lane, width, f"{lane}_o", f"{lane}_w")
    parts = s.parts(do.specialize, vectors, at)
    for part in parts:
        if part is WHOLE or machine.has_partial_vectors:
            lanes_of(s, part[vectors], lanes)
    return parts


def _whole_then_rest(
    s: Schedule, lane: str, lanes: int, width: int, machine: MachineModel
) -> tuple[Piece, ...]:
    """Vectors in a loop of their own, in which nothing is asked and no constant gives way to those of the rest."""
    before, loop = s.kernel, find(s.kernel, lane)
    is_open = not isinstance(loop.extent, int)
    if is_open and only_moves(loop.body):
        try:
            return _vectors_that_overlap(s, lane, lanes, width, machine)
        except ScheduleError as error:
            s.kernel = before
            s.note(f"pointwise: no vector of '{lane}' begins earlier: {error.message}")
    parts = [*s.apply(do.partition, lane, whole_part(s, lane, width))]
    if is_open and width > lanes:
        # What does not fill all vectors may be most of a row: only what does not fill one has a mask.
        rest = parts.pop()
        name = rest[lane]
        parts += map(rest.then, s.apply(do.partition, name, whole_part(s, name, lanes)))
    for part in parts:
        name: str = part[lane]
        extent = find(s.kernel, name).extent
        for size in (width, lanes):
            if symbolic.is_multiple(extent, size):
                lanes_of(s, cut(s, name, size, f"{lane}_o", f"{lane}_w")[1], lanes)
                break
        else:
            if machine.has_partial_vectors:
                lanes_of(s, name, lanes)
    return tuple(parts)


def only_moves(body: Body) -> bool:
    """Whether no element is stored where one of the same place is read, so that results never stand over operands."""
    places = {(w.buffer.shape, w.indices) for w in stores(body)}
    return all((v.buffer.shape, v.indices) not in places for v in loads(body))


def _vectors_that_overlap(
    s: Schedule, lane: str, lanes: int, width: int, machine: MachineModel
) -> tuple[Piece, ...]:
    """Vectors of which the last of a row begins earlier, where it is whole; rows that fill none have a mask, or shorter ones."""
    short = s.apply(do.version, lane, find(s.kernel, lane).extent, lanes)[1:]
    vector, inside = cut(s, lane, lanes, f"{lane}_o", f"{lane}_w")
    parts = s.apply(do.overlap, inside, "partial")
    for part in parts:
        s.apply(do.vectorize, part[inside])
    count = width // lanes
    groups = divided(s, vector, count)[0][vector]
    s.apply(do.unroll, cut(s, groups, count, f"{lane}_g", "v")[1])
    for part in short:
        if machine.has_masks:
            lanes_of(s, part[lane], lanes)
        else:
            _shorter_vectors(s, part[lane], lanes)
    return (*parts, *short)


def _shorter_vectors(s: Schedule, lane: str, lanes: int) -> None:
    """Rows that fill no vector in up to four shorter ones, of which the last begins earlier; one by one where they fill none of these.

    A store under a mask that is no register takes as long as a dozen others.
    """
    shorter = max(_FEWEST, lanes // 4)
    if shorter < lanes:
        s.apply(do.version, lane, find(s.kernel, lane).extent, shorter)
        _, inside = cut(s, lane, shorter, f"{lane}_o", f"{lane}_w")
        s.apply(do.overlap, inside)
        s.apply(do.vectorize, inside)


def whole_part(s: Schedule, name: str, width: int) -> Dim:
    """Iterations of a loop that are whole groups of `width`."""
    return symbolic.floordiv(find(s.kernel, name).extent, width) * width


def lanes_of(s: Schedule, name: str, lanes: int) -> None:
    """Cut a loop into vectors, written out when their number is known."""
    if find(s.kernel, name).extent == lanes:
        _vector(s, name)
        return
    vector, lane = cut(s, name, lanes, "v", "lane")
    if _vector(s, lane) and isinstance(find(s.kernel, vector).extent, int):
        s.apply(do.unroll, vector)


def _vector(s: Schedule, lane: str) -> bool:
    """Make lanes of a loop, with private values in vectors where it has any."""
    if s.attempt(do.vectorize, lane):
        return True
    before = s.kernel
    s.attempt(do.expand, lane)
    if s.attempt(do.vectorize, lane):
        return True
    s.kernel = before
    return False
