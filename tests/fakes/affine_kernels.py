"""Small random kernels whose loops and indices ask hard questions of an analysis.

Strided, reversed and overlapping indices, digits (`i // 4`, `i % 4`), triangular and cut extents, extents of 0
and 1, guards, sizes known only by bounds, and indices read from a table.  Nothing here runs: a buffer is as
large as it is said to be, not as the indices need.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from fakes.touched_elements import touches
from tilewright.base import symbolic
from tilewright.base.dtypes import f32, i64
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.kernel.expressions import binary
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Binary,
    Buffer,
    Compare,
    Const,
    Expression,
    For,
    If,
    Index,
    Kernel,
    Load,
    Parameter,
    Space,
    Statement,
    Store,
)
from tilewright.compiler.kernel.rewrite import as_index, map_body
from tilewright.compiler.schedule.tree import make_loop, reference

SIZE: Final = Symbol("n", 1, 5)
TABLE: Final = Buffer("table", i64, (16,))
_EXTENTS: Final = (0, 1, 2, 3, 4, 5, 7, 8)
_COMPARISONS: Final = ("lt", "le", "gt", "ge", "eq", "ne")


def random_kernel(
    seed: int,
    *,
    rank: int = 1,
    size: Symbol | None = SIZE,
    tables: bool = False,
) -> Kernel:
    """The kernel of a seed.

    Args:
        seed: what decides everything.
        rank: of the two buffers.
        size: what extents and indices may use besides numbers.
        tables: whether indices may be read from memory.
    """
    return _Maker(random.Random(seed), rank, size, tables).kernel()


class _Maker:
    def __init__(
        self, random: random.Random, rank: int, size: Symbol | None, tables: bool
    ) -> None:
        self.random = random
        self.size = size
        self.n: Dim | None = None if size is None else reference(size)
        self.tables = tables
        self.count = 0
        shape = (
            (64,) if rank == 1 else (random.choice((7, 8, 9)), random.choice((4, 8, 64)))
        )
        self.buffers = [
            Buffer("x", f32, shape),
            Buffer("y", f32, shape),
            Buffer("t", f32, shape, Space.WORKGROUP),
        ]

    def kernel(self) -> Kernel:
        body = tuple(self.statement((), 0) for _ in range(self.random.choice((1, 1, 2))))
        dims = () if self.size is None else (self.size,)
        x, y, t = self.buffers
        parameters = (
            Parameter(x, AccessMode.READ_WRITE),
            Parameter(y, AccessMode.READ_WRITE),
            Parameter(TABLE, AccessMode.READ),
        )
        return Kernel("random", parameters, dims, (t,), body)

    def statement(self, variables: Sequence[Dim], depth: int) -> Statement:
        """A loop, a guard or, further in, a store."""
        kind = self.random.random()
        if depth < 1 or (depth < 3 and kind < 0.55):
            return self.loop(variables, depth)
        if kind < 0.75 and depth < 4:
            return If(self.condition(variables), (self.store(variables),))
        return self.store(variables)

    def loop(self, variables: Sequence[Dim], depth: int) -> For:
        """A loop over one to two statements."""
        extent = self.extent(variables)
        self.count += 1
        name = f"{'ijkl'[min(depth, 3)]}{self.count}"
        var = make_loop(name, extent, ()).var
        inner = (*variables, reference(var))
        body = [
            self.statement(inner, depth + 1) for _ in range(self.random.choice((1, 1, 2)))
        ]
        return For(var, extent, tuple(body))

    def extent(self, variables: Sequence[Dim]) -> Dim:
        """How often a loop runs."""
        kind = self.random.random()
        if kind < 0.12 and variables:  # triangular
            return self.random.choice(variables) + self.random.choice((0, 1, 2))
        if kind < 0.24 and variables:  # the last tile is smaller
            size = self.random.choice((5, 7, 9, 6 if self.n is None else self.n))
            rest = size - self.random.choice((2, 3, 4)) * self.random.choice(variables)
            return symbolic.maximum(
                0, symbolic.minimum(self.random.choice((2, 3, 4)), rest)
            )
        if kind < 0.4 and self.n is not None:
            n = self.n
            return self.random.choice((n, n + 1, 2 * n, symbolic.ceildiv(n, 2), n // 2))
        return self.random.choice(_EXTENTS)

    def index(self, variables: Sequence[Dim]) -> Dim:
        """An index made of the variables around."""
        if not variables:
            return self.random.randrange(4)
        v, w = self.random.choice(variables), self.random.choice(variables)
        a, c = self.random.choice((1, 1, 2, 3, 4, 8)), self.random.choice((0, 0, 1, 2, 5))
        by = self.random.choice((2, 3, 4))
        forms: list[Dim] = [
            v + c,
            v * a + c,
            v * a + w + c,
            v * a + w * self.random.choice((1, 2, 3, 5)),
            7 - v,
            12 - a * v,
            v // by,
            v % by,
            (v * a + w) // by,
            (v * a + w) % by,
            symbolic.minimum(v, c + 1),
            v - w + 8,
            (v // by) * (2 * by) + v % by,
            sum((u * k for u, k in zip(variables, (12, 4, 1, 1), strict=False)), 0),
        ]
        if self.n is not None:
            n = self.n
            forms += [n - 1 - v, v * a + n, (v + n) // by]
        if self.tables and self.random.random() < 0.3:
            loaded = as_index(Load(TABLE, (v,)))
            return self.random.choice((loaded, loaded + 4 * v, 16 * v + loaded))
        return self.random.choice(forms)

    def condition(self, variables: Sequence[Dim]) -> Expression:
        """A comparison of an index with a number or a size."""
        left = self.index(variables)
        right = self.n if self.random.random() < 0.3 else None
        one = Compare(
            self.random.choice(_COMPARISONS),
            Index(left),
            Const(self.random.randrange(8), i64) if right is None else Index(right),
        )
        if self.random.random() < 0.15:
            return binary(
                "and", one, Compare("lt", Index(self.index(variables)), Const(3, i64))
            )
        return one

    def place(self, variables: Sequence[Dim]) -> tuple[Buffer, tuple[Dim, ...]]:
        """A buffer and where in it."""
        buffer = self.random.choice(self.buffers)
        return buffer, tuple(self.index(variables) for _ in buffer.shape)

    def store(self, variables: Sequence[Dim]) -> Store:
        """A store of something loaded, sometimes an update."""
        buffer, indices = self.place(variables)
        other = Load(*self.place(variables))
        if self.random.random() < 0.4:
            old = Load(buffer, indices)
            return Store(buffer, indices, binary("add", old, other))
        return Store(buffer, indices, other)


Places = dict[Buffer, list[int]]


def _ranges(kernel: Kernel) -> tuple[Places, Places, set[Buffer]]:
    """The least and greatest indices touched in each buffer, and the buffers read before they are written."""
    least, most, unwritten = Places(), Places(), set[Buffer]()
    for size in (1, 2, 5):
        written: set[tuple[Buffer, tuple[int, ...]]] = set()
        for touch in touches(kernel.body, {"n": size}):
            low = least.setdefault(touch.buffer, list(touch.element))
            high = most.setdefault(touch.buffer, list(touch.element))
            low[:] = map(min, low, touch.element)
            high[:] = map(max, high, touch.element)
            place = (touch.buffer, touch.element)
            if touch.write:
                written.add(place)
            elif place not in written:
                unwritten.add(touch.buffer)
    return least, most, unwritten


def fitted_kernel(seed: int) -> Kernel:
    """A random kernel that runs for `n` of 1, 2 and 5: its buffers hold all that is touched."""
    kernel = random_kernel(seed, rank=1 + seed % 2, tables=False)
    least, most, unwritten = _ranges(kernel)
    x, y, t = kernel.parameters[0].buffer, kernel.parameters[1].buffer, kernel.locals[0]
    zero = [0] * len(x.shape)
    fitted = {
        buffer: Buffer(
            buffer.name,
            i64,
            tuple(
                high - low + 1
                for low, high in zip(
                    least.get(buffer, zero), most.get(buffer, zero), strict=True
                )
            ),
            Space.DEVICE if buffer in unwritten else buffer.space,
        )
        for buffer in (x, y, t)
    }

    def moved(buffer: Buffer, indices: Sequence[Dim]) -> tuple[Dim, ...]:
        shift = least.get(buffer, zero)
        return tuple(i - low for i, low in zip(indices, shift, strict=True))

    def value(old: Expression) -> Expression:
        if isinstance(old, Load):
            return Load(fitted[old.buffer], moved(old.buffer, old.indices))
        return (
            Binary(old.op, old.left, old.right, i64)
            if isinstance(old, Binary) and old.op == "add"
            else old
        )

    def statement(old: Statement) -> Statement:
        if isinstance(old, Store):
            return Store(fitted[old.buffer], moved(old.buffer, old.indices), old.value)
        return old

    body = map_body(kernel.body, expression=value, statement=statement)
    outside = [b for b in (x, y, t) if fitted[b].space is Space.DEVICE]
    return Kernel(
        "fitted",
        tuple(Parameter(fitted[b], AccessMode.READ_WRITE) for b in outside),
        kernel.dims,
        tuple(fitted[b] for b in (x, y, t) if b not in outside),
        body,
    )
