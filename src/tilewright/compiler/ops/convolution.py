"""Convolutions of any spatial rank, as models state them, and transposed ones.

They read out of range as zero through masked loads; the compiler's own form (`contract.py`) takes
input that is padded already, so its loads are affine and unmasked.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from tilewright.base.dtypes import FLOATS, NUMERIC
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, TensorType
from tilewright.compiler.kernel.builder import KernelBuilder, compute_dtype
from tilewright.compiler.kernel.ir import Expression
from tilewright.compiler.ops.bodies import Operands, Results, given, maybe
from tilewright.compiler.ops.contraction import (
    CONTRACTION,
    accumulator_dtype,
    narrow,
    settled,
    sum_dtype,
    sum_of_products,
    widen,
    widened,
)
from tilewright.compiler.ops.declaration import Types, attr, declare, operand, optional
from tilewright.compiler.ops.shapes import (
    check_groups,
    check_positive,
    check_same,
    element_count,
    ints_or,
    need,
    spatial_axes,
    window_count,
    window_steps,
    with_borders,
)

Ints = tuple[int, ...]
_ATTRIBUTES: Final = (
    attr("strides", "ints", ()),
    attr("pads", "ints", ()),
    attr("dilations", "ints", ()),
    attr("groups", "int", 1),
    attr("layout", "string", "NCHW"),
)
_SUM: Final = attr("dtype", "dtype", None)


def _window(attributes: Attributes, rank: int) -> tuple[Ints, Ints, Ints]:
    """Strides, pads (begin…, end…) and dilations, defaults filled in."""
    strides, pads, dilations = window_steps(attributes, rank)
    if len(strides) != rank or len(dilations) != rank or len(pads) != 2 * rank:
        raise ModelError(
            f"strides {strides}, dilations {dilations} and pads {pads} do not fit "
            f"{rank} spatial dimensions"
        )
    check_positive("strides are", strides)
    check_positive("dilations are", dilations)
    return strides, pads, dilations


def _check_bias(bias: TensorType | None, filters: Dim) -> None:
    """Raises: ModelError when there surely is not one number for each filter."""
    if bias is not None:
        check_same(f"filters and their bias {bias}", filters, bias.shape[0])


# --- conv ------------------------------------------------------------------------------------


def _conv_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, w = need(types, 0), need(types, 1)
    layout, groups = cast("str", attributes["layout"]), cast("int", attributes["groups"])
    if x.rank < 3 or w.rank != x.rank:
        raise ModelError(f"conv of {x} with weights {w}: ranks do not fit")
    rank = x.rank - 2
    strides, pads, dilations = _window(attributes, rank)
    channels = x.shape[1] if layout == "NCHW" else x.shape[-1]
    check_same(f"input channels of {x} and weights {w}", channels, w.shape[1] * groups)
    check_groups("filters", w.shape[0], groups)
    _check_bias(types[2], w.shape[0])
    spatial = [
        window_count(
            x.shape[axis], w.shape[2 + i], strides[i], dilations[i], ceil_mode=False,
            pads=(pads[i], pads[rank + i]),
        )
        for i, axis in enumerate(spatial_axes(x.rank, layout))
    ]  # fmt: skip
    image = (w.shape[0], *spatial) if layout == "NCHW" else (*spatial, w.shape[0])
    return (TensorType(sum_dtype(x, w, attributes), (x.shape[0], *image)),)


def correlate(
    x: np.ndarray, w: np.ndarray, strides: Ints, dilations: Ints, groups: int
) -> np.ndarray:
    """Cross-correlation of padded x [N, C, spatial] with w [F, C/groups, spatial], widened."""
    rank = x.ndim - 2
    # An axis that is shorter than the window has no place for it.
    spans = [x.shape[2 + i] - (w.shape[2 + i] - 1) * dilations[i] for i in range(rank)]
    sizes = [max(0, (spans[i] - 1) // strides[i] + 1) for i in range(rank)]
    filters = w.shape[0] // groups
    depth = x.shape[1] // groups
    positions = int(np.prod(sizes, dtype=np.int64))
    total = np.zeros((x.shape[0], groups, filters, positions), x.dtype)
    grouped = w.reshape(groups, filters, depth, *w.shape[2:])
    offsets = itertools.product(*(range(k) for k in w.shape[2:]))
    for offset in offsets if positions else ():
        cut = tuple(
            slice(o * d, o * d + (n - 1) * s + 1, s)
            for o, d, n, s in zip(offset, dilations, sizes, strides, strict=True)
        )
        part = x[(slice(None), slice(None), *cut)]
        part = part.reshape(x.shape[0], groups, depth, positions)
        total += np.matmul(grouped[(slice(None),) * 3 + offset], part)
    return total.reshape(x.shape[0], groups * filters, *sizes)


def _conv_oracle(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, **attributes: Any
) -> np.ndarray:
    rank = x.ndim - 2
    nhwc = attributes["layout"] != "NCHW"
    strides, pads, dilations = _window(attributes, rank)
    data = np.moveaxis(x, -1, 1) if nhwc else x
    borders = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    dtype = attributes["dtype"]
    wide, filters = (widened(array, dtype) for array in (data, w))
    value = correlate(
        with_borders(wide, borders), filters, strides, dilations, attributes["groups"]
    )
    if bias is not None:
        value = value + widened(bias, dtype).reshape(-1, *([1] * rank))
    value = np.moveaxis(value, 1, -1) if nhwc else value
    return settled(value, x, dtype)


def _arrange(layout: str, n: Dim, channel: Dim, spatial: Sequence[Dim]) -> tuple[Dim, ...]:
    """Indices in the order of the layout."""
    return (n, channel, *spatial) if layout == "NCHW" else (n, *spatial, channel)


def _split(layout: str, indices: Sequence[Dim]) -> tuple[Dim, Dim, tuple[Dim, ...]]:
    """(batch, channel, spatial) of indices in the order of the layout."""
    if layout == "NCHW":
        return indices[0], indices[1], tuple(indices[2:])
    return indices[0], indices[-1], tuple(indices[1:-1])


def _inside(
    b: KernelBuilder, places: Sequence[Dim], sizes: Sequence[Dim]
) -> Expression | None:
    """Whether every place lies in range; None where bounds already say so."""
    mask: Expression | None = None
    for place, size in zip(places, sizes, strict=True):
        test = b.within(place, 0, size)
        mask = test if mask is None else b.and_(mask, test)
    return mask


def _conv_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, w, (result,) = given(operands, 0), given(operands, 1), results
    bias = maybe(operands, 2)
    layout, groups = cast("str", attributes["layout"]), cast("int", attributes["groups"])
    rank = len(x.shape) - 2
    strides, pads, dilations = _window(attributes, rank)
    sizes = _split(layout, x.shape)[2]
    depth, kernel = w.shape[1], w.shape[2:]
    filters = cast("int", w.shape[0] // groups) if groups > 1 else 0
    sums = accumulator_dtype(x.dtype, result.dtype)
    total = b.temporary(sums, result.shape, "acc")
    with b.nest(result.shape) as indices:
        n, out, spatial = _split(layout, indices)
        b.store(total, indices, 0)
        with b.reduce((*kernel, depth)) as inner:
            *taps, c = inner
            places = [
                spatial[i] * strides[i] + taps[i] * dilations[i] - pads[i]
                for i in range(rank)
            ]
            channel = c + (out // filters) * depth if groups > 1 else c
            source = _arrange(layout, n, channel, places)
            value = b.read(x, source, _inside(b, places, sizes))
            weight = b.read(w, (out, c, *taps))
            b.accumulate(
                "add", total, indices, b.mul(b.cast(value, sums), b.cast(weight, sums))
            )
    with b.nest(result.shape) as indices:
        value = b.load(total, indices)
        if bias is not None:
            at = 0 if bias.shape[0] == 1 else _split(layout, indices)[1]
            value = b.add(value, b.read(bias, (at,)))
        b.write(result, indices, value)


conv: Final = declare(
    name="conv",
    summary="Convolution (cross-correlation) with weights [F, C/groups, kernel…]",
    operands=(
        operand("x", NUMERIC), operand("w", NUMERIC), optional("bias", NUMERIC, like="w"),
    ),
    attributes=(*_ATTRIBUTES, _SUM),
    infer=_conv_infer,
    evaluate=_conv_oracle,
    body=_conv_body,
    traits=CONTRACTION,
    work=sum_of_products(lambda types: types[1].shape[1:]),
    cases=(
        "[1,3,6,7] [4,3,3,3] [4]; pads=(1,1,1,1)",
        "[2,4,5,6] [6,2,3,2]; groups=2 strides=(2,1)",
        "[1,6,7,3] [4,3,3,3] [4]; layout=NHWC pads=(0,1,2,1) strides=(2,2)",
        "[1,2,9] [3,2,3] [3]; dilations=(2,) pads=(2,2)",
        "[1,1,4,5,3] [2,1,2,2,2]; pads=(0,1,0,0,1,1)",
        "[1,4,5,5] [4,1,3,3] [4]; groups=4 pads=(1,1,1,1)",
        "[0,2,4,4] [3,2,1,1]",
        "[1,2,6,7] [3,2,3,2] [3]; pads=(-1,2,1,-2) strides=(1,2)",
        "u8[1,3,6,7]:count(255) i8[4,3,3,3]:index(127); pads=(1,1,1,1) dtype=i32",
    ),
    source="ONNX Conv, opset 22",
)  # fmt: skip

# --- transposed ------------------------------------------------------------------------------


def _transpose_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, w = need(types, 0), need(types, 1)
    layout, groups = cast("str", attributes["layout"]), cast("int", attributes["groups"])
    if x.rank < 3 or w.rank != x.rank:
        raise ModelError(f"conv_transpose of {x} with weights {w}: ranks do not fit")
    rank = x.rank - 2
    strides, pads, dilations = _window(attributes, rank)
    extra = ints_or(attributes["output_padding"], (0,) * rank)
    if len(extra) != rank or any(count < 0 for count in extra):
        raise ModelError(f"output_padding {extra} does not fit {rank} spatial dimensions")
    check_groups("input channels", w.shape[0], groups)
    channels = x.shape[1] if layout == "NCHW" else x.shape[-1]
    check_same(f"input channels of {x} and weights {w}", channels, w.shape[0])
    _check_bias(types[2], w.shape[1] * groups)
    spatial = [
        (x.shape[axis] - 1) * strides[i]
        + (w.shape[2 + i] - 1) * dilations[i]
        + 1
        + extra[i]
        - pads[i]
        - pads[rank + i]
        for i, axis in enumerate(spatial_axes(x.rank, layout))
    ]
    return (x.with_shape(_arrange(layout, x.shape[0], w.shape[1] * groups, spatial)),)


def _transpose_oracle(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, **attributes: Any
) -> np.ndarray:
    rank, groups = x.ndim - 2, attributes["groups"]
    nhwc = attributes["layout"] != "NCHW"
    strides, pads, dilations = _window(attributes, rank)
    extra = ints_or(attributes["output_padding"], (0,) * rank)
    data = widen(np.moveaxis(x, -1, 1) if nhwc else x)
    spread = np.zeros(
        (
            *data.shape[:2],
            *((n - 1) * s + 1 for n, s in zip(data.shape[2:], strides, strict=True)),
        ),
        data.dtype,
    )
    spread[(slice(None), slice(None), *(slice(None, None, s) for s in strides))] = data
    reach = [(k - 1) * d for k, d in zip(w.shape[2:], dilations, strict=True)]
    borders = [(r, r + e) for r, e in zip(reach, extra, strict=True)]
    # Filters turned around, input and output channels exchanged within each group.
    turned = np.flip(widen(w), tuple(range(2, w.ndim)))
    grouped = turned.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    filters = np.swapaxes(grouped, 1, 2).reshape(-1, w.shape[0] // groups, *w.shape[2:])
    value = correlate(
        np.pad(spread, [(0, 0), (0, 0), *borders]), filters, (1,) * rank, dilations, groups
    )
    cut = [slice(pads[i], value.shape[2 + i] - pads[rank + i]) for i in range(rank)]
    value = value[(slice(None), slice(None), *cut)]
    if bias is not None:
        value = value + widen(bias).reshape(-1, *([1] * rank))
    return narrow(np.moveaxis(value, 1, -1) if nhwc else value, x)


def _transpose_taps(
    b: KernelBuilder, spatial: Sequence[Dim], taps: Sequence[Dim], sizes: Sequence[Dim],
    window: tuple[Ints, Ints, Ints],
) -> tuple[list[Dim], Expression | None]:  # fmt: skip
    """The input places that `taps` of the filter bring to an output place, and when they exist."""
    strides, pads, dilations = window
    places: list[Dim] = []
    mask: Expression | None = None
    for i, size in enumerate(sizes):
        shifted = spatial[i] + pads[i] - taps[i] * dilations[i]
        place = shifted // strides[i]
        test = b.within(place, 0, size)
        if strides[i] > 1:
            test = b.and_(b.eq(b.index(shifted % strides[i]), b.index(0)), test)
        mask = test if mask is None else b.and_(mask, test)
        places.append(place)
    return places, mask


def _transpose_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, w, (result,) = given(operands, 0), given(operands, 1), results
    bias = maybe(operands, 2)
    layout, groups = cast("str", attributes["layout"]), cast("int", attributes["groups"])
    window = _window(attributes, len(x.shape) - 2)
    sizes = _split(layout, x.shape)[2]
    depth, filters = w.shape[0] // groups, w.shape[1]
    total = b.temporary(compute_dtype(x.dtype), result.shape, "acc")
    with b.nest(result.shape) as indices:
        n, out, spatial = _split(layout, indices)
        b.store(total, indices, 0)
        with b.reduce((*w.shape[2:], depth)) as inner:
            *taps, c = inner
            places, mask = _transpose_taps(b, spatial, taps, sizes, window)
            channel = c + (out // filters) * depth if groups > 1 else c
            column = out % filters if groups > 1 else out
            value = b.read(x, _arrange(layout, n, channel, places), mask)
            weight = b.read(w, (channel, column, *taps))
            b.accumulate("add", total, indices, b.mul(value, weight))
    with b.nest(result.shape) as indices:
        value = b.load(total, indices)
        if bias is not None:
            at = 0 if bias.shape[0] == 1 else _split(layout, indices)[1]
            value = b.add(value, b.read(bias, (at,)))
        b.write(result, indices, value)


conv_transpose: Final = declare(
    name="conv_transpose",
    summary="Transposed convolution with weights [C, F/groups, kernel…]",
    operands=(
        operand("x", FLOATS), operand("w", FLOATS, like="x"), optional("bias", FLOATS, like="x"),
    ),
    attributes=(*_ATTRIBUTES, attr("output_padding", "ints", ())),
    infer=_transpose_infer,
    evaluate=_transpose_oracle,
    body=_transpose_body,
    traits=CONTRACTION,
    work=lambda types, _, __: 2 * types[0].element_count * element_count(types[1].shape[1:]),
    cases=(
        "[1,3,3,4] [3,2,3,3] [2]",
        "[2,4,3,3] [4,3,3,2]; strides=(2,3) pads=(1,0,1,1) output_padding=(1,0) groups=2",
        "[1,4,3,2] [2,3,2,2] [3]; layout=NHWC strides=(2,2)",
        "[1,2,5] [2,1,3]; dilations=(2,) pads=(1,2)",
    ),
    source="ONNX ConvTranspose, opset 22",
)  # fmt: skip

OPS: Final = (conv, conv_transpose)
