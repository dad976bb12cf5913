"""Rows for random numbers: draws from distributions, and Dropout while a model is trained.

Which numbers come is `kit.draws`'s: the specification leaves it open.  A seed of a node fixes them.

Source: ONNX operator reference (RandomNormal, RandomUniform and their forms opset 1 to 22, Multinomial opset 7 to
22, Bernoulli opset 15 to 22, Dropout opset 7 to 22).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import Build, Row, row
from tilewright.compiler.frontends.onnx.tensors import dtype_of

_FLOAT: Final = 1  # TensorProto.FLOAT
_INT32: Final = 6  # TensorProto.INT32
# A call, shape, type -> what is drawn.
Draw = Callable[[Call, tuple[Dim, ...], DType], Tensor]


def _seed(call: Call) -> int | None:
    """The attribute, a float, as the bits it has."""
    given = call.attributes.float("seed")
    return None if given is None else struct.unpack("<I", struct.pack("<f", given))[0]


def _normal(call: Call, shape: tuple[Dim, ...], dtype: DType) -> Tensor:
    e = call.maker
    drawn = call.draws.normal(e, shape, dtype, _seed(call))
    mean, deviation = call.float("mean", 0.0), call.float("scale", 1.0)
    scaled = e.op("mul", drawn, e.scalar(deviation, drawn.dtype))
    return e.cast(e.op("add", scaled, e.scalar(mean, drawn.dtype)), dtype)


def _uniform(call: Call, shape: tuple[Dim, ...], dtype: DType) -> Tensor:
    e = call.maker
    drawn = call.draws.uniform(e, shape, dtype, _seed(call))
    low, high = call.float("low", 0.0), call.float("high", 1.0)
    scaled = e.op("mul", drawn, e.scalar(high - low, drawn.dtype))
    return e.cast(e.op("add", scaled, e.scalar(low, drawn.dtype)), dtype)


def _checked(dtype: DType) -> DType:
    if dtype not in dtypes.FLOATS:
        raise ModelError(f"attribute 'dtype' is {dtype}, expected a float")
    return dtype


def _of_a_shape(draw: Draw) -> Build:
    def build(call: Call) -> Tensor:
        dtype = _checked(dtype_of(call.integer("dtype", _FLOAT)))
        shape = call.integers("shape")
        if any(size < 0 for size in shape):
            raise ModelError(f"shape {list(shape)} has a negative dimension")
        return draw(call, shape, dtype)

    return build


def _like(draw: Draw) -> Build:
    def build(call: Call) -> Tensor:
        code = call.attributes.integer("dtype")
        dtype = call.tensor(0).dtype if code is None else dtype_of(code)
        return draw(call, call.shape(0), _checked(dtype))

    return build


def _bernoulli(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    code = call.attributes.integer("dtype")
    drawn = call.draws.uniform(e, x.shape, x.dtype, _seed(call))
    hit = e.op("less", drawn, e.cast(x, drawn.dtype))
    return e.cast(hit, x.dtype if code is None else dtype_of(code))


def _multinomial(call: Call) -> Tensor:
    """The first class whose sum of probabilities up to it exceeds a uniform number."""
    e, x = call.maker, call.tensor(0)
    dtype = dtype_of(call.integer("dtype", _INT32))
    if x.rank != 2 or dtype not in (dtypes.i32, dtypes.i64):
        raise ModelError(f"draws of {dtype} from logits {x.type}")
    batch, classes = x.shape
    count = call.integer("sample_size", 1)
    below = e.op("cumsum", e.op("softmax", e.cast(x, dtypes.f64), axis=1), axis=1)
    drawn = call.draws.uniform(e, (batch, count), dtypes.f64, _seed(call))
    last = e.op("sub", e.dim(classes), e.scalar(1, dtypes.i64))
    # Sums end near 1, not at it.
    total = e.op("gather", below, e.reshape(last, (1,)), axis=1)
    passed = e.op(
        "less_equal", e.unsqueeze(below, (1,)), e.unsqueeze(e.op("mul", drawn, total), (2,))
    )
    index = e.op("reduce_sum", e.cast(passed, dtypes.i64), axes=(2,), keepdims=False)
    return e.cast(e.op("min", index, last), dtype)


def dropout(call: Call) -> list[Tensor | None]:
    """While a model is trained every element is dropped with a probability; else the operand itself."""
    e, x = call.maker, call.tensor(0)
    mask_dtype = dtypes.bool_ if call.opset >= 10 else x.dtype
    training = call.optional(2) if call.opset >= 12 else None
    ratio = e.scalar(0.5, dtypes.f32)
    if call.opset >= 12 and call.optional(1) is not None:
        ratio = e.cast(e.reshape(call.tensor(1), ()), dtypes.f32)
    if training is not None:
        ratio = e.op("where", e.reshape(training, ()), ratio, e.scalar(0, ratio.dtype))
    if training is None or (ratio.array is not None and not ratio.array.any()):
        return [x, e.full(1, mask_dtype, x.shape) if call.wants(1) else None]
    if x.dtype not in dtypes.FLOATS:
        raise UnsupportedError(f"Dropout of {x.dtype} is not supported")
    seed = call.attributes.integer("seed")
    drawn = call.draws.uniform(e, x.shape, dtypes.f32, seed)
    kept = e.op("greater_equal", drawn, ratio)
    rest = e.op("sub", e.scalar(1, ratio.dtype), ratio)
    wide = e.cast(x, dtypes.f64 if x.dtype is dtypes.f64 else dtypes.f32)
    scaled = e.cast(e.op("div", wide, e.cast(rest, wide.dtype)), x.dtype)
    return [e.op("where", kept, scaled, e.scalar(0, x.dtype)), kept]


_LEGACY: Final = ("consumed_inputs", "is_test", "ratio", "seed")

ROWS: Final[tuple[Row, ...]] = (
    row("Bernoulli", _bernoulli),
    row("Dropout", dropout, ignores=_LEGACY),
    row("Multinomial", _multinomial),
    row("RandomNormal", _of_a_shape(_normal)),
    row("RandomNormalLike", _like(_normal)),
    row("RandomUniform", _of_a_shape(_uniform)),
    row("RandomUniformLike", _like(_uniform)),
)
