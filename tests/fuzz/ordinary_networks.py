"""Random networks with the sizes of models: rows and images that caches do not hold, or hold in one set of theirs.

What it is: chains of what networks are made of, convolutions and products above all, with channels that are
powers of two, their neighbours and odd ones, in floats and in quantized forms.
What it is not: `typed_graphs`, whose graphs mix more ops and are so small that every machine takes the same form of them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import DType, f32, i8, u8
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder

CHANNELS = (1, 3, 8, 17, 32, 33, 64, 65, 96, 128, 130, 256, 512, 1024)
SIDES = (1, 2, 5, 7, 8, 13, 14, 16, 28, 33)
ROWS = (1, 2, 7, 12, 31, 64, 100, 257)
ACTIVATIONS = ("relu", "gelu", "sigmoid", "tanh")
MOST_PRODUCTS = 1 << 25
MOST_ELEMENTS = 1 << 19
BLOCK = 32
BATCH = symbolic.symbol("N", 1)
Step = Callable[["Network", Value], "Value | None"]


class Network:
    """One network in the making: what its steps draw from; a step that does not fit gives None."""

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        self.builder = GraphBuilder()
        self.random = np.random.default_rng(choose.randint(0, 999))

    def one(self, *options: int) -> int:
        return self.choose.choice(options)

    def flip(self) -> bool:
        return self.choose.random() < 0.5

    def op(self, name: str, *operands: Value | None, **attributes: object) -> Value:
        return self.builder.op(name, list(operands), attributes)

    def constant(self, array: np.ndarray, dtype: DType = f32) -> Value:
        return self.builder.constant(np.asarray(array).astype(dtype.numpy))

    def weights(self, *shape: int, fan: int = 1) -> Value:
        """Normal numbers; `fan` of them times such are about 1 together."""
        return self.constant(self.random.standard_normal(shape) / math.sqrt(fan))

    def channels(self, most: int) -> int | None:
        found = [count for count in CHANNELS if count <= most]
        return self.choose.choice(found) if found else None


def known(dims: Sequence[Dim]) -> tuple[int, ...]:
    """The sizes, with a guess for an open one."""
    return tuple(dim if isinstance(dim, int) else 3 for dim in dims)


def count(x: Value) -> int:
    return math.prod(known(x.type.shape))


# --- products ------------------------------------------------------------------------------------


def quantized(net: Network, x: Value) -> Value:
    """`x` as bytes and back."""
    scale, zero = net.constant(np.array(0.04)), net.constant(np.array(117), u8)
    byte = net.op("quantize_linear", x, scale, zero)
    return net.op("dequantize_linear", byte, scale, zero)


def byte_weights(net: Network, *shape: int, fan: int, axis: int) -> Value:
    """Weights of bytes with a scale for each place of an axis."""
    w = net.constant(net.random.integers(-127, 128, shape), i8)
    scales = net.random.random(shape[axis]) / 64 / math.sqrt(fan)
    return net.op("dequantize_linear", w, net.constant(scales), axis=axis)


def linear(net: Network, x: Value) -> Value | None:
    *rows, depth = known(x.type.shape)
    columns = net.channels(MOST_PRODUCTS // max(1, math.prod(rows) * depth))
    if columns is None or not rows:
        return None
    if net.flip():
        y = net.op("matmul", x, net.weights(depth, columns, fan=depth))
    else:
        w = byte_weights(net, depth, columns, fan=depth, axis=1)
        y = net.op("matmul", quantized(net, x), w)
    if net.flip():
        y = net.op("add", y, net.weights(columns))
    return activated(net, y)


def block_linear(net: Network, x: Value) -> Value | None:
    """A product with weights of 4 bits in blocks."""
    *rows, depth = known(x.type.shape)
    columns = net.channels(MOST_PRODUCTS // max(1, math.prod(rows) * depth))
    if columns is None or not rows or columns % 2 or depth % BLOCK:
        return None
    w = net.constant(net.random.integers(-8, 8, (depth, columns)), dtypes.i4)
    scales = net.weights(depth // BLOCK, columns, fan=64 * depth)
    w = net.op("dequantize_linear", w, scales, axis=0, block_size=BLOCK)
    return activated(net, net.op("matmul", x, w))


def convolution(net: Network, x: Value) -> Value | None:
    if x.type.rank != 4:
        return None
    images, channels, *sizes = known(x.type.shape)
    taps = [min(net.one(1, 3, 3, 5), side) for side in sizes]
    groups = net.choose.choice([g for g in {1, 2, 4, channels} if channels % g == 0])
    each = images * math.prod(sizes) * math.prod(taps) * (channels // groups)
    filters = channels if groups == channels else net.channels(MOST_PRODUCTS // each)
    if filters is None:
        return None
    filters = -(-filters // groups) * groups
    shape, fan = (filters, channels // groups, *taps), channels // groups * math.prod(taps)
    steps: dict[str, object] = {
        "groups": groups,
        "strides": (net.one(1, 1, 2),) * 2,
        "dilations": (1, 1),
        "pads": tuple(net.one(0, n // 2) for n in (*taps, *taps)),
    }
    if net.choose.random() < 0.6:
        y = net.op("conv", x, net.weights(*shape, fan=fan), **steps)
    else:
        w = byte_weights(net, *shape, fan=fan, axis=0)
        y = net.op("conv", quantized(net, x), w, **steps)
    if net.flip():
        y = net.op("add", y, net.weights(filters, 1, 1))
    return activated(net, y)


def activated(net: Network, y: Value) -> Value:
    return net.op(net.choose.choice(ACTIVATIONS), y) if net.flip() else y


def attention(net: Network, x: Value) -> Value | None:
    """Heads that look at each other, of one product or of three."""
    if x.type.rank != 3:
        return None
    batch, (_, rows, depth) = x.type.shape[0], known(x.type.shape)
    heads = net.choose.choice([n for n in (1, 2, 4, 12) if depth % n == 0])
    if 4 * rows * depth * max(rows, depth) > MOST_PRODUCTS:
        return None
    size, parts = depth // heads, list[Value]()
    for perm in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)):
        part = net.op("matmul", x, net.weights(depth, depth, fan=depth))
        part = net.op("reshape", part, shape=(batch, rows, heads, size))
        parts.append(net.op("transpose", part, perm=perm))
    q, k, v = parts
    scores = net.op("mul", net.op("matmul", q, k), net.constant(np.array(size**-0.5)))
    mixed = net.op("matmul", net.op("softmax", scores, axis=-1), v)
    mixed = net.op("transpose", mixed, perm=(0, 2, 1, 3))
    mixed = net.op("reshape", mixed, shape=(batch, rows, depth))
    return net.op("add", x, net.op("matmul", mixed, net.weights(depth, depth, fan=depth)))


# --- rows, windows, movement ---------------------------------------------------------------------


def normalization(net: Network, x: Value) -> Value:
    if x.type.rank == 4 and net.flip():
        channels = known(x.type.shape)[1]
        groups = net.choose.choice([g for g in (1, 4, 32, channels) if channels % g == 0])
        scale, bias = net.weights(channels), net.weights(channels)
        return net.op("group_norm", x, scale, bias, groups=groups, epsilon=0.1)
    return net.op("layer_norm", x, axis=-1, epsilon=0.1)


def reduction(net: Network, x: Value) -> Value | None:
    """What axes have in common, added to all of them, or all that is left."""
    rank = x.type.rank
    if rank == 1:
        return None
    axes = tuple(sorted(net.choose.sample(range(1, rank), net.one(1, *range(1, rank)))))
    name = net.choose.choice(("reduce_sum", "reduce_mean", "reduce_max"))
    kept = rank == 2 or net.flip()
    y = net.op("tanh", net.op(name, x, axes=axes, keepdims=kept))
    return net.op("add", x, y) if kept and net.flip() else y


def border(net: Network, x: Value) -> Value | None:
    rank = x.type.rank
    if rank == 1:
        return None
    first = (net.one(0, 1, 2) for _ in range(rank - 1))
    last = (net.one(0, 0, 1) for _ in range(rank - 1))
    return net.op("pad", x, pads=(0, *first, 0, *last))


def cut(net: Network, x: Value) -> Value | None:
    """A part of an axis, or every second place of one."""
    if x.type.rank == 1:
        return None
    axis = net.one(*range(1, x.type.rank))
    size = known(x.type.shape)[axis]
    start, step = net.choose.randint(0, size // 2), net.one(1, 1, 2)
    rest = -(-(size - start) // step)
    sizes = (max(1, rest - net.one(0, 1)),)
    return net.op("slice", x, axes=(axis,), starts=(start,), sizes=sizes, steps=(step,))


def pool(net: Network, x: Value) -> Value | None:
    if x.type.rank != 4 or min(known(x.type.shape)[2:]) < 2:
        return None
    name = net.choose.choice(("max_pool", "average_pool"))
    strides = (net.one(1, 2),) * 2
    return net.op(name, x, kernel=(2, 2), strides=strides, pads=(net.one(0, 1),) * 4)


def grown(net: Network, x: Value) -> Value | None:
    """An image of twice the size, the way of a decoder."""
    if x.type.rank != 4 or 4 * count(x) > MOST_ELEMENTS:
        return None
    sizes = tuple(2 * side for side in known(x.type.shape)[2:])
    mode = net.choose.choice(("nearest", "linear"))
    return net.op("resize", x, sizes=(*x.type.shape[:2], *sizes), mode=mode)


def turned(net: Network, x: Value) -> Value | None:
    """Channels last or first, or an image as rows."""
    if x.type.rank < 3:
        return None
    if x.type.rank == 3:
        return net.op("transpose", x, perm=(0, 2, 1))
    images, channels, height, width = x.type.shape
    if net.flip():
        return net.op("transpose", x, perm=(0, *net.choose.sample((1, 2, 3), 3)))
    rows = net.op("reshape", x, shape=(images, channels, height * width))
    return net.op("transpose", rows, perm=(0, 2, 1))


def joined(net: Network, x: Value) -> Value | None:
    """Beside itself, computed upon."""
    if x.type.rank == 1 or 2 * count(x) > MOST_ELEMENTS:
        return None
    return net.op("concat", x, net.op("relu", x), axis=net.one(*range(1, x.type.rank)))


STEPS: tuple[Step, ...] = (
    linear, linear, linear, block_linear, convolution, convolution, convolution, convolution,
    attention, normalization, reduction, border, cut, pool, grown, turned, joined,
)  # fmt: skip


def make_network(choose: random.Random, most_steps: int = 7) -> Graph:
    """A network of one input, with an open batch at times; its outputs are the last value and one of those before."""
    net = Network(choose)
    batch = choose.choice((1, 1, 2, 9, BATCH))
    if net.flip():
        shape = (batch, choose.choice(ROWS), choose.choice((*CHANNELS, 512, 1024, 2048)))
    else:
        channels = choose.choice(CHANNELS[:-1])
        shape = (batch, channels, choose.choice(SIDES), choose.choice(SIDES))
    x = net.builder.input("x", TensorType(f32, shape))
    values = [x]
    for _ in range(choose.randint(2, most_steps)):
        y = choose.choice(STEPS)(net, values[-1])
        if y is not None and 0 < count(y) <= MOST_ELEMENTS:
            values.append(y)
    if choose.random() < 0.3:
        net.builder.output("before", choose.choice(values))
    net.builder.output("y", net.op("neg", values[-1]))
    return net.builder.graph


def inputs_for(graph: Graph, batch: int, seed: int) -> list[np.ndarray]:
    """Normal numbers."""
    (x,) = graph.inputs
    shape = tuple(symbolic.evaluate(dim, {"N": batch}) for dim in x.type.shape)
    return [np.random.default_rng(seed).standard_normal(shape).astype(np.float32)]
