"""Recurrent cells, attention, and the parts that stand at the ends of networks.

What it is: rows of the op sweep that are one large operator or a handful of small ones.
What it is not: whole networks (``blocks.py``).
Who calls it: ``catalogue.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from sweep.case import Case, single, word
from sweep.network import Network, Operand, Tensor, ints, scalar, w, x

MICROSOFT: Final = "com.microsoft"
# Each: steps, batch, inputs, hidden.
SEQUENCES: Final = (
    (32, 1, 128, 128),
    (50, 1, 64, 256),
    (100, 1, 40, 64),
    (20, 8, 128, 256),
    (16, 32, 64, 64),
    (1, 1, 512, 512),
    (33, 3, 17, 29),
)
GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}
# (batch, tokens, past or other tokens, heads, width of a head)
ATTENTIONS: Final = (
    (1, 128, 128, 12, 64),
    (1, 1, 128, 12, 64),
    (1, 197, 197, 3, 64),
    (2, 33, 65, 4, 40),
)


def recurrent() -> Iterator[Case]:
    """Yield cells of the three kinds in both directions."""
    for kind, gates in GATES.items():
        for steps, batch, width, hidden in SEQUENCES:
            for directions in (1, 2):
                yield cell(kind, gates, (steps, batch, width, hidden), directions)
    steps, batch, width, hidden = SEQUENCES[0]
    yield single(
        "recurrent/GRU linear_before_reset",
        "GRU",
        x(steps, batch, width),
        w(1, 3 * hidden, width, low=-0.1, high=0.1),
        w(1, 3 * hidden, hidden, low=-0.1, high=0.1),
        w(1, 6 * hidden),
        outputs=2,
        hidden_size=hidden,
        linear_before_reset=1,
    )
    yield single(
        "recurrent/LSTM lengths and states",
        "LSTM",
        x(20, 4, 64),
        w(1, 256, 64, low=-0.1, high=0.1),
        w(1, 256, 64, low=-0.1, high=0.1),
        w(1, 512),
        ints(20, 7, 13, 1, t="i32"),
        x(1, 4, 64),
        x(1, 4, 64),
        outputs=3,
        hidden_size=64,
    )


def cell(kind: str, gates: int, sizes: tuple[int, int, int, int], directions: int) -> Case:
    """Return a recurrent layer of one or two directions."""
    steps, batch, width, hidden = sizes
    return single(
        f"recurrent/{kind} {steps}x{batch}x{width}>{hidden} directions {directions}",
        kind,
        x(steps, batch, width),
        w(directions, gates * hidden, width, low=-0.1, high=0.1),
        w(directions, gates * hidden, hidden, low=-0.1, high=0.1),
        w(directions, 2 * gates * hidden, low=-0.1, high=0.1),
        outputs=3 if kind == "LSTM" else 2,
        hidden_size=hidden,
        direction="forward" if directions == 1 else "bidirectional",
    )


def attentions() -> Iterator[Case]:
    """Yield attention in pieces, with and without a mask, and as one operator."""
    for sizes in ATTENTIONS:
        name = word(sizes)
        for masked in (False, True):
            form = "masked" if masked else "plain"
            yield Case(name=f"attention/{form} {name}", build=attention(sizes, masked))
        batch, tokens, others, heads, width = sizes
        yield single(
            f"attention/multi_head_attention {name}",
            "MultiHeadAttention",
            x(batch, tokens, heads * width),
            x(batch, others, heads * width),
            x(batch, others, heads * width),
            domain=MICROSOFT,
            num_heads=heads,
        )
    yield single(
        "attention/attention 1x128x768",
        "Attention",
        x(1, 128, 768),
        w(768, 2304, low=-0.05, high=0.05),
        w(2304),
        domain=MICROSOFT,
        num_heads=12,
    )
    yield single(
        "attention/rotary_embedding",
        "RotaryEmbedding",
        x(1, 12, 128, 64),
        Tensor(shape=(1, 128), dtype="i64", values=tuple(range(128))),
        w(256, 32),
        w(256, 32),
        domain=MICROSOFT,
    )
    yield Case(name="attention/rotary as exported", build=exported_rotary)
    for kind, operands in (
        ("BiasGelu", (x(128, 768), w(768))),
        ("FastGelu", (x(128, 768), w(768))),
        ("QuickGelu", (x(128, 768),)),
        ("Gelu", (x(128, 768),)),
    ):
        yield single(f"attention/{kind}", kind, *operands, domain=MICROSOFT)
    yield single(
        "attention/embed_layer_norm",
        "EmbedLayerNormalization",
        x(1, 128, t="i32", high=5000),
        x(1, 128, t="i32", high=2),
        w(5000, 384),
        w(512, 384),
        w(2, 384),
        w(384),
        w(384),
        outputs=2,
        keep=[0],
        domain=MICROSOFT,
    )


def attention(sizes: tuple[int, ...], masked: bool) -> Callable[[Network], Sequence[str]]:
    """Return softmax(Q Kᵀ) V over heads, written as exporters do."""
    batch, tokens, others, heads, width = sizes

    def build(network: Network) -> Sequence[str]:
        def split(length: int, order: tuple[int, ...]) -> str:
            flat = x(batch, length, heads * width)
            parts = network.op("Reshape", flat, ints(batch, length, heads, width))
            return network.op("Transpose", parts, perm=order)

        query, key = split(tokens, (0, 2, 1, 3)), split(others, (0, 2, 3, 1))
        value = split(others, (0, 2, 1, 3))
        scores = network.op("MatMul", query, key)
        scores = network.op("Mul", scores, scalar(width**-0.5))
        if masked:
            scores = network.op("Add", scores, x(batch, 1, 1, others, low=-5, high=0))
        weights = network.op("Softmax", scores, axis=-1)
        mixed = network.op("MatMul", weights, value)
        back = network.op("Transpose", mixed, perm=(0, 2, 1, 3))
        return [network.op("Reshape", back, ints(batch, tokens, heads * width))]

    return build


def exported_rotary(network: Network) -> Sequence[str]:
    """Rotate halves: x · cos + concat(-x₂, x₁) · sin."""
    value = network.place(x(1, 32, 128, 64))
    first, second = network.ops("Split", [value], outputs=2, axis=3, num_outputs=2)
    turned = network.op("Concat", network.op("Neg", second), first, axis=3)
    kept = network.op("Mul", value, x(1, 1, 128, 64))
    return [network.op("Add", kept, network.op("Mul", turned, x(1, 1, 128, 64)))]


def yolo(network: Network) -> Sequence[str]:
    """Turn three maps of a detector into boxes and scores."""
    parts: list[Operand] = []
    for size in (40, 20, 10):
        shaped = network.op(
            "Reshape", x(1, 85 * 3, size, size), ints(1, 3, 85, size * size)
        )
        moved = network.op("Transpose", shaped, perm=(0, 1, 3, 2))
        active = network.op("Sigmoid", moved)
        pieces = network.ops("Split", [active, ints(2, 2, 81)], outputs=3, axis=3)
        centre = network.op(
            "Add", network.op("Mul", pieces[0], scalar(2)), w(1, 1, size * size, 2)
        )
        sides = network.op("Pow", network.op("Mul", pieces[1], scalar(2)), scalar(2))
        sides = network.op("Mul", sides, w(1, 3, 1, 2))
        joined = network.op("Concat", centre, sides, pieces[2], axis=3)
        parts.append(network.op("Reshape", joined, ints(1, -1, 85)))
    return [network.op("Concat", *parts, axis=1)]


def segmentation(network: Network) -> Sequence[str]:
    """Enlarge class maps and take the best class of each pixel."""
    large = network.op(
        "Resize",
        x(1, 21, 33, 33),
        None,
        None,
        ints(1, 21, 129, 129),
        mode="linear",
        coordinate_transformation_mode="half_pixel",
    )
    return [network.op("ArgMax", large, axis=1, keepdims=0)]


def distribution_head(network: Network) -> Sequence[str]:
    """Expect distances from softmax over 16 bins, then make corners of them."""
    bins = network.op("Reshape", x(1, 64, 2100), ints(1, 4, 16, 2100))
    chances = network.op(
        "Softmax", network.op("Transpose", bins, perm=(0, 2, 1, 3)), axis=1
    )
    steps = Tensor(shape=(1, 16, 1, 1), constant=True, values=tuple(range(16)))
    expected = network.op(
        "ReduceSum", network.op("Mul", chances, steps), ints(1), keepdims=0
    )
    near, far = network.ops("Split", [expected], outputs=2, axis=1, num_outputs=2)
    anchors = network.place(w(1, 2, 2100))
    low, high = network.op("Sub", anchors, near), network.op("Add", anchors, far)
    return [network.op("Concat", low, high, axis=1)]


def best_boxes(network: Network) -> Sequence[str]:
    """Keep the 100 best of 8400 boxes: scores, top k, gathers."""
    best = network.op("ReduceMax", x(1, 8400, 80), ints(2), keepdims=0)
    scores, places = network.ops("TopK", [best, ints(100)], outputs=2, axis=1)
    spread = network.op("Expand", network.op("Unsqueeze", places, ints(2)), ints(1, 100, 4))
    return [network.op("GatherElements", x(1, 8400, 4), spread, axis=1), scores]


def squeeze_and_excite(network: Network) -> Sequence[str]:
    """Weigh channels by what two small layers make of their means."""
    image = network.place(x(1, 240, 28, 28))
    mean = network.op("GlobalAveragePool", image)
    small = network.op("Relu", network.op("Conv", mean, w(60, 240, 1, 1), w(60)))
    gate = network.op("HardSigmoid", network.op("Conv", small, w(240, 60, 1, 1), w(240)))
    return [network.op("Mul", image, gate)]


def mixture_of_experts(network: Network) -> Sequence[str]:
    """Weigh eight experts' results by the two best chances of a gate."""
    tokens = network.place(x(64, 256))
    chances = network.op("Softmax", network.op("MatMul", tokens, w(256, 8)))
    best, places = network.ops("TopK", [chances, ints(2)], outputs=2, axis=-1)
    share = network.op("Div", best, network.op("ReduceSum", best, ints(1), keepdims=1))
    gates = network.op(
        "ScatterElements", network.op("Mul", chances, scalar(0)), places, share, axis=1
    )
    sums: list[str] = []
    for expert in range(8):
        hidden = network.op(
            "Relu", network.op("MatMul", tokens, w(256, 512, low=-0.1, high=0.1))
        )
        result = network.op("MatMul", hidden, w(512, 256, low=-0.1, high=0.1))
        gate = network.op("Gather", gates, ints(expert), axis=1)
        sums.append(network.op("Mul", result, gate))
    return [network.op("Sum", *sums)]


def channel_shuffle(network: Network) -> Sequence[str]:
    """Mix the channels of groups between two grouped convolutions."""
    first = network.op("Conv", x(1, 136, 28, 28), w(136, 34, 1, 1), w(136), group=4)
    groups = network.op("Reshape", first, ints(1, 4, 34, 28, 28))
    mixed = network.op("Transpose", groups, perm=(0, 2, 1, 3, 4))
    image = network.op("Reshape", mixed, ints(1, 136, 28, 28))
    return [network.op("Conv", image, w(136, 34, 1, 1), w(136), group=4)]


def residual_of_unet(network: Network) -> Sequence[str]:
    """Group norm as torch exports it, SiLU, convolution, twice, and the sum."""
    image = network.place(x(1, 320, 32, 32))
    value = image
    ones = Tensor(shape=(32,), constant=True, values=(1.0,) * 32)
    zeros = Tensor(shape=(32,), constant=True, values=(0.0,) * 32)
    for _ in range(2):
        folded = network.op("Reshape", value, ints(0, 32, -1))
        normal = network.op("InstanceNormalization", folded, ones, zeros, epsilon=1e-5)
        normal = network.op("Reshape", normal, ints(1, 320, 32, 32))
        normal = network.op("Mul", normal, w(320, 1, 1))
        normal = network.op("Add", normal, w(320, 1, 1))
        active = network.op("Mul", normal, network.op("Sigmoid", normal))
        weights = w(320, 320, 3, 3, low=-0.02, high=0.02)
        value = network.op("Conv", active, weights, w(320), pads=[1] * 4)
    return [network.op("Add", image, value)]


def inverted_residual(network: Network) -> Sequence[str]:
    """Widen the channels, a filter for each of them with stride 2, narrow them: MobileNetV2's second block."""
    image = network.op("Conv", x(1, 16, 112, 112), w(96, 16, 1, 1), w(96))
    image = network.op("Clip", image, scalar(0), scalar(6))
    weights = w(96, 1, 3, 3)
    image = network.op(
        "Conv", image, weights, w(96), group=96, strides=[2, 2], pads=[1] * 4
    )
    image = network.op("Clip", image, scalar(0), scalar(6))
    return [network.op("Conv", image, w(24, 96, 1, 1), w(24))]


def atrous_pyramid(network: Network) -> Sequence[str]:
    """The same image seen with windows further and further apart, as in front of DeepLab's head."""
    image = network.place(x(1, 320, 33, 33))
    views = [network.op("Conv", image, w(64, 320, 1, 1), w(64))]
    for step in (12, 24, 36):
        weights, apart, pads = w(64, 320, 3, 3), [step] * 2, [step] * 4
        views.append(network.op("Conv", image, weights, w(64), dilations=apart, pads=pads))
    joined = network.op("Concat", *(network.op("Relu", view) for view in views), axis=1)
    return [network.op("Conv", joined, w(64, 256, 1, 1), w(64))]


def pixel_shuffle(network: Network) -> Sequence[str]:
    """A convolution whose channels become places, as networks end that make images larger."""
    image = network.op("Conv", x(1, 64, 64, 64), w(12, 64, 3, 3), w(12), pads=[1] * 4)
    return [network.op("DepthToSpace", image, blocksize=2, mode="CRD")]


def quantized_block(network: Network) -> Sequence[str]:
    """Convolutions between bytes, as tools write them that quantize a network."""
    image: str = network.place(x(1, 64, 28, 28))
    for _ in range(2):
        bytes_of = network.op("QuantizeLinear", image, scalar(0.05), scalar(128, "u8"))
        image = network.op("DequantizeLinear", bytes_of, scalar(0.05), scalar(128, "u8"))
        weights = w(64, 64, 3, 3, t="i8", low=-127, high=127)
        steps = w(64, low=0.0005, high=0.001)
        weights = network.op(
            "DequantizeLinear", weights, steps, w(64, t="i8", low=0, high=1), axis=0
        )
        image = network.op("Relu", network.op("Conv", image, weights, pads=[1] * 4))
    return [image]


def token_sampling(network: Network) -> Sequence[str]:
    """Probabilities of a vocabulary's fifty best words."""
    best, places = network.ops("TopK", [x(1, 50257), ints(50)], outputs=2, axis=-1)
    return [network.op("Softmax", network.op("Mul", best, scalar(1.25))), places]


def causal_mask(network: Network) -> Sequence[str]:
    """Mask of a decoder from the lengths of its input."""
    shape = network.op("Shape", x(1, 128, t="i64"))
    length = network.op(
        "Gather", shape, Tensor(shape=(), dtype="i64", constant=True, values=(1,))
    )
    steps = network.op("Range", scalar(0, "i64"), length, scalar(1, "i64"))
    rows = network.op("Unsqueeze", steps, ints(1))
    seen = network.op("LessOrEqual", network.op("Unsqueeze", steps, ints(0)), rows)
    mask = network.op("Where", seen, scalar(0), scalar(-1e9))
    return [network.op("Add", x(1, 12, 128, 128), mask)]


HEADS: Final = {
    "yolo": yolo,
    "segmentation": segmentation,
    "distribution": distribution_head,
    "best boxes": best_boxes,
    "squeeze and excite": squeeze_and_excite,
    "mixture of experts": mixture_of_experts,
    "channel shuffle": channel_shuffle,
    "unet residual": residual_of_unet,
    "inverted residual": inverted_residual,
    "atrous pyramid": atrous_pyramid,
    "pixel shuffle": pixel_shuffle,
    "quantized block": quantized_block,
    "token sampling": token_sampling,
    "causal mask": causal_mask,
}


def cases() -> Iterator[Case]:
    """Yield all of them."""
    yield from recurrent()
    yield from attentions()
    for name, build in HEADS.items():
        tolerance = 0.02 if name.startswith("quantized") else None
        yield Case(name=f"head/{name}", build=build, tolerance=tolerance)
