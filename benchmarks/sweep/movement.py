"""Operators that move, choose or make numbers: layout, gathers, scatters, sorts, resizing.

What it is: rows of the op sweep.
What it is not: arithmetic.
Who calls it: ``catalogue.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sweep.case import Case, single, word
from sweep.network import Tensor, ints, scalar, w, x

TRANSPOSES: Final = (
    ((1, 64, 56, 56), (0, 2, 3, 1)),
    ((1, 56, 56, 64), (0, 3, 1, 2)),
    ((1, 128, 12, 64), (0, 2, 1, 3)),
    ((1, 12, 128, 64), (0, 2, 1, 3)),
    ((1, 12, 128, 64), (0, 1, 3, 2)),
    ((768, 768), (1, 0)),
    ((1023, 33), (1, 0)),
    ((1, 8, 7, 8, 7, 96), (0, 1, 3, 2, 4, 5)),
    ((1, 2, 58, 28, 28), (0, 2, 1, 3, 4)),
    ((3, 224, 224), (1, 2, 0)),
    ((224, 224, 3), (2, 0, 1)),
    ((2, 3, 4, 5, 6, 7), (5, 4, 3, 2, 1, 0)),
    ((1, 3, 85, 20, 20), (0, 1, 3, 4, 2)),
)
SLICES: Final = (
    ((1, 64, 56, 56), (0, 32), (1 << 30, 1 << 30), (1, 2), (32, 1)),
    ((1, 3, 224, 224), (0, 0), (1 << 30, 1 << 30), (2, 3), (2, 2)),
    ((1, 3, 224, 224), (1, 1), (1 << 30, 1 << 30), (2, 3), (2, 2)),
    ((128, 2304), (768,), (1536,), (1,), (1,)),
    ((1, 512, 768), (0,), (1,), (1,), (1,)),
    ((1000, 257), (-1,), (-(1 << 30),), (0,), (-1,)),
    ((300, 1001), (-1,), (-(1 << 30),), (1,), (-1,)),
    ((1, 12, 128, 64), (0,), (1 << 30,), (3,), (2,)),
)
CONCATS: Final = (
    (((1, 64, 28, 28), (1, 64, 28, 28)), 1),
    (((1, 64, 28, 28), (1, 96, 28, 28), (1, 32, 28, 28), (1, 32, 28, 28)), 1),
    (((1, 12, 127, 64), (1, 12, 1, 64)), 2),
    (((128, 384), (128, 384)), 1),
    (((1, 28, 28, 17), (1, 28, 28, 15)), 3),
    (((1, 8400, 4), (1, 8400, 80)), 2),
    (((1000, 1), (1000, 1), (1000, 1), (1000, 1)), 1),
    (((33, 65), (31, 65)), 0),
)
SPLITS: Final = (
    ((128, 2304), 1, 3),
    ((1, 64, 28, 28), 1, 2),
    ((1, 12, 128, 64), 3, 2),
    ((1, 8400, 84), 2, 4),
    ((17, 33, 9), 1, 3),
)
# Each: data, indices, axis.
GATHERS: Final = (
    ((30522, 384), (1, 128), 0),
    ((5000, 768), (128,), 0),
    ((512, 64), (8, 33), 0),
    ((1, 128, 768), (1,), 1),
    ((1, 64, 56, 56), (32,), 1),
    ((128, 1000), (7,), 1),
    ((64, 64), (2401,), 1),
    ((169, 3), (2401,), 0),
    ((100000,), (10000,), 0),
)
PADS: Final = (
    ((1, 64, 56, 56), (0, 0, 1, 1, 0, 0, 1, 1)),
    ((1, 3, 224, 224), (0, 0, 0, 0, 0, 0, 1, 1)),
    ((1, 512, 100), (0, 0, 4, 0, 0, 3)),
    ((128, 768), (0, 0, 5, 0)),
    ((1, 16, 8, 14, 14), (0, 0, 1, 1, 1, 0, 0, 1, 1, 1)),
)
# (shape, scale per axis, mode, coordinates)
RESIZES: Final = (
    ((1, 64, 28, 28), (2.0, 2.0), "nearest", "asymmetric"),
    ((1, 256, 20, 20), (2.0, 2.0), "nearest", "half_pixel"),
    ((1, 64, 28, 28), (2.0, 2.0), "linear", "half_pixel"),
    ((1, 64, 28, 28), (2.0, 2.0), "linear", "align_corners"),
    ((1, 21, 65, 65), (4.0, 4.0), "linear", "half_pixel"),
    ((1, 3, 224, 224), (0.5, 0.5), "linear", "half_pixel"),
    ((1, 3, 100, 130), (1.7, 1.3), "linear", "half_pixel"),
    ((1, 3, 64, 64), (2.0, 2.0), "cubic", "half_pixel"),
    ((1, 96, 14, 14), (0.5, 0.5), "cubic", "half_pixel"),
    ((1, 64, 100), (2.0,), "nearest", "asymmetric"),
    ((1, 64, 100), (3.0,), "linear", "half_pixel"),
    ((1, 16, 8, 14, 14), (2.0, 2.0, 2.0), "nearest", "asymmetric"),
    ((1, 8, 8, 14, 14), (2.0, 2.0, 2.0), "linear", "half_pixel"),
)


def layouts() -> Iterator[Case]:
    """Yield transpositions and their relatives."""
    for shape, order in TRANSPOSES:
        name = f"movement/transpose {word(shape)} to {word(order)}"
        yield single(name, "Transpose", x(*shape), perm=order)
    for t in ("f16", "i64", "u8"):
        name = f"movement/transpose {t} 1x128x12x64"
        yield single(name, "Transpose", x(1, 128, 12, 64, t=t), perm=(0, 2, 1, 3))
    for mode in ("DCR", "CRD"):
        name = f"movement/depth_to_space {mode}"
        yield single(name, "DepthToSpace", x(1, 256, 28, 28), blocksize=2, mode=mode)
    yield single("movement/space_to_depth", "SpaceToDepth", x(1, 3, 224, 224), blocksize=2)
    yield single(
        "movement/col2im",
        "Col2Im",
        x(1, 64 * 9, 28 * 28),
        ints(28, 28),
        ints(3, 3),
        pads=[1] * 4,
    )
    yield single("movement/reshape", "Reshape", x(1, 128, 768), ints(1, 128, 12, 64))
    yield single("movement/flatten", "Flatten", x(1, 64, 28, 28))
    yield single("movement/unsqueeze", "Unsqueeze", x(128, 768), ints(0))
    yield single("movement/squeeze", "Squeeze", x(1, 128, 768), ints(0))
    for t in ("f32", "i64", "bool"):
        yield single(
            f"movement/expand {t}", "Expand", x(1, 1, 1, 128, t=t), ints(1, 12, 128, 128)
        )
    yield single(
        "movement/expand heads", "Expand", x(1, 4, 1, 128, 64), ints(1, 4, 8, 128, 64)
    )
    yield single("movement/tile rows", "Tile", x(64, 1, 257), ints(1, 16, 1))
    yield single("movement/tile columns", "Tile", x(128, 96), ints(1, 8))
    for upper in (0, 1):
        yield single(f"movement/trilu {upper}", "Trilu", x(12, 128, 128), upper=upper)
    yield single("movement/trilu i64", "Trilu", x(257, 255, t="i64"), upper=1)


def pieces() -> Iterator[Case]:
    """Yield slices, concatenations, splits and padding."""
    for shape, starts, ends, axes, steps in SLICES:
        yield single(
            f"movement/slice {word(shape)} axes {word(axes)} from {word(starts)} step {word(steps)}",
            "Slice",
            x(*shape),
            *(ints(*numbers) for numbers in (starts, ends, axes, steps)),
        )
    for shapes, axis in CONCATS:
        operands = [x(*shape) for shape in shapes]
        yield single(
            f"movement/concat {word(*shapes)} axis {axis}", "Concat", *operands, axis=axis
        )
    for shape, axis, count in SPLITS:
        yield single(
            f"movement/split {word(shape)} axis {axis} in {count}",
            "Split",
            x(*shape),
            outputs=count,
            axis=axis,
            num_outputs=count,
        )
    for shape, pads in PADS:
        for mode in ("constant", "reflect", "edge"):
            yield single(
                f"movement/pad {mode} {word(shape)}",
                "Pad",
                x(*shape),
                ints(*pads),
                mode=mode,
            )
    yield single(
        "movement/pad wrap",
        "Pad",
        x(1, 8, 56, 56),
        ints(0, 0, 3, 3, 0, 0, 3, 3),
        mode="wrap",
    )
    yield single(
        "movement/reverse_sequence",
        "ReverseSequence",
        x(50, 8, 64),
        ints(50, 3, 17, 29, 1, 50, 44, 8),
        time_axis=0,
        batch_axis=1,
    )


def gathers() -> Iterator[Case]:
    """Yield reads at computed places."""
    for shape, places, axis in GATHERS:
        indices = x(*places, t="i64", high=shape[axis])
        name = f"gather/gather {word(shape)} at {word(places)} axis {axis}"
        yield single(name, "Gather", w(*shape), indices, axis=axis)
    yield single(
        "gather/gather i32 indices", "Gather", x(512, 64), x(300, t="i32", high=512)
    )
    yield single(
        "gather/gather i64 data", "Gather", x(5000, t="i64"), x(2000, t="i64", high=5000)
    )
    for shape, axis in (((128, 1000), 1), ((1000, 64), 0), ((1, 8, 300, 64), 2)):
        indices = x(*shape, t="i64", high=shape[axis])
        name = f"gather/gather_elements {word(shape)} axis {axis}"
        yield single(name, "GatherElements", x(*shape), indices, axis=axis)
    for shape, places, batch in (
        ((64, 64, 32), (1000, 2), 0),
        ((8, 100, 64), (8, 50, 1), 1),
        ((33, 33, 33), (2000, 3), 0),
        ((1000, 4), (300, 1), 0),
    ):
        last = places[-1]
        least = min(shape[batch : batch + last])
        yield single(
            f"gather/gather_nd {word(shape)} at {word(places)} batch {batch}",
            "GatherND",
            x(*shape),
            x(*places, t="i64", high=least),
            batch_dims=batch,
        )
    yield single("gather/compress rows", "Compress", x(1000, 64), x(1000, t="bool"), axis=0)
    yield single("gather/compress flat", "Compress", x(100, 100), x(10000, t="bool"))
    for shape in ((128, 128), (10000,), (8, 33, 65)):
        yield single(f"gather/nonzero {word(shape)}", "NonZero", x(*shape, t="bool"))


def scatters() -> Iterator[Case]:
    """Yield writes at computed places."""
    for reduction in ("none", "add", "mul", "max", "min"):
        for shape, axis in (((128, 1000), 1), ((1000, 64), 0)):
            yield single(
                f"scatter/scatter_elements {reduction} {word(shape)} axis {axis}",
                "ScatterElements",
                x(*shape),
                permuted(shape, axis),
                x(*shape),
                axis=axis,
                reduction=reduction,
            )
        for shape, places in (
            ((512, 64), (256, 1)),
            ((64, 64, 32), (1000, 2)),
            ((4096,), (2000, 1)),
        ):
            depth = places[-1]
            yield single(
                f"scatter/scatter_nd {reduction} {word(shape)} at {word(places)}",
                "ScatterND",
                x(*shape),
                distinct(shape[:depth], places[0]),
                x(places[0], *shape[depth:]),
                reduction=reduction,
            )
    yield single(
        "scatter/scatter_nd cache 1x12x128x64",
        "ScatterND",
        x(128, 12 * 64),
        Tensor(shape=(1, 1), dtype="i64", values=(5,)),
        x(1, 12 * 64),
    )
    yield single(
        "scatter/tensor_scatter",
        "TensorScatter",
        x(2, 8, 128, 64),
        x(2, 8, 1, 64),
        ints(5, 17),
        opset=24,
    )
    for shape, depth, axis in (((128,), 1000, -1), ((8, 64), 50, -1), ((1000,), 21, 0)):
        yield single(
            f"scatter/one_hot {word(shape)} depth {depth} axis {axis}",
            "OneHot",
            x(*shape, t="i64", high=depth),
            scalar(depth, "i64"),
            Tensor(shape=(2,), constant=True, values=(0, 1)),
            axis=axis,
        )


def permuted(shape: tuple[int, ...], axis: int) -> Tensor:
    """Return indices along ``axis`` that are all different: the result has one meaning."""
    size = shape[axis]
    rows, columns = shape
    values = tuple(
        (7 * (row if axis == 0 else column) + 3 * (column if axis == 0 else row)) % size
        for row in range(rows)
        for column in range(columns)
    )
    return Tensor(shape=shape, dtype="i64", values=values)


def distinct(extents: tuple[int, ...], count: int) -> Tensor:
    """Return ``count`` different places in a box, one row each."""
    total = 1
    for extent in extents:
        total *= extent
    step = next(s for s in range(total * 5 // 8, total) if coprime(s, total))
    rows: list[int] = []
    for number in range(count):
        place, row = (number * step) % total, list[int]()
        for extent in reversed(extents):
            row.append(place % extent)
            place //= extent
        rows.extend(reversed(row))
    return Tensor(shape=(count, len(extents)), dtype="i64", values=tuple(rows))


def coprime(one: int, other: int) -> bool:
    """Whether no prime divides both."""
    while other:
        one, other = other, one % other
    return one == 1


def sorts() -> Iterator[Case]:
    """Yield the largest, the ordered and the distinct."""
    for shape, count, axis in (
        ((1, 1000), 5, -1),
        ((128, 1000), 10, -1),
        ((1, 8400), 300, -1),
        ((128, 8), 2, -1),
        ((4, 50000), 50, -1),
        ((100, 64), 3, 0),
        ((1, 5000), 5000, -1),
        ((8, 1000), 1000, -1),
    ):
        for largest in (1, 0):
            yield single(
                f"sort/topk {word(shape)} k{count} axis {axis} largest {largest}",
                "TopK",
                x(*shape),
                ints(count),
                outputs=2,
                axis=axis,
                largest=largest,
            )
    yield single(
        "sort/topk i64",
        "TopK",
        x(8, 1000, t="i64", high=1 << 40),
        ints(5),
        outputs=2,
        keep=[0],
    )
    for kind in ("ArgMax", "ArgMin"):
        for shape, axis in (
            ((1, 1000), 1),
            ((128, 1000), 1),
            ((1, 21, 64, 64), 1),
            ((1000, 33), 0),
        ):
            yield single(
                f"sort/{kind} {word(shape)} axis {axis}", kind, x(*shape), axis=axis
            )
    yield single(
        "sort/unique i64", "Unique", x(5000, t="i64", high=900), outputs=4, sorted=1
    )
    yield single(
        "sort/unique f32 rows", "Unique", x(300, 4, low=0, high=1), outputs=1, axis=0
    )


def resizes() -> Iterator[Case]:
    """Yield images made larger and smaller."""
    for shape, scales, mode, coordinates in RESIZES:
        factors = Tensor(shape=(len(shape),), constant=True, values=(1, 1, *scales))
        yield single(
            f"resize/{mode} {coordinates} {word(shape)} by {word(scales)}",
            "Resize",
            x(*shape),
            None,
            factors,
            mode=mode,
            coordinate_transformation_mode=coordinates,
            nearest_mode="floor" if coordinates == "asymmetric" else "round_prefer_floor",
        )
    yield single(
        "resize/antialias",
        "Resize",
        x(1, 3, 224, 224),
        None,
        Tensor(shape=(4,), constant=True, values=(1, 1, 0.5, 0.5)),
        mode="linear",
        antialias=1,
    )
    yield single(
        "resize/upsample opset 9",
        "Upsample",
        x(1, 64, 28, 28),
        Tensor(shape=(4,), constant=True, values=(1, 1, 2, 2)),
        mode="nearest",
        opset=9,
    )


def suppressions() -> Iterator[Case]:
    """Yield choices of boxes that do not overlap."""
    for boxes, kinds, least in ((1000, 4, 0.3), (8400, 8, 0.9)):
        yield single(
            f"pick/nms {boxes} boxes, {kinds} kinds above {least}",
            "NonMaxSuppression",
            x(1, boxes, 4, low=0, high=300),
            x(1, kinds, boxes, low=0, high=1),
            ints(50),
            scalar(0.5),
            scalar(least),
        )


def samplings() -> Iterator[Case]:
    """Yield images read at computed places."""
    for mode in ("linear", "nearest", "cubic"):
        for corners in (0, 1):
            yield single(
                f"resize/grid_sample {mode} corners {corners}",
                "GridSample",
                x(1, 32, 40, 40),
                x(1, 30, 30, 2, low=-1, high=1),
                mode=mode,
                align_corners=corners,
                opset=22,
            )
    yield single(
        "resize/grid_sample reflection",
        "GridSample",
        x(2, 8, 33, 31),
        x(2, 40, 20, 2, low=-1.5, high=1.5),
        padding_mode="reflection",
        opset=22,
    )
    yield single(
        "resize/grid_sample 3d",
        "GridSample",
        x(1, 8, 8, 16, 16),
        x(1, 8, 16, 16, 3, low=-1, high=1),
        opset=22,
    )
    for mode in ("avg", "max"):
        yield single(
            f"resize/roi_align {mode}",
            "RoiAlign",
            x(1, 64, 50, 50),
            roi_boxes(),
            w(30, t="i64", low=0, high=1),
            output_height=7,
            output_width=7,
            sampling_ratio=2,
            spatial_scale=0.25,
            mode=mode,
        )
    yield single(
        "resize/max_roi_pool",
        "MaxRoiPool",
        x(1, 64, 50, 50),
        roi_boxes(with_images=True),
        pooled_shape=[7, 7],
        spatial_scale=0.25,
    )
    yield single(
        "resize/affine_grid",
        "AffineGrid",
        x(4, 2, 3),
        ints(4, 3, 96, 100),
        opset=20,
    )


def roi_boxes(*, with_images: bool = False) -> Tensor:
    """Return thirty boxes of an image of 200 x 200."""
    values = tuple(
        float(number)
        for index in range(30)
        for number in (
            *((0,) if with_images else ()),
            3 * index,
            2 * index,
            3 * index + 60,
            2 * index + 75,
        )
    )
    return Tensor(shape=(30, 4 + with_images), values=values)


def makers() -> Iterator[Case]:
    """Yield operators that make numbers of few."""
    yield single("make/range f32", "Range", x(low=0, high=0.1), scalar(2000), scalar(0.25))
    yield single(
        "make/range i64",
        "Range",
        scalar(0, "i64"),
        x(t="i64", low=4999, high=5000),
        scalar(1, "i64"),
    )
    yield single(
        "make/constant_of_shape", "ConstantOfShape", x(2, t="i64", low=300, high=301)
    )
    yield single("make/eye_like", "EyeLike", x(256, 256))
    yield single("make/shape", "Shape", x(3, 5, 7))
    yield single("make/size", "Size", x(3, 5, 7))


def cases() -> Iterator[Case]:
    """Yield all of them."""
    yield from layouts()
    yield from pieces()
    yield from gathers()
    yield from scatters()
    yield from sorts()
    yield from resizes()
    yield from samplings()
    yield from suppressions()
    yield from makers()
