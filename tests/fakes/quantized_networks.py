"""Whole networks as onnxruntime's quantizer writes them: residual blocks of convolutions, an encoder of a language model.

What it is: two f32 networks with seeded weights, inputs for them, and the forms of the quantizer.
What it is not: `small_networks`, whose quantized one is written by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.base.target import Target

SAMPLES = 3
Feeds = dict[str, np.ndarray]


@final
@dataclass
class Layers:
    """Nodes and weights of a network in the making; every method returns the name of its result."""

    random: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def op(self, kind: str, *operands: str, **attributes: Any) -> str:
        result = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, operands, [result], result, **attributes))
        return result

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def normal(self, *shape: int, size: float = 1.0) -> str:
        return self.constant((self.random.standard_normal(shape) * size).astype(np.float32))

    def convolution(
        self, x: str, channels: int, filters: int, side: int, stride: int = 1
    ) -> str:
        w = self.normal(
            filters, channels, side, side, size=(2 / (channels * side**2)) ** 0.5
        )
        edge = [side // 2] * 4
        bias = self.normal(filters, size=0.1)
        return self.op("Conv", x, w, bias, strides=[stride, stride], pads=edge)

    def linear(self, x: str, depth: int, columns: int) -> str:
        product = self.op("MatMul", x, self.normal(depth, columns, size=depth**-0.5))
        return self.op("Add", product, self.normal(columns, size=0.1))

    def shaped(self, x: str, *shape: int) -> str:
        return self.op("Reshape", x, self.constant(np.array(shape, np.int64)))

    def model(self, inputs: Sequence[onnx.ValueInfoProto], result: str) -> onnx.ModelProto:
        output = helper.make_tensor_value_info(result, onnx.TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "network", inputs, [output], self.weights)
        opset = [helper.make_opsetid("", 17)]
        return helper.make_model(graph, opset_imports=opset, ir_version=9)


def residual() -> tuple[onnx.ModelProto, list[Feeds]]:
    """The eighteen layers of a ResNet, a quarter as wide, for images of an odd size."""
    layers, shape = Layers(np.random.default_rng(18)), (1, 3, 77, 61)
    x = layers.op("Relu", layers.convolution("x", 3, 16, 7, 2))
    x = layers.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 16
    for stage, filters in enumerate((16, 32, 64, 128)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            inner = layers.op("Relu", layers.convolution(x, channels, filters, 3, stride))
            inner = layers.convolution(inner, filters, filters, 3)
            if stride != 1:
                x = layers.convolution(x, channels, filters, 1, stride)
            x = layers.op("Relu", layers.op("Add", inner, x))
            channels = filters
    x = layers.op("Flatten", layers.op("GlobalAveragePool", x))
    w, bias = layers.normal(channels, 100, size=channels**-0.5), layers.normal(100)
    x = layers.op("Gemm", x, w, bias)
    image = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)
    draw = np.random.default_rng(0).standard_normal
    feeds: list[Feeds] = [{"x": draw(shape).astype(np.float32)} for _ in range(SAMPLES)]
    return layers.model([image], x), feeds


def encoder(
    length: int = 19, width: int = 96, heads: int = 4
) -> tuple[onnx.ModelProto, list[Feeds]]:
    """Words, positions, two layers of attention and GELU, normalized behind each sum, as in DistilBERT."""
    layers = Layers(np.random.default_rng(6))
    words = layers.op("Gather", layers.normal(200, width), "ids")
    x = _normalized(layers, layers.op("Add", words, layers.normal(length, width)), width)
    for _ in range(2):
        q, k, v = (layers.linear(x, width, width) for _ in range(3))
        q, k, v = (layers.shaped(part, 0, 0, heads, width // heads) for part in (q, k, v))
        q, v = (layers.op("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
        k = layers.op("Transpose", k, perm=[0, 2, 3, 1])
        scale = layers.constant(np.array((width // heads) ** -0.5, np.float32))
        scores = layers.op("Mul", layers.op("MatMul", q, k), scale)
        mixed = layers.op("MatMul", layers.op("Softmax", scores, axis=-1), v)
        merged = layers.op("Transpose", mixed, perm=[0, 2, 1, 3])
        merged = layers.linear(layers.shaped(merged, 0, 0, width), width, width)
        x = _normalized(layers, layers.op("Add", x, merged), width)
        inner = _gelu(layers, layers.linear(x, width, 4 * width))
        x = layers.op("Add", x, layers.linear(inner, 4 * width, width))
        x = _normalized(layers, x, width)
    ids = helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [2, length])
    draw = np.random.default_rng(0).integers
    feeds: list[Feeds] = [{"ids": draw(0, 200, (2, length))} for _ in range(SAMPLES)]
    return layers.model([ids], x), feeds


def _normalized(layers: Layers, x: str, width: int) -> str:
    scale = layers.constant(np.ones(width, np.float32))
    return layers.op(
        "LayerNormalization", x, scale, layers.normal(width, size=0.1), axis=-1
    )


def _gelu(layers: Layers, x: str) -> str:
    root, one, half = (
        layers.constant(np.array(value, np.float32)) for value in (2**0.5, 1.0, 0.5)
    )
    share = layers.op("Add", layers.op("Erf", layers.op("Div", x, root)), one)
    return layers.op("Mul", layers.op("Mul", x, share), half)


NETWORKS = {"residual": residual, "encoder": encoder}
FORMS = ("qdq", "qdq of signed bytes", "qoperator", "dynamic")
"""Scales are per channel, but for signed bytes: there each tensor has one."""


def quantized(
    model: onnx.ModelProto, feeds: Sequence[Feeds], form: str, folder: Path
) -> Path:
    """What onnxruntime's quantizer makes of a model that it prepared.  `form`: one of `FORMS`.

    Without VNNI the kernels of onnxruntime add pairs of products in 16 bits, which saturate: as its documentation
    says, weights have seven bits there, so that it can be the oracle.
    """
    from onnxruntime import quantization  # only where onnxruntime is installed
    from onnxruntime.quantization.shape_inference import quant_pre_process

    source, prepared, target = (
        folder / f"{name}.onnx" for name in ("f32", "prepared", "int8")
    )
    onnx.save(model, source)
    quant_pre_process(source, prepared)
    kinds, signed = quantization.QuantType, "signed" in form
    seven_bits = Target.host().features.isdisjoint({"avx512vnni", "avxvnni"})
    if form == "dynamic":
        quantization.quantize_dynamic(
            prepared,
            target,
            weight_type=kinds.QInt8,
            per_channel=True,
            reduce_range=seven_bits,
        )
        return target

    class Samples(quantization.CalibrationDataReader):
        rest = iter(feeds)

        def get_next(self) -> Feeds:
            return next(self.rest, {})

    style = quantization.QuantFormat
    quantization.quantize_static(
        prepared, target, Samples(),
        quant_format=style.QOperator if form == "qoperator" else style.QDQ,
        activation_type=kinds.QInt8 if signed else kinds.QUInt8,
        weight_type=kinds.QInt8, per_channel=not signed,
        reduce_range=seven_bits,
    )  # fmt: skip
    return target
