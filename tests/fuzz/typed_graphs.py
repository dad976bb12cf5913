"""Random typed graphs over the catalogue, for comparing compiled code with the evaluator.

What it is: a hypothesis strategy of graphs (elementwise, reductions, rows, contractions,
movement; several types; sizes 0 and 1, dynamic sizes, shared values, several outputs) that are
numerically tame: what jumps (comparison, rounding, integer casts, indices) is fed with values
that every way to compute gives exactly.
What it is not: `fakes.random_graphs`, whose smaller graphs the tests of passes use.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType
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

    # --- elementwise ------------------------------------------------------------------------

    def step_smooth(self) -> Tracked | None:
        v = self.pick_float()
        if v is None:
            return None
        names = ("tanh", "sigmoid", "erf", "gelu", "silu", "softplus", "sin", "cos", "atan",
                 "softsign", "mish", "asinh", "hard_swish", "elu", "selu", "celu", "leaky_relu",
                 "hard_sigmoid")  # fmt: skip
        return self.add(self.one(names), [v])

    def step_positive(self) -> Tracked | None:
        """Functions of what is at least 1."""
        v = self.pick_float()
        if v is None:
            return None
        shifted = self.add("add", [self.add("abs", [v]), self.whole(1, v.dtype)])
        return self.add(self.one(("sqrt", "rsqrt", "log", "reciprocal")), [shifted])

    def step_exp(self) -> Tracked | None:
        v = self.pick_float()
        return None if v is None else self.add("exp", [self.tame(v)])

    def step_exact_unary(self) -> Tracked | None:
        v = self.pick(lambda v: v.dtype.is_signed or v.dtype.is_float)
        if v is None:
            return None
        names = ["neg", "abs", "relu", "identity"]
        if v.exact:
            names.append("sign")
            if v.dtype.is_float:
                names += ["floor", "ceil", "round"]
        return self.add(self.one(names), [v], exact=v.exact, bound=v.bound)

    def step_bits(self) -> Tracked | None:
        v = self.pick(lambda v: not v.dtype.is_float)
        if v is None:
            return None
        if v.dtype.is_bool:
            return self.add("logical_not", [v])
        return self.add("bitwise_not", [v], exact=True, bound=v.bound + 1)

    def step_binary(self) -> Tracked | None:
        left = self.pick(lambda v: not v.dtype.is_bool)
        if left is None:
            return None
        right = self.partner(left)
        name = self.one(("add", "sub", "mul", "max", "min"))
        operands = [left, right] if self.flip() else [right, left]
        product = left.bound * right.bound
        bound = product if name == "mul" else left.bound + right.bound
        exact = left.exact and right.exact
        made = self.add(name, operands, exact=exact, bound=bound)
        if made is not None and made.dtype.is_float and bound > 50 and not made.exact:
            return self.tame(made)
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

    def step_divide(self) -> Tracked | None:
        left = self.pick(lambda v: not v.dtype.is_bool)
        if left is None:
            return None
        if left.dtype.is_float:
            right = self.add("add", [self.add("abs", [self.partner(left)]),
                                     self.whole(1, left.dtype)])  # fmt: skip
            return self.add("div", [left, right], bound=left.bound)
        divisor = self.whole(self.number(1, 5), left.dtype)
        name = self.one(("div", "mod"))
        return self.add(name, [left, divisor], exact=True, bound=left.bound)

    def step_compare(self) -> Tracked | None:
        left = self.pick(lambda v: v.exact and not v.dtype.is_bool)
        if left is None:
            return None
        right = self.partner(left)
        if not right.exact:
            return None
        names = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
        return self.add(self.one(names), [left, right])

    def step_logic(self) -> Tracked | None:
        left = self.pick(lambda v: v.dtype.is_bool)
        if left is None:
            return None
        right = self.partner(left)
        return self.add(
            self.one(("logical_and", "logical_or", "logical_xor")), [left, right]
        )

    def step_where(self) -> Tracked | None:
        test = self.pick(lambda v: v.dtype.is_bool)
        if test is None:
            return None
        left = self.pick(lambda v: broadcasts(v.shape, test.shape))
        if left is None:
            return None
        right = self.partner(left)
        shape = joined(test.shape, left.shape)
        if not broadcasts(shape, right.shape):
            return None
        exact = left.exact and right.exact
        return self.add("where", [test, left, right], exact=exact,
                        bound=max(left.bound, right.bound))  # fmt: skip

    def step_clip(self) -> Tracked | None:
        v = self.pick(lambda v: not v.dtype.is_bool)
        if v is None:
            return None
        low = (
            self.whole(0 if not v.dtype.is_signed else -2, v.dtype) if self.flip() else None
        )
        high = self.whole(3, v.dtype) if self.flip() or low is None else None
        return self.add("clip", [v, low, high], exact=v.exact, bound=v.bound)

    def step_cast(self) -> Tracked | None:
        v = self.pick()
        if v is None:
            return None
        kinds = [*FLOATS, *INTEGERS] if v.exact and v.bound < 64 else [*FLOATS]
        kind = self.one(kinds)
        if not v.dtype.is_float and not v.dtype.is_bool and v.bound > 2**7:
            return None
        return self.add("cast", [v], dtype=kind, exact=v.exact, bound=v.bound)

    # --- reductions and rows ----------------------------------------------------------------

    def axes(self, v: Tracked) -> tuple[int, ...]:
        if not v.rank:
            return ()
        count = self.number(1, v.rank)
        return tuple(sorted(self.choose.sample(range(v.rank), count)))

    def step_reduce(self) -> Tracked | None:
        v = self.pick(lambda v: not v.dtype.is_bool and v.rank > 0)
        if v is None:
            return None
        axes = self.axes(v)
        count = size_of([v.shape[a] for a in axes])
        empty = any(v.shape[a] == 0 for a in axes)
        names = ["reduce_sum"] if empty else ["reduce_sum", "reduce_max", "reduce_min"]
        if v.dtype.is_float and not empty:
            names.append("reduce_mean")
        name = self.one(names)
        exact = v.exact and name != "reduce_mean"
        bound = v.bound * max(1, count) * 4 if name == "reduce_sum" else v.bound
        if v.dtype.name in ("f16", "bf16") and name == "reduce_sum" and not exact:
            name = "reduce_mean" if not empty else name
        made = self.add(
            name, [v], axes=axes, keepdims=self.flip(), exact=exact, bound=bound
        )
        if made is not None and made.dtype.is_float and bound > 50 and not made.exact:
            return self.tame(made)
        return made

    def step_arg(self) -> Tracked | None:
        v = self.pick(lambda v: v.exact and not v.dtype.is_bool and v.rank > 0)
        if v is None:
            return None
        axis = self.number(0, v.rank - 1)
        if v.shape[axis] == 0:
            return None
        return self.add(
            self.one(("arg_max", "arg_min")), [v], axis=axis, keepdims=self.flip(),
            select_last=self.flip(), bound=64,
        )  # fmt: skip

    def step_cumsum(self) -> Tracked | None:
        v = self.pick(lambda v: v.rank > 0 and v.dtype.name in ("f32", "f64", "i64", "i32"))
        if v is None:
            return None
        made = self.add(
            "cumsum", [v], axis=self.number(0, v.rank - 1), exclusive=self.flip(),
            reverse=self.flip(), exact=v.exact, bound=v.bound * size_of(v.shape),
        )  # fmt: skip
        return self.tame(made) if made is not None and made.dtype.is_float else made

    def step_rows(self) -> Tracked | None:
        v = self.pick(lambda v: v.dtype.is_float and v.rank > 0)
        if v is None:
            return None
        axis = self.number(-v.rank, v.rank - 1)
        if any(d == 0 for d in v.shape[axis % v.rank :]):
            return None
        name = self.one(("softmax", "log_softmax", "layer_norm", "rms_norm"))
        if name in ("softmax", "log_softmax"):
            return self.add(name, [v], axis=axis)
        # Variances of rows of equal numbers are noise: a large epsilon keeps it down.
        operands: list[Tracked | Value | None] = [self.tame(v)]
        shape = v.shape[axis % v.rank :]
        if all(isinstance(d, int) for d in shape) and self.flip():
            sizes = [d for d in shape if isinstance(d, int)]
            operands.append(self.constant(sizes, v.dtype))
            if name == "layer_norm":
                operands.append(self.constant(sizes, v.dtype) if self.flip() else None)
        return self.add(name, operands, axis=axis, epsilon=0.1)

    # --- contractions -----------------------------------------------------------------------

    def step_linear(self) -> Tracked | None:
        """A product with weights, often followed by a bias and an activation."""
        v = self.pick(lambda v: v.dtype.is_float and v.rank >= 1 and is_size(v.shape[-1]))
        if v is None:
            return None
        columns = self.one((1, 2, 5, 16, 31, 40))
        if v.rank < 2:
            return None
        depth = v.shape[-1]
        assert isinstance(depth, int)
        weights = self.constant((depth, columns), v.dtype)
        made = self.add("matmul", [self.tame(v), weights])
        if made is not None and self.flip():
            made = self.add("add", [made, self.constant((columns,), v.dtype)])
        return (
            None if made is None else self.add(self.one(("relu", "tanh", "gelu")), [made])
        )

    def step_product(self) -> Tracked | None:
        """A product of two computed values."""
        a = self.pick(lambda v: v.dtype.is_float and v.rank >= 2)
        if a is None:
            return None
        others = [
            v
            for v in self.values
            if v.dtype is a.dtype and v.rank >= 2 and broadcasts(v.shape[:-2], a.shape[:-2])
        ]
        b = self.one(others)
        if b.shape[-2] != a.shape[-1]:
            if b.shape[-1] != a.shape[-1]:
                return None
            perm = (*range(b.rank - 2), b.rank - 1, b.rank - 2)
            turned = self.add("transpose", [b], perm=perm, exact=b.exact, bound=b.bound)
            if turned is None:
                return None
            b = turned
        made = self.add("matmul", [self.tame(a), self.tame(b)])
        return None if made is None else self.tame(made)

    def step_convolution(self) -> Tracked | None:
        v = self.pick(lambda v: is_image(v, 1))
        if v is None:
            return None
        channels, spatial = v.shape[1], v.rank - 2
        assert isinstance(channels, int)
        groups = self.one([g for g in {1, channels, 2} if channels % g == 0])
        taps = self.one((1, 2, 3))
        dilation = self.one((1, 1, 2))
        reach = dilation * (taps - 1)
        filters = groups * self.one((1, 3, 8))
        pads = tuple(self.number(0, 2) for _ in range(2 * spatial))
        low = min((d for d in v.shape[2:] if isinstance(d, int)), default=1)
        if low + min(pads) * 2 <= reach or (
            any(not is_size(d) for d in v.shape[2:]) and (1 + min(pads) * 2 <= reach)
        ):
            pads = (reach,) * (2 * spatial)
        weights = self.constant((filters, channels // groups, *([taps] * spatial)), v.dtype)
        bias = self.constant((filters,), v.dtype) if self.flip() else None
        made = self.add(
            "conv", [self.tame(v), weights, bias], groups=groups, pads=pads,
            strides=tuple(self.number(1, 2) for _ in range(spatial)),
            dilations=(dilation,) * spatial,
        )  # fmt: skip
        return None if made is None else self.add(self.one(("relu", "tanh")), [made])

    def step_deconvolution(self) -> Tracked | None:
        v = self.pick(lambda v: is_image(v, 1) and v.rank == 4)
        if v is None:
            return None
        channels = v.shape[1]
        assert isinstance(channels, int)
        weights = self.constant((channels, 2, 3, 3), v.dtype)
        stride = self.number(1, 2)
        made = self.add("conv_transpose", [self.tame(v), weights], strides=(stride, stride),
                        pads=(1, 1, 1, 1))  # fmt: skip
        return None if made is None else self.tame(made)

    def step_pool(self) -> Tracked | None:
        v = self.pick(lambda v: is_image(v, 2))
        if v is None:
            return None
        spatial = v.rank - 2
        name = self.one(("max_pool", "average_pool"))
        exact = v.exact and name == "max_pool"
        return self.add(
            name, [v], kernel=(2,) * spatial, pads=tuple(self.number(0, 1) for _ in range(2 * spatial)),
            strides=(self.number(1, 2),) * spatial, exact=exact, bound=v.bound,
            ceil_mode=self.flip(),
        )  # fmt: skip

    # --- movement ---------------------------------------------------------------------------

    def move(
        self, v: Tracked, op: str, *more: Tracked | Value, **attributes: object
    ) -> Tracked | None:
        return self.add(op, [v, *more], exact=v.exact, bound=v.bound, **attributes)

    def step_transpose(self) -> Tracked | None:
        v = self.pick(lambda v: v.rank > 1)
        if v is None:
            return None
        perm = tuple(self.choose.sample(range(v.rank), v.rank))
        return self.move(v, "transpose", perm=perm)

    def step_reshape(self) -> Tracked | None:
        v = self.pick()
        if v is None:
            return None
        shape = list(v.shape)
        choice = self.one(("merge", "split", "unit", "squeeze", "flat"))
        if choice == "merge" and len(shape) > 1:
            at = self.number(0, len(shape) - 2)
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        elif choice == "split":
            places = [i for i, d in enumerate(shape) if is_size(d) and d > 1]
            if places:
                at = self.one(places)
                part = next(p for p in (2, 3, 5, 7, shape[at]) if shape[at] % p == 0)
                pair = [shape[at] // part, part]
                shape[at : at + 1] = pair if self.flip() else pair[::-1]
        elif choice == "squeeze" and 1 in shape:
            shape.remove(1)
        elif choice == "flat":
            total: Dim = 1
            for dim in shape:
                total = total * dim
            shape = [total]
        else:
            shape.insert(self.number(0, len(shape)), 1)
        return self.move(v, "reshape", shape=tuple(shape)) if len(shape) <= 5 else None

    def step_slice(self) -> Tracked | None:
        v = self.pick(lambda v: any(is_size(d) and d > 1 for d in v.shape))
        if v is None:
            return None
        axis = self.one([i for i, d in enumerate(v.shape) if is_size(d) and d > 1])
        extent = v.shape[axis]
        assert isinstance(extent, int)
        step = self.one((1, 1, 1, 2, -1, -2, 3))
        start = self.number(0, extent - 1)
        room = (extent - start if step > 0 else start + 1) + abs(step) - 1
        size = self.number(0 if self.number(0, 9) == 0 else 1, room // abs(step))
        return self.move(
            v, "slice", axes=(axis,), starts=(start,), sizes=(size,), steps=(step,)
        )

    def step_parts(self) -> Tracked | None:
        """Slices of one value, put together in another order."""
        v = self.pick(lambda v: any(is_size(d) and d > 1 for d in v.shape))
        if v is None:
            return None
        axis = self.one([i for i, d in enumerate(v.shape) if is_size(d) and d > 1])
        extent = v.shape[axis]
        assert isinstance(extent, int)
        cut = self.number(1, extent - 1)
        parts = []
        for start, size in ((0, cut), (cut, extent - cut)):
            parts.append(
                self.move(
                    v, "slice", axes=(axis,), starts=(start,), sizes=(size,), steps=(1,)
                )
            )
        head, tail = parts
        if head is None or tail is None:
            return None
        if v.dtype.is_float and self.flip():
            tail = self.add("neg", [tail], exact=v.exact, bound=v.bound)
        return self.move(tail, "concat", head, axis=axis)

    def step_concat(self) -> Tracked | None:
        v = self.pick(lambda v: v.rank > 0)
        if v is None:
            return None
        axis = self.number(0, v.rank - 1)
        fits = [
            w
            for w in self.values
            if w.dtype is v.dtype
            and w.rank == v.rank
            and all(
                a == b
                for i, (a, b) in enumerate(zip(w.shape, v.shape, strict=True))
                if i != axis
            )
        ]
        others = [self.one(fits) for _ in range(self.number(1, 2))]
        exact = v.exact and all(w.exact for w in others)
        bound = max(v.bound, *(w.bound for w in others))
        return self.add("concat", [v, *others], axis=axis, exact=exact, bound=bound)

    def step_pad(self) -> Tracked | None:
        v = self.pick(lambda v: v.rank > 0)
        if v is None:
            return None
        pads = tuple(self.number(0, 2) for _ in range(2 * v.rank))
        mode = self.one(("constant", "constant", "edge"))
        if mode == "edge" and has_zero(v.shape):
            mode = "constant"
        return self.move(v, "pad", pads=pads, mode=mode)

    def step_expand(self) -> Tracked | None:
        v = self.pick()
        if v is None:
            return None
        shape = [self.one(self.dims) if d == 1 else d for d in v.shape]
        if self.flip():
            shape.insert(0, self.one(self.dims))
        return self.move(v, "broadcast_to", shape=tuple(shape)) if len(shape) <= 5 else None

    def step_tile(self) -> Tracked | None:
        v = self.pick()
        if v is None:
            return None
        return self.move(v, "tile", repeats=tuple(self.number(1, 2) for _ in v.shape))

    def step_gather(self) -> Tracked | None:
        v = self.pick(lambda v: any(is_size(d) and d > 0 for d in v.shape))
        if v is None:
            return None
        axis = self.one([i for i, d in enumerate(v.shape) if is_size(d) and d > 0])
        extent = v.shape[axis]
        assert isinstance(extent, int)
        indices = self.indices(extent)
        if indices is None or v.rank - 1 + len(indices.type.shape) > 5:
            return None
        return self.move(v, "gather", indices, axis=axis)

    def indices(self, extent: int) -> Value | None:
        """Integers in [-extent, extent): constants, or computed."""
        made = self.pick(lambda v: v.dtype in (dtypes.i64, dtypes.i32) and v.rank <= 2)
        if made is not None and self.flip():
            inside = self.add("clip", [made, self.whole(-extent, made.dtype),
                                       self.whole(extent - 1, made.dtype)])  # fmt: skip
            return None if inside is None else inside.value
        shape = self.one(((), (3,), (2, 3), (1,)))
        return self.builder.constant(
            np.asarray(self.random.integers(-extent, extent, shape))
        )

    def step_trilu(self) -> Tracked | None:
        v = self.pick(lambda v: v.rank >= 2)
        return None if v is None else self.move(v, "trilu", upper=self.flip())

    def step_iota(self) -> Tracked | None:
        rank = self.number(1, 2)
        shape = tuple(self.one(self.dims) for _ in range(rank))
        return self.add("iota", [], shape=shape, axis=self.number(0, rank - 1), bound=64)

    def step_host(self) -> Tracked | None:
        """An op without a kernel, between kernels."""
        v = self.pick(lambda v: v.exact and not v.dtype.is_bool and v.rank > 0)
        if v is None or v.dtype.name not in ("f32", "i64", "i32"):
            return None
        axis = self.number(0, v.rank - 1)
        extent = v.shape[axis]
        if not is_size(extent) or extent == 0:
            return None
        count = self.number(1, extent)
        made = self.builder.op("top_k", [v.value], {"k": (count,), "axis": axis})
        self.keep(Tracked(made[1], True, 64))
        return self.keep(Tracked(made[0], True, v.bound))

    # --- outputs ----------------------------------------------------------------------------

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


STEPS = tuple(name for name in vars(Maker) if name.startswith("step_"))
# Steps that make the structure kernels are chosen by come more often.
_OFTEN = ("step_linear", "step_product", "step_convolution", "step_rows", "step_reduce",
          "step_binary", "step_transpose", "step_reshape", "step_pool", "step_parts")  # fmt: skip
_BAG = (*STEPS, *_OFTEN, *_OFTEN)
FEW_STEPS = 8


def make_graph(choose: random.Random, most_steps: int = FEW_STEPS) -> Graph:
    """A graph with one to three inputs of several types and ranks."""
    maker = Maker(choose)
    for index in range(choose.randint(1, 3)):
        rank = choose.choice((0, 1, 2, 2, 3, 3, 4, 4))
        shape = tuple(maker.one(maker.dims) for _ in range(rank))
        dtype = maker.one((*([dtypes.f32] * 9), *FLOATS, *INTEGERS, dtypes.bool_))
        while size_of(shape) > MOST_ELEMENTS:
            shape = shape[:-1]
        value = maker.builder.input(f"x{index}", TensorType(dtype, shape))
        maker.keep(Tracked(value, True, 3))
    _add_sizes(maker)
    steps = choose.randint(1, most_steps)
    for _ in range(4 * steps):
        if len(maker.builder.graph.nodes) < 2 * steps:
            getattr(maker, maker.one(_BAG))()
    return maker.finish()


def _add_sizes(maker: Maker) -> None:
    """Inputs for the symbols that no input has as a size of its own."""
    for dim in [d for d in maker.dims if not isinstance(d, int)]:
        if not any(dim in v.shape for v in maker.values):
            value = maker.builder.input(f"size_of_{dim}", TensorType(dtypes.f32, (dim,)))
            maker.keep(Tracked(value, True, 3))


def typed_graphs(*, most_steps: int = FEW_STEPS) -> st.SearchStrategy[Graph]:
    """The strategy: every choice is one of hypothesis, so graphs shrink."""
    randoms = st.randoms(use_true_random=False, note_method_calls=False)
    return randoms.map(lambda choose: make_graph(choose, most_steps))


def inputs_for(graph: Graph, dims: dict[str, int], seed: int) -> list[np.ndarray]:
    """Small whole numbers for every input."""
    random = np.random.default_rng(seed)
    arrays = []
    for value in graph.inputs:
        shape = tuple(symbolic.evaluate(d, dims) for d in value.type.shape)
        dtype = value.type.dtype
        low, high = (0, 2) if dtype.is_bool else (0, 4) if not dtype.is_signed else (-3, 4)
        arrays.append(np.asarray(random.integers(low, high, shape)).astype(dtype.numpy))
    return arrays
