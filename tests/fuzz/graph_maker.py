"""A random typed graph in the making: what its steps draw from and add to.

What it is: the values so far with what is known of them, the choices, and one way to append an op.
What it is not: the steps (`elementwise_steps`, `row_steps`, `contraction_steps`, `movement_steps`)
or the strategy (`typed_graphs`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.ops.builder import GraphBuilder

SYMBOLS = (symbolic.symbol("N", 1), symbolic.symbol("M", 1))
SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 19, 33)
FLOATS = (dtypes.f32, dtypes.f16, dtypes.bf16, dtypes.f64)
INTEGERS = (dtypes.i64, dtypes.i32, dtypes.i8, dtypes.u8)
MOST_ELEMENTS = 1 << 13
# Whole numbers up to here are exact in every arithmetic the type may be computed in.
EXACT_LIMIT = {
    "f16": 2**10,
    "bf16": 2**7,
    "f32": 2**22,
    "f64": 2**40,
    "i8": 2**6,
    "u8": 2**7,
}
DYNAMIC_ESTIMATE = 19


@dataclass(frozen=True, eq=False)
class Tracked:
    """A value; `exact`: whole numbers of at most `bound`, the same however they are computed."""

    value: Value
    exact: bool
    bound: float

    @property
    def dtype(self) -> DType:
        return self.value.type.dtype

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.value.type.shape

    @property
    def rank(self) -> int:
        return len(self.shape)


def size_of(shape: Sequence[Dim]) -> int:
    """The number of elements, with a guess for symbols."""
    env = {s.name: DYNAMIC_ESTIMATE for d in shape for s in symbolic.symbols(d)}
    return math.prod(symbolic.evaluate(d, env) for d in shape)


def has_zero(shape: Sequence[Dim]) -> bool:
    return any(d == 0 for d in shape)


class Maker:
    """One graph in the making; a `step_…` adds a value or gives up with None."""

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        self.builder = GraphBuilder()
        self.values: list[Tracked] = []
        self.random = np.random.default_rng(choose.randint(0, 999))
        static = [choose.choice(SIZES) for _ in range(3)]
        self.dims: list[Dim] = [*static, 1, *SYMBOLS[: choose.randint(0, 2)]]
        if choose.randint(0, 15) == 15:
            self.dims.append(0)

    # --- drawing ----------------------------------------------------------------------------

    def one(self, options: Sequence[Any]) -> Any:
        return self.choose.choice(list(options))

    def number(self, low: int, high: int) -> int:
        return self.choose.randint(low, high)

    def flip(self) -> bool:
        return self.choose.randint(0, 1) == 1

    def pick(self, fits: Callable[[Tracked], bool] = lambda _: True) -> Tracked | None:
        """A value, later ones first."""
        found = [v for v in reversed(self.values) if fits(v)]
        return self.one(found[:6]) if found else None

    def pick_float(self) -> Tracked | None:
        return self.pick(lambda v: v.dtype.is_float)

    # --- adding -----------------------------------------------------------------------------

    def add(
        self,
        op: str,
        operands: Sequence[Tracked | Value | None],
        *,
        exact: bool = False,
        bound: float = 8.0,
        **attributes: object,
    ) -> Tracked | None:
        """Append an op; exactness is lost where the bound is too large for the type."""
        plain = [v.value if isinstance(v, Tracked) else v for v in operands]
        made = self.builder.op(op, plain, attributes)
        if size_of(made.type.shape) > MOST_ELEMENTS:
            self.builder.graph.nodes.pop()
            return None
        kind = made.type.dtype
        if not kind.is_float:
            # Integers wrap alike everywhere; what they are made of must be exact.
            return self.keep(Tracked(made, True, bound))
        limit = EXACT_LIMIT[kind.name]
        return self.keep(Tracked(made, exact and bound <= limit, bound))

    def keep(self, made: Tracked) -> Tracked:
        self.values.append(made)
        return made

    def constant(self, shape: Sequence[int], dtype: DType = dtypes.f32) -> Value:
        """Small whole numbers, or floats around 0."""
        if dtype.is_float:
            array = self.random.standard_normal(shape) / 2
        else:
            array = self.random.integers(0 if not dtype.is_signed else -3, 4, shape)
        return self.builder.constant(np.asarray(array).astype(dtype.numpy))

    def whole(self, number: float, dtype: DType) -> Value:
        return self.builder.constant(np.asarray(number).astype(dtype.numpy))

    def tame(self, v: Tracked) -> Tracked:
        """The value if it is small, else something within [-1, 1] made of it."""
        if v.bound <= 4:
            return v
        made = self.add("tanh", [v], bound=1.0)
        assert made is not None
        return made

    def partner(self, left: Tracked) -> Tracked:
        """Something of the same type that broadcasts with `left`."""
        fits = [
            v
            for v in self.values
            if v.dtype is left.dtype and broadcasts(v.shape, left.shape)
        ]
        kind = self.number(0, 3)
        if kind == 0 or not fits:
            return Tracked(self.whole(self.number(1, 3), left.dtype), True, 3)
        if kind == 1 and left.rank and isinstance(left.shape[-1], int):
            return Tracked(self.constant((left.shape[-1],), left.dtype),
                           not left.dtype.is_float, 3)  # fmt: skip
        return self.one(fits)

    def finish(self) -> Graph:
        """Make outputs of what nobody uses and of some other values."""
        graph = self.builder.graph
        used = {v for node in graph.nodes for v in node.operands}
        outputs = [t for t in self.values if t.value not in used]
        outputs += [self.one(self.values) for _ in range(self.number(0, 2))]
        if not outputs:
            outputs = [self.values[-1]]
        for index, tracked in enumerate(outputs[-6:]):
            self.builder.output(f"y{index}", tracked.value)
        return graph


def is_size(dim: Dim) -> bool:
    return isinstance(dim, int)


def is_image(v: Tracked, least: int) -> bool:
    """Whether the value can be convolved: known channels, no empty spatial axis."""
    return (
        v.dtype.is_float
        and v.rank in (3, 4)
        and isinstance(v.shape[1], int)
        and 0 < v.shape[1] <= 40
        and all(isinstance(d, int) and d >= least for d in v.shape[2:])
    )


def broadcasts(left: Sequence[Dim], right: Sequence[Dim]) -> bool:
    pairs = zip(reversed(left), reversed(right), strict=False)
    return all(a == b or a == 1 or b == 1 for a, b in pairs)


def joined(left: Sequence[Dim], right: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape two broadcasting shapes have together."""
    long, short = (left, right) if len(left) >= len(right) else (right, left)
    gap = len(long) - len(short)
    tail = (b if a == 1 else a for a, b in zip(long[gap:], short, strict=True))
    return (*long[:gap], *tail)


Steps = tuple[Callable[[Maker], Tracked | None], ...]
