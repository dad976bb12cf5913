"""Rows for pooling and resampling of images.

Source: the operators of ATen by name, `torch.nn.functional` reference pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.resampling import Resampling, Scale, resampled
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.axes import keep_filled
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.convolution import spread
from tilewright.compiler.frontends.torch.reduction import wide_type
from tilewright.compiler.frontends.torch.row import Build, Row, row
from tilewright.compiler.ops.shapes import element_count

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
    windows = _windows(call, spatial)
    if any(size == 0 for size in call.shape()):
        types = [stated for stated in call.operation.results if stated is not None]
        return [e.full(0, stated.dtype, stated.shape) for stated in types]
    if any(size == 0 for size in x.shape):
        raise UnsupportedError("windows over nothing are not supported")
    found = pool(x if is_batched else e.unsqueeze(x, (0,)), windows)
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
    return _within_plane(call.maker, places, call.tensor().shape[-spatial:])


def _within_plane(e: NodeMaker, places: Tensor, plane: Sequence[Dim]) -> Tensor:
    """Positions in all planes as positions in their own."""
    size = e.dim(element_count(tuple(plane)))
    return e.op("mod", places, e.cast(size, places.dtype))


def _average_pool(spatial: int) -> Build:
    def build(call: Call) -> Tensor:
        e = call.maker
        divisor = call.integer("divisor_override") if call.has("divisor_override") else 0
        counts = call.flag("count_include_pad", default=True)

        def pool(x: Tensor, window: dict[str, object]) -> Sequence[Tensor]:
            window.pop("dilations")
            if x.dtype.is_integer:
                return [_of_integers(call, x, window, _Total(divisor, counts))]
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


@final
@dataclass(frozen=True, slots=True)
class _Total:
    """What the sum of a window is divided by: a number, or as many as it has elements where that is 0."""

    divisor: int
    counts_pad: bool


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


def _elements_in(
    size: Dim,
    count: Dim,
    axis: int,
    window: dict[str, object],
    *,
    include_pad: bool = False,
) -> np.ndarray:
    """How many elements each window along an axis has."""
    kernel, strides, pads = (_numbers(window, n) for n in ("kernel", "strides", "pads"))
    if not isinstance(size, int) or not isinstance(count, int):
        raise UnsupportedError("windows of a size that a call decides are not supported")
    around = pads[axis] if include_pad else 0
    starts = np.arange(count) * strides[axis] - pads[axis]
    ends = np.minimum(starts + kernel[axis], size + around)
    return ends - np.maximum(starts, -around)


def _numbers(window: dict[str, object], name: str) -> tuple[int, ...]:
    found = window[name]
    assert isinstance(found, tuple), "spread"
    return found


def _of_integers(call: Call, x: Tensor, window: dict[str, object], total: _Total) -> Tensor:
    """Means of integers, which torch rounds towards zero: sums, as convolutions with ones, by how many elements there are."""
    e, kernel = call.maker, _numbers(window, "kernel")
    strides, pads = _numbers(window, "strides"), _numbers(window, "pads")
    counts = call.shape()[-len(kernel) :]
    divisors, behind = np.ones((), np.int64), list[int]()
    for axis, (size, count) in enumerate(zip(x.shape[2:], counts, strict=True)):
        elements = _elements_in(size, count, axis, window, include_pad=total.counts_pad)
        divisors = divisors[..., None] * elements
        assert isinstance(size, int), "asked for the elements of its windows"
        assert isinstance(count, int), "asked for the elements of its windows"
        reach = (count - 1) * strides[axis] + kernel[axis]
        behind.append(max(reach - size - pads[axis], 0))
    planes = e.reshape(x, (x.shape[0] * x.shape[1], 1, *x.shape[2:]))
    front = pads[: len(kernel)]
    wide = e.op("pad", planes, None, pads=(0, 0, *front, 0, 0, *behind))
    ones = e.full(1, x.dtype, (1, 1, *kernel))
    sums = e.op("conv", wide, ones, None, strides=strides, pads=(0,) * (2 * len(kernel)))
    divisor = np.full_like(divisors, total.divisor) if total.divisor else divisors
    means = e.op("div", sums, e.constant(divisor.astype(x.dtype.numpy)))
    return e.reshape(means, (*x.shape[:2], *counts))


def _adaptive_average(call: Call) -> Tensor:
    """The mean over as many windows as the result has places, one axis after the other."""
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
    front, behind = x.shape[:axis], x.shape[axis + 1 :]
    kernel = _common_length(size, count)
    if kernel:
        parts = e.reshape(x, (*front, count, kernel, *behind))
        return e.op("reduce_mean", parts, axes=(axis + 1,), keepdims=False)
    # Not a product with weights: NaN and infinity stay in the windows that have them.
    table = _windows_of(e, size, count)
    first, end = _window_bounds(e, size, e.iota((count, 1), 0), count)
    lengths = e.op("sub", end, first)
    within = e.op("less", e.iota((1, table.shape[1]), 1), lengths)
    taken, ones = e.op("gather", x, table, axis=axis), (1,) * len(behind)
    inside = e.reshape(within, (*table.shape, *ones))
    kept = e.op("where", inside, taken, e.scalar(0, x.dtype))
    total = e.op("reduce_sum", kept, axes=(axis + 1,), keepdims=False)
    return e.op("div", total, e.reshape(e.cast(lengths, x.dtype), (count, *ones)))


def _window_bounds(
    e: NodeMaker, size: Dim, windows: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """Where each of `windows` of an axis begins, and where it is over: `count` of them cover `size` places."""
    extent, number, one = e.dim(size), e.scalar(count, dtypes.i64), e.scalar(1, dtypes.i64)
    first = e.op("div", e.op("mul", windows, extent), number)
    above = e.op("mul", e.op("add", windows, one), extent)
    end = e.op("div", e.op("add", above, e.scalar(count - 1, dtypes.i64)), number)
    return first, end


def _adaptive_max(call: Call) -> Sequence[Tensor]:
    """Where windows are of one size, pooling; where there is one, the largest of all."""
    e, x, outer = call.maker, call.tensor(), call.integers("output_size")
    spatial = len(outer)
    inner = x.shape[-spatial:]
    if all(count == 1 for count in outer):
        return _largest_of_plane(e, x, spatial)
    if any(size == 0 for size in (*inner, *outer)):
        raise UnsupportedError("windows over nothing are not supported")
    for size in inner:
        keep_filled(e, size)
    kernel = [_common_length(*pair) for pair in zip(inner, outer, strict=True)]
    if not all(kernel):
        return _largest_of_windows(e, x, outer)
    is_batched = x.rank == spatial + 2
    wide = x if is_batched else e.unsqueeze(x, (0,))
    values, places = e.ops(
        "max_pool_indices", wide, kernel=tuple(kernel), strides=tuple(kernel)
    )
    places = _within_plane(e, places, inner)
    return [part if is_batched else e.squeeze(part, (0,)) for part in (values, places)]


def _common_length(size: Dim, count: int) -> int:
    """How many places every window of an axis has; 0 where that differs, or where only a call knows it."""
    return size // count if isinstance(size, int) and size % count == 0 else 0


def _largest_of_plane(e: NodeMaker, x: Tensor, spatial: int) -> Sequence[Tensor]:
    """The largest element of each plane, and where it lies; sizes of planes may be open."""
    front, plane = x.shape[: x.rank - spatial], x.shape[x.rank - spatial :]
    for size in plane:
        if size == 0:
            raise UnsupportedError("windows over nothing are not supported")
        keep_filled(e, size)
    flat = e.reshape(x, (*front, element_count(plane)))
    axis = len(front)
    values = e.op("reduce_max", flat, axes=(axis,), keepdims=False)
    places = e.op("arg_max", flat, axis=axis, keepdims=False)
    shape = (*front, *[1] * spatial)
    return [e.reshape(part, shape) for part in (values, places)]


def _largest_of_windows(e: NodeMaker, x: Tensor, counts: Sequence[int]) -> Sequence[Tensor]:
    """The largest of windows of several sizes, and where each lies in its plane."""
    spatial, front = len(counts), x.rank - len(counts)
    shape = (*x.shape[:front], *counts)
    tables = [_windows_of(e, *axis) for axis in zip(x.shape[front:], counts, strict=True)]
    taken = x
    for axis, table in enumerate(tables):
        taken = e.op("gather", taken, table, axis=front + 2 * axis)
    outer = [front + 2 * axis for axis in range(spatial)]
    order = [*range(front), *outer, *(axis + 1 for axis in outer)]
    places = _places_in_plane(e, tables, x.shape[front:])
    flat = e.reshape(places, (*shape[front:], element_count(places.shape[spatial:])))
    wide = e.reshape(e.transpose(taken, order), (*shape, flat.shape[-1]))
    values = e.op("reduce_max", wide, axes=(wide.rank - 1,), keepdims=False)
    chosen = e.op("arg_max", wide, axis=wide.rank - 1, keepdims=True)
    spread_out = e.broadcast_to(flat, wide.shape)
    found = e.op("gather_elements", spread_out, chosen, axis=wide.rank - 1)
    return values, e.squeeze(found, (wide.rank - 1,))


def _places_in_plane(
    e: NodeMaker, tables: Sequence[Tensor], plane: Sequence[Dim]
) -> Tensor:
    """[windows of each axis, places of each axis in one of them], numbered through the plane."""
    spatial, found = len(tables), e.scalar(0, dtypes.i64)
    for axis, (table, size) in enumerate(zip(tables, plane, strict=True)):
        shape: list[Dim] = [1] * (2 * spatial)
        shape[axis], shape[spatial + axis] = table.shape
        above = e.op("mul", found, e.dim(size))
        found = e.op("add", above, e.reshape(table, shape))
    return found


def _windows_of(e: NodeMaker, size: Dim, count: int) -> Tensor:
    """[count, longest], the places of each window along an axis; short windows have their last place several times."""
    # No window has more places than this; of known sizes the longest is known.
    longest = (size + (count - 1)) // count + 1
    if isinstance(size, int):
        bounds = [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]
        longest = max(high - low for low, high in bounds)
    first, end = _window_bounds(e, size, e.iota((count, 1), 0), count)
    last = e.op("sub", end, e.scalar(1, dtypes.i64))
    return e.op("min", e.op("add", first, e.iota((1, longest), 1)), last)


def _upsample(mode: str, *, exact: bool = False) -> Build:
    """Resampling; `exact`: nearest by the centres of pixels, not by their corners."""

    def build(call: Call) -> Tensor:
        name = "self" if "self" in call.operation.arguments else "input"
        x, shape = call.tensor(name), call.shape()
        corners = mode != "nearest" and call.flag("align_corners")
        factors = _factors(call, x.rank)
        call.argument("output_size")
        if mode == "nearest":
            how = Resampling(
                mode, "centers" if exact else "asymmetric", "floor",
                single=x.dtype is not dtypes.f64, reciprocal=True,
            )  # fmt: skip
            if not exact and x.rank == 4:
                axes = zip(factors, x.shape, shape, strict=True)
                factors = [_image_factor(call.maker, *axis) for axis in axes]
        else:
            how = Resampling(mode, "align_corners" if corners else "half_pixel", "floor")
        if "_aa" in call.operation.target:
            # Torch aligns no corners then: they only say how wide the windows are.
            how = replace(
                how, coordinate_mode="half_pixel", antialias=True,
                cubic_coefficient=-0.5, exclude_outside=True,
            )  # fmt: skip
            reach = 2 if mode == "cubic" else 1
            factors = _antialiased(factors, x.shape, shape, reach, corners=corners)
        elif corners:
            factors = [None] * x.rank
        elif mode == "linear":
            factors = _unless_equal(factors, x.shape, shape)
        return resampled(call.maker, x, shape, _completed(factors, x, shape), None, how)

    return build


def _image_factor(e: NodeMaker, factor: Scale, size: Dim, count: Dim) -> Scale:
    """The factor by which nearest pixels of images are found: torch takes once and twice as many for exactly that."""
    if not isinstance(factor, float):
        return factor
    if isinstance(size, int) and isinstance(count, int):
        return next((float(n) for n in (1, 2) if count == n * size), factor)
    if factor.is_integer() or not 1 < factor < 3:
        return factor
    whole = int(factor)
    is_whole = e.op("equal", e.dim(count), e.dim(size * whole))
    return e.op(
        "where", is_whole, e.scalar(whole, dtypes.f64), e.scalar(factor, dtypes.f64)
    )


def _factors(call: Call, rank: int) -> list[Scale]:
    """How many times larger the result is, per axis; None where its size says so."""
    if "scale_factors" in call.operation.arguments:
        given: Sequence[object] = call.numbers("scale_factors")
    else:
        names = {
            1: ("scales",),
            2: ("scales_h", "scales_w"),
            3: ("scales_d", "scales_h", "scales_w"),
        }
        given = [call.argument(name) for name in names[rank - 2]]
    found: list[Scale] = [
        float(scale) if isinstance(scale, int | float) and scale > 0 else None
        for scale in given or [None] * (rank - 2)
    ]
    return [None, None, *found]


def _antialiased(
    factors: Sequence[Scale],
    before: Sequence[Dim],
    after: Sequence[Dim],
    reach: int,
    *,
    corners: bool,
) -> list[Scale]:
    """What the windows follow where they are as wide as the distance of their middles.

    Raises: UnsupportedError for a window that has no element.
    """
    if not corners and all(factor is None for factor in factors):
        return list(factors)
    found: list[Scale] = []
    for factor, size, count in zip(factors, before, after, strict=True):
        if size == count:
            found.append(1.0)
            continue
        if not isinstance(size, int) or not isinstance(count, int):
            if corners or factor is None:
                raise UnsupportedError(
                    "windows of sizes that a call decides are not supported"
                )
            found.append(factor)
            continue
        number = (count - 1) / (size - 1) if corners and size > 1 else 0.0
        if not corners:
            number = factor if isinstance(factor, float) else count / size
        number = number or np.inf
        middle, radius = (count - 0.5) / number, reach * max(1, 1 / number)
        if int(middle - radius + 0.5) >= size:
            raise UnsupportedError(
                f"antialiasing of {size} elements to {count} by {number:g}"
            )
        found.append(number)
    return found


def _unless_equal(
    factors: Sequence[Scale], before: Sequence[Dim], after: Sequence[Dim]
) -> list[Scale]:
    """Factors; torch copies along an axis that stays as long as it is."""
    return [
        1.0 if factor is not None and size == count else factor
        for factor, size, count in zip(factors, before, after, strict=True)
    ]


def _completed(
    factors: Sequence[Scale], x: Tensor, shape: Sequence[Dim]
) -> Sequence[Scale]:
    """Factors of all axes where one is given, as far as sizes are numbers."""
    if all(factor is None for factor in factors):
        return factors
    found = list(factors)
    for axis, (size, count) in enumerate(zip(x.shape, shape, strict=True)):
        if found[axis] is None and size == count:
            found[axis] = 1.0
        elif found[axis] is None and isinstance(size, int) and isinstance(count, int):
            found[axis] = count / size
    return found


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
