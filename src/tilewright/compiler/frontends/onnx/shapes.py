"""Rows about shapes: constants, shape arithmetic, reshape and its relatives, expand, range.

Data stays in place or is made from nothing here; ops that move elements are in `movement`.

Source: ONNX operator reference (Operators.md), per op in the row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import Row, row
from tilewright.compiler.frontends.onnx.tensors import (
    dtype_of,
    shape_of,
    sparse_to_array,
    to_array,
)
from tilewright.compiler.graph.contents import Contents, Ratio
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.ops.shapes import broadcast_shapes, element_count


def constant_value(call: Call) -> Array:
    """The array a Constant node holds, whichever attribute carries it."""
    a = call.attributes
    tensor, sparse = a.tensor("value"), a.sparse_tensor("sparse_value")
    if tensor is not None:
        return to_array(tensor, call.storage)
    if sparse is not None:
        return sparse_to_array(sparse, call.storage)
    number, numbers = a.float("value_float"), a.floats("value_floats")
    if number is not None or numbers is not None:
        return np.array(numbers if number is None else number, np.float32)
    integer, integers = a.integer("value_int"), a.integers("value_ints")
    if integer is not None or integers is not None:
        return np.array(integers if integer is None else integer, np.int64)
    if a.has("value_string") or a.has("value_strings"):
        raise UnsupportedError("type string is not supported")
    raise ModelError("has no value")


def _constant(call: Call) -> Tensor:
    return call.maker.constant(constant_value(call))


def _constant_of_shape(call: Call) -> Tensor:
    value = call.array_attribute("value")
    scalar = np.zeros((), np.float32) if value is None else value
    if scalar.size != 1:
        raise ModelError(f"attribute 'value' has {scalar.size} elements, expected 1")
    shape = call.dims(0, "the shape")
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise ModelError(f"shape {list(shape)} has a negative dimension")
    if all(isinstance(d, int) for d in shape):
        # A view with strides of zero: costs nothing until someone needs the bytes.
        whole = tuple(int(d) for d in shape if isinstance(d, int))
        shape_of(whole)
        return call.maker.constant(np.broadcast_to(scalar.reshape(()), whole))
    return call.maker.broadcast_to(call.maker.constant(scalar.reshape(())), shape)


def _shape(call: Call) -> Tensor:
    shape = call.tensor(0).shape
    start, end = call.integer("start", 0), call.integer("end", len(shape))
    return call.maker.dims(shape[slice(start, end)])


def _size(call: Call) -> Tensor:
    return call.maker.dim(element_count(call.tensor(0).shape))


def resolve_shape(
    shape: Sequence[Dim], wanted: Sequence[Dim], *, allow_zero: bool
) -> list[Dim]:
    """A Reshape target with 0 (copy) and -1 (the rest) worked out.

    Raises: ModelError when the number of elements surely differs.
    """
    result: list[Dim] = []
    for index, dim in enumerate(wanted):
        if dim == 0 and not allow_zero:
            if index >= len(shape):
                raise ModelError(f"cannot copy dimension {index} of shape {list(shape)}")
            dim = shape[index]
        if isinstance(dim, int) and dim < -1:
            raise ModelError(f"shape {list(wanted)} has dimension {dim}")
        result.append(dim)
    open_places = [i for i, d in enumerate(result) if d == -1]
    total = element_count(shape)
    if len(open_places) > 1:
        raise ModelError(f"shape {list(wanted)} has -1 more than once")
    if open_places:
        rest = element_count([d for d in result if d != -1])
        result[open_places[0]] = 0 if rest == 0 else symbolic.floordiv(total, rest)
    count = element_count(result)
    if isinstance(total - count, int) and total != count:
        raise ModelError(f"cannot reshape {list(shape)} to {list(wanted)}")
    return result


def _reshape(call: Call) -> Tensor:
    x = call.tensor(0)
    allow_zero = call.flag("allowzero")
    if call.opset < 5:
        wanted: Sequence[Dim] = call.integers("shape")
    else:
        wanted = call.dims(1, "the shape")
    return call.maker.reshape(x, resolve_shape(x.shape, wanted, allow_zero=allow_zero))


def _flatten(call: Call) -> Tensor:
    x = call.tensor(0)
    axis = call.integer("axis", 1)
    if not -x.rank <= axis <= x.rank:
        raise ModelError(f"axis {axis} is out of range for rank {x.rank}")
    axis += x.rank if axis < 0 else 0
    return call.maker.reshape(
        x, (element_count(x.shape[:axis]), element_count(x.shape[axis:]))
    )


def _axes(call: Call) -> tuple[int, ...] | None:
    """Axes as an attribute before opset 13, as an operand since."""
    if call.opset < 13:
        return call.attributes.integers("axes")
    return None if call.optional(1) is None else call.numbers(1, "the axes")


def _squeeze(call: Call) -> Tensor:
    x, axes = call.tensor(0), _axes(call)
    if axes is None:
        axes = tuple(i for i, d in enumerate(x.shape) if d == 1)
    return call.maker.squeeze(x, axes)


def _unsqueeze(call: Call) -> Tensor:
    axes = _axes(call)
    if axes is None:
        raise ModelError("axes are missing")
    return call.maker.unsqueeze(call.tensor(0), axes)


def _expand(call: Call) -> Tensor:
    x = call.tensor(0)
    wanted = call.dims(1, "the shape")
    return call.maker.broadcast_to(x, broadcast_shapes(x.shape, wanted))


def _range(call: Call) -> Tensor:
    start, limit, delta = (call.contents(i, "the length") for i in range(3))
    dtype = start.dtype
    arrays = [c.constant for c in (start, limit, delta)]
    e = call.maker
    if all(a is not None for a in arrays):
        first, last, step = (a.reshape(-1).tolist()[0] for a in arrays if a is not None)
        if step == 0:
            raise ModelError("step is zero")
        count = max(math.ceil((last - first) / step), 0)
        if count <= 1 << 16:
            return e.constant((first + step * np.arange(count)).astype(dtype.numpy))
    length = _range_length(start, limit, delta)
    index = e.cast(e.iota((length,), 0), dtype)
    scaled = e.op("mul", index, e.reshape(call.tensor(2), ()))
    return e.op("add", scaled, e.reshape(call.tensor(0), ()))


def _range_length(start: Contents, limit: Contents, delta: Contents) -> Dim:
    """How many steps fit; symbolic when the limits are."""
    first, last, step = (_whole(c) for c in (start, limit, delta))
    if not isinstance(step, int):
        raise UnsupportedError("the step depends on a dynamic dimension")
    if step == 0:
        raise ModelError("step is zero")
    span = last - first if step > 0 else first - last
    return symbolic.maximum(0, symbolic.ceildiv(span, abs(step)))


def _whole(contents: Contents) -> Dim:
    (item,) = contents.elements.reshape(-1)
    whole = item.integer if isinstance(item, Ratio) else item
    if whole is None:
        raise UnsupportedError("the length depends on a ratio of dynamic dimensions")
    return whole


def _eye_like(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    code = call.attributes.integer("dtype")
    dtype = x.dtype if code is None else dtype_of(code)
    if x.rank != 2:
        raise ModelError(f"operand 1 has type {x.type}, expected a matrix")
    return e.op("eye", shape=x.shape, dtype=dtype, offset=call.integer("k", 0))


def _one_hot(call: Call) -> Tensor:
    e, index = call.maker, call.tensor(0)
    depth = call.dims(1, "the depth")
    # Indices may come as floats; graph ops take integers.
    whole = index if index.dtype.is_integer else e.cast(index, dtypes.i64)
    return e.op(
        "one_hot", whole, call.tensor(2), depth=depth, axis=call.integer("axis", -1)
    )


ROWS: Final[tuple[Row, ...]] = (
    row("Constant", _constant),
    row("ConstantOfShape", _constant_of_shape),
    row("Expand", _expand),
    row("EyeLike", _eye_like),
    row("Flatten", _flatten),
    row("OneHot", _one_hot),
    row("Range", _range),
    row("Reshape", _reshape, ignores=("consumed_inputs",)),
    row("Shape", _shape),
    row("Size", _size),
    row("Squeeze", _squeeze),
    row("Unsqueeze", _unsqueeze),
)
