"""Small whole networks as ONNX models, in any float type: several families, dynamic where they can be.

What it is: a function per network, from an element type to a model with seeded weights, and inputs
for it.
What it is not: `small_models`, a handful of nodes for tests of sessions and the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.base import dtypes
from tilewright.base.dtypes import DType

TYPE_NAMES = {"f32": "float", "f16": "float16", "bf16": "bfloat16", "f64": "double"}
Weights = Mapping[str, Sequence[int]]


def network(
    body: str, weights: Weights, dtype: DType, *, functions: str = "", seed: int = 0
) -> onnx.ModelProto:
    """The model of `body`, in which TYPE is the element type; weights are initializers."""
    text = '<ir_version: 10, opset_import: ["" : 22]>' + body + functions
    model = onnx.parser.parse_model(text.replace("TYPE", TYPE_NAMES[dtype.name]))
    random = np.random.default_rng(seed)
    for name, shape in weights.items():
        scale = 1 / np.sqrt(max(1, int(np.prod(shape[:-1])))) if len(shape) > 1 else 0.5
        array = (random.standard_normal(shape) * scale).astype(dtype.numpy)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def attention(dtype: DType) -> onnx.ModelProto:
    """A pre-norm transformer block: layer norm, attention with 3 heads, MLP with GELU."""
    body = """block (TYPE[batch, length, 18] x) => (TYPE[batch, length, 18] y) {
        split = Constant <value_ints = [0, 0, 3, 3, 6]> ()
        join = Constant <value_ints = [0, 0, 18]> ()
        one = Constant <value_ints = [2]> ()
        n1 = LayerNormalization <axis = -1> (x, g1, b1)
        packed = MatMul (n1, qkv)
        parts = Reshape (packed, split)
        turned = Transpose <perm = [2, 0, 3, 1, 4]> (parts)
        q0, k0, v0 = Split <axis = 0, num_outputs = 3> (turned)
        zero = Constant <value_ints = [0]> ()
        q = Squeeze (q0, zero)
        k = Squeeze (k0, zero)
        v = Squeeze (v0, zero)
        kt = Transpose <perm = [0, 1, 3, 2]> (k)
        scores = MatMul (q, kt)
        scaled = Mul (scores, scale)
        shares = Softmax <axis = -1> (scaled)
        mixed = MatMul (shares, v)
        back = Transpose <perm = [0, 2, 1, 3]> (mixed)
        merged = Reshape (back, join)
        projected = MatMul (merged, out)
        h = Add (x, projected)
        n2 = LayerNormalization <axis = -1> (h, g2, b2)
        up = MatMul (n2, w1)
        up_b = Add (up, c1)
        act = Gelu (up_b)
        down = MatMul (act, w2)
        y = Add (h, down)
    }"""
    weights = {
        "g1": [18], "b1": [18], "g2": [18], "b2": [18], "qkv": [18, 54], "out": [18, 18],
        "scale": [1], "w1": [18, 37], "c1": [37], "w2": [37, 18],
    }  # fmt: skip
    return network(body, weights, dtype)


def convolutions(dtype: DType) -> onnx.ModelProto:
    """Convolution, folded normalization, depthwise, pools, a residual, a classifier."""
    body = """net (TYPE[batch, 3, 17, 13] x) => (TYPE[batch, 5] y) {
        a = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w1, b1)
        n = BatchNormalization (a, g, b, mean, var)
        r = Relu (n)
        p = MaxPool <kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]> (r)
        d = Conv <group = 8, pads = [1, 1, 1, 1]> (p, w2)
        s = Sigmoid (d)
        m = Mul (d, s)
        e = Conv (m, w3, b3)
        t = Add (e, p)
        f = Conv <group = 2, strides = [2, 2]> (t, w4)
        c = Clip (f, low, high)
        v = AveragePool <kernel_shape = [2, 2], pads = [0, 0, 1, 1]> (c)
        q = GlobalAveragePool (v)
        flat = Flatten (q)
        logits = Gemm <transB = 1> (flat, w5, b5)
        y = Softmax <axis = 1> (logits)
    }"""
    weights = {
        "w1": [8, 3, 3, 3], "b1": [8], "g": [8], "b": [8], "mean": [8], "w2": [8, 1, 3, 3],
        "w3": [8, 8, 1, 1], "b3": [8], "w4": [6, 4, 2, 2], "w5": [5, 6], "b5": [5],
    }  # fmt: skip
    model = network(body, weights, dtype)
    for name, values in {"var": np.linspace(0.5, 2, 8), "low": -2.0, "high": 3.0}.items():
        array = np.asarray(values).astype(dtype.numpy)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def recurrent(dtype: DType) -> onnx.ModelProto:
    """A GRU over a short sequence, a projection of its last state, log-probabilities."""
    body = """net (TYPE[4, batch, 5] x) => (TYPE[batch, 3] y, TYPE[4, batch, 7] states) {
        all, last = GRU <hidden_size = 7, linear_before_reset = 1> (x, w, r, b)
        one = Constant <value_ints = [1]> ()
        zero = Constant <value_ints = [0]> ()
        states = Squeeze (all, one)
        state = Squeeze (last, zero)
        z = MatMul (state, p)
        y = LogSoftmax <axis = 1> (z)
    }"""
    weights = {"w": [1, 21, 5], "r": [1, 21, 7], "b": [1, 42], "p": [7, 3]}
    return network(body, weights, dtype)


def decoder(dtype: DType) -> onnx.ModelProto:
    """Resize, transposed convolution, concatenation, padding: what segmentation ends with."""
    body = """net (TYPE[batch, 4, 6, 5] x) => (TYPE[batch, 3, 14, 12] y, TYPE[batch, 14, 12] best) {
        w = Conv <pads = [1, 1, 1, 1]> (x, w1)
        a = ConvTranspose <strides = [2, 2]> (w, w2)
        u = Resize <mode = "linear", coordinate_transformation_mode = "half_pixel"> (x, , scales)
        l = LeakyRelu <alpha = 0.1> (u)
        c = Concat <axis = 1> (a, l)
        p = Pad (c, pads)
        i = InstanceNormalization (p, g, b)
        y = Conv (i, w3)
        best = ReduceMax <keepdims = 0> (y, axes)
    }"""
    weights = {
        "w1": [4, 4, 3, 3],
        "w2": [4, 2, 2, 2],
        "g": [6],
        "b": [6],
        "w3": [3, 6, 1, 1],
    }
    model = network(body, weights, dtype)
    for name, array in {
        "scales": np.array([1, 1, 2, 2], np.float32),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "axes": np.array([1]),
    }.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


NETWORKS: Mapping[str, Callable[[DType], onnx.ModelProto]] = {
    "attention": attention,
    "convolutions": convolutions,
    "recurrent": recurrent,
    "decoder": decoder,
}

INTEGERS = {"i8": "int8", "u8": "uint8", "i32": "int32", "i64": "int64"}


def integers(dtype: DType) -> onnx.ModelProto:
    """Arithmetic, sums, positions, selections and moves of integers; wraps where it must."""
    body = """net (INT[batch, 6, 7] x, INT[7] b) =>
        (INT[batch, 6, 7] y, int64[batch, 6] best, INT[batch, 7] total, INT[batch, 7, 3] part,
         bool[batch, 6, 7] large, float[batch, 6, 7] share, INT[batch, 42] low) {
        s = Add (x, b)
        m = Mul (s, s)
        d = Div (m, three)
        t = Sub (d, x)
        y = Max (t, b)
        best = ArgMax <axis = 2, keepdims = 0> (x)
        wide = Cast <to = 7> (s)
        axes = Constant <value_ints = [1]> ()
        sums = ReduceSum <keepdims = 0> (wide, axes)
        total = Cast <to = KIND> (sums)
        turned = Transpose <perm = [0, 2, 1]> (t)
        part = Gather <axis = 2> (turned, places)
        large = Greater (s, three)
        f = Cast <to = 1> (x)
        share = Softmax <axis = 2> (f)
        chosen = Where (large, x, three)
        flat = Flatten (chosen)
        low = Min (flat, three)
    }"""
    kind = helper.np_dtype_to_tensor_dtype(dtype.numpy)
    text = body.replace("INT", INTEGERS[dtype.name]).replace("KIND", str(kind))
    model = network(text, {}, dtypes.f32)
    for name, array in {
        "three": np.asarray(3, dtype.numpy),
        "places": np.array([5, -6, 2]),
    }.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def quantized() -> onnx.ModelProto:
    """u8 activations and i8 weights: quantized product and convolution between f32 ends.

    Weights have 7 bits: without VNNI, onnxruntime adds pairs of products in 16 bits, with saturation.
    """
    body = """net (float[batch, 4, 9, 9] x) => (float[batch, 6, 9, 9] y, int32[batch, 4, 9, 5] z) {
        q = QuantizeLinear (x, sx, zx)
        c = QLinearConv <pads = [1, 1, 1, 1]> (q, sx, zx, wc, sw, zw, sy, zx)
        y = DequantizeLinear (c, sy, zx)
        z = MatMulInteger (q, wm, zx)
    }"""
    model = network(body, {}, dtypes.f32)
    random = np.random.default_rng(3)
    for name, array in {
        "sx": np.float32(0.02), "zx": np.uint8(120), "sy": np.float32(0.05),
        "wc": random.integers(-64, 64, (6, 4, 3, 3), np.int8), "sw": np.float32(0.01),
        "zw": np.int8(0), "wm": random.integers(-64, 64, (9, 5), np.int8),
    }.items():  # fmt: skip
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return model


def control() -> onnx.ModelProto:
    """If and Loop, shape arithmetic, ops without a kernel."""
    body = """net (float[n, 6] x, bool flag) => (float[n, 6] y, float[n, 2] v, int64[k] s) {
        three = Constant <value = int64 {3}> ()
        go = Constant <value = bool {1}> ()
        chosen = If (flag) <
            then_branch = up () => (float[n, 6] a) { a = Exp (x) },
            else_branch = down () => (float[n, 6] c) { c = Neg (x) }
        >
        y = Loop (three, go, chosen) <
            body = step (int64 i, bool c, float[n, 6] h) => (bool c2, float[n, 6] h2) {
                c2 = Identity (c)
                g = Tanh (h)
                h2 = Add (g, x)
            }
        >
        two = Constant <value_ints = [2]> ()
        v, w = TopK (y, two)
        s = Shape (x)
    }"""
    return network(body, {}, dtypes.f32)


def inputs_of(
    model: onnx.ModelProto, dims: Mapping[str, int], seed: int = 0
) -> dict[str, np.ndarray]:
    """Normal numbers, or integers of the type's middle, for each input."""
    random = np.random.default_rng(seed)
    found = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [
            dims[d.dim_param] if d.HasField("dim_param") else d.dim_value
            for d in tensor.shape.dim
        ]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if dtype.kind == "b":
            array = random.integers(0, 2, shape)
        elif dtype.kind in "iu":
            array = random.integers(0 if dtype.kind == "u" else -11, 12, shape)
        else:
            array = random.standard_normal(shape)
        found[value.name] = np.asarray(array).astype(dtype)
    return found
