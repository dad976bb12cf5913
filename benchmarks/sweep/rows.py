"""Operators along an axis: reductions, norms, softmax, running sums, signal transforms.

What it is: rows of the op sweep.
What it is not: poolings (``convolutions.py``).
Who calls it: ``catalogue.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from sweep.case import Case, single, word
from sweep.network import Network, Tensor, ints, scalar, w, x

REDUCTIONS: Final = (
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
)
# (shape, axes): of a row, a column, images, channels, everything, the middle, two apart
FORMS: Final = (
    ((128, 768), (1,)),
    ((768, 512), (0,)),
    ((1, 64, 56, 56), (2, 3)),
    ((1, 64, 56, 56), (1,)),
    ((1, 56, 56, 64), (1, 2)),
    ((33, 65, 17), (1,)),
    ((8, 31, 12, 64), (0, 2)),
    ((100003,), (0,)),
)
SOFTMAXES: Final = (
    ((12, 128, 128), -1),
    ((1, 12, 1, 128), -1),
    ((1, 1000), -1),
    ((64, 3, 49, 49), -1),
    ((8, 1, 50257), -1),
    ((1, 21, 64, 64), 1),
    ((1, 16, 4, 400), 1),
    ((33, 17), -1),
    ((1000, 8), -1),
    ((1, 8, 197, 197), -1),
    ((5000, 2), -1),
    ((64, 7, 7, 3), -1),
    ((2000, 12), -1),
    ((1000, 21), -1),
)
IMAGES: Final = ((1, 64, 56, 56), (1, 320, 32, 32), (2, 33, 17, 19), (1, 1280, 8, 8))


def reductions() -> Iterator[Case]:
    """Yield every function over every form of axes."""
    for kind in REDUCTIONS:
        for shape, axes in FORMS:
            operand = x(*shape, low=0.9, high=1.1)
            name = f"reduce/{kind} {word(shape)} axes {word(axes)}"
            yield single(name, kind, operand, ints(*axes), keepdims=len(axes) % 2)
    for t in ("f16", "f64", "i64", "i32"):
        for kind in ("ReduceSum", "ReduceMax", "ReduceMean"):
            operand = x(128, 768, t=t, low=0, high=9)
            yield single(f"reduce/{kind} {t}", kind, operand, ints(1))
    yield single("reduce/ReduceMax bool", "ReduceMax", x(128, 768, t="bool"), ints(1))


def softmaxes() -> Iterator[Case]:
    """Yield the forms of softmax."""
    for shape, axis in SOFTMAXES:
        yield single(
            f"softmax/Softmax {word(shape)} axis {axis}", "Softmax", x(*shape), axis=axis
        )
    for t in ("f16", "f64"):
        yield single(f"softmax/Softmax {t} 12x128x128", "Softmax", x(12, 128, 128, t=t))
    for shape, axis in SOFTMAXES[2:6]:
        name = f"softmax/LogSoftmax {word(shape)} axis {axis}"
        yield single(name, "LogSoftmax", x(*shape), axis=axis)
    yield single("softmax/Hardmax", "Hardmax", x(128, 1000))


def norms() -> Iterator[Case]:
    """Yield the norms, whole and in the pieces that exporters write."""
    for shape in ((128, 768), (1, 197, 192), (1, 3136, 96), (37, 53), (1, 4096)):
        width = shape[-1]
        yield single(
            f"norm/layer_norm {word(shape)}",
            "LayerNormalization",
            x(*shape),
            w(width),
            w(width),
        )
        yield single(
            f"norm/rms_norm {word(shape)}",
            "RMSNormalization",
            x(*shape),
            w(width),
            opset=23,
        )
        yield single(
            f"norm/skip_layer_norm {word(shape)}",
            "SkipLayerNormalization",
            *(x(1, *shape) if len(shape) == 2 else x(*shape) for _ in range(2)),
            w(width),
            w(width),
            domain="com.microsoft",
        )
    yield single(
        "norm/skip_rms_norm",
        "SkipSimplifiedLayerNormalization",
        x(1, 128, 768),
        x(1, 128, 768),
        w(768),
        domain="com.microsoft",
    )
    yield single(
        "norm/simplified_layer_norm", "SimplifiedLayerNormalization", x(128, 768), w(768)
    )
    yield single(
        "norm/layer_norm f16",
        "LayerNormalization",
        x(128, 768, t="f16"),
        w(768, t="f16"),
        w(768, t="f16"),
    )
    yield single(
        "norm/layer_norm last two axes",
        "LayerNormalization",
        x(8, 16, 64),
        w(16, 64),
        axis=1,
    )


def image_norms() -> Iterator[Case]:
    """Yield norms over images: per channel, per group, and as exported."""
    for shape in IMAGES:
        channels = shape[1]
        vector = w(channels)
        name = word(shape)
        yield single(
            f"norm/instance_norm {name}", "InstanceNormalization", x(*shape), vector, vector
        )
        yield single(
            f"norm/batch_norm {name}",
            "BatchNormalization",
            x(*shape),
            vector,
            vector,
            vector,
            w(channels, low=0.5, high=2),
        )
        groups = next(g for g in (32, 3) if channels % g == 0)
        yield single(
            f"norm/group_norm {name} {groups} groups",
            "GroupNormalization",
            x(*shape),
            vector,
            vector,
            num_groups=groups,
        )
        yield Case(
            name=f"norm/group_norm as exported {name}",
            build=exported_group_norm(shape, groups),
        )
    yield single(
        "norm/instance_norm 1d", "InstanceNormalization", x(1, 512, 799), w(512), w(512)
    )
    yield single(
        "norm/instance_norm 3d", "InstanceNormalization", x(1, 16, 8, 28, 28), w(16), w(16)
    )


def rare_norms() -> Iterator[Case]:
    """Yield those that few models have."""
    yield single("norm/mean_variance", "MeanVarianceNormalization", x(1, 64, 28, 28))
    yield single("norm/lp 2", "LpNormalization", x(128, 768), axis=-1, p=2)
    yield single("norm/lp 1 columns", "LpNormalization", x(128, 257), axis=0, p=1)
    yield single("norm/lrn", "LRN", x(1, 96, 55, 55), size=5, alpha=1e-4, bias=2.0)


def exported_group_norm(shape: tuple[int, ...], groups: int):
    """Return torch's way to write a group norm: an instance norm between reshapes."""
    channels = shape[1]

    def build(network: Network) -> Sequence[str]:
        folded = network.op("Reshape", x(*shape), ints(0, groups, -1))
        ones = Tensor(shape=(groups,), constant=True, values=(1.0,) * groups)
        zeros = Tensor(shape=(groups,), constant=True, values=(0.0,) * groups)
        normal = network.op("InstanceNormalization", folded, ones, zeros, epsilon=1e-5)
        image = network.op("Reshape", normal, ints(*shape))
        scaled = network.op("Mul", image, w(channels, 1, 1))
        return [network.op("Add", scaled, w(channels, 1, 1))]

    return build


def running() -> Iterator[Case]:
    """Yield running sums and products."""
    for shape, axis in (
        ((128, 768), 1),
        ((768, 128), 0),
        ((1, 100000), 1),
        ((8, 50, 33), 1),
    ):
        yield single(
            f"cumulate/CumSum {word(shape)} axis {axis}",
            "CumSum",
            x(*shape),
            scalar(axis, "i64"),
        )
    yield single(
        "cumulate/CumSum i64 4x512", "CumSum", x(4, 512, t="i64"), scalar(1, "i64")
    )
    yield single(
        "cumulate/CumSum reverse exclusive",
        "CumSum",
        x(128, 768),
        scalar(1, "i64"),
        reverse=1,
        exclusive=1,
    )
    yield single(
        "cumulate/CumProd",
        "CumProd",
        x(128, 200, low=0.9, high=1.1),
        scalar(1, "i64"),
        opset=26,
    )


def signals() -> Iterator[Case]:
    """Yield transforms and determinants."""
    for size in (256, 400):
        yield single(
            f"signal/dft {size}",
            "DFT",
            x(1, 40, size, 1),
            None,
            scalar(2, "i64"),
            onesided=1,
            tolerance=1e-4,
        )
    yield single(
        "signal/stft",
        "STFT",
        x(1, 8000),
        scalar(160, "i64"),
        w(400, low=0, high=1),
        scalar(400, "i64"),
        tolerance=1e-4,
    )
    yield single(
        "signal/mel_weight_matrix",
        "MelWeightMatrix",
        scalar(80, "i64"),
        scalar(400, "i64"),
        scalar(16000, "i64"),
        x(low=0.0, high=1.0),
        scalar(8000.0),
    )
    yield single("signal/det", "Det", x(100, 4, 4), tolerance=1e-4)


def cases() -> Iterator[Case]:
    """Yield all of them."""
    yield from reductions()
    yield from softmaxes()
    yield from norms()
    yield from image_norms()
    yield from rare_norms()
    yield from running()
    yield from signals()
