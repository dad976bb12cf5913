"""Primitives that change when memory moves, and nothing else: prefetch, prefetch_lines.

Called by the rules once the loops are in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim
from tilewright.compiler.analysis.strides import stride
from tilewright.compiler.kernel.fields import payloads
from tilewright.compiler.kernel.ir import For, Kernel, Load, Prefetch, Store
from tilewright.compiler.kernel.rewrite import loads, loops, stores
from tilewright.compiler.schedule import tree
from tilewright.compiler.schedule.trace import primitive

_MOST_LINES: Final = 64


@primitive
def prefetch(  # noqa: PLR0913 - what a stored trace has by position
    kernel: Kernel,
    buffer: str,
    loop: str,
    ahead: str,
    step: int,
    line: int = 16,
    level: int = 2,
    most: int = 0,
    turns: int = 1,
) -> Kernel:
    """Ask for what the iteration of `ahead` so many `turns` later reads, `step` elements per iteration of `loop`.

    A step longer than a cache line of `line` elements takes several hints.  With `most`, hints go no further than so
    many elements, however often `loop` runs.

    rewrite:
        for p in 8: for i in 4: for k in 16: S(b[p, k])
        ->
        for p in 8: for i in 4: for k in 16: prefetch b[p + 1, step * (16 * i + k)]; S(b[p, k])

    Raises: ScheduleError unless `loop` is `ahead` or inside it, which reads the buffer where an index
    without data moves on with every iteration.
    """
    outer, inner = tree.find(kernel, ahead), tree.find(kernel, loop)
    path = tree.path_inside(outer, inner)
    if step < 1 or line < 1:
        raise ScheduleError(f"cannot fetch {step} elements per iteration of '{loop}'")
    wanted = tree.find_buffer(kernel, buffer)
    found = next((x for x in loads(outer.body) if x.buffer is wanted), None)
    if found is None:
        raise ScheduleError(f"'{ahead}' does not read '{buffer}'")
    position: Dim = 0
    for around in [*(s for s in path if isinstance(s, For)), inner][1:]:
        position = position * around.extent + tree.reference(around.var)
    *before, last = _first_of_later(found, outer, turns)
    places = [position * step + offset for offset in range(0, step, line)]
    if most:
        places = [symbolic.minimum(place, most) for place in places]
    hints = [Prefetch(wanted, (*before, last + place), level) for place in places]
    return tree.refill(kernel, inner, (*hints, *inner.body))


@primitive
def prefetch_lines(
    kernel: Kernel,
    buffer: str,
    loop: str,
    ahead: str,
    line: int = 16,
    level: int = 1,
    turns: int = 1,
) -> Kernel:
    """Ask in each iteration of `loop` for what it reads of `buffer`, or writes, so many `turns` of `ahead` later, line by line.

    rewrite:
        for o in 4: for u in 2: for p in 2: for c in 32: S(b[p, 2 * o + u, c])
        ->
        for o in 4: for u in 2: prefetch b[0, 2 * (o + 1) + u, 0 and 16], b[1, 2 * (o + 1) + u, 0 and 16]; for p in 2: for c in 32: S(b[p, 2 * o + u, c])

    Raises: ScheduleError unless `loop` is `ahead` or inside it, which gets at the buffer at places without data that move
        on with every iteration, and `loop` at a known number of elements of it at regular distances, in not too many lines.
    """
    if line < 1:
        raise ScheduleError(f"a line of {line} elements is none")
    outer, inner = tree.find(kernel, ahead), tree.find(kernel, loop)
    tree.path_inside(outer, inner)
    wanted = tree.find_buffer(kernel, buffer)
    accesses = (*loads(inner.body), *stores(inner.body))
    found = next((x for x in accesses if x.buffer is wanted), None)
    if found is None:
        raise ScheduleError(f"'{loop}' does not read or write '{buffer}'")
    if any(True for index in found.indices for _ in payloads(index)):
        raise ScheduleError(f"places of '{buffer}' are data")
    if stride(found, ahead) in (0, None):
        raise ScheduleError(f"'{buffer}' is not met further on with '{ahead}'")
    start = {outer.var.name: tree.reference(outer.var) + turns}
    start |= {x.var.name: 0 for x in loops(inner.body)}
    *before, last = (symbolic.substitute(index, start) for index in found.indices)
    places = _lines(found, loops(inner.body), line)
    hints = [Prefetch(wanted, (*before, last + place), level) for place in places]
    return tree.refill(kernel, inner, (*hints, *inner.body))


def _lines(load: Load | Store, inner: Sequence[For], line: int) -> tuple[int, ...]:
    """Elements from the first one that `load` gets at in `inner` to the first of each further line of it, in order."""
    places = {0}
    for loop in inner:
        apart, extent = stride(load, loop.var.name), loop.extent
        if apart == 0:
            continue
        if not isinstance(apart, int) or not isinstance(extent, int):
            raise ScheduleError(f"'{load.buffer.name}' is not met at regular distances")
        every = max(1, line // abs(apart))
        if len(places) * (extent // every) > _MOST_LINES:
            raise ScheduleError(f"more than {_MOST_LINES} lines of '{load.buffer.name}'")
        places = {p + n * apart for p in places for n in range(0, extent, every)}
    return tuple(
        sorted({place // line: place for place in sorted(places, reverse=True)}.values())
    )


def _first_of_later(load: Load, outer: For, turns: int) -> tuple[Dim, ...]:
    """The indices of the first element that the iteration so many `turns` after this one reads."""
    start: dict[str, Dim] = {inner.var.name: 0 for inner in loops(outer.body)}
    start[outer.var.name] = tree.reference(outer.var) + turns
    first: list[Dim] = []
    moves = False
    for index in load.indices:
        linear = symbolic.linear(index, outer.var.name)
        if linear is None:
            raise ScheduleError(f"'{load.buffer.name}' is not read at regular distances")
        moves = moves or linear[0] != 0
        first.append(symbolic.substitute(index, start))
    if not moves:
        raise ScheduleError(
            f"every iteration of '{outer.var.name}' reads the same of '{load.buffer.name}'"
        )
    return tuple(first)
