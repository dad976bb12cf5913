"""Convolutions, transposed ones and poolings in one, two and three dimensions.

What it is: rows of the op sweep.  Shapes stand as the field writes them: channels, image, kernel.
What it is not: every combination; each row is a form that a published model has, or an odd one.
Who calls it: ``catalogue.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sweep.case import Case, single, word
from sweep.network import Tensor, w, x

# (batch, channels in, channels out, image, kernel, strides, pads, dilations, groups); short forms
# are completed by `spread`.
CONV_1D = (
    (1, 80, 384, (1500,), 3, 1, 1, 1, 1),
    (1, 384, 384, (1500,), 3, 2, 1, 1, 1),
    (1, 1, 512, (8000,), 10, 5, 0, 1, 1),
    (1, 512, 512, (799,), 3, 2, 0, 1, 1),
    (1, 64, 64, (1000,), 3, 1, 1, 1, 1),
    (1, 64, 64, (1000,), 3, 1, 2, 2, 1),
    (1, 64, 64, (1000,), 3, 1, 8, 8, 1),
    (1, 128, 128, (777,), 7, 1, 9, 3, 1),
    (1, 256, 256, (500,), 31, 1, 15, 1, 256),
    (1, 512, 512, (250,), 5, 1, 2, 1, 512),
    (1, 256, 512, (500,), 1, 1, 0, 1, 1),
    (1, 768, 768, (49,), 128, 1, 64, 1, 16),
    (1, 96, 96, (333,), 3, 1, 1, 1, 4),
    (4, 17, 31, (257,), 5, 2, 2, 1, 1),
    (8, 1, 16, (187,), 5, 1, 0, 1, 1),
    (1, 12, 64, (1000,), 15, 2, 7, 1, 1),
    (1, 32, 32, (4096,), 8, 4, 2, 1, 1),
    (2, 6, 6, (2048,), 25, 1, 12, 1, 6),
)
CONV_2D = (
    (1, 3, 64, (224, 224), 7, 2, 3, 1, 1),
    (1, 3, 32, (224, 224), 3, 2, 1, 1, 1),
    (1, 3, 96, (224, 224), 4, 4, 0, 1, 1),
    (1, 3, 384, (224, 224), 16, 16, 0, 1, 1),
    (1, 3, 192, (224, 224), 14, 14, 0, 1, 1),
    (1, 1, 6, (28, 28), 5, 1, 2, 1, 1),
    (1, 3, 17, (65, 63), 3, 1, 1, 1, 1),
    (1, 64, 64, (56, 56), 3, 1, 1, 1, 1),
    (1, 64, 128, (56, 56), 3, 2, 1, 1, 1),
    (1, 128, 128, (28, 28), 3, 1, 1, 1, 1),
    (1, 256, 256, (14, 14), 3, 1, 1, 1, 1),
    (1, 512, 512, (7, 7), 3, 1, 1, 1, 1),
    (1, 64, 64, (56, 56), 3, 1, 2, 2, 1),
    (1, 256, 256, (28, 28), 3, 1, 6, 6, 1),
    (1, 128, 128, (33, 33), 3, 1, 12, 12, 1),
    (1, 64, 256, (56, 56), 1, 1, 0, 1, 1),
    (1, 256, 64, (56, 56), 1, 1, 0, 1, 1),
    (1, 256, 512, (56, 56), 1, 2, 0, 1, 1),
    (1, 1024, 256, (14, 14), 1, 1, 0, 1, 1),
    (1, 24, 144, (56, 56), 1, 1, 0, 1, 1),
    (1, 1280, 1000, (1, 1), 1, 1, 0, 1, 1),
    (1, 320, 1280, (7, 7), 1, 1, 0, 1, 1),
    (1, 960, 40, (1, 1), 1, 1, 0, 1, 1),
    (1, 32, 32, (112, 112), 3, 1, 1, 1, 32),
    (1, 96, 96, (112, 112), 3, 2, 1, 1, 96),
    (1, 144, 144, (56, 56), 3, 1, 1, 1, 144),
    (1, 576, 576, (14, 14), 3, 1, 1, 1, 576),
    (1, 960, 960, (7, 7), 3, 1, 1, 1, 960),
    (1, 240, 240, (28, 28), 5, 2, 2, 1, 240),
    (1, 672, 672, (14, 14), 5, 1, 2, 1, 672),
    (1, 96, 96, (56, 56), 7, 1, 3, 1, 96),
    (1, 192, 192, (28, 28), 7, 1, 3, 1, 192),
    (1, 64, 64, (28, 28), 31, 1, 15, 1, 64),
    (1, 33, 33, (41, 39), 3, 1, 1, 1, 33),
    (1, 64, 64, (32, 32), 3, 1, 2, 2, 64),
    (1, 32, 64, (28, 28), 3, 1, 1, 1, 32),
    (1, 128, 128, (56, 56), 3, 1, 1, 1, 32),
    (1, 256, 256, (28, 28), 3, 2, 1, 1, 32),
    (1, 240, 240, (28, 28), 3, 1, 1, 1, 10),
    (1, 528, 528, (14, 14), 3, 2, 1, 1, 22),
    (1, 96, 256, (27, 27), 5, 1, 2, 1, 2),
    (1, 100, 100, (28, 28), 1, 1, 0, 1, 4),
    (1, 136, 136, (28, 28), 1, 1, 0, 1, 4),
    (1, 272, 272, (14, 14), 1, 1, 0, 1, 4),
    (1, 544, 136, (14, 14), 1, 1, 0, 1, 4),
    (1, 200, 50, (28, 28), 1, 1, 0, 1, 2),
    (1, 90, 90, (15, 15), 3, 1, 1, 1, 3),
    (1, 64, 64, (32, 32), (1, 7), 1, (0, 3), 1, 1),
    (1, 64, 64, (32, 32), (7, 1), 1, (3, 0), 1, 1),
    (1, 128, 128, (17, 17), (1, 3), 1, (0, 1), 1, 1),
    (1, 64, 96, (31, 33), (3, 5), (2, 1), (1, 2), 1, 1),
    (1, 80, 80, (40, 40), 3, 1, 1, 1, 1),
    (1, 255, 85, (20, 20), 1, 1, 0, 1, 1),
    (1, 16, 1, (64, 64), 3, 1, 1, 1, 1),
    (1, 64, 21, (64, 64), 1, 1, 0, 1, 1),
    (1, 64, 3, (96, 96), 9, 1, 4, 1, 1),
    (4, 64, 64, (28, 28), 3, 1, 1, 1, 1),
    (8, 16, 33, (19, 23), 3, 2, 0, 1, 1),
    (4, 48, 48, (28, 28), 3, 1, 1, 1, 48),
    (16, 3, 8, (32, 32), 3, 1, 1, 1, 1),
    (2, 4, 320, (32, 32), 3, 1, 1, 1, 1),
    (2, 320, 4, (32, 32), 3, 1, 1, 1, 1),
)
CONV_3D = (
    (1, 3, 32, (8, 56, 56), 3, (1, 2, 2), 1, 1, 1),
    (1, 3, 45, (8, 56, 56), (1, 7, 7), (1, 2, 2), (0, 3, 3), 1, 1),
    (1, 45, 64, (8, 28, 28), (3, 1, 1), 1, (1, 0, 0), 1, 1),
    (1, 64, 64, (4, 14, 14), 3, 1, 1, 1, 1),
    (1, 64, 144, (8, 14, 14), (1, 3, 3), 1, (0, 1, 1), 1, 1),
    (1, 128, 128, (4, 7, 7), 3, 2, 1, 1, 1),
    (1, 16, 16, (16, 24, 24), 3, 1, 2, 2, 1),
    (1, 64, 32, (8, 14, 14), 1, 1, 0, 1, 1),
    (1, 54, 54, (8, 28, 28), 3, 1, 1, 1, 54),
    (1, 24, 24, (8, 28, 28), (5, 1, 1), 1, (2, 0, 0), 1, 24),
    (1, 32, 32, (8, 16, 16), 3, 1, 1, 1, 4),
    (1, 3, 96, (8, 64, 64), (2, 4, 4), (2, 4, 4), 0, 1, 1),
    (2, 1, 8, (17, 19, 21), 3, 1, 0, 1, 1),
)
# (batch, channels in, channels out, image, kernel, strides, pads, dilations, groups, output padding)
TRANSPOSED = (
    (1, 512, 256, (32,), 16, 8, 4, 1, 1, 0),
    (1, 128, 64, (256,), 4, 2, 1, 1, 1, 0),
    (1, 64, 64, (300,), 3, 1, 1, 1, 1, 0),
    (1, 256, 256, (100,), 4, 2, 1, 1, 256, 0),
    (2, 17, 9, (101,), 5, 3, 1, 1, 1, 1),
    (1, 32, 1, (500,), 20, 10, 0, 1, 1, 0),
    (1, 64, 32, (56, 56), 2, 2, 0, 1, 1, 0),
    (1, 256, 128, (14, 14), 2, 2, 0, 1, 1, 0),
    (1, 100, 512, (1, 1), 4, 1, 0, 1, 1, 0),
    (1, 256, 128, (8, 8), 4, 2, 1, 1, 1, 0),
    (1, 64, 3, (32, 32), 4, 2, 1, 1, 1, 0),
    (1, 128, 64, (28, 28), 3, 2, 1, 1, 1, 1),
    (1, 32, 32, (28, 28), 3, 1, 1, 1, 1, 0),
    (1, 32, 32, (28, 28), 3, 1, 2, 2, 1, 0),
    (1, 64, 64, (28, 28), 4, 2, 1, 1, 64, 0),
    (1, 64, 64, (14, 14), 3, 2, 1, 1, 4, 1),
    (1, 21, 21, (16, 16), 16, 8, 4, 1, 1, 0),
    (1, 21, 21, (16, 16), 4, 2, 1, 1, 21, 0),
    (4, 16, 8, (13, 17), 5, 3, 2, 1, 1, 0),
    (1, 56, 1, (24, 24), 9, 3, 4, 1, 1, 2),
    (1, 48, 24, (20, 24), (3, 5), (1, 2), (1, 2), 1, 1, 0),
    (1, 32, 16, (4, 14, 14), 2, 2, 0, 1, 1, 0),
    (1, 64, 32, (4, 8, 8), 3, 2, 1, 1, 1, 1),
    (1, 16, 16, (8, 8, 8), 4, 2, 1, 1, 16, 0),
)
# (batch, channels, image, kernel, strides, pads, ceil, count padding)
POOLINGS = (
    (1, 64, (1000,), 2, 2, 0, 0, 0),
    (1, 128, (777,), 3, 1, 1, 0, 1),
    (1, 256, (500,), 5, 5, 0, 1, 0),
    (1, 64, (4000,), 8, 8, 0, 0, 0),
    (1, 32, (5000,), 3, 8, 0, 0, 0),
    (1, 32, (6000,), 25, 16, 12, 0, 0),
    (1, 64, (112, 112), 3, 2, 1, 0, 0),
    (1, 64, (112, 112), 2, 2, 0, 0, 0),
    (1, 192, (28, 28), 3, 1, 1, 0, 0),
    (1, 512, (13, 13), 5, 1, 2, 0, 0),
    (1, 256, (20, 20), 9, 1, 4, 0, 0),
    (1, 256, (20, 20), 13, 1, 6, 0, 0),
    (1, 480, (28, 28), 3, 2, 0, 1, 0),
    (1, 96, (55, 55), 3, 2, 0, 1, 1),
    (1, 768, (14, 14), 3, 1, 1, 0, 1),
    (1, 1280, (7, 7), 7, 7, 0, 0, 0),
    (1, 1536, (10, 10), 1280, 1280, 0, 1, 0),
    (1, 33, (37, 41), (3, 5), (2, 1), (1, 2), 0, 1),
    (4, 16, (28, 28), 2, 2, 0, 0, 0),
    (8, 3, (65, 65), 2, 2, 0, 1, 0),
    (1, 64, (112, 112), 8, 8, 0, 0, 0),
    (1, 64, (112, 112), 3, 8, 1, 0, 0),
    (1, 64, (56, 56), 4, 4, 0, 0, 0),
    (1, 3, (512, 512), 16, 16, 0, 0, 0),
    (1, 33, (100, 103), 6, 5, 1, 0, 0),
    (1, 64, (8, 28, 28), 2, 2, 0, 0, 0),
    (1, 64, (8, 28, 28), (1, 3, 3), (1, 2, 2), (0, 1, 1), 0, 0),
    (1, 192, (4, 14, 14), 3, 1, 1, 0, 1),
    (1, 832, (2, 7, 7), (2, 7, 7), 1, 0, 0, 0),
)
GLOBAL = (
    (1, 512, 49),
    (1, 1280, 7, 7),
    (1, 2048, 7, 7),
    (1, 64, 56, 56),
    (8, 96, 14, 14),
    (1, 256, 1000),
    (1, 512, 4, 7, 7),
    (3, 17, 5, 3),
)


def spread(value: int | tuple[int, ...], rank: int) -> list[int]:
    """Return one number per spatial axis."""
    return [value] * rank if isinstance(value, int) else list(value)


def pads_of(value: int | tuple[int, ...], rank: int) -> list[int]:
    """Return ONNX's pads: all begins, then all ends."""
    return spread(value, rank) * 2


def describe(*parts: int | tuple[int, ...]) -> str:
    """Return sizes and numbers as one word each."""
    return " ".join(word(p) if isinstance(p, tuple) else str(p) for p in parts)


def convolutions() -> Iterator[Case]:
    """Yield the plain and grouped ones, with a bias."""
    for row in (*CONV_1D, *CONV_2D, *CONV_3D):
        batch, cin, cout, image, kernel, strides, pads, dilations, groups = row
        rank = len(image)
        shape = spread(kernel, rank)
        yield single(
            f"conv{rank}d/conv {batch}x{cin}>{cout} {describe(image)}"
            f" k{describe(kernel)} s{describe(strides)} d{dilations} g{groups}",
            "Conv",
            x(batch, cin, *image),
            w(cout, cin // groups, *shape, low=-0.1, high=0.1),
            w(cout),
            kernel_shape=shape,
            strides=spread(strides, rank),
            pads=pads_of(pads, rank),
            dilations=spread(dilations, rank),
            group=groups,
        )


def transposed() -> Iterator[Case]:
    """Yield the transposed ones."""
    for row in TRANSPOSED:
        batch, cin, cout, image, kernel, strides, pads, dilations, groups, extra = row
        rank = len(image)
        shape = spread(kernel, rank)
        yield single(
            f"deconv{rank}d/conv_transpose {batch}x{cin}>{cout} {describe(image)}"
            f" k{describe(kernel)} s{describe(strides)} d{dilations} g{groups}",
            "ConvTranspose",
            x(batch, cin, *image),
            w(cin, cout // groups, *shape, low=-0.1, high=0.1),
            w(cout),
            kernel_shape=shape,
            strides=spread(strides, rank),
            pads=pads_of(pads, rank),
            dilations=spread(dilations, rank),
            output_padding=spread(extra, rank),
            group=groups,
        )


def poolings() -> Iterator[Case]:
    """Yield windows of every form, as maxima and as means."""
    for batch, channels, image, kernel, strides, pads, ceil, count in POOLINGS:
        rank = len(image)
        common: dict[str, Any] = {
            "kernel_shape": spread(kernel, rank),
            "strides": spread(strides, rank),
            "ceil_mode": ceil,
        }
        sizes = (
            f"{batch}x{channels} {describe(image)} k{describe(kernel)} s{describe(strides)}"
        )
        # a window beyond the image needs padding that covers it: as exporters write it
        needed = [
            max(0, size - extent) if size > extent else 0
            for size, extent in zip(spread(kernel, rank), image, strict=True)
        ]
        around = pads_of(pads, rank) if not any(needed) else [0] * rank + needed
        yield single(
            f"pool{rank}d/average_pool {sizes}",
            "AveragePool",
            x(batch, channels, *image),
            pads=around,
            count_include_pad=count,
            **common,
        )
        yield single(
            f"pool{rank}d/max_pool {sizes}",
            "MaxPool",
            x(batch, channels, *image),
            pads=around,
            **common,
        )


def rare_poolings() -> Iterator[Case]:
    """Yield global ones and those with more to them than a window."""
    for shape in GLOBAL:
        for kind in ("GlobalAveragePool", "GlobalMaxPool"):
            yield single(f"pool{len(shape) - 2}d/{kind} {describe(shape)}", kind, x(*shape))
    yield single(
        "pool2d/max_pool dilated",
        "MaxPool",
        x(1, 64, 32, 32),
        kernel_shape=[3, 3],
        dilations=[2, 2],
        pads=[2, 2, 2, 2],
    )
    yield single(
        "pool2d/max_pool with indices",
        "MaxPool",
        x(1, 64, 32, 32),
        outputs=2,
        kernel_shape=[2, 2],
        strides=[2, 2],
    )
    yield single(
        "pool2d/lp_pool",
        "LpPool",
        x(1, 64, 32, 32),
        kernel_shape=[3, 3],
        strides=[2, 2],
        p=2,
    )
    yield single("pool2d/global_lp_pool", "GlobalLpPool", x(1, 256, 14, 14), p=2)
    yield single(
        "pool2d/max_pool u8",
        "MaxPool",
        x(1, 64, 32, 32, t="u8", high=255),
        kernel_shape=[2, 2],
        strides=[2, 2],
    )
    yield single(
        "pool2d/max_unpool",
        "MaxUnpool",
        x(1, 16, 14, 14),
        unpool_places(16, 14),
        kernel_shape=[2, 2],
        strides=[2, 2],
    )


def unpool_places(channels: int, size: int) -> Tensor:
    """Return indices of the first corner of every window, as MaxPool would give them."""
    wide = 2 * size
    places = tuple(
        channel * wide * wide + 2 * row * wide + 2 * column
        for channel in range(channels)
        for row in range(size)
        for column in range(size)
    )
    shape = (1, channels, size, size)
    return Tensor(shape=shape, dtype="i64", constant=True, values=places)


def odd_convolutions() -> Iterator[Case]:
    """Yield other types and the rarer relatives."""
    yield single(
        "conv2d/conv f16 64>64 56x56 k3",
        "Conv",
        x(1, 64, 56, 56, t="f16"),
        w(64, 64, 3, 3, t="f16", low=-0.1, high=0.1),
        pads=[1] * 4,
    )
    yield single(
        "conv2d/conv f16 depthwise 144 28x28",
        "Conv",
        x(1, 144, 28, 28, t="f16"),
        w(144, 1, 3, 3, t="f16", low=-0.1, high=0.1),
        pads=[1] * 4,
        group=144,
    )
    yield single(
        "conv2d/conv weights computed 32>32 28x28",
        "Conv",
        x(1, 32, 28, 28),
        x(32, 32, 3, 3),
        pads=[1] * 4,
    )
    yield single(
        "conv2d/conv same_upper s2",
        "Conv",
        x(1, 32, 57, 57),
        w(64, 32, 3, 3),
        auto_pad="SAME_UPPER",
        strides=[2, 2],
    )
    yield single(
        "conv2d/conv_integer 32>64 28x28",
        "ConvInteger",
        x(1, 32, 28, 28, t="u8", high=255),
        w(64, 32, 3, 3, t="u8", high=255),
        pads=[1] * 4,
    )
    yield single(
        "conv2d/fused_conv relu 32>64 28x28",
        "FusedConv",
        x(1, 32, 28, 28),
        w(64, 32, 3, 3, low=-0.1, high=0.1),
        w(64),
        domain="com.microsoft",
        pads=[1] * 4,
        activation="Relu",
    )
    yield single(
        "conv2d/deform_conv 32>32 28x28 k3",
        "DeformConv",
        x(1, 32, 28, 28),
        w(32, 32, 3, 3),
        x(1, 18, 28, 28, low=-1.5, high=1.5),
        kernel_shape=[3, 3],
        pads=[1] * 4,
    )


def cases() -> Iterator[Case]:
    """Yield all of them."""
    yield from convolutions()
    yield from transposed()
    yield from poolings()
    yield from rare_poolings()
    yield from odd_convolutions()
