"""How much memory a piece of code touches: bytes and cache lines of each buffer.

For cost models that ask what code moves and at which loop the data still fits into a cache (`schedule/rules`):

    footprints(body) -> dict[Buffer, Footprint]     # buffers in order of appearance

It tells what ONE run of `body` touches while the loops around it stand still: give `loop.body` for an
iteration of a loop, `(loop,)` for all of them.  Needs multi-dimensional indices.  Sizes that are known only
at run time are estimated by `sizes`.

Exact for indices that are sums of loop variables times numbers, as long as no guard or mask leaves elements
out and extents do not depend on each other; otherwise more than is touched, never less.  Lines are those of
buffers that start on a line, and an average where runs begin anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import final

from tilewright.base import symbolic
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.analysis.accesses import Access, accesses
from tilewright.compiler.analysis.progressions import (
    Positions,
    Progression,
    count,
    count_lines,
    union,
    walk_of,
)
from tilewright.compiler.analysis.sizes import GUESS, likely_sizes, with_numbers
from tilewright.compiler.analysis.strides import linear_index
from tilewright.compiler.kernel.ir import Buffer, For, Statement
from tilewright.compiler.kernel.rewrite import substitute_dim


@final
@record
class Footprint:
    """What one run of some code touches of one buffer.

    Attributes:
        size: elements of the buffer.
        read, touched: what each load, and each access, takes of it.
    """

    item_bytes: int
    size: int
    read: tuple[Positions, ...]
    touched: tuple[Positions, ...]

    @property
    def read_bytes(self) -> int:
        """Bytes of all elements that are read, each once."""
        return min(self.size, union(self.read, count)) * self.item_bytes

    def lines(self, line_bytes: int) -> int:
        """Cache lines of so many bytes that are read or written."""
        item = self.item_bytes
        lines = union(self.touched, lambda walk: count_lines(walk, item, line_bytes))
        return min(lines, -(-self.size * item // line_bytes))


def footprints(body: Sequence[Statement]) -> dict[Buffer, Footprint]:
    """What one run of `body` touches of every buffer in it."""
    found = accesses(body)
    numbers = _Numbers(found)
    taken: dict[Buffer, list[tuple[Positions, bool]]] = {}
    for access in _different(found):
        positions = _positions(access, numbers)
        own = taken.setdefault(access.buffer, [])
        if positions.most:
            own.append((positions, access.write))
    return {
        buffer: Footprint(
            buffer.dtype.itemsize,
            numbers.size(buffer),
            read=tuple(positions for positions, is_write in own if not is_write),
            touched=tuple(positions for positions, _ in own),
        )
        for buffer, own in taken.items()
    }


def _different(found: Sequence[Access]) -> Iterable[Access]:
    """Accesses without those of the same elements in the same loops as others."""
    first: dict[object, Access] = {}
    for access in found:
        inner = tuple(map(id, access.inner))
        lanes = (access.lanes, access.stride)
        key = (access.buffer, access.indices, inner, lanes, access.write)
        first.setdefault(key, access)
    return first.values()


# --- numbers for sizes -----------------------------------------------------------------------


@final
class _Numbers:
    """Numbers for what is not known: sizes as estimated, variables of loops around at their ends."""

    def __init__(self, found: Sequence[Access]) -> None:
        inner = {loop.var.name for access in found for loop in access.inner}
        shapes = [dim for access in found for dim in access.buffer.shape]
        symbols = {s for dim in shapes for s in symbolic.symbols(dim)}
        sizes = sorted(s for s in symbols if s.name not in inner)
        self.sizes: Mapping[str, Dim] = likely_sizes(sizes, shapes)
        self.counts: dict[str, int] = {}
        self.shapes: dict[Buffer, tuple[int, ...]] = {}

    def trips(self, loop: For) -> int:
        """How often a loop runs, at most."""
        if isinstance(loop.extent, int):
            return max(0, loop.extent)
        known = self.counts.get(loop.var.name)
        if known is None:
            ends = (self._at_end(loop.extent, high=high) for high in (False, True))
            known = max(0, *ends)
            self.counts[loop.var.name] = known
        return known

    def _at_end(self, value: Dim, *, high: bool) -> int:
        """A value with all variables in it at their first or last."""
        ends = {s.name: self._end(s, high=high) for s in symbolic.symbols(value)}
        result = with_numbers(value, {**ends, **self.sizes})
        return result if isinstance(result, int) else GUESS

    def _end(self, var: Symbol, *, high: bool) -> int:
        if not high:
            return var.lower or 0
        if var.name in self.counts:
            return max(0, self.counts[var.name] - 1)
        return GUESS if var.upper is None else var.upper

    def fixed(self, value: Dim, inner: Iterable[str]) -> Dim:
        """`value` with everything in it a number, but the variables named."""
        around: dict[str, Dim] = {s.name: s.lower or 0 for s in symbolic.symbols(value)}
        around |= self.sizes
        for name in inner:
            around.pop(name, None)
        return with_numbers(value, around)

    def shape(self, buffer: Buffer) -> tuple[int, ...]:
        """The extents of a buffer."""
        known = self.shapes.get(buffer)
        if known is None:
            fixed = (self.fixed(dim, ()) for dim in buffer.shape)
            known = tuple(dim if isinstance(dim, int) else GUESS for dim in fixed)
            self.shapes[buffer] = known
        return known

    def size(self, buffer: Buffer) -> int:
        """The elements of a buffer."""
        return math.prod(self.shape(buffer))


# --- one access ------------------------------------------------------------------------------


def _positions(access: Access, numbers: _Numbers) -> Positions:
    """The positions that an access takes."""
    trips = {loop.var.name: numbers.trips(loop) for loop in access.inner}
    times = math.prod(trips.values()) * access.lanes
    shape = numbers.shape(access.buffer)
    indices = [numbers.fixed(index, trips) for index in access.indices]
    known = Buffer(access.buffer.name, access.buffer.dtype, shape)
    found = _linear_walk(linear_index(known, indices), trips) or _box(indices, shape, trips)
    start, steps = found
    if access.lanes > 1:
        steps = [*steps, (access.stride, access.lanes)]
    start += sum(step * (number - 1) for step, number in steps if step < 0)
    walk = walk_of([(abs(step), number) for step, number in steps if step])
    return Positions(start, walk, times)


def _linear_walk(
    position: Dim, trips: Mapping[str, int]
) -> tuple[int, list[Progression]] | None:
    """Where a position starts and how far each loop moves it; None if not by a number."""
    steps: list[Progression] = []
    for name, number in trips.items():
        part = symbolic.linear(position, name)
        if part is None or not isinstance(part[0], int):
            return None
        steps.append((part[0], number))
        position = part[1]
    return (position, steps) if isinstance(position, int) else None


def _box(
    indices: Sequence[Dim], shape: Sequence[int], trips: Mapping[str, int]
) -> tuple[int, list[Progression]]:
    """All positions between the least and the most that each index can be."""
    bounded = {n: symbolic.symbol(f"{n}~", 0, max(0, c - 1)) for n, c in trips.items()}
    start, steps, stride = 0, list[Progression](), 1
    for index, extent in zip(reversed(indices), reversed(shape), strict=True):
        low, high = symbolic.bounds(substitute_dim(index, bounded))
        low = 0 if low is None else max(0, low)
        high = extent - 1 if high is None else min(high, extent - 1)
        start += low * stride
        steps.append((stride, high - low + 1))
        stride *= extent
    return start, steps
