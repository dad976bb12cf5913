"""Random small graphs: every kind of op, views, dead values, odd outputs, symbolic dimensions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tilewright.base import dtypes, symbolic
from tilewright.base.symbolic import Dim, symbol
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder

N = symbol("N", 1)
SIZES = (1, 2, 3, 5, 8)


@dataclass(frozen=True)
class Case:
    """A graph, and values for its dimensions and inputs."""

    graph: Graph
    dims: dict[str, int]
    arrays: tuple[np.ndarray, ...]

    def __repr__(self) -> str:
        from tilewright.compiler.graph.text import to_text

        return f"{self.dims}\n{to_text(self.graph)}"


def shapes(dynamic: bool) -> st.SearchStrategy[tuple[Dim, ...]]:
    sizes: tuple[Dim, ...] = (*SIZES, N, N) if dynamic else (*SIZES, 0)
    return st.lists(st.sampled_from(sizes), max_size=3).map(tuple)


class Grower:
    """Appends random ops to a graph; an op that does not fit the drawn value becomes a `neg`."""

    def __init__(self, draw: st.DrawFn, builder: GraphBuilder, values: list[Value]) -> None:
        self.draw = draw
        self.b = builder
        self.values = values

    def pick(self) -> Value:
        return self.draw(st.sampled_from(self.values))

    def grow(self) -> None:
        name = self.draw(st.sampled_from(OPS))
        result = getattr(self, name)(self.pick())
        self.values.append(result)

    def unary(self, x: Value) -> Value:
        return self.b.op(self.draw(st.sampled_from(("relu", "tanh", "neg", "abs"))), [x])

    def binary(self, x: Value) -> Value:
        fitting = [y for y in self.values if y.type.shape == x.type.shape]
        y = self.draw(st.sampled_from(fitting))
        return self.b.op(self.draw(st.sampled_from(("add", "sub", "max"))), [x, y])

    def scale(self, x: Value) -> Value:
        return self.b.mul(x, self.b.constant(np.float32(0.5)))

    def transpose(self, x: Value) -> Value:
        perm = self.draw(st.permutations(range(x.type.rank)))
        return self.b.transpose(x, perm=tuple(perm))

    def flatten(self, x: Value) -> Value:
        return self.b.reshape(x, shape=(x.type.element_count,))

    def unsqueeze(self, x: Value) -> Value:
        return (
            self.b.reshape(x, shape=(1, *x.type.shape))
            if x.type.rank < 4
            else self.unary(x)
        )

    def reduce(self, x: Value) -> Value:
        if not x.type.rank:
            return self.unary(x)
        axis = self.draw(st.integers(0, x.type.rank - 1))
        keep = self.draw(st.booleans())
        return self.b.reduce_sum(x, axes=(axis,), keepdims=keep)

    def softmax(self, x: Value) -> Value:
        return self.b.softmax(x, axis=-1) if x.type.rank else self.unary(x)

    def concat(self, x: Value) -> Value:
        if not x.type.rank or x.type.element_count == 0:
            return self.unary(x)
        return self.b.concat(x, self.pick_like(x), axis=0)

    def pick_like(self, x: Value) -> Value:
        return self.draw(st.sampled_from([y for y in self.values if y.type == x.type]))

    def slice(self, x: Value) -> Value:
        if not x.type.rank or not isinstance(x.type.shape[0], int) or x.type.shape[0] < 2:
            return self.unary(x)
        sizes = (x.type.shape[0] - 1, *x.type.shape[1:])
        starts, steps = (1, *(0,) * (x.type.rank - 1)), (1,) * x.type.rank
        return self.b.slice(
            x, axes=tuple(range(x.type.rank)), starts=starts, sizes=sizes, steps=steps
        )

    def matmul(self, x: Value) -> Value:
        if x.type.rank < 2 or not isinstance(x.type.shape[-1], int):
            return self.unary(x)
        weight = np.linspace(-1, 1, x.type.shape[-1] * 3, dtype=np.float32)
        return self.b.matmul(x, self.b.constant(weight.reshape(x.type.shape[-1], 3)))

    def host(self, x: Value) -> Value:
        """An op without a kernel; it runs its reference implementation."""
        last = x.type.shape[-1] if x.type.rank else 0
        if not isinstance(last, int) or last < 1:
            return self.unary(x)
        values, _ = self.b.op("top_k", [x], {"k": (1,), "axis": -1})
        return values

    def constant(self, x: Value) -> Value:
        shape = tuple(d if isinstance(d, int) else 1 for d in x.type.shape)
        return self.b.constant(np.arange(math.prod(shape), dtype=np.float32).reshape(shape))


OPS = (
    "unary", "unary", "binary", "binary", "scale", "transpose", "flatten", "unsqueeze", "reduce",
    "softmax", "concat", "slice", "matmul", "host", "constant",
)  # fmt: skip


@st.composite
def graphs(draw: st.DrawFn, *, dynamic: bool = False, most: int = 8) -> Case:
    """A graph of up to `most` ops over up to three inputs, outputs drawn with repetition."""
    b = GraphBuilder()
    drawn = draw(st.lists(shapes(dynamic), min_size=1, max_size=3))
    if dynamic:
        drawn = [(N, *drawn[0][:2]), *drawn[1:]]
    inputs = [
        b.input(f"x{i}", TensorType(dtypes.f32, shape)) for i, shape in enumerate(drawn)
    ]
    grower = Grower(draw, b, list(inputs))
    for _ in range(draw(st.integers(1, most))):
        grower.grow()
    chosen = draw(st.lists(st.sampled_from(grower.values), min_size=1, max_size=4))
    for i, value in enumerate([*chosen, grower.values[-1]]):
        b.output(f"y{i}", value)
    dims = {"N": draw(st.integers(1, 4))} if dynamic else {}
    random = np.random.default_rng(draw(st.integers(0, 99)))
    arrays = tuple(
        random.standard_normal([symbolic.evaluate(d, dims) for d in shape]).astype(
            np.float32
        )
        for shape in drawn
    )
    return Case(b.graph, dims, arrays)
