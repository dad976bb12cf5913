"""Sixty networks of ten to forty operators, put together at random from parts of real ones.

What it is: cases whose seed is their number: images, tokens and signals, each with its own parts.
What it is not: the fuzzer's graphs (``tests/fuzz``), which are small and strange; these have the
sizes of models, so that their time means something.
Who calls it: ``block_sweep.py``, its worker and the tests.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

from sweep.case import Case
from sweep.network import Network, Tensor, ints, scalar, w, x

COUNT: Final = 60
LEAST_OPS: Final = 10
MOST_OPS: Final = 40
LARGEST_PART: Final = 22
ACTIVATIONS: Final = (
    "Relu",
    "Sigmoid",
    "Tanh",
    "HardSwish",
    "LeakyRelu",
    "Elu",
    "Softplus",
)


@final
@dataclass(frozen=True, slots=True)
class Flow:
    """The value that parts hand on."""

    name: str
    shape: tuple[int, ...]


@final
class Workshop:
    """A network in the making and the choices for it."""

    def __init__(self, network: Network, seed: int) -> None:
        self.network = network
        self.choose = random.Random(seed)

    def weight(self, *shape: int, fan_in: int) -> Tensor:
        """Return weights that keep the size of numbers."""
        bound = math.sqrt(3 / fan_in)
        return w(*shape, low=-bound, high=bound)

    def activate(self, value: Flow) -> Flow:
        """Apply an activation: one operator, or SiLU and GELU as exporters write them."""
        op = self.network.op
        kind = self.choose.choice((*ACTIVATIONS, "SiLU", "GELU", "Clip"))
        if kind == "SiLU":
            return Flow(op("Mul", value.name, op("Sigmoid", value.name)), value.shape)
        if kind == "Clip":
            return Flow(op("Clip", value.name, scalar(0), scalar(6)), value.shape)
        if kind == "GELU":
            grown = op("Erf", op("Div", value.name, scalar(2**0.5)))
            doubled = op("Mul", value.name, op("Add", grown, scalar(1)))
            return Flow(op("Mul", doubled, scalar(0.5)), value.shape)
        return Flow(op(kind, value.name), value.shape)

    def conv(
        self,
        value: Flow,
        channels: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        dilation: int = 1,
    ) -> Flow:
        """Append a convolution of any rank with padding that keeps the size."""
        batch, given, *image = value.shape
        rank, pad = len(image), dilation * (kernel // 2)
        inner = given // groups
        weights = self.weight(
            channels, inner, *[kernel] * rank, fan_in=inner * kernel**rank
        )
        name = self.network.op(
            "Conv",
            value.name,
            weights,
            w(channels, low=-0.1, high=0.1),
            strides=[stride] * rank,
            dilations=[dilation] * rank,
            pads=[pad] * (2 * rank),
            group=groups,
        )
        sizes = [
            (size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for size in image
        ]
        return Flow(name, (batch, channels, *sizes))


Part = Callable[[Workshop, Flow], Flow]


# --- images and signals: [batch, channels, ...] ------------------------------------------------


def dense_conv(shop: Workshop, value: Flow) -> Flow:
    """A convolution with an activation."""
    size = value.shape[2]
    channels = shop.choose.choice((value.shape[1], min(2 * value.shape[1], 256), 24, 40))
    kernel = shop.choose.choice((1, 3, 3, 5))
    stride = shop.choose.choice((1, 1, 2)) if size >= 14 else 1
    dilation = shop.choose.choice((1, 1, 2)) if kernel == 3 and stride == 1 else 1
    made = shop.conv(value, channels, kernel, stride=stride, dilation=dilation)
    return shop.activate(made)


def separable_conv(shop: Workshop, value: Flow) -> Flow:
    """A depthwise and a pointwise convolution."""
    channels, kernel = value.shape[1], shop.choose.choice((3, 5, 7))
    made = shop.conv(value, channels, kernel, groups=channels)
    return shop.conv(shop.activate(made), shop.choose.choice((channels, 48, 64)), 1)


def grouped_conv(shop: Workshop, value: Flow) -> Flow:
    """A grouped convolution, the channels shuffled after it."""
    channels = value.shape[1]
    groups = shop.choose.choice([g for g in (2, 4, 8) if channels % g == 0] or [1])
    made = shop.conv(value, channels, shop.choose.choice((1, 3)), groups=groups)
    batch, _, *image = made.shape
    op = shop.network.op
    folded = op("Reshape", made.name, ints(batch, groups, channels // groups, *image))
    order = (0, 2, 1, *range(3, 3 + len(image)))
    mixed = op("Transpose", folded, perm=order)
    return Flow(op("Reshape", mixed, ints(*made.shape)), made.shape)


def residual(shop: Workshop, value: Flow) -> Flow:
    """Two convolutions and the sum with what went in."""
    inner = shop.activate(shop.conv(value, max(8, value.shape[1] // 2), 1))
    back = shop.conv(inner, value.shape[1], 3)
    return shop.activate(Flow(shop.network.op("Add", value.name, back.name), value.shape))


def excite(shop: Workshop, value: Flow) -> Flow:
    """Weights per channel from their means."""
    op, rank = shop.network.op, len(value.shape) - 2
    axes = ints(*range(2, 2 + rank))
    mean = Flow(
        op("ReduceMean", value.name, axes, keepdims=1), (*value.shape[:2], *[1] * rank)
    )
    small = shop.activate(shop.conv(mean, max(4, value.shape[1] // 4), 1))
    gate = op("Sigmoid", shop.conv(small, value.shape[1], 1).name)
    return Flow(op("Mul", value.name, gate), value.shape)


def channel_norm(shop: Workshop, value: Flow) -> Flow:
    """A batch norm, an instance norm or a group norm as torch exports it."""
    op, channels = shop.network.op, value.shape[1]
    kind = shop.choose.choice(("batch", "instance", "group", "layer"))
    if kind == "batch":
        vectors = [w(channels), w(channels), w(channels), w(channels, low=0.5, high=2)]
        return Flow(op("BatchNormalization", value.name, *vectors), value.shape)
    if kind == "instance":
        made = op("InstanceNormalization", value.name, w(channels), w(channels))
        return Flow(made, value.shape)
    if kind == "layer":
        rank = len(value.shape)
        forward, back = (0, *range(2, rank), 1), (0, rank - 1, *range(1, rank - 1))
        moved = op("Transpose", value.name, perm=forward)
        normal = op("LayerNormalization", moved, w(channels), w(channels))
        return Flow(op("Transpose", normal, perm=back), value.shape)
    groups = shop.choose.choice([g for g in (4, 8, 16) if channels % g == 0] or [1])
    ones = Tensor(shape=(groups,), constant=True, values=(1.0,) * groups)
    zeros = Tensor(shape=(groups,), constant=True, values=(0.0,) * groups)
    folded = op("Reshape", value.name, ints(0, groups, -1))
    normal = op("InstanceNormalization", folded, ones, zeros)
    image = op("Reshape", normal, ints(*value.shape))
    spread = [1] * (len(value.shape) - 2)
    scaled = op("Mul", image, w(channels, *spread))
    return Flow(op("Add", scaled, w(channels, *spread)), value.shape)


def shrink(shop: Workshop, value: Flow) -> Flow:
    """A pooling."""
    rank, size = len(value.shape) - 2, min(value.shape[2:])
    kernel, stride = shop.choose.choice(((2, 2), (3, 2), (3, 1), (5, 1)))
    if size < 8:
        kernel, stride = 3, 1
    pad = kernel // 2 if kernel % 2 else 0
    name = shop.network.op(
        shop.choose.choice(("MaxPool", "AveragePool")),
        value.name,
        kernel_shape=[kernel] * rank,
        strides=[stride] * rank,
        pads=[pad] * (2 * rank),
    )
    sizes = [(extent + 2 * pad - kernel) // stride + 1 for extent in value.shape[2:]]
    return Flow(name, (*value.shape[:2], *sizes))


def enlarge(shop: Workshop, value: Flow) -> Flow:
    """A resize or a transposed convolution."""
    batch, channels, *image = value.shape
    if max(image) > 40 and len(image) > 1:
        return shop.activate(value)
    rank, larger = len(image), [2 * size for size in image]
    if shop.choose.random() < 0.5:
        name = shop.network.op(
            "ConvTranspose",
            value.name,
            shop.weight(channels, 32, *[2] * rank, fan_in=channels),
            w(32, low=-0.1, high=0.1),
            strides=[2] * rank,
        )
        return Flow(name, (batch, 32, *larger))
    factors = Tensor(shape=(2 + rank,), constant=True, values=(1, 1, *[2] * rank))
    mode = shop.choose.choice(("nearest", "linear"))
    coordinates = "asymmetric" if mode == "nearest" else "half_pixel"
    name = shop.network.op(
        "Resize",
        value.name,
        None,
        factors,
        mode=mode,
        coordinate_transformation_mode=coordinates,
        nearest_mode="floor",
    )
    return Flow(name, (batch, channels, *larger))


def branch(shop: Workshop, value: Flow) -> Flow:
    """Two convolutions side by side, concatenated."""
    one = shop.activate(shop.conv(value, 24, 1))
    other = shop.activate(shop.conv(value, 40, 3))
    name = shop.network.op("Concat", one.name, other.name, axis=1)
    return Flow(name, (value.shape[0], 64, *value.shape[2:]))


def halves(shop: Workshop, value: Flow) -> Flow:
    """One half of the channels through a convolution, both joined again."""
    channels = value.shape[1]
    if channels % 2:
        return dense_conv(shop, value)
    one, other = shop.network.ops("Split", [value.name], outputs=2, axis=1, num_outputs=2)
    half = Flow(one, (value.shape[0], channels // 2, *value.shape[2:]))
    made = shop.activate(shop.conv(half, channels // 2, 3))
    return Flow(shop.network.op("Concat", other, made.name, axis=1), value.shape)


# --- tokens: [batch, tokens, width] ------------------------------------------------------------


def linear(shop: Workshop, value: Flow, width: int) -> Flow:
    """A layer with a bias."""
    given = value.shape[-1]
    product = shop.network.op("MatMul", value.name, shop.weight(given, width, fan_in=given))
    name = shop.network.op("Add", product, w(width, low=-0.1, high=0.1))
    return Flow(name, (*value.shape[:-1], width))


def token_norm(shop: Workshop, value: Flow) -> Flow:
    """A layer norm, whole or in pieces, or an RMS norm in pieces."""
    op, width = shop.network.op, value.shape[-1]
    kind = shop.choose.choice(("layer", "pieces", "root mean square"))
    if kind == "layer":
        return Flow(op("LayerNormalization", value.name, w(width), w(width)), value.shape)
    centred = value.name
    if kind == "pieces":
        centred = op("Sub", value.name, op("ReduceMean", value.name, ints(-1)))
    squares = op("ReduceMean", op("Pow", centred, scalar(2)), ints(-1))
    root = op("Sqrt", op("Add", squares, scalar(1e-5)))
    return Flow(op("Mul", op("Div", centred, root), w(width)), value.shape)


def feed_forward(shop: Workshop, value: Flow) -> Flow:
    """Two layers and the sum with what went in."""
    wide = shop.activate(linear(shop, value, 2 * value.shape[-1]))
    back = linear(shop, wide, value.shape[-1])
    return Flow(shop.network.op("Add", value.name, back.name), value.shape)


def gated_forward(shop: Workshop, value: Flow) -> Flow:
    """Two layers multiplied and a third."""
    width = value.shape[-1]
    gate = shop.activate(linear(shop, value, 2 * width))
    other = linear(shop, value, 2 * width)
    product = Flow(shop.network.op("Mul", gate.name, other.name), gate.shape)
    return linear(shop, product, width)


def attend(shop: Workshop, value: Flow) -> Flow:
    """Self-attention, with or without a mask."""
    op = shop.network.op
    batch, tokens, width = value.shape
    heads = shop.choose.choice([h for h in (2, 4, 8) if width % h == 0] or [1])
    parts = (batch, tokens, heads, width // heads)

    def head(order: tuple[int, ...]) -> str:
        folded = op("Reshape", linear(shop, value, width).name, ints(*parts))
        return op("Transpose", folded, perm=order)

    scores = op("MatMul", head((0, 2, 1, 3)), head((0, 2, 3, 1)))
    scores = op("Mul", scores, scalar((width // heads) ** -0.5))
    if shop.choose.random() < 0.5:
        scores = op("Add", scores, w(1, 1, tokens, tokens))
    mixed = op("MatMul", op("Softmax", scores, axis=-1), head((0, 2, 1, 3)))
    back = op("Reshape", op("Transpose", mixed, perm=(0, 2, 1, 3)), ints(*value.shape))
    return Flow(
        op("Add", value.name, linear(shop, Flow(back, value.shape), width).name),
        value.shape,
    )


def recur(shop: Workshop, value: Flow) -> Flow:
    """An LSTM or a GRU over the tokens."""
    op, (batch, tokens, width) = shop.network.op, value.shape
    hidden = shop.choose.choice((32, 64, 100))
    kind, gates = shop.choose.choice((("LSTM", 4), ("GRU", 3)))
    steps = op("Transpose", value.name, perm=(1, 0, 2))
    states = op(
        kind,
        steps,
        shop.weight(1, gates * hidden, width, fan_in=width),
        shop.weight(1, gates * hidden, hidden, fan_in=hidden),
        hidden_size=hidden,
    )
    back = op("Transpose", op("Squeeze", states, ints(1)), perm=(1, 0, 2))
    return Flow(back, (batch, tokens, hidden))


def mix_tokens(shop: Workshop, value: Flow) -> Flow:
    """A depthwise convolution along the tokens, between transpositions."""
    op, (batch, tokens, width) = shop.network.op, value.shape
    moved = Flow(op("Transpose", value.name, perm=(0, 2, 1)), (batch, width, tokens))
    made = shop.activate(shop.conv(moved, width, 7, groups=width))
    return Flow(op("Transpose", made.name, perm=(0, 2, 1)), value.shape)


def weigh_experts(shop: Workshop, value: Flow) -> Flow:
    """Three experts weighed by the two best chances of a gate."""
    op = shop.network.op
    chances = op("Softmax", linear(shop, value, 3).name, axis=-1)
    best, places = shop.network.ops("TopK", [chances, ints(2)], outputs=2, axis=-1)
    empty = op("Mul", chances, scalar(0))
    gates = op("ScatterElements", empty, places, best, axis=2)
    sums: list[str] = []
    for expert in range(3):
        made = op("Relu", linear(shop, value, value.shape[-1]).name)
        sums.append(op("Mul", made, op("Gather", gates, ints(expert), axis=2)))
    return Flow(op("Sum", *sums), value.shape)


def turn(shop: Workshop, value: Flow) -> Flow:
    """Rotary positions over the whole width."""
    op, width = shop.network.op, value.shape[-1]
    if width % 2:
        return token_norm(shop, value)
    half = width // 2
    first = op("Slice", value.name, ints(0), ints(half), ints(2))
    second = op("Slice", value.name, ints(half), ints(width), ints(2))
    turned = op("Concat", op("Neg", second), first, axis=2)
    kept = op("Mul", value.name, w(1, value.shape[1], width, low=-1, high=1))
    other = op("Mul", turned, w(1, value.shape[1], width, low=-1, high=1))
    return Flow(op("Add", kept, other), value.shape)


SPATIAL: Final[tuple[Part, ...]] = (
    dense_conv,
    dense_conv,
    separable_conv,
    grouped_conv,
    residual,
    excite,
    channel_norm,
    shrink,
    enlarge,
    branch,
    halves,
)
TOKENS: Final[tuple[Part, ...]] = (
    token_norm,
    feed_forward,
    gated_forward,
    attend,
    recur,
    mix_tokens,
    weigh_experts,
    turn,
)
# (kind, parts, shapes to begin with): three of five networks see images
KINDS: Final = (
    (
        "image",
        SPATIAL,
        ((1, 32, 56, 56), (1, 48, 28, 28), (1, 17, 45, 37), (2, 64, 14, 14)),
    ),
    ("tokens", TOKENS, ((1, 128, 192), (1, 49, 256), (2, 33, 96), (4, 16, 160))),
    (
        "image",
        SPATIAL,
        ((1, 24, 64, 64), (1, 96, 28, 28), (1, 40, 33, 33), (4, 16, 28, 28)),
    ),
    ("signal", SPATIAL, ((1, 40, 1000), (1, 64, 500), (2, 24, 801))),
    ("volume", SPATIAL, ((1, 16, 8, 28, 28), (1, 8, 12, 20, 20))),
)


def network_of(number: int) -> Callable[[Network], Sequence[str]]:
    """Return what builds the network of this number."""
    _, parts, shapes = KINDS[number % len(KINDS)]

    def build(network: Network) -> Sequence[str]:
        shop = Workshop(network, number)
        size = shop.choose.randint(LEAST_OPS, MOST_OPS)
        shape = shop.choose.choice(shapes)
        value = Flow(network.place(x(*shape)), shape)
        while len(network.nodes) < min(size, MOST_OPS - LARGEST_PART + 1):
            value = shop.choose.choice(parts)(shop, value)
        return [value.name]

    return build


def all_cases() -> dict[str, Case]:
    """Return the networks by name."""
    found = [
        Case(
            name=f"block/{number:02} {KINDS[number % len(KINDS)][0]}",
            build=network_of(number),
            tolerance=1e-4,
        )
        for number in range(COUNT)
    ]
    return {case.name: case for case in found}
