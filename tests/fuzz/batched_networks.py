"""Random networks whose axis 0 is a batch: no op of theirs mixes its rows.

The same choices make the same network for any batch, open or known.  What it is not: a cover of the
catalogue (`typed_graphs`), whose graphs mix everything with everything.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from tilewright.base.dtypes import f32
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder

Step = Callable[["Network", Value], Value]
_MOST_ELEMENTS = 6000


class Network:
    """One network in the making: what its steps draw from."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.builder = GraphBuilder()
        self.random = np.random.default_rng(seed)

    def weights(self, *shape: int) -> Value:
        array = self.random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)
        return self.builder.constant(array.astype(np.float32))

    def op(self, name: str, *operands: Value, **attributes: object) -> Value:
        return self.builder.op(name, list(operands), attributes)


def features(x: Value) -> tuple[int, ...]:
    """The sizes behind the batch."""
    return tuple(d for d in x.type.shape[1:] if isinstance(d, int))


def linear(net: Network, x: Value) -> Value:
    columns = net.choose.choice((1, 3, 8, 16, 31, 40, 72))
    y = net.op("matmul", x, net.weights(features(x)[-1], columns))
    return net.op(net.choose.choice(("relu", "tanh", "gelu", "sigmoid")), y)


def convolution(net: Network, x: Value) -> Value:
    if len(features(x)) < 2:
        return linear(net, x)
    channels, *spatial = features(x)
    groups = net.choose.choice([g for g in {1, 2, channels} if channels % g == 0])
    filters = groups * net.choose.choice((1, 4, 9))
    taps = [min(3, d) for d in spatial]
    weights = net.weights(filters, channels // groups, *taps)
    strides = tuple(net.choose.choice((1, 1, 2)) for _ in spatial)
    y = net.op("conv", x, weights, groups=groups, strides=strides, pads=(1,) * 2 * len(taps),
               dilations=(1,) * len(taps))  # fmt: skip
    return net.op("relu", y)


def pooling(net: Network, x: Value) -> Value:
    spatial = features(x)[1:]
    if not spatial or min(spatial) < 2:
        return rows(net, x)
    name = net.choose.choice(("average_pool", "max_pool"))
    return net.op(name, x, kernel=(2,) * len(spatial), strides=(1,) * len(spatial))


def reduction(net: Network, x: Value) -> Value:
    rank = len(features(x))
    if rank < 2:
        return rows(net, x)
    axes = tuple(sorted(net.choose.sample(range(1, rank + 1), net.choose.randint(1, rank))))
    name = net.choose.choice(("reduce_sum", "reduce_mean", "reduce_max"))
    y = net.op(name, x, axes=axes, keepdims=True)
    return net.op("add", x, net.op("tanh", y))


def rows(net: Network, x: Value) -> Value:
    axis = net.choose.randint(1, len(features(x)))
    name = net.choose.choice(("softmax", "layer_norm", "rms_norm"))
    more: dict[str, object] = {} if name == "softmax" else {"epsilon": 0.1}
    return net.op(name, x, axis=axis, **more)


def attention(net: Network, x: Value) -> Value:
    """Every row of a sample with every other one, as queries and keys."""
    if len(features(x)) != 2:
        return linear(net, x)
    keys = net.op("transpose", x, perm=(0, 2, 1))
    weights = net.op("softmax", net.op("matmul", x, keys), axis=-1)
    return net.op("matmul", weights, x)


def movement(net: Network, x: Value) -> Value:
    sizes = features(x)
    if len(sizes) == 1:
        part = next(p for p in (4, 3, 2, 5, 1, sizes[0]) if sizes[0] % p == 0)
        return net.op("reshape", x, shape=(x.type.shape[0], sizes[0] // part, part))
    if net.choose.random() < 0.5:
        inner = net.choose.sample(range(1, len(sizes) + 1), len(sizes))
        return net.op("transpose", x, perm=(0, *inner))
    shape = (x.type.shape[0], sizes[0] * sizes[1], *sizes[2:])
    return net.op("reshape", x, shape=shape)


STEPS: tuple[Step, ...] = (
    linear, linear, convolution, pooling, reduction, rows, attention, movement,
)  # fmt: skip
SAMPLES: tuple[tuple[int, ...], ...] = (
    (16,), (9,), (33,), (300,), (5, 24), (7, 16), (3, 9, 9), (8, 7, 7), (2, 5, 11),
)  # fmt: skip


def make_network(seed: int, batch: Dim) -> Graph:
    """The network of `seed` for a batch; its steps do not depend on the batch."""
    net = Network(seed)
    sample = net.choose.choice(SAMPLES)
    x = net.builder.input("x", TensorType(f32, (batch, *sample)))
    for _ in range(net.choose.randint(1, 5)):
        y = net.choose.choice(STEPS)(net, x)
        x = y if int(np.prod(features(y))) <= _MOST_ELEMENTS else x
    net.builder.output("y", x)
    return net.builder.graph


def samples_for(graph: Graph, count: int) -> np.ndarray:
    """`count` rows of a batch."""
    shape: Sequence[int] = features(graph.inputs[0])
    return np.random.default_rng(1).standard_normal((count, *shape)).astype(np.float32)
