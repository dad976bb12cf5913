"""One operator at a time: a row of a batch is the row alone, of NaN, infinities, denormals and zeros of both signs, too.

`test_batches` does the same with random networks of ordinary numbers in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from fakes.native_kernel import needs_x86, targets_apart
from fuzz.comparison import compiled, run
from tilewright.api.model import Model
from tilewright.base import dtypes
from tilewright.base.dtypes import DType, bf16, f16, f32, f64, i32, u8
from tilewright.base.symbolic import Dim, symbol
from tilewright.base.target import Target
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder

pytestmark = needs_x86

OPEN = symbol("N", 1)
MOST = 33
BATCHES = (2, 7, 15, 16, 17, 33)
Build = Callable[[GraphBuilder, Value], Sequence[Value]]
Case = tuple[DType, tuple[int, ...], Build]
FUNCTIONS = (
    "exp", "log", "sqrt", "rsqrt", "reciprocal", "floor", "round", "sin",
    "cos", "tan", "asin", "atan", "sinh", "tanh", "acosh", "erf",
    "sigmoid", "silu", "softplus", "mish", "gelu", "elu",
)  # fmt: skip
REDUCTIONS = ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod"]


def each(*names: str, **attributes: object) -> Build:
    """Every op of these, of the same operand."""
    return lambda b, x: [b.op(name, (x,), attributes) for name in names]


def numbers(b: GraphBuilder, dtype: DType, *shape: int) -> Value:
    drawn = np.random.default_rng(5).standard_normal(shape) * (9 if dtype.is_integer else 1)
    return b.constant(drawn.astype(dtype.numpy))


def product(columns: int, dtype: DType | None = None) -> Build:
    """With weights; of bytes as 32-bit integers."""

    def build(b: GraphBuilder, x: Value) -> Sequence[Value]:
        kind = dtypes.i8 if x.type.dtype is u8 else x.type.dtype
        depth = x.type.shape[-1]
        assert isinstance(depth, int)
        return [b.matmul(x, numbers(b, kind, depth, columns), dtype=dtype)]

    return build


def attended(b: GraphBuilder, x: Value) -> Sequence[Value]:
    return [b.attention(x, x, x, scale=0.25)]


def quantized(b: GraphBuilder, x: Value) -> Sequence[Value]:
    zero, scales = b.constant(np.array(3, np.uint8)), (0.07, 1.0, -0.3)
    return [b.quantize_linear(x, b.constant(np.array(s, np.float32)), zero) for s in scales]


def cast_to_all(b: GraphBuilder, x: Value) -> Sequence[Value]:
    return [b.cast(x, dtype=t) for t in dtypes.ALL if t is not x.type.dtype]


def image(b: GraphBuilder, x: Value) -> Sequence[Value]:
    channels = x.type.shape[1]
    assert isinstance(channels, int)
    around = {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}
    return [
        b.conv(x, numbers(b, x.type.dtype, 17, channels, 3, 3), pads=(1, 1, 1, 1),
               strides=(1, 1), dilations=(1, 1)),
        b.max_pool(x, **around),
        b.average_pool(x, **around),
    ]  # fmt: skip


def cases() -> dict[str, Case]:
    """By name: the type of a row, its sizes, the sum or product of it."""
    found: dict[str, Case] = {}
    for dtype in (f32, bf16, f16, f64):
        for length in (1, 7, 17):
            found[f"functions {dtype} {length}"] = (dtype, (length,), each(*FUNCTIONS))
        for length in (3, 9, 17, 33):
            rows = each("softmax", "log_softmax", "layer_norm", "rms_norm", axis=1)
            found[f"rows {dtype} {length}"] = (dtype, (length,), rows)
            sums = each(*REDUCTIONS, axes=(1,))
            found[f"sums {dtype} {length}"] = (dtype, (length,), sums)
        found[f"products {dtype}"] = (dtype, (300,), product(17))
        found[f"rows of products {dtype}"] = (dtype, (5, 33), product(17))
        found[f"casts {dtype}"] = (dtype, (17,), cast_to_all)
    for dtype in (f32, bf16):
        found[f"attention {dtype}"] = (dtype, (2, 17, 24), attended)
        found[f"images {dtype}"] = (dtype, (3, 9, 9), image)
    found["bytes"] = (u8, (33,), product(17, i32))
    found["quantized"] = (f32, (17,), quantized)
    found["scans"] = (f32, (17,), each("cumsum", "cumprod", "arg_max", axis=1))
    return found


CASES = cases()


def made(case: Case, batch: Dim) -> Graph:
    dtype, sizes, build = case
    b = GraphBuilder()
    x = b.input("x", TensorType(dtype, (batch, *sizes)))
    for place, y in enumerate(build(b, x)):
        b.output(f"y{place}", y)
    return b.graph


def drawn(dtype: DType, sizes: tuple[int, ...]) -> np.ndarray:
    """Rows of ordinary numbers, of some special ones among them, of zeros, of huge and of denormal ones."""
    random, kind = np.random.default_rng(7), dtype.numpy
    shape = (MOST, *sizes)
    if not dtype.is_float:
        return random.integers(0, 256, shape).astype(kind)
    info = ml_dtypes.finfo(kind)
    least, most = float(info.smallest_normal), float(info.max)
    specials = [np.nan, np.inf, -np.inf, most, -most, least / 4, -0.0, 88.5, -104.0, 709.0]
    with np.errstate(over="ignore"):
        x = random.standard_normal(shape)
        some = np.where(random.random(shape) < 0.1, random.choice(specials, shape), x)
        zeros = random.choice([0.0, -0.0], shape)
        far = np.where(random.random(shape) < 0.5, 40 * x, least * x)
        turn = np.arange(MOST).reshape(-1, *[1] * len(sizes)) % 4
        return np.select([turn == 1, turn == 2, turn == 3], [some, zeros, far], x).astype(
            kind
        )


def bits(model: Model, x: np.ndarray) -> list[np.ndarray]:
    """Every output as bits, in which one NaN is as good as another."""
    return [bits_of(y) for y in run(model, [x])]


def bits_of(y: np.ndarray) -> np.ndarray:
    raw = y.view(f"u{y.dtype.itemsize}").copy()
    if dtypes.from_numpy(y.dtype).is_float:
        raw[np.isnan(y)] = 7
    return raw


def check(name: str, target: Target) -> None:
    case = CASES[name]
    x = drawn(*case[:2])
    open_ = compiled(made(case, OPEN), target)
    single: list[Any] = [bits(open_, row[None]) for row in x]
    wanted = [np.concatenate(rows) for rows in zip(*single, strict=True)]

    def same(model: Model, first: int, count: int, subject: str) -> None:
        found = bits(model, x[first : first + count])
        for place, (got, want) in enumerate(zip(found, wanted, strict=True)):
            where = f"{name}: {subject}, output {place}, {count} rows from {first}"
            np.testing.assert_array_equal(got, want[first : first + count], err_msg=where)

    for count in BATCHES:
        for first in {0, MOST - count}:
            same(open_, first, count, "open")
    same(compiled(made(case, 17), target, threads=2), 0, 17, "known")


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", CASES)
def test_a_row_of_any_batch_is_the_row_alone(name: str) -> None:
    check(name, Target.host())


@pytest.mark.nightly
@pytest.mark.parametrize("target", targets_apart()[1:], ids=lambda t: t.cpu)
@pytest.mark.parametrize("name", CASES)
def test_a_row_of_any_batch_is_the_row_alone_at_every_level(
    name: str, target: Target
) -> None:
    check(name, target)
