"""Rows for strings that are cut, turned, repeated, chosen and measured, which the host does.

Their elements are not looked at.  Operands that say where strings go may be constants or data of a call.

Source: ONNX operator reference (Expand, Shape, Size, Slice, Squeeze, Tile, Transpose, Unsqueeze, Where).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.host import check_count, common_shape
from tilewright.compiler.frontends.onnx.row import Result, Row, row
from tilewright.compiler.frontends.onnx.slices import (
    cut_axes,
    cuts,
    is_known,
    known_operands,
)
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.shapes import (
    broadcast_shapes,
    element_count,
    normal_axes,
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
    _check_gone(shape, gone)
    kept = tuple(d for i, d in enumerate(shape) if i not in gone)

    def squeeze(x: Values, *_: object) -> Sequence[object]:
        _check_gone(x.shape, gone)
        return (np.squeeze(x, gone),)

    return call.on_host(squeeze, [kept])


def _check_gone(shape: Sequence[Dim], axes: Sequence[int]) -> None:
    for axis in axes:
        if isinstance(shape[axis], int) and shape[axis] != 1:
            raise ModelError(f"axis {axis} has size {shape[axis]}, expected 1")


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
    shape = call.shape(0)
    if not is_known(call):
        axes: Sequence[int] = range(len(shape))
        if not call.is_nothing(3) and call.is_known(3):
            axes = cut_axes(call.numbers(3, "the axes"), len(shape))
        cut = {axis: _open_size(call) for axis in axes}
        part = tuple(cut.get(i, d) for i, d in enumerate(shape))
        return call.on_host(_part_by_data, [part])
    given = known_operands(call)
    sizes = {cut.axis: cut.count for cut in cuts(shape, *given)}
    # No input of the compiled part has an expression as its size.
    part = tuple(
        size if size == d or isinstance(size, int) else _open_size(call)
        for d, size in ((d, sizes.get(i, d)) for i, d in enumerate(shape))
    )
    if call.opset < 10:
        return call.on_host(lambda x: (_part(x, *given),), [part])
    # What is known may be an expression of the sizes of inputs.
    return call.on_host(_part_by_data, [part])


def _open_size(call: Call) -> Dim:
    """A size that only a call says."""
    return control.fresh_symbol(call.maker, "strings")


def _part_by_data(x: Values, *given: Values | None) -> Sequence[object]:
    return (_part(x, *(None if g is None else g.ravel().tolist() for g in given)),)


def _part(x: Values, *given: Any) -> Values:
    """The elements of strings that a `Slice` takes; arguments and errors as of `slices.cuts`."""
    for cut in cuts(x.shape, *given):
        first, count = cast("tuple[int, int]", (cut.first, cut.count))
        x = np.take(x, first + cut.step * np.arange(count), cut.axis)
    return x


def _expand(call: Call) -> Result:
    shape = None
    if call.is_known(1):
        shape = broadcast_shapes(call.shape(0), call.dims(1, "the shape"))

    def expand(x: Values, wanted: Values) -> Sequence[object]:
        return (np.broadcast_to(x, common_shape(x.shape, wanted.ravel().tolist())),)

    return call.on_host(expand, [shape])


def _tile(call: Call) -> Result:
    shape = call.shape(0)
    times = call.dims(1, "the repeats") if call.is_known(1) else None
    kind = None if times is None else _repeated(shape, times)

    def tile(x: Values, repeats: Values) -> Sequence[object]:
        times = repeats.ravel().tolist()
        check_count(cast("tuple[int, ...]", _repeated(x.shape, times)))
        return (np.tile(x, times),)

    return call.on_host(tile, [kind])


def _repeated(shape: Sequence[Dim], times: Sequence[Dim]) -> tuple[Dim, ...]:
    """The shape of strings that are repeated along every axis.  Raises: ModelError for a count that is none."""
    if len(times) != len(shape):
        raise ModelError(f"{len(times)} repeats for rank {len(shape)}")
    if any(isinstance(n, int) and n < 0 for n in times):
        raise ModelError(f"repeats {list(times)}, expected at least 0")
    return tuple(d * n for d, n in zip(shape, times, strict=True))


def _where(call: Call) -> Result:
    if not (call.is_text(1) and call.is_text(2)):
        raise UnsupportedError("operand 1 is made on the host, not by a kernel")
    shape = broadcast_shapes(broadcast_shapes(call.shape(0), call.shape(1)), call.shape(2))

    def choose(condition: Values, x: Values, y: Values) -> Sequence[object]:
        common_shape(condition.shape, x.shape, y.shape)
        return (np.where(condition, x, y),)

    return call.on_host(choose, [shape])


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
