"""Rows about shapes: constants, shape arithmetic, reshape and its relatives, expand, range.

Data stays in place or is made from nothing here; ops that move elements are in `movement`.

Source: ONNX operator reference (Operators.md), per op in the row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from onnx import TensorProto

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import computed, control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row
from tilewright.compiler.frontends.onnx.signature import MAX_DIM
from tilewright.compiler.frontends.onnx.tensors import (
    dtype_of,
    shape_of,
    sparse_to_array,
    to_array,
    to_text,
)
from tilewright.compiler.frontends.onnx.values import Held, HostValue
from tilewright.compiler.graph.contents import MAX_NUMBER, Contents, Ratio
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.ops.shapes import broadcast_shapes, element_count

_MOST_STORED: Final = 1 << 24
"""Elements of what is filled with one number; more are filled where they are needed, not before."""


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
    raise ModelError("has no value")


def _constant_text(call: Call) -> HostValue | None:
    a = call.attributes
    tensor, text, texts = (
        a.tensor("value"),
        a.string("value_string"),
        a.strings("value_strings"),
    )
    if tensor is not None and tensor.data_type == TensorProto.STRING:
        found = to_text(tensor)
    elif text is not None or texts is not None:
        found = np.array(texts if text is None else text, object)
    else:
        return None
    return HostValue("", found.shape, constant=found)


def _constant(call: Call) -> Held:
    return _constant_text(call) or call.maker.constant(constant_value(call))


def _constant_of_shape(call: Call) -> Tensor:
    value = call.array_attribute("value")
    scalar = np.zeros((), np.float32) if value is None else value
    if scalar.size != 1:
        raise ModelError(f"attribute 'value' has {scalar.size} elements, expected 1")
    shape = call.sized(0, "the shape")
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise ModelError(f"shape {list(shape)} has a negative dimension")
    if all(isinstance(d, int) for d in shape):
        # A view with strides of zero: costs nothing until someone needs the bytes.
        whole = tuple(int(d) for d in shape if isinstance(d, int))
        shape_of(whole)
        if math.prod(whole) <= _MOST_STORED:
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
    if len(open_places) > 1:
        raise ModelError(f"shape {list(wanted)} has -1 more than once")
    if open_places:
        result[open_places[0]] = _open_size(shape, [d for d in result if d != -1])
    total, count = element_count(shape), element_count(result)
    if isinstance(total - count, int) and total != count:
        raise ModelError(f"cannot reshape {list(shape)} to {list(wanted)}")
    return result


def _open_size(shape: Sequence[Dim], given: Sequence[Dim]) -> Dim:
    """What is left of `shape` beside the sizes that are given.

    A size that only a call knows and that stands on both sides divides nothing: it may be 0.
    """
    left, rest = list(shape), list(given)
    for dim in given:
        if not isinstance(dim, int) and dim in left:
            left.remove(dim)
            rest.remove(dim)
    divisor = element_count(rest)
    return 0 if divisor == 0 else symbolic.floordiv(element_count(left), divisor)


def _reshape(call: Call) -> Tensor:
    x = call.tensor(0)
    allow_zero = call.flag("allowzero")
    if call.opset < 5:
        wanted: Sequence[Dim] = call.integers("shape")
    elif not call.is_known(1):
        return _reshape_by_data(call, x, allow_zero=allow_zero)
    else:
        wanted = call.dims(1, "the shape")
    return call.maker.reshape(x, resolve_shape(x.shape, wanted, allow_zero=allow_zero))


def _reshape_by_data(call: Call, x: Tensor, *, allow_zero: bool) -> Tensor:
    """A shape that data decides: 0 and -1 are worked out there, too."""
    e = call.maker
    shape = e.cast(call.tensor(1), dtypes.i64)
    (rank,) = shape.shape
    if not isinstance(rank, int):
        raise UnsupportedError("the rank of the result depends on data")
    zero, one = e.scalar(0, dtypes.i64), e.scalar(1, dtypes.i64)
    if not allow_zero:
        own = e.dims([x.shape[i] if i < x.rank else 0 for i in range(rank)])
        shape = e.op("where", e.op("equal", shape, zero), own, shape)
    open_size = e.scalar(-1, dtypes.i64)
    is_open = e.op("equal", shape, open_size)
    given = e.op("where", is_open, one, shape)
    product = e.op("reduce_prod", given, axes=(0,), keepdims=True)
    rest = e.op("div", e.dim(element_count(x.shape)), e.op("max", product, one))
    # Two that are open, as what is less than -1, are no sizes, and refused as such.
    opens = e.op("reduce_sum", e.cast(is_open, dtypes.i64), axes=(0,), keepdims=True)
    rest = e.op("where", e.op("less_equal", opens, one), rest, open_size)
    sizes = control.read_sizes(e, e.op("where", is_open, rest, shape), "shape")
    # The sizes that are open follow from the others; the rest is for the call to check.
    e.assume(element_count(sizes), element_count(x.shape))
    return e.as_type(x, x.type.with_shape(sizes))


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
    x = call.tensor(0)
    if call.opset >= 13 and not call.is_known(1):
        e = call.maker
        (result,) = computed.by_axes(
            e,
            call.tensor(1),
            x.rank,
            lambda axes: [e.squeeze(x, axes)],
            allowed=lambda axis: x.shape[axis] == 1 or not isinstance(x.shape[axis], int),
        )
        return result
    axes = _axes(call)
    if axes is None:
        axes = tuple(i for i, d in enumerate(x.shape) if d == 1)
    return call.maker.squeeze(x, axes)


def _unsqueeze(call: Call) -> Tensor:
    if call.opset >= 13 and not call.is_known(1):
        e, x, axes = call.maker, call.tensor(0), call.tensor(1)
        count = element_count(axes.shape)
        if not isinstance(count, int):
            raise UnsupportedError("the number of axes depends on data")
        (result,) = computed.by_axes(
            e, axes, x.rank + count, lambda found: [e.unsqueeze(x, found)]
        )
        return result
    axes = _axes(call)
    if axes is None:
        raise ModelError("axes are missing")
    return call.maker.unsqueeze(call.tensor(0), axes)


def _expand(call: Call) -> Tensor:
    x = call.tensor(0)
    if not call.is_known(1):
        return _expand_by_data(call, x)
    wanted = call.dims(1, "the shape")
    return call.maker.broadcast_to(x, broadcast_shapes(x.shape, wanted))


def _expand_by_data(call: Call, x: Tensor) -> Tensor:
    """A size that is not 1 stays what it is; the others are as large as data says."""
    e, given = call.maker, call.sized(1, "the shape")
    rank = max(x.rank, len(given))
    own: list[Dim] = [1] * (rank - x.rank) + list(x.shape)
    wanted: list[Dim] = [1] * (rank - len(given)) + list(given)
    shape: list[Dim] = []
    x = e.reshape(x, own)
    for axis, (size, target) in enumerate(zip(own, wanted, strict=True)):
        if not isinstance(size, int) and target not in (1, size):
            x = _repeated(e, x, axis, target)
            size = x.shape[axis]
        elif size != 1 and not isinstance(target, int):
            # 1 or the size itself.
            e.assume((target - 1) * (target - size), 0)
        shape.append(target if size == 1 else size)
    return e.broadcast_to(x, shape)


def _repeated(e: NodeMaker, x: Tensor, axis: int, target: Dim) -> Tensor:
    """An axis whose size may be 1, in which case it becomes as long as `target`, which may be 1, too."""
    size = e.dims((x.shape[axis],))
    wanted, one = e.dims((target,)), e.scalar(1, dtypes.i64)
    is_one = e.op("equal", size, one)
    agrees = e.op("logical_or", e.op("equal", wanted, one), e.op("equal", wanted, size))
    control.expect(e, e.op("logical_or", is_one, agrees), "sizes agree, or one is 1")
    (found,) = control.read_sizes(e, e.op("where", is_one, wanted, size), "size")
    last = e.op("sub", size, one)
    return e.op("gather", x, e.op("min", e.iota((found,), 0), last), axis=axis)


def _range_by_data(call: Call) -> Tensor:
    """A length that data decides."""
    e = call.maker
    start, limit, delta = (e.reshape(call.tensor(i), (1,)) for i in range(3))
    dtype = start.dtype
    if dtype.is_float:
        steps = [e.cast(t, dtypes.f64) for t in (start, limit, delta)]
        ratio = e.op("div", e.op("sub", steps[1], steps[0]), steps[2])
        # What is no number of elements, as behind a step of 0, is refused as a size.
        is_count = e.op("less", e.op("abs", ratio), e.scalar(MAX_DIM, dtypes.f64))
        fit = e.op("max", e.op("ceil", ratio), e.scalar(0, dtypes.f64))
        count = e.cast(e.op("where", is_count, fit, e.scalar(-1, dtypes.f64)), dtypes.i64)
    else:
        first, last, step = (e.cast(t, dtypes.i64) for t in (start, limit, delta))
        zero, one = e.scalar(0, dtypes.i64), e.scalar(1, dtypes.i64)
        forward = e.op("greater", step, zero)
        ahead, back = e.op("sub", last, first), e.op("sub", first, last)
        span = e.op("where", forward, ahead, back)
        # Of the lowest number there is no absolute value.
        stride = e.op("abs", e.op("max", step, e.scalar(-MAX_NUMBER, dtypes.i64)))
        stride = e.op("max", stride, one)
        steps = e.op("div", e.op("sub", e.op("max", span, one), one), stride)
        reaches = e.op(
            "where", forward, e.op("less", first, last), e.op("less", last, first)
        )
        count = e.op("where", reaches, e.op("add", steps, one), zero)
        # What is no number of elements is refused as a size: behind a step of 0, or a span of more than 64 bits.
        wraps = e.op("logical_and", reaches, e.op("less", span, one))
        is_none = e.op("logical_or", wraps, e.op("equal", step, zero))
        count = e.op("where", is_none, e.scalar(-1, dtypes.i64), count)
    note = ", a range that does not end"
    (length,) = control.read_sizes(e, count, "length", note=note)
    index = e.cast(e.iota((length,), 0), dtype)
    return e.op("add", e.op("mul", index, delta), start)


def _range(call: Call) -> Tensor:
    if not call.is_known(0, 1, 2):
        return _range_by_data(call)
    start, limit, delta = (call.contents(i, "the length") for i in range(3))
    dtype = start.dtype
    arrays = [c.constant for c in (start, limit, delta)]
    e = call.maker
    if all(a is not None for a in arrays):
        first, last, step = (a.reshape(-1).tolist()[0] for a in arrays if a is not None)
        if step == 0:
            raise ModelError("step is zero")
        whole = all(isinstance(number, int) for number in (first, last, step))
        count = -((first - last) // step) if whole else math.ceil((last - first) / step)
        count = max(count, 0)
        if count <= 1 << 16:
            return e.constant((first + step * np.arange(count)).astype(dtype.numpy))
    length = _range_length(start, limit, delta)
    index = e.cast(e.iota((length,), 0), dtype)
    scaled = e.op("mul", index, e.reshape(call.tensor(2), ()))
    return e.op("add", scaled, e.reshape(call.tensor(0), ()))


def _contributed_range(call: Call) -> Tensor:
    """Operands of one element, the last of which may be left out."""
    e, start = call.maker, call.tensor(0)
    step = call.optional(2)
    step = e.scalar(1, start.dtype) if step is None else step
    scalars = [e.reshape(x, ()) for x in (start, call.tensor(1), step)]
    return _range(replace(call, inputs=scalars, sizes={}))


def _expand_dims(call: Call) -> Tensor:
    return call.maker.unsqueeze(call.tensor(0), [call.number(1, "the axis")])


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
    depth = call.sized(1, "the depth")
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
    row("ExpandDims", _expand_dims, domain=MICROSOFT),
    row("Range", _contributed_range, domain=MICROSOFT),
)
