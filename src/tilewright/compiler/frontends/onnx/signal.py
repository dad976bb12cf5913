"""Rows for signal processing: DFT and STFT as products with constant matrices, mel weights.

Quadratic in the length, which has to be known; there is no fast transform here.

Source: ONNX operator reference (DFT opset 17 and 20, STFT opset 17, MelWeightMatrix opset 17).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tilewright.base import symbolic
from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import computed
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.movement import pad
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Build, Row, row
from tilewright.compiler.frontends.onnx.tensors import dtype_of
from tilewright.compiler.ops.shapes import normal_axis

MAX_LENGTH: Final = 4096
Numbers = NDArray[np.float64]


def _parts(e: NodeMaker, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Real and imaginary part of `[..., 1 or 2]`."""
    last = x.rank - 1
    if x.shape[last] not in (1, 2):
        raise ModelError(f"operand 1 has type {x.type}, expected a last axis of 1 or 2")
    real = e.squeeze(e.slice(x, last, 0, 1), (last,))
    if x.shape[last] == 1:
        return real, None
    return real, e.squeeze(e.slice(x, last, 1, 1), (last,))


def _sized(e: NodeMaker, x: Tensor, axis: int, length: int) -> Tensor:
    """`x` cropped or padded with zeros to `length` along `axis`."""
    size = x.shape[axis]
    if not isinstance(size, int):
        raise UnsupportedError("a transform of dynamic length is not supported")
    if size >= length:
        return e.slice(x, axis, 0, length)
    amounts = [0] * (2 * x.rank)
    amounts[x.rank + axis] = length - size
    return pad(e, x, amounts, "constant", e.scalar(0, x.dtype))


def _waves(rows: int, columns: int, length: int) -> tuple[Numbers, Numbers]:
    """Cosine and sine of `2 pi r c / length`; the product is reduced first, for accuracy."""
    turns = np.outer(np.arange(rows), np.arange(columns)) % length
    angle = 2 * np.pi * turns / length
    return np.cos(angle), np.sin(angle)


def _matrix(e: NodeMaker, values: Numbers, dtype: DType) -> Tensor:
    return e.constant(values.astype(dtype.numpy))


def transform(
    e: NodeMaker, x: Tensor, axis: int, length: int, *, inverse: bool, onesided: bool
) -> Tensor:
    """The discrete Fourier transform of `[..., 1 or 2]` along `axis`."""
    if length > MAX_LENGTH:
        raise UnsupportedError(f"a transform of length {length} is not supported")
    if inverse and onesided:
        return _real_inverse(e, x, axis, length)
    bins = length // 2 + 1 if onesided else length
    real, imaginary = _parts(e, _sized(e, x, axis, length))
    order = [i for i in range(real.rank) if i != axis] + [axis]
    cosine, sine = _waves(length, bins, length)
    scale = 1 / length if inverse else 1.0
    sign = -scale if inverse else scale
    c, s = _matrix(e, cosine * scale, x.dtype), _matrix(e, sine * sign, x.dtype)
    a = e.transpose(real, order)
    re, im = e.op("matmul", a, c), e.op("neg", e.op("matmul", a, s))
    if imaginary is not None:
        b = e.transpose(imaginary, order)
        re = e.op("add", re, e.op("matmul", b, s))
        im = e.op("add", im, e.op("matmul", b, c))
    back = [order.index(i) for i in range(real.rank)]
    parts = [e.unsqueeze(e.transpose(t, back), (real.rank,)) for t in (re, im)]
    return e.concat(parts, real.rank)


def _real_inverse(e: NodeMaker, x: Tensor, axis: int, length: int) -> Tensor:
    """A real signal from the first half of its spectrum; every middle bin counts twice."""
    bins = length // 2 + 1
    real, imaginary = _parts(e, _sized(e, x, axis, bins))
    order = [i for i in range(real.rank) if i != axis] + [axis]
    twice = np.full((bins, 1), 2.0 / length)
    twice[0] = 1.0 / length
    if length % 2 == 0:
        twice[-1] = 1.0 / length
    cosine, sine = _waves(bins, length, length)
    result = e.op("matmul", e.transpose(real, order), _matrix(e, cosine * twice, x.dtype))
    if imaginary is not None:
        other = e.transpose(imaginary, order)
        result = e.op(
            "sub", result, e.op("matmul", other, _matrix(e, sine * twice, x.dtype))
        )
    back = [order.index(i) for i in range(real.rank)]
    return e.unsqueeze(e.transpose(result, back), (real.rank,))


def _dft(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    if call.opset < 20:
        axis = call.axis(x.rank, 1)
    elif not call.is_known(2):
        (result,) = computed.by_axes(
            e,
            call.tensor(2),
            x.rank,
            lambda axes: [_along(call, axes[0])],
            allowed=lambda a: a < x.rank - 1 and _length(call, x.shape[a]) != 0,
        )
        return result
    else:
        axis = -2 if call.is_nothing(2) else call.number(2, "the axis")
        axis = normal_axis(axis, x.rank)
    return _along(call, axis)


def _length(call: Call, size: Dim) -> int:
    """The length of a transform along an axis of `size`."""
    if not call.is_nothing(1):
        return call.number(1, "the length")
    if not isinstance(size, int):
        raise UnsupportedError("a transform of dynamic length is not supported")
    halved = call.flag("inverse") and call.flag("onesided")
    return 2 * (size - 1) if halved else size


def _along(call: Call, axis: int) -> Tensor:
    """The transform along one axis."""
    e, x = call.maker, call.tensor(0)
    inverse, onesided = call.flag("inverse"), call.flag("onesided")
    length = _length(call, x.shape[axis])
    if length < 1:
        raise ModelError(f"the length is {length}")
    return transform(e, x, axis, length, inverse=inverse, onesided=onesided)


def _stft(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    if x.rank == 2:  # real signals without an axis for real and imaginary parts
        x = e.reshape(x, (*x.shape, 1))
    onesided = call.flag("onesided", default=True)
    step = call.number(1, "the step")
    if not call.is_nothing(3):
        length = call.number(3, "the length of a frame")
    else:
        size = call.tensor(2).shape[0]
        length = size if isinstance(size, int) else 0
    if step < 1 or length < 1 or x.rank != 3:
        raise ModelError(f"frames of {length} every {step} of {x.type}")
    frames = symbolic.floordiv(x.shape[1] - length, step) + 1
    if not isinstance(frames, int):
        raise UnsupportedError("a signal of dynamic length is not supported")
    places = np.arange(frames)[:, None] * step + np.arange(length)
    cut = e.op("gather", x, e.constant(places.astype(np.int64)), axis=1)
    if not call.is_nothing(2):
        cut = e.op("mul", cut, e.unsqueeze(call.tensor(2), (1,)))
    return transform(e, cut, 2, length, inverse=False, onesided=onesided)


def _real_transform(*, inverse: bool) -> Build:
    """Of the last axis; a spectrum has one more, for real and imaginary parts."""

    def build(call: Call) -> Tensor:
        e, x = call.maker, call.tensor(0)
        expected = (("onesided", 1), ("normalized", 0), ("signal_ndim", 1))
        for name, wanted in expected:
            if call.integer(name, wanted) != wanted:
                raise UnsupportedError(f"attribute '{name}' is not {wanted}")
        axis = x.rank - (2 if inverse else 1)
        size = x.shape[axis]
        if not isinstance(size, int):
            raise UnsupportedError("a transform of dynamic length is not supported")
        if not inverse:
            wide = e.unsqueeze(x, (x.rank,))
            return transform(e, wide, axis, size, inverse=False, onesided=True)
        result = transform(e, x, axis, 2 * (size - 1), inverse=True, onesided=True)
        return e.squeeze(result, (result.rank - 1,))

    return build


def _mel_weights(call: Call) -> Tensor:
    """Triangular filters between points that are equally spaced on the mel scale."""
    names = ("bins", "length", "rate", "lower edge", "upper edge")
    bins, length, rate, low, high = (
        float(call.array(i, f"the {name}").reshape(-1)[0]) for i, name in enumerate(names)
    )
    count, spectrum = int(bins), int(length) // 2 + 1
    # ONNX divides by the number of points, not of intervals.
    spacing = (_to_mel(high) - _to_mel(low)) / (count + 2)
    mels = _to_mel(low) + spacing * np.arange(count + 2)
    hertz = 700 * (10 ** (mels / 2595) - 1)
    edges = ((length + 1) * hertz // rate).astype(np.int64)
    result = np.zeros((spectrum, count))
    for index in range(count):
        left, middle, right = edges[index : index + 3]
        if middle == left:
            result[middle, index] = 1
        rising = np.arange(left, middle + 1)
        if middle > left:
            result[rising, index] = (rising - left) / (middle - left)
        falling = np.arange(middle, right)
        if right > middle:
            result[falling, index] = (right - falling) / (right - middle)
    dtype = dtype_of(call.integer("output_datatype", 1))
    return call.maker.constant(result.astype(dtype.numpy))


def _to_mel(hertz: float) -> float:
    return float(2595 * np.log10(1 + hertz / 700))


ROWS: Final[tuple[Row, ...]] = (
    row("DFT", _dft),
    row("MelWeightMatrix", _mel_weights),
    row("STFT", _stft),
    row("Irfft", _real_transform(inverse=True), domain=MICROSOFT),
    row("Rfft", _real_transform(inverse=False), domain=MICROSOFT),
)
