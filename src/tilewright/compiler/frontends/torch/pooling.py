"""Rows for pooling and resampling of images.

Source: the operators of ATen by name, `torch.nn.functional` reference pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.resampling import Resampling, Scale, resampled
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.contraction import matrix_product
from tilewright.compiler.frontends.torch.convolution import spread
from tilewright.compiler.frontends.torch.reduction import wide_type
from tilewright.compiler.frontends.torch.row import Build, Row, row

_Pool = Callable[[Tensor, dict[str, object]], Sequence[Tensor]]


def _windows(call: Call, spatial: int) -> dict[str, object]:
    kernel = spread(call.integers("kernel_size"), spatial)
    strides = spread(call.integers("stride") or kernel, spatial)
    pads = spread(call.integers("padding", (0,)), spatial)
    dilations = spread(call.integers("dilation", (1,)), spatial)
    ceil = call.flag("ceil_mode")
    return {
        "kernel": kernel, "strides": strides, "pads": (*pads, *pads),
        "dilations": dilations, "ceil_mode": ceil,
    }  # fmt: skip


def _batched(call: Call, spatial: int, pool: _Pool) -> Sequence[Tensor]:
    """Pooling of a batch; a single image is one."""
    e, x = call.maker, call.tensor()
    is_batched = x.rank == spatial + 2
    if any(size == 0 for size in x.shape):
        raise UnsupportedError("windows over nothing are not supported")
    found = pool(x if is_batched else e.unsqueeze(x, (0,)), _windows(call, spatial))
    return found if is_batched else [e.squeeze(part, (0,)) for part in found]


def _max_pool(spatial: int, *, with_indices: bool) -> Build:
    def build(call: Call) -> Tensor | Sequence[Tensor]:
        op = "max_pool_indices" if with_indices else "max_pool"
        found = _batched(call, spatial, lambda x, window: call.maker.ops(op, x, **window))
        if not with_indices:
            return found[0]
        return found[0], _per_plane(call, found[1], spatial)

    return build


def _per_plane(call: Call, places: Tensor, spatial: int) -> Tensor:
    """Positions in the flattened input as positions in their plane."""
    e, plane = call.maker, plane_size(call.tensor().shape[-spatial:])
    return e.op("mod", places, e.scalar(plane, places.dtype))


def plane_size(shape: Sequence[object]) -> int:
    """The number of places of a plane of known sizes."""
    total = 1
    for size in shape:
        if not isinstance(size, int):
            raise UnsupportedError("places in a plane of unknown size are not supported")
        total *= size
    return total


def _average_pool(spatial: int) -> Build:
    def build(call: Call) -> Tensor:
        e = call.maker
        divisor = call.integer("divisor_override") if call.has("divisor_override") else 0
        counts = call.flag("count_include_pad", default=True)

        def pool(x: Tensor, window: dict[str, object]) -> Sequence[Tensor]:
            window.pop("dilations")
            if divisor and window["ceil_mode"]:
                return [_divided(call, x, window, divisor)]
            kernel = window["kernel"]
            assert isinstance(kernel, tuple), "spread"
            include = counts or bool(divisor)
            found = e.op("average_pool", x, count_include_pad=include, **window)
            if divisor:
                factor = float(np.prod(kernel)) / divisor
                found = e.op("mul", found, e.scalar(factor, found.dtype))
            return [found]

        return _batched(call, spatial, pool)[0]

    return build


def _divided(call: Call, x: Tensor, window: dict[str, object], divisor: int) -> Tensor:
    """Sums over a number, where windows may end behind the border: means times how many elements each has."""
    e = call.maker
    found = e.op("average_pool", x, count_include_pad=False, **window)
    sizes = [
        _elements_in(size, count, axis, window)
        for axis, (size, count) in enumerate(zip(x.shape[2:], found.shape[2:], strict=True))
    ]
    total = np.ones((), np.float64)
    for counted in sizes:
        total = total[..., None] * counted
    return e.op("mul", found, e.constant((total / divisor).astype(x.dtype.numpy)))


def _elements_in(size: Dim, count: Dim, axis: int, window: dict[str, object]) -> np.ndarray:
    """How many elements each window along an axis has."""
    kernel, strides, pads = (window[name] for name in ("kernel", "strides", "pads"))
    assert isinstance(kernel, tuple), "spread"
    assert isinstance(strides, tuple), "spread"
    assert isinstance(pads, tuple), "spread"
    if not isinstance(size, int) or not isinstance(count, int):
        raise UnsupportedError("windows of a size that a call decides are not supported")
    starts = np.arange(count) * strides[axis] - pads[axis]
    ends = np.minimum(starts + kernel[axis], size)
    return ends - np.maximum(starts, 0)


def _adaptive_average(call: Call) -> Tensor:
    """The mean over as many windows as the result has places: per axis a product with their weights."""
    e, x = call.maker, call.tensor()
    call.argument("output_size")
    shape, dtype = call.shape(), call.dtype()
    spatial = len(call.sizes("output_size"))
    wide = e.cast(x, wide_type(dtype))
    if any(size == 0 for size in shape):
        return e.full(0, dtype, shape)
    if any(size == 0 for size in x.shape):
        raise UnsupportedError("windows over nothing are not supported")
    if all(size == 1 for size in shape[-spatial:]):
        axes = tuple(range(x.rank - spatial, x.rank))
        return call.finish(e.op("reduce_mean", wide, axes=axes, keepdims=True))
    for axis in range(x.rank - spatial, x.rank):
        wide = _averaged(call, wide, axis, shape[axis])
    return call.finish(wide)


def _averaged(call: Call, x: Tensor, axis: int, count: object) -> Tensor:
    e, size = call.maker, x.shape[axis]
    if size == count:
        return x
    if not isinstance(count, int):
        raise UnsupportedError(
            "as many windows as a call decides are not supported where their sizes differ"
        )
    table = _window_weights(e, size, count, x.dtype)
    order = [i for i in range(x.rank) if i != axis]
    moved = e.transpose(x, [*order, axis])
    found = matrix_product(e, moved, table)
    back = [*range(axis), x.rank - 1, *range(axis, x.rank - 1)]
    return e.transpose(found, back)


def _window_weights(e: NodeMaker, size: Dim, count: int, dtype: DType) -> Tensor:
    """[size, count], the weight of every element in every window."""
    if isinstance(size, int):
        weights = np.zeros((size, count))
        for place in range(count):
            low, high = place * size // count, -(-(place + 1) * size // count)
            weights[low:high, place] = 1 / (high - low)
        return e.constant(weights.astype(dtype.numpy))
    places, windows = e.iota((size, 1), 0), e.iota((1, count), 1)
    extent, number, one = e.dim(size), e.scalar(count, dtypes.i64), e.scalar(1, dtypes.i64)
    first = e.op("div", e.op("mul", windows, extent), number)
    above = e.op("mul", e.op("add", windows, one), extent)
    end = e.op("div", e.op("add", above, e.scalar(count - 1, dtypes.i64)), number)
    within = e.op(
        "logical_and", e.op("less_equal", first, places), e.op("less", places, end)
    )
    length = e.cast(e.op("sub", end, first), dtype)
    return e.op("div", e.cast(within, dtype), length)


def _adaptive_max(call: Call) -> Sequence[Tensor]:
    """Where windows are of one size, pooling; where there is one, the largest of all."""
    e, x, shape = call.maker, call.tensor(), call.shape()
    spatial = len(call.sizes("output_size"))
    inner, outer = x.shape[-spatial:], shape[-spatial:]
    kernel: list[int] = []
    for size, count in zip(inner, outer, strict=True):
        if not isinstance(size, int) or not isinstance(count, int):
            raise UnsupportedError(
                "windows of a size that a call decides are not supported"
            )
        if not size or not count:
            raise UnsupportedError("windows over nothing are not supported")
        kernel.append(size // count if size % count == 0 else 0)
    if not all(kernel):
        return _largest_of_windows(call, x, shape, spatial)
    is_batched = x.rank == spatial + 2
    wide = x if is_batched else e.unsqueeze(x, (0,))
    values, places = e.ops(
        "max_pool_indices", wide, kernel=tuple(kernel), strides=tuple(kernel)
    )
    places = e.op("mod", places, e.scalar(plane_size(inner), places.dtype))
    return [part if is_batched else e.squeeze(part, (0,)) for part in (values, places)]


def _largest_of_windows(
    call: Call, x: Tensor, shape: Sequence[Dim], spatial: int
) -> Sequence[Tensor]:
    """The largest of windows of several sizes, and where each lies in its plane."""
    e, front = call.maker, x.rank - spatial
    tables = [_windows_of(x.shape[a], shape[a]) for a in range(front, x.rank)]
    taken = x
    for axis, table in enumerate(tables):
        taken = e.op("gather", taken, e.constant(table), axis=front + 2 * axis)
    outer = [front + 2 * axis for axis in range(spatial)]
    order = [*range(front), *outer, *(axis + 1 for axis in outer)]
    places = np.zeros((), np.int64)
    for table, size in zip(tables, x.shape[front:], strict=True):
        assert isinstance(size, int), "asked before"
        places = places[..., None, None] * size + table
    inner = np.transpose(places, [*range(0, 2 * spatial, 2), *range(1, 2 * spatial, 2)])
    flat = inner.reshape((*inner.shape[:spatial], -1))
    wide = e.reshape(e.transpose(taken, order), (*shape, flat.shape[-1]))
    values = e.op("reduce_max", wide, axes=(wide.rank - 1,), keepdims=False)
    chosen = e.op("arg_max", wide, axis=wide.rank - 1, keepdims=True)
    spread_out = e.broadcast_to(e.constant(flat), wide.shape)
    found = e.op("gather_elements", spread_out, chosen, axis=wide.rank - 1)
    return values, e.squeeze(found, (wide.rank - 1,))


def _windows_of(size: Dim, count: Dim) -> np.ndarray:
    """The places of each window along an axis; short windows have their last place several times."""
    assert isinstance(size, int), "asked before"
    assert isinstance(count, int), "asked before"
    bounds = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
    widest = max(high - low for low, high in bounds)
    table = [[min(low + i, high - 1) for i in range(widest)] for low, high in bounds]
    return np.array(table, np.int64)


def _upsample(mode: str, *, exact: bool = False) -> Build:
    """Resampling; `exact`: nearest by the centres of pixels, not by their corners."""

    def build(call: Call) -> Tensor:
        e = call.maker
        name = "self" if "self" in call.operation.arguments else "input"
        x, shape = call.tensor(name), call.shape()
        corners = mode != "nearest" and call.flag("align_corners")
        scales = _scales(call, x.rank - 2)
        call.argument("output_size")
        if mode == "nearest":
            coordinates, rounding = "centers" if exact else "asymmetric", "floor"
        elif corners:
            coordinates, rounding = "align_corners", "floor"
        else:
            coordinates, rounding = "half_pixel", "floor"
        single = mode == "nearest" and x.dtype is not dtypes.f64
        how = Resampling(
            mode, coordinates, rounding, single=single, reciprocal=mode == "nearest"
        )
        if "_aa" in call.operation.target:
            if corners:
                raise UnsupportedError("antialiasing beside aligned corners")
            how = replace(how, antialias=True, cubic_coefficient=-0.5, exclude_outside=True)
        factors: list[Scale] = [None] * x.rank
        if scales and not corners:
            factors = [1.0, 1.0, *scales]
        if mode == "nearest" and not exact and x.rank == 4:
            factors = [
                _image_factor(e, *axis)
                for axis in zip(factors, x.shape, shape, strict=True)
            ]
        return resampled(e, x, shape, factors, None, how)

    return build


def _image_factor(e: NodeMaker, factor: Scale, size: Dim, count: Dim) -> Scale:
    """The factor by which nearest pixels of images are found: torch takes once and twice as many for exactly that."""
    if not isinstance(factor, float) or factor.is_integer() or not 1 < factor < 3:
        return factor
    whole = int(factor)
    if isinstance(size, int) and isinstance(count, int):
        return float(whole) if count == whole * size else factor
    is_whole = e.op("equal", e.dim(count), e.dim(size * whole))
    return e.op(
        "where", is_whole, e.scalar(whole, dtypes.f64), e.scalar(factor, dtypes.f64)
    )


def _scales(call: Call, spatial: int) -> tuple[float, ...]:
    """How many times larger the result is, per axis; empty where its size alone says so."""
    if "scale_factors" in call.operation.arguments:
        return call.numbers("scale_factors")
    names = {
        1: ("scales",),
        2: ("scales_h", "scales_w"),
        3: ("scales_d", "scales_h", "scales_w"),
    }
    given = [call.argument(name) for name in names[spatial]]
    found = tuple(float(scale) for scale in given if isinstance(scale, int | float))
    return found if len(found) == spatial else ()


def _both(name: str) -> str:
    return f"{name} {name}.vec"


ROWS: Final[tuple[Row, ...]] = (
    *(row(f"max_pool{n}d", _max_pool(n, with_indices=False)) for n in (1, 2, 3)),
    row("max_pool1d_with_indices", _max_pool(1, with_indices=True)),
    *(row(f"max_pool{n}d_with_indices", _max_pool(n, with_indices=True)) for n in (2, 3)),
    *(row(f"avg_pool{n}d", _average_pool(n)) for n in (1, 2, 3)),
    row(
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d "
        "_adaptive_avg_pool3d",
        _adaptive_average,
    ),
    row("adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d", _adaptive_max),
    *(row(_both(f"upsample_nearest{n}d"), _upsample("nearest")) for n in (1, 2, 3)),
    *(
        row(_both(f"_upsample_nearest_exact{n}d"), _upsample("nearest", exact=True))
        for n in (1, 2, 3)
    ),
    row(
        f"{_both('upsample_linear1d')} {_both('upsample_bilinear2d')} "
        f"{_both('upsample_trilinear3d')}",
        _upsample("linear"),
    ),
    row(_both("upsample_bicubic2d"), _upsample("cubic")),
    row(_both("_upsample_bilinear2d_aa"), _upsample("linear")),
    row(_both("_upsample_bicubic2d_aa"), _upsample("cubic")),
)
