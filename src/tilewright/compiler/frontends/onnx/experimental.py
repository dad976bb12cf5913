"""Rows for operators that ONNX had for a while and never made its own; models of Core ML and CNTK still have them.

Source: ONNX operator reference of version 1.3 (experimental operators), which onnxruntime computes.
"""

from __future__ import annotations

from typing import Final

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import Row, row


def _number(call: Call, x: Tensor, name: str, default: float | None = None) -> Tensor:
    return call.maker.scalar(call.float(name, default), x.dtype)


def _affine(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    scaled = e.op("mul", x, _number(call, x, "alpha", 1.0))
    return e.op("add", scaled, _number(call, x, "beta", 0.0))


def _scale(call: Call) -> Tensor:
    x = call.tensor(0)
    return call.maker.op("mul", x, _number(call, x, "scale", 1.0))


def _image_scaler(call: Call) -> Tensor:
    """A factor for all, then something for each channel."""
    e, x = call.maker, call.tensor(0)
    biases = call.attributes.floats("bias")
    if biases is None or len(biases) != x.shape[1]:
        raise ModelError(
            f"attribute 'bias' is {biases}, expected one of each channel of {x.type}"
        )
    columns = [e.scalar(b, x.dtype) for b in biases]
    bias = e.concat([e.reshape(c, (1, 1, 1, 1)) for c in columns], 1)
    return e.op("add", _scale(call), bias)


def _scaled_tanh(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    inner = e.op("mul", x, _number(call, x, "beta"))
    return e.op("mul", e.op("tanh", inner), _number(call, x, "alpha"))


def _parametric_softplus(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    inner = e.op("mul", x, _number(call, x, "beta"))
    return e.op("mul", e.op("softplus", inner), _number(call, x, "alpha"))


def _crop(call: Call) -> Tensor:
    """Pictures without their borders, or as high and wide as is said."""
    e, x = call.maker, call.tensor(0)
    left, top, right, bottom = call.integers("border")
    sizes = call.integers("scale", ())
    height, width = sizes or (x.shape[2] - top - bottom, x.shape[3] - left - right)
    return e.slice(e.slice(x, 2, top, height), 3, left, width)


ROWS: Final[tuple[Row, ...]] = (
    row("Affine", _affine, takes="1 -> 1 alpha:float beta:float"),
    row("Crop", _crop, takes="1 -> 1 border:ints! scale:ints"),
    row("ImageScaler", _image_scaler, takes="1 -> 1 bias:floats scale:float"),
    row("ParametricSoftplus", _parametric_softplus, takes="1 -> 1 alpha:float beta:float"),
    row("Scale", _scale, takes="1 -> 1 scale:float"),
    row("ScaledTanh", _scaled_tanh, takes="1 -> 1 alpha:float beta:float"),
)
