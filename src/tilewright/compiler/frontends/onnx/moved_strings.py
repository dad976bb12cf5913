"""Rows for strings that are cut, turned, repeated, chosen and measured, which the host does.

Their elements are not looked at.  Operands that say where strings go may be constants or data of a call.

Source: ONNX operator reference (Expand, Shape, Size, Slice, Squeeze, Tile, Transpose, Unsqueeze, Where).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import Result, Row, row
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.shapes import (
    broadcast_shapes,
    element_count,
    normal_axes,
    normal_axis,
)

Values = np.ndarray[Any, np.dtype[Any]]


def _shape(call: Call) -> Result:
    shape = call.shape(0)
    start, end = call.integer("start", 0), call.integer("end", len(shape))
    part = shape[slice(start, end)]
    if all(isinstance(d, int) for d in part):
        return call.maker.dims(part)

    def sizes(x: Values) -> Sequence[object]:
        return (np.array(x.shape[slice(start, end)], np.int64),)

    return call.on_host(sizes, [TensorType(dtypes.i64, (len(part),))])


def _size(call: Call) -> Result:
    count = element_count(call.shape(0))
    if isinstance(count, int):
        return call.maker.dim(count)
    return call.on_host(
        lambda x: (np.array(x.size, np.int64),), [TensorType(dtypes.i64, ())]
    )


def _transpose(call: Call) -> Result:
    shape = call.shape(0)
    order = call.integers("perm", range(len(shape))[::-1])
    if sorted(order) != list(range(len(shape))):
        raise ModelError(
            f"attribute 'perm' is {list(order)}, no permutation of {len(shape)} axes"
        )
    return call.on_host(lambda x: (x.transpose(order),), [tuple(shape[i] for i in order)])


def _axes(call: Call) -> tuple[int, ...] | None:
    """The attribute or the second operand, whichever this opset has."""
    if call.opset < 13:
        return call.attributes.integers("axes")
    return None if call.is_nothing(1) else call.numbers(1, "the axes")


def _squeeze(call: Call) -> Result:
    shape, axes = call.shape(0), _axes(call)
    if axes is None:
        axes = [i for i, d in enumerate(shape) if d == 1]
    gone = normal_axes(axes, len(shape))
    kept = tuple(d for i, d in enumerate(shape) if i not in gone)
    return call.on_host(lambda x, *_: (np.squeeze(x, gone),), [kept])


def _unsqueeze(call: Call) -> Result:
    axes = _axes(call)
    if axes is None:
        raise ModelError("axes are missing")
    places = normal_axes(axes, len(call.shape(0)) + len(axes))
    wide: list[Dim] = list(call.shape(0))
    for place in places:
        wide.insert(place, 1)
    return call.on_host(lambda x, *_: (np.expand_dims(x, places),), [tuple(wide)])


def _slice(call: Call) -> Result:
    if call.opset < 10:
        starts, ends = call.integers("starts"), call.integers("ends")
        axes = call.integers("axes", range(len(starts)))
        return call.on_host(
            lambda x: (_part(x, starts, ends, axes),), [_cut_shape(call, axes)]
        )
    axes = range(len(call.shape(0)))
    if not call.is_nothing(3) and call.is_known(3):
        axes = call.numbers(3, "the axes")
    return call.on_host(lambda *given: (_part(*given),), [_cut_shape(call, axes)])


def _cut_shape(call: Call, axes: Sequence[int]) -> tuple[Dim, ...]:
    """Only a call says how long the axes are that are cut."""
    shape = call.shape(0)
    cut = {normal_axis(a, len(shape)) for a in axes}
    return tuple(
        control.fresh_symbol(call.maker, "strings") if i in cut else d
        for i, d in enumerate(shape)
    )


def _part(
    x: Values,
    starts: Sequence[int] | Values,
    ends: Sequence[int] | Values,
    axes: Sequence[int] | Values | None = None,
    steps: Sequence[int] | Values | None = None,
) -> Values:
    """The elements of strings that a `Slice` takes."""
    places = list(range(len(starts)) if axes is None else axes)
    index = [slice(None)] * x.ndim
    strides = [1] * len(places) if steps is None else steps
    for axis, start, end, step in zip(places, starts, ends, strides, strict=True):
        # Backwards, an end before the first element is no place that numpy has.
        stop = None if step < 0 and end < -x.shape[axis] else int(end)
        index[axis] = slice(int(start), stop, int(step))
    return x[tuple(index)]


def _expand(call: Call) -> Result:
    shape = None
    if call.is_known(1):
        shape = broadcast_shapes(call.shape(0), call.dims(1, "the shape"))

    def expand(x: Values, wanted: Values) -> Sequence[object]:
        return (np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(wanted))),)

    return call.on_host(expand, [shape])


def _tile(call: Call) -> Result:
    shape = call.shape(0)
    times = call.dims(1, "the repeats") if call.is_known(1) else None
    kind = (
        None if times is None else tuple(d * n for d, n in zip(shape, times, strict=True))
    )
    return call.on_host(lambda x, repeats: (np.tile(x, tuple(repeats)),), [kind])


def _where(call: Call) -> Result:
    if not (call.is_text(1) and call.is_text(2)):
        raise UnsupportedError("operand 1 is made on the host, not by a kernel")
    shape = broadcast_shapes(broadcast_shapes(call.shape(0), call.shape(1)), call.shape(2))
    return call.on_host(lambda c, x, y: (np.where(c, x, y),), [shape])


ROWS: Final[tuple[Row, ...]] = (
    row("Expand", _expand),
    row("Shape", _shape),
    row("Size", _size),
    row("Slice", _slice),
    row("Squeeze", _squeeze),
    row("Tile", _tile),
    row("Transpose", _transpose),
    row("Unsqueeze", _unsqueeze),
    row("Where", _where),
)
