"""Rows for signal processing: DFT and STFT as products with matrices, mel weights.

Quadratic in the length; there is no fast transform here.  The matrix of a length that only a call knows is computed.

Source: ONNX operator reference (DFT opset 17 and 20, STFT opset 17, MelWeightMatrix opset 17).
"""

from __future__ import annotations

from typing import Final, final

import numpy as np
from numpy.typing import NDArray

from tilewright.base import symbolic
from tilewright.base.dtypes import DType, f64, i64
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import computed, control
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
    """Real and imaginary part of `[..., 1 or 2]`; where only a call knows which, what is not there is zero."""
    last = x.rank - 1
    if not isinstance(x.shape[last], int):
        count = control.fresh_symbol(e, "parts", 1, 2)
        e.bind_sizes(e.dims((x.shape[last],)), [count])
        x = _sized(e, x, last, 2)
    if x.shape[last] not in (1, 2):
        raise ModelError(f"operand 1 has type {x.type}, expected a last axis of 1 or 2")
    real = e.squeeze(e.slice(x, last, 0, 1), (last,))
    if x.shape[last] == 1:
        return real, None
    return real, e.squeeze(e.slice(x, last, 1, 1), (last,))


def _sized(e: NodeMaker, x: Tensor, axis: int, length: Dim) -> Tensor:
    """`x` cropped or padded with zeros to `length` along `axis`."""
    size = x.shape[axis]
    missing = symbolic.maximum(0, length - size)
    if missing != 0:
        amounts: list[Dim] = [0] * (2 * x.rank)
        amounts[x.rank + axis] = missing
        x = pad(e, x, amounts, "constant", e.scalar(0, x.dtype))
    return e.slice(x, axis, 0, length)


def _remainder(e: NodeMaker, x: Tensor, divisor: Tensor) -> Tensor:
    """`x mod divisor` of i64 from 0 up to 2^53, by a quotient of f64, which vectors divide.

    The rounded quotient has the whole part of the true one: that lies at least 1 / divisor from the next whole number,
    unless it is one, and rounding moves it by less.
    """
    quotient = e.op("div", e.cast(x, f64), e.cast(divisor, f64))
    return e.op("sub", x, e.op("mul", e.cast(quotient, i64), divisor))


@final
@record
class _Waves:
    """The matrix of a transform of `length`: rows are elements of its operand, columns of its result.

    `half` is for an operand that is the first half of a spectrum, whose every middle row counts twice.
    """

    rows: Dim
    columns: Dim
    length: Dim
    inverse: bool = False
    half: bool = False

    def parts(self, e: NodeMaker, dtype: DType) -> tuple[Tensor, Tensor]:
        """Cosine and sine of `2 pi r c / length`; the product is reduced first, for accuracy."""
        sizes = (self.rows, self.columns, self.length)
        numbers = [n for n in sizes if isinstance(n, int)]
        if len(numbers) < len(sizes):
            return self._computed(e, dtype)
        cosine, sine = self._numbers(*numbers)
        return (
            e.constant(cosine.astype(dtype.numpy)),
            e.constant(sine.astype(dtype.numpy)),
        )

    def _numbers(self, rows: int, columns: int, length: int) -> tuple[Numbers, Numbers]:
        row = np.arange(rows)[:, None]
        angle = 2 * np.pi * (row * np.arange(columns) % length) / length
        weight = np.ones((rows, 1))
        if self.half:
            weight = np.where((row == 0) | (2 * row == length), 1.0, 2.0)
        weight = weight / length if self.inverse else weight
        return np.cos(angle) * weight, np.sin(angle) * weight

    def _computed(self, e: NodeMaker, dtype: DType) -> tuple[Tensor, Tensor]:
        length = e.cast(e.dim(self.length), f64)
        places = symbolic.maximum(1, self.length)
        share = e.op("div", e.cast(e.iota((places,), 0), f64), length)
        angle = e.op("mul", share, e.scalar(2 * np.pi, f64))
        row = e.iota((self.rows, 1), 0)
        turns = e.op("mul", row, e.iota((1, self.columns), 1))
        turns = _remainder(e, turns, e.dim(places))
        weight = e.scalar(1, f64)
        if self.half:
            first = e.op("equal", row, e.scalar(0, i64))
            double = e.op("mul", row, e.scalar(2, i64))
            middle = e.op("equal", double, e.dim(self.length))
            alone = e.op("logical_or", first, middle)
            weight = e.op("where", alone, weight, e.scalar(2, f64))
        weight = e.op("div", weight, length) if self.inverse else weight
        tables = (e.op(name, angle) for name in ("cos", "sin"))
        waves = [e.op("mul", e.op("gather", t, turns, axis=0), weight) for t in tables]
        return e.cast(waves[0], dtype), e.cast(waves[1], dtype)


def transform(
    e: NodeMaker, x: Tensor, axis: int, length: Dim, *, inverse: bool, onesided: bool
) -> Tensor:
    """The discrete Fourier transform of `[..., 1 or 2]` along `axis`."""
    if isinstance(length, int) and length > MAX_LENGTH:
        raise UnsupportedError(f"a transform of length {length} is not supported")
    if inverse and onesided:
        return _real_inverse(e, x, axis, length)
    bins = symbolic.floordiv(length, 2) + 1 if onesided else length
    real, imaginary = _parts(e, _sized(e, x, axis, length))
    order = [i for i in range(real.rank) if i != axis] + [axis]
    c, s = _Waves(length, bins, length, inverse).parts(e, x.dtype)
    a = e.transpose(real, order)
    re, im = e.op("matmul", a, c), e.op("matmul", a, s)
    im = im if inverse else e.op("neg", im)
    if imaginary is not None:
        b = e.transpose(imaginary, order)
        other = e.op("matmul", b, s)
        re = e.op("sub" if inverse else "add", re, other)
        im = e.op("add", im, e.op("matmul", b, c))
    back = [order.index(i) for i in range(real.rank)]
    parts = [e.unsqueeze(e.transpose(t, back), (real.rank,)) for t in (re, im)]
    return e.concat(parts, real.rank)


def _real_inverse(e: NodeMaker, x: Tensor, axis: int, length: Dim) -> Tensor:
    """A real signal from the first half of its spectrum; every middle bin counts twice."""
    bins = symbolic.floordiv(length, 2) + 1
    real, imaginary = _parts(e, _sized(e, x, axis, bins))
    order = [i for i in range(real.rank) if i != axis] + [axis]
    c, s = _Waves(bins, length, length, inverse=True, half=True).parts(e, x.dtype)
    result = e.op("matmul", e.transpose(real, order), c)
    if imaginary is not None:
        other = e.transpose(imaginary, order)
        result = e.op("sub", result, e.op("matmul", other, s))
    back = [order.index(i) for i in range(real.rank)]
    return e.unsqueeze(e.transpose(result, back), (real.rank,))


def _dft(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    if not call.is_nothing(1):
        call.one_size(
            1, "the length", low=1
        )  # read here, for what is behind may be a branch
    if call.opset < 20:
        axis = call.axis(x.rank, 1)
    elif not call.is_known(2):
        return computed.by_axis(
            e,
            call.tensor(2),
            x.rank,
            lambda axis: _along(call, axis),
            allowed=lambda a: a < x.rank - 1 and _length(call, x.shape[a]) != 0,
        )
    else:
        axis = -2 if call.is_nothing(2) else call.number(2, "the axis")
        axis = normal_axis(axis, x.rank)
    return _along(call, axis)


def _length(call: Call, size: Dim) -> Dim:
    """The length of a transform along an axis of `size`."""
    if not call.is_nothing(1):
        return call.one_size(1, "the length", low=1)
    halved = call.flag("inverse") and call.flag("onesided")
    return 2 * (size - 1) if halved else size


def _along(call: Call, axis: int) -> Tensor:
    """The transform along one axis."""
    e, x = call.maker, call.tensor(0)
    inverse, onesided = call.flag("inverse"), call.flag("onesided")
    length = _length(call, x.shape[axis])
    if length == x.shape[axis] == 0 and not onesided:  # of nothing: nothing
        return e.full(0, x.dtype, (*x.shape[:-1], 2))
    if isinstance(length, int) and length < 1:
        raise ModelError(f"the length is {length}")
    return transform(e, x, axis, length, inverse=inverse, onesided=onesided)


def _stft(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    if x.rank == 2:  # real signals without an axis for real and imaginary parts
        x = e.reshape(x, (*x.shape, 1))
    onesided = call.flag("onesided", default=True)
    step = call.one_size(1, "the step", low=1)
    if not call.is_nothing(3):
        length = call.one_size(3, "the length of a frame", low=1)
    else:
        length = call.tensor(2).shape[0]
    if x.rank != 3:
        raise ModelError(f"frames of {length} every {step} of {x.type}")
    frames = symbolic.floordiv(x.shape[1] - length, step) + 1
    if not call.is_known(1, 3):  # a frame that is longer than its signal is refused here
        (frames,) = control.read_sizes(e, e.dims((frames,)), "frames")
    first = e.op("mul", e.iota((frames, 1), 0), e.dim(step))
    places = e.op("add", first, e.iota((1, length), 1))
    cut = e.op("gather", x, places, axis=1)
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
        if not inverse:
            wide = e.unsqueeze(x, (x.rank,))
            return transform(e, wide, axis, size, inverse=False, onesided=True)
        result = transform(e, x, axis, 2 * (size - 1), inverse=True, onesided=True)
        return e.squeeze(result, (result.rank - 1,))

    return build


def _mel_weights(call: Call) -> Tensor:
    """Triangular filters between points that are equally spaced on the mel scale."""
    e, dtype = call.maker, dtype_of(call.integer("output_datatype", 1))
    count = call.one_size(0, "the number of bins")
    length = call.one_size(1, "the length of a transform")
    rate, low, high = (e.cast(e.reshape(call.tensor(i), ()), f64) for i in (2, 3, 4))
    edges = _mel_edges(e, count, length, rate, _to_mel(e, low), _to_mel(e, high))
    left, middle, right = (e.slice(edges, 0, i, count) for i in range(3))
    row = e.cast(e.iota((symbolic.floordiv(length, 2) + 1, 1), 0), f64)
    zero, one = e.scalar(0, f64), e.scalar(1, f64)
    peak = e.op("where", e.op("equal", row, middle), one, zero)
    up = e.op("div", e.op("sub", row, left), e.op("sub", middle, left))
    rising = e.op("where", _between(e, left, row, middle), up, peak)
    down = e.op("div", e.op("sub", right, row), e.op("sub", right, middle))
    return e.cast(e.op("where", _between(e, middle, row, right), down, rising), dtype)


def _mel_edges(
    e: NodeMaker, count: Dim, length: Dim, rate: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    """The bins where filters begin, peak and end: whole numbers in f64."""
    # ONNX divides by the number of points, not of intervals.
    points = e.cast(e.dim(count + 2), f64)
    spacing = e.op("div", e.op("sub", high, low), points)
    mels = e.op("mul", spacing, e.cast(e.iota((count + 2,), 0), f64))
    mels = e.op("add", low, mels)
    power = e.op("div", mels, e.scalar(2595, f64))
    powers = e.op("sub", e.op("pow", e.scalar(10, f64), power), e.scalar(1, f64))
    hertz = e.op("mul", e.scalar(700, f64), powers)
    scaled = e.op("mul", e.cast(e.dim(length + 1), f64), hertz)
    return e.op("floor", e.op("div", scaled, rate))


def _to_mel(e: NodeMaker, hertz: Tensor) -> Tensor:
    ratio = e.op("div", hertz, e.scalar(700, f64))
    natural = e.op("log", e.op("add", e.scalar(1, f64), ratio))
    return e.op("mul", natural, e.scalar(2595 / np.log(10), f64))


def _between(e: NodeMaker, first: Tensor, place: Tensor, end: Tensor) -> Tensor:
    return e.op("logical_and", e.op("less_equal", first, place), e.op("less", place, end))


ROWS: Final[tuple[Row, ...]] = (
    row("DFT", _dft),
    row("MelWeightMatrix", _mel_weights),
    row("STFT", _stft),
    row("Irfft", _real_transform(inverse=True), domain=MICROSOFT),
    row("Rfft", _real_transform(inverse=False), domain=MICROSOFT),
)
