"""Determinants, Fourier transforms, sets of unique elements: host ops of numerical models."""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import FLOATS
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, TensorType
from tilewright.compiler.kernel import numerics
from tilewright.compiler.ops.declaration import OpDecl, Types, attr, declare, operand
from tilewright.compiler.ops.shapes import check_positive, check_same, first, normal_axis


def _det_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    x = first(types)
    if x.rank < 2:
        raise ModelError(f"det needs matrices, got {x}")
    check_same(f"rows and columns of {x}", x.shape[-1], x.shape[-2])
    return (x.with_shape(x.shape[:-2]),)


def _det_oracle(x: np.ndarray) -> np.ndarray:
    value = np.asarray(np.linalg.det(x.astype(np.float64)))
    return numerics.cast(value, dtypes.from_numpy(x.dtype))


det: Final = declare(
    name="det",
    summary="Determinant of every matrix in the last two axes",
    operands=(operand("x", FLOATS),),
    infer=_det_infer,
    evaluate=_det_oracle,
    cases=("[3,3]", "[2,4,4]"),
    on_host="the oracle of what models are imported as: products of minors, or of the pivots of `lu`",
    source="ONNX Det, opset 22",
)

# --- Fourier transform -----------------------------------------------------------------------


def _dft_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x = first(types)
    axis = normal_axis(cast("int", attributes["axis"]), x.rank)
    if x.rank < 2 or x.shape[-1] not in (1, 2) or axis == x.rank - 1:
        raise ModelError(f"dft of {x} along axis {axis}: the last axis holds the parts")
    onesided, inverse = bool(attributes["onesided"]), bool(attributes["inverse"])
    whole = (x.shape[axis] - 1) * 2 if onesided and inverse else x.shape[axis]
    (length,) = cast("tuple[Dim, ...]", attributes["length"]) or (whole,)
    if isinstance(length, int):
        check_positive("the length of dft is", (length,))
    shape = list(x.shape)
    shape[axis] = length // 2 + 1 if onesided and not inverse else length
    shape[-1] = 1 if onesided and inverse else 2
    return (x.with_shape(shape),)


def _dft_oracle(
    x: np.ndarray, *, axis: int, length: tuple[int, ...], onesided: bool, inverse: bool
) -> np.ndarray:
    axis = normal_axis(axis, x.ndim)
    wide = x.astype(np.float64)
    signal = wide[..., 0] + (1j * wide[..., 1] if x.shape[-1] == 2 else 0)
    count = length[0] if length else x.shape[axis]
    if onesided and inverse:
        count = length[0] if length else (x.shape[axis] - 1) * 2
        real = np.fft.irfft(signal, count, axis)
        return numerics.cast(real[..., None], dtypes.from_numpy(x.dtype))
    function: Any = np.fft.ifft if inverse else np.fft.fft
    value: Any = function(signal, count, axis)
    if onesided:
        value = cast("Any", np.take(value, np.arange(count // 2 + 1), axis))
    return numerics.cast(np.stack([value.real, value.imag], -1), dtypes.from_numpy(x.dtype))


dft: Final = declare(
    name="dft",
    summary="Discrete Fourier transform along `axis`; the last axis is (real, imaginary)",
    operands=(operand("x", FLOATS),),
    attributes=(
        attr("axis", "int", -2), attr("length", "dims", ()),
        attr("onesided", "bool", default=False), attr("inverse", "bool", default=False),
    ),
    infer=_dft_infer,
    evaluate=_dft_oracle,
    cases=(
        "f32[2,7,1]; axis=1",
        "f32[2,8,2]; axis=1 inverse=True",
        "f32[5,3,1]; axis=0 length=(9,) onesided=True",
        "f32[2,5,2]; axis=1 length=(8,) onesided=True inverse=True",
        "f32[2,5,2]; axis=1 onesided=True inverse=True",
    ),
    on_host="numpy's fast transform; models are imported as a product with the transform's matrix",
    source="ONNX DFT, opset 20",
)  # fmt: skip

OPS: Final[tuple[OpDecl, ...]] = (det, dft)
