"""Resampling of images along any axes: nearest, linear, cubic, with antialiasing.

The oracle reduces every axis to a table of source positions and weights; the kernel reads the
same tables, so both agree on every rounding of a coordinate.  Integer upscaling by nearest needs
no table: its index is `i // factor`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Final, cast, final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import NUMERIC, f32, f64, i64
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, Layout, Role, TensorType, Trait
from tilewright.compiler.kernel import numerics
from tilewright.compiler.kernel.builder import KernelBuilder, Source, compute_dtype
from tilewright.compiler.kernel.ir import Buffer, Expression
from tilewright.compiler.ops import layouts
from tilewright.compiler.ops.bodies import Operands, Results, given
from tilewright.compiler.ops.declaration import Body, OpDecl, Types, attr, declare, operand
from tilewright.compiler.ops.shapes import first

_MODES: Final = ("nearest", "linear", "cubic")
_COORDINATES: Final = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "centers", "tf_crop_and_resize",
)  # fmt: skip
# More taps than this in one output element are left to the oracle.
_TAP_LIMIT: Final = 16
# Up to here `floor(i * (1 / factor))` is `i // factor` in f32.
_LARGEST_RECIPROCAL: Final = 40


@final
@record
class Axis:
    """One resampled axis: tap t of output i reads `places[i, t]` with `weights[i, t]`."""

    places: np.ndarray
    weights: np.ndarray
    outside: np.ndarray  # outputs that take the extrapolation value


def _infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, sizes = first(types), cast("tuple[Dim, ...]", attributes["sizes"])
    if len(sizes) != x.rank:
        raise ModelError(f"resize of {x} to {list(sizes)}")
    for name, known in (("mode", _MODES), ("coordinate_mode", _COORDINATES)):
        if attributes[name] not in known:
            raise ModelError(f"resize {name} '{attributes[name]}' is unknown")
    return (x.with_shape(sizes),)


def _coordinates(
    size: int, count: int, scale: float, axis: int, attributes: Attributes
) -> Any:
    """Where each output position lies in the input, as real numbers."""
    mode = attributes["coordinate_mode"]
    # The nearest pixel is another one where a runtime's single precision rounds across a boundary.
    real = np.float32 if attributes["single"] else np.float64
    place = np.arange(count, dtype=real)
    step, factor = real(1 / scale if scale else 0), real(scale)
    if mode == "asymmetric":
        return place * step if attributes["reciprocal"] else place / factor
    if mode == "align_corners":
        width = real(count) if attributes["scales"] is None else factor * real(size)
        return place * 0 if width == 1 else place * real(size - 1) / (width - 1)
    if mode == "tf_crop_and_resize":
        return _cropped(size, count, axis, attributes)
    centers = place + real(0.5)
    centers = centers * step if attributes["reciprocal"] else centers / factor
    if mode == "centers":
        return centers
    if mode == "half_pixel_symmetric":
        # Before the half goes off, as ONNX writes it: places on a boundary are rounded by the last digit.
        centers = centers + real(size / 2) * (1 - real(count) / (factor * real(size)))
    centred = centers - real(0.5)
    return centred * 0 if mode == "pytorch_half_pixel" and count == 1 else centred


def _cropped(size: int, count: int, axis: int, attributes: Attributes) -> Any:
    roi = np.asarray(attributes["roi"], np.float64)
    start, end = roi[axis], roi[axis + roi.size // 2]
    if count == 1:
        return np.asarray([0.5 * (start + end) * (size - 1)])
    steps = np.arange(count, dtype=np.float64) * (end - start) * (size - 1) / (count - 1)
    return start * (size - 1) + steps


def _nearest(x: np.ndarray, rule: str) -> np.ndarray:
    if rule == "floor":
        return np.floor(x)
    if rule == "ceil":
        return np.ceil(x)
    return np.ceil(x - 0.5) if rule == "round_prefer_floor" else np.floor(x + 0.5)


def _kernel(mode: str, distance: np.ndarray, a: float) -> np.ndarray:
    """The weight of a tap at `distance` from the wanted place."""
    d = np.abs(distance)
    if mode == "linear":
        return np.clip(1 - d, 0, None)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def axis_table(
    size: int, count: int, scale: float, axis: int, attributes: Attributes
) -> Axis:
    """Positions and weights of one axis."""
    if count == 0:
        return Axis(np.zeros((0, 1), np.int64), np.ones((0, 1)), np.zeros(0, bool))
    x = np.asarray(_coordinates(size, count, scale, axis, attributes))
    mode = cast("str", attributes["mode"])
    crop = attributes["coordinate_mode"] == "tf_crop_and_resize"
    outside = ((x < 0) | (x > size - 1)) if crop else np.zeros(count, bool)
    if mode == "nearest":
        picks = np.clip(_nearest(x, cast("str", attributes["nearest_mode"])), 0, size - 1)
        return Axis(picks.astype(np.int64)[:, None], np.ones((count, 1)), outside)
    radius = 1 if mode == "linear" else 2
    stretch = min(scale, 1.0) if attributes["antialias"] else 1.0
    # Taps around x; one at a whole position counts to the left, so the window is half open.
    start = math.floor(-radius / stretch) + 1
    left = np.ceil(x).astype(np.int64) - 1
    offsets = np.arange(start, 2 - start)
    places = left[:, None] + offsets
    distance = (places - x[:, None]) * stretch
    weights = _kernel(mode, distance, cast("float", attributes["cubic_coefficient"]))
    if attributes["exclude_outside"]:
        weights = np.where((places < 0) | (places >= size), 0, weights)
    if attributes["exclude_outside"] or attributes["antialias"]:
        with np.errstate(invalid="ignore"):  # a place with no tap inside is outside itself
            weights = weights / weights.sum(1, keepdims=True)
    return Axis(np.clip(places, 0, size - 1), weights, outside)


def has_tables(shape: Sequence[Dim], attributes: Attributes) -> bool:
    """Whether the sizes of every axis are numbers, or it stays as it is, whatever its size."""
    scales, sizes = attributes["scales"], cast("tuple[Dim, ...]", attributes["sizes"])
    crop = attributes["coordinate_mode"] == "tf_crop_and_resize"
    return all(
        (isinstance(size, int) and isinstance(count, int))
        or (
            size == count
            and not crop
            and (not isinstance(scales, np.ndarray) or float(scales[axis]) == 1)
        )
        for axis, (size, count) in enumerate(zip(shape, sizes, strict=True))
    )


def resampled_axes(shape: Sequence[Dim], attributes: Attributes) -> dict[int, Axis]:
    """The axes that change, with their tables; requires `has_tables`."""
    sizes = cast("tuple[Dim, ...]", attributes["sizes"])
    scales = attributes["scales"]
    crop = attributes["coordinate_mode"] == "tf_crop_and_resize"
    found: dict[int, Axis] = {}
    for axis, (size, count) in enumerate(zip(shape, sizes, strict=True)):
        if not isinstance(size, int) or not isinstance(count, int):
            continue
        scale = count / max(size, 1)
        if isinstance(scales, np.ndarray):
            scale = float(scales[axis])
        if (count != size or scale != 1 or crop) and size:
            table = axis_table(size, count, scale, axis, attributes)
            if not _is_identity(table, size):
                found[axis] = table
    return found


def along_axis(
    attributes: Attributes, shape: Sequence[Dim], axis: int
) -> dict[str, object]:
    """The attributes of resampling one axis of an image of `shape`, where they say all axes."""
    sizes = cast("tuple[Dim, ...]", attributes["sizes"])
    given = attributes["scales"]
    scales = None
    if isinstance(given, np.ndarray):
        scales = np.array([s if i == axis else 1.0 for i, s in enumerate(given)])
    kept = tuple(sizes[i] if i == axis else d for i, d in enumerate(shape))
    return {**attributes, "sizes": kept, "scales": scales}


def _is_identity(table: Axis, size: int) -> bool:
    taps = table.places.shape[1]
    plain = taps == 1 and table.places.shape[0] == size
    return (
        plain
        and bool((table.places[:, 0] == np.arange(size)).all())
        and not table.outside.any()
    )


def _oracle(x: np.ndarray, **attributes: Any) -> np.ndarray:
    dtype = dtypes.from_numpy(x.dtype)
    nearest = attributes["mode"] == "nearest"
    value: np.ndarray = x if nearest else x.astype(np.float64)
    outside = np.zeros((1,) * x.ndim, bool)
    for axis, table in resampled_axes(x.shape, attributes).items():
        if nearest:
            value = np.take(value, table.places[:, 0], axis)
        else:
            value = _apply(value, axis, table)
        lined = [-1 if i == axis else 1 for i in range(x.ndim)]
        outside = outside | table.outside.reshape(lined)
    if outside.any():
        value = np.where(outside, attributes["extrapolation_value"], value)
    if not nearest and not dtype.is_float:
        value = np.rint(value)
    return value.astype(dtype.numpy) if nearest else numerics.cast(value, dtype)


def _apply(value: np.ndarray, axis: int, table: Axis) -> np.ndarray:
    moved = np.moveaxis(value, axis, -1)
    total = np.zeros((*moved.shape[:-1], table.places.shape[0]))
    for tap in range(table.places.shape[1]):
        total += moved[..., table.places[:, tap]] * table.weights[:, tap]
    return np.moveaxis(total, -1, axis)


# --- body ------------------------------------------------------------------------------------


_ROUNDED: Final = ("round_prefer_floor", "round_prefer_ceil")
_WHOLE_RULES: Final = {
    "asymmetric": ("floor",),
    "centers": ("floor",),
    "half_pixel": _ROUNDED,
    "pytorch_half_pixel": _ROUNDED,
    "half_pixel_symmetric": _ROUNDED,
}
"""How positions are rounded for `i // factor`, by the mode of coordinates."""


def _integer_factors(
    shape: Sequence[Dim], attributes: Attributes
) -> tuple[int, ...] | None:
    """Factors when nearest resizing is `i // factor` on every axis, whatever the size."""
    rules = _WHOLE_RULES.get(cast("str", attributes["coordinate_mode"]), ())
    if attributes["mode"] != "nearest" or attributes["nearest_mode"] not in rules:
        return None
    factors: list[int] = []
    for size, count in zip(
        shape, cast("tuple[Dim, ...]", attributes["sizes"]), strict=True
    ):
        factor = 1 if size == count else _factor(size, count)
        if factor is None or (attributes["reciprocal"] and factor > _LARGEST_RECIPROCAL):
            return None
        factors.append(factor)
    scales = attributes["scales"]
    if isinstance(scales, np.ndarray) and list(scales) != factors:
        return None
    return tuple(factors)


def _factor(size: Dim, count: Dim) -> int | None:
    if isinstance(size, int) and isinstance(count, int):
        return count // size if size and count % size == 0 and count else None
    factor = symbolic.floordiv(count, size)
    if isinstance(factor, int) and factor > 0 and size * factor == count:
        return factor
    return None


def _supports(types: Types, attributes: Attributes) -> bool:
    x = first(types)
    if _integer_factors(x.shape, attributes) is not None:
        return True
    if not (x.dtype.is_float or attributes["mode"] == "nearest"):
        return False
    if not has_tables(x.shape, attributes):
        return False
    tables = resampled_axes(x.shape, attributes).values()
    taps = math.prod(t.places.shape[1] for t in tables)
    return taps <= _TAP_LIMIT and not any(t.outside.any() for t in tables)


def _emit(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, (result,) = given(operands, 0), results
    factors = _integer_factors(x.shape, attributes)
    if factors is not None:
        with b.nest(result.shape) as indices:
            source = [
                0 if d == 1 else symbolic.floordiv(i, f)
                for i, f, d in zip(indices, factors, x.shape, strict=True)
            ]
            b.store(result, indices, b.load(x, source))
        return
    _emit_tables(b, x, result, resampled_axes(x.shape, attributes), attributes)


def _emit_tables(
    b: KernelBuilder,
    x: Source,
    result: Buffer,
    tables: dict[int, Axis],
    attributes: Attributes,
) -> None:
    wide = compute_dtype(x.dtype)
    weight_type = f64 if wide is f64 else f32
    places: dict[int, Buffer] = {}
    weights: dict[int, Buffer] = {}
    for axis, table in tables.items():
        shape = table.places.shape
        places[axis] = b.table(table.places.ravel().tolist(), i64, shape, f"places{axis}")
        if attributes["mode"] != "nearest":
            values = table.weights.ravel().tolist()
            weights[axis] = b.table(values, weight_type, shape, f"weights{axis}")
    with b.nest(result.shape) as indices:
        source = list(indices)

        def total(axes: Sequence[int]) -> Expression:
            """The sum along `axes`, the first of them outermost, of what `source` says of others."""
            if not axes:
                return b.read(x, source) if weights else b.load(x, source)
            axis, parts = axes[0], list[Expression]()
            for tap in range(tables[axis].places.shape[1]):
                source[axis] = b.as_index(b.load(places[axis], (indices[axis], tap)))
                part = total(axes[1:])
                if weights:
                    part = b.mul(part, b.load(weights[axis], (indices[axis], tap)))
                parts.append(part)
            return functools.reduce(b.add, parts)

        value = total(tuple(tables))
        if weights:
            b.write(result, indices, value)
        else:
            b.store(result, indices, value)


resize: Final = declare(
    name="resize",
    summary="x resampled to `sizes`",
    operands=(operand("x", NUMERIC),),
    attributes=(
        attr("sizes", "dims"),
        attr("mode", "string", "nearest"),
        attr("coordinate_mode", "string", "half_pixel"),
        attr("nearest_mode", "string", "round_prefer_floor"),
        attr("cubic_coefficient", "float", -0.75),
        attr("exclude_outside", "bool", default=False),
        attr("antialias", "bool", default=False),
        attr("extrapolation_value", "float", 0.0),
        attr("scales", "array", None),
        attr("roi", "array", None),
        attr("single", "bool", default=False),
        attr("reciprocal", "bool", default=False),
    ),
    infer=_infer,
    evaluate=_oracle,
    body=Body(_emit, _supports),
    traits=Trait.PURE,
    role=Role.SAMPLING,
    layout=Layout(layouts.resampled),
    cases=(
        "[1,2,3,4]; sizes=(1,2,6,8)",
        "[1,2,3,4]; sizes=(1,2,6,8) coordinate_mode=asymmetric nearest_mode=floor",
        "[1,1,5,7]; sizes=(1,1,3,4) coordinate_mode=align_corners nearest_mode=ceil",
        "[1,1,4,5]; sizes=(1,1,7,9) mode=linear",
        "[1,3,5,2]; sizes=(1,7,4,2) mode=linear coordinate_mode=align_corners",
        "[1,1,4,4]; sizes=(1,1,7,6) mode=cubic",
        "[1,1,4,4]; sizes=(1,1,6,7) mode=cubic exclude_outside=True coordinate_mode=asymmetric",
        "f32[1,1,8,8]; sizes=(1,1,3,3) mode=linear antialias=True",
        "f32[1,1,4,4]; sizes=(1,1,3,3) coordinate_mode=tf_crop_and_resize mode=linear roi=[0,0,0.4,0.6,1,1,1.2,1.7] extrapolation_value=10.0",
        "[6]; sizes=(9,) mode=linear coordinate_mode=half_pixel_symmetric",
        "[3,4]; sizes=(3,4)",
        "[2,31]; sizes=(1,71) scales=[0.6,2.3] coordinate_mode=asymmetric nearest_mode=floor single=True reciprocal=True",
        "[40,31]; sizes=(24,31) scales=[0.6,1.0] coordinate_mode=asymmetric nearest_mode=floor single=True",
        "[2,31]; sizes=(6,40) coordinate_mode=centers nearest_mode=floor single=True reciprocal=True",
        "[2,3]; sizes=(6,9) coordinate_mode=centers nearest_mode=floor reciprocal=True",
    ),
    source="ONNX Resize, opset 19",
)

OPS: Final[tuple[OpDecl, ...]] = (resize,)
