"""Steps in few bits: weights in blocks, what is quantized around an operator, operators of integers, bits.

Scales are powers of two and what is quantized is whole, so that no two ways to compute round apart.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto, helper

from fuzz.flow.elementwise import MOST_ELEMENTS
from fuzz.flow.images import followed, is_image, padding, window
from fuzz.flow.maker import ANY, ROUGH, WHOLE, Maker, Step, Value, estimated_elements

BYTES = (np.uint8, np.int8)
SCALES = (1.0, 0.5, 0.25, 2.0)


def whole(m: Maker, rank: int | None = None) -> Value | None:
    """Whole numbers in f32, small ones."""
    found = m.pick(
        lambda v: v.dtype == "float32" and v.kind == WHOLE and v.finite and v.rank > 0
        and (rank is None or v.rank == rank)
    )  # fmt: skip
    return None if found is None else m.tame(found, 16.0)


def scale(m: Maker, shape: tuple[int, ...] = ()) -> Value:
    return m.constant(m.numbers.choice(SCALES, shape).astype(np.float32))


def zero(m: Maker, kind: type, shape: tuple[int, ...] = ()) -> Value:
    low, high = (0, 256) if kind is np.uint8 else (-128, 128)
    middle = 128 if kind is np.uint8 else 0
    array = (
        np.full(shape, middle) if m.chance(0.4) else m.numbers.integers(low, high, shape)
    )
    return m.constant(np.asarray(array).astype(kind))


def packed(m: Maker, array: np.ndarray, element: int) -> Value:
    """An initializer of a type of four bits."""
    name = m.name("c")
    flat = [int(x) for x in array.reshape(-1)]
    m.frame.initializers.append(helper.make_tensor(name, element, array.shape, flat))
    return Value(name, "uint8", array.shape)


def step_blocks(m: Maker) -> None:
    """A product with weights in blocks along the axis that is summed, or another."""
    v = whole(m)
    if v is None or v.rank < 2 or not isinstance(v.shape[-1], int) or not v.shape[-1]:
        return
    depth, columns = v.shape[-1], m.one((1, 3, 8, 16))
    if estimated_elements((*v.shape[:-1], columns)) > MOST_ELEMENTS:
        return
    axis = m.number(0, 1)
    along = (depth, columns)[axis]
    block = m.one([b for b in (1, 2, 3, 4, 5, 8, 16) if b <= along])
    blocks = -(-along // block)
    shape = (blocks, columns) if axis == 0 else (depth, blocks)
    element = m.one(
        (TensorProto.INT4, TensorProto.UINT4, TensorProto.INT8, TensorProto.UINT8)
    )
    signed = element in (TensorProto.INT4, TensorProto.INT8)
    low, high = (-8, 8) if signed else (0, 16)
    values = m.numbers.integers(low, high, (depth, columns))
    zeros = m.numbers.integers(low, high, shape)
    operands = [packed(m, values, element), scale(m, shape)]
    if m.chance(0.6):
        operands.append(packed(m, zeros, element))
    weights = m.node("DequantizeLinear", operands, axis=axis, block_size=block)[0]
    made = Value(weights, "float32", (depth, columns), WHOLE, 64.0)
    product(m, v, made, columns)


def product(m: Maker, v: Value, weights: Value, columns: int) -> None:
    depth = int(v.shape[-1])
    made = m.add("MatMul", [v, weights], v, shape=(*v.shape[:-1], columns),
                 bound=64 * depth * v.bound)  # fmt: skip
    followed(m, m.tame(made, 16.0))


def step_bits(m: Maker) -> None:
    """The product of Microsoft with weights of two, four or eight bits."""
    v = whole(m)
    if v is None or v.rank < 2 or not isinstance(v.shape[-1], int) or not v.shape[-1]:
        return
    depth, columns = v.shape[-1], m.one((1, 3, 8, 16))
    bits, block = m.one((2, 4, 4, 8)), m.one((16, 32))
    blocks = -(-depth // block)
    stored = m.numbers.integers(0, 256, (columns, blocks, block * bits // 8)).astype(
        np.uint8
    )
    operands: list[Value | str] = [v, m.constant(stored), scale(m, (columns, blocks))]
    if m.chance(0.5):
        row = -(-blocks * bits // 8)
        operands.append(
            m.constant(m.numbers.integers(0, 256, (columns, row)).astype(np.uint8))
        )
    if m.chance(0.3):
        operands += [""] * (5 - len(operands)) + [m.weights((columns,), "float32")]
    made = m.add("MatMulNBits", operands, v, shape=(*v.shape[:-1], columns), kind=ROUGH,
                 bound=512.0 * depth * v.bound, _K=depth, _N=columns, _bits=bits,
                 _block_size=block, _domain="com.microsoft")  # fmt: skip
    m.tame(made)


def held(m: Maker, v: Value) -> Value:
    """Quantized and back: what exporters put around each operator."""
    kind = m.one(BYTES)
    s, z = scale(m), zero(m, kind)
    (name,) = m.node("QuantizeLinear", [v, s, z])
    return m.add("DequantizeLinear", [name, s, z], v, kind=WHOLE, bound=512.0)


def step_held(m: Maker) -> None:
    v = whole(m)
    if v is not None:
        held(m, v)


def step_held_product(m: Maker) -> None:
    """Data and weights quantized and back, a product, and its result quantized and back."""
    v = whole(m)
    if v is None or v.rank < 2 or not isinstance(v.shape[-1], int) or not v.shape[-1]:
        return
    depth, columns = v.shape[-1], m.one((1, 4, 8, 17))
    if estimated_elements((*v.shape[:-1], columns)) > MOST_ELEMENTS:
        return
    each = m.chance(0.5)
    stored = m.constant(m.numbers.integers(-5, 6, (depth, columns)).astype(np.int8))
    shape = (columns,) if each else ()
    zeros = m.constant(np.zeros(shape, np.int8))
    name = m.node("DequantizeLinear", [stored, scale(m, shape), zeros],
                  **({"axis": 1} if each else {}))[0]  # fmt: skip
    weights = Value(name, "float32", (depth, columns), WHOLE, 10.0)
    made = m.add("MatMul", [held(m, v), weights], v, shape=(*v.shape[:-1], columns),
                 bound=5000.0 * depth)  # fmt: skip
    if m.chance(0.5):
        made = m.add("Add", [made, m.weights((columns,), "float32")], made)
    if m.chance(0.5):
        made = m.add("Relu", [made], made)
    if m.chance(0.7):
        held(m, made)


def step_held_convolution(m: Maker) -> None:
    v = m.pick(
        lambda v: is_image(v) and v.kind == WHOLE and v.finite
        and all(m.is_positive(s) for s in v.shape[2:])
    )  # fmt: skip
    if v is None:
        return
    v = m.tame(v, 16.0)
    channels = int(v.shape[1])
    groups = m.one([g for g in {1, 2, channels} if channels % g == 0])
    filters = groups * m.one((1, 3, 4))
    w = window(m, v, 3)
    pads, sizes = padding(m, v, w)
    shape = (v.shape[0], filters, *sizes)
    if estimated_elements(shape) > MOST_ELEMENTS:
        return
    taps = (filters, channels // groups, *w["k"])
    stored = m.constant(m.numbers.integers(-3, 4, taps).astype(np.int8))
    each = m.chance(0.5)
    zeros = m.constant(np.zeros((filters,) if each else (), np.int8))
    factors = scale(m, (filters,) if each else ())
    name = m.node(
        "DequantizeLinear", [stored, factors, zeros], **({"axis": 0} if each else {})
    )[0]
    x = held(m, v)
    made = m.add(
        "Conv", [x, name], v, shape=shape, bound=3000.0 * math.prod(taps[1:]), _group=groups,
        _strides=w["s"], _dilations=w["d"], **pads,
    )  # fmt: skip
    if m.chance(0.5):
        made = m.add("Relu", [made], made)
    if m.chance(0.7):
        held(m, made)


def quantized(m: Maker, v: Value, kind: type) -> tuple[Value, Value, Value]:
    """The bytes of a value, its scale and its zero."""
    s, z = scale(m), zero(m, kind)
    (name,) = m.node("QuantizeLinear", [v, s, z])
    return Value(name, np.dtype(kind).name, v.shape), s, z


def step_integer_product(m: Maker) -> None:
    """Operators whose operands are bytes: with a zero each, and results in 32 bits or bytes again."""
    v = whole(m)
    if v is None or v.rank < 2 or not isinstance(v.shape[-1], int) or not v.shape[-1]:
        return
    depth, columns = v.shape[-1], m.one((1, 4, 7, 16))
    kind = m.one(BYTES)
    x, s, z = quantized(m, v, kind)
    other = m.one((np.int8, kind))
    low = 0 if other is np.uint8 else -20
    right = m.constant(m.numbers.integers(low, 20, (depth, columns)).astype(other))
    shape = (*v.shape[:-1], columns)
    if m.chance(0.5):
        z_right = m.constant(np.asarray(m.number(0, 3), other))
        sums = m.add("MatMulInteger", [x, right, z, z_right], v, dtype="int32", shape=shape,
                     kind=WHOLE, bound=ANY)  # fmt: skip
        if m.chance(0.6):
            real = m.add("Cast", [sums], sums, dtype="float32", kind=WHOLE, _to=1,
                         bound=1e4 * depth)  # fmt: skip
            m.add("Mul", [real, s], real, kind=ROUGH)
        return
    z_right = zero(m, other)
    out, z_out = scale(m), zero(m, kind)
    (name,) = m.node("QLinearMatMul", [x, s, z, right, scale(m), z_right, out, z_out])
    m.add("DequantizeLinear", [name, out, z_out], v, shape=shape, kind=WHOLE, bound=512.0)


def step_integer_convolution(m: Maker) -> None:
    v = m.pick(
        lambda v: is_image(v) and v.rank == 4 and v.kind == WHOLE and v.finite
        and all(m.is_positive(s) for s in v.shape[2:])
    )  # fmt: skip
    if v is None:
        return
    v = m.tame(v, 16.0)
    channels = int(v.shape[1])
    w = window(m, v, 3)
    pads, sizes = padding(m, v, w)
    filters = m.one((1, 3, 8))
    shape = (v.shape[0], filters, *sizes)
    if estimated_elements(shape) > MOST_ELEMENTS:
        return
    x, s, z = quantized(m, v, np.uint8)
    taps = m.constant(
        m.numbers.integers(-9, 9, (filters, channels, *w["k"])).astype(np.int8)
    )
    windows = {
        "strides": w["s"],
        "dilations": w["d"],
        **{k[1:]: a for k, a in pads.items()},
    }
    if m.chance(0.4):
        operands = [x, m.constant(m.numbers.integers(0, 9, (filters, channels, *w["k"]))
                                  .astype(np.uint8)), z]  # fmt: skip
        (name,) = m.node("ConvInteger", operands, **windows)
        m.keep(Value(name, "int32", shape, WHOLE, ANY))
        return
    each = m.chance(0.5)
    factors = scale(m, (filters,) if each else ())
    zeros = m.constant(np.zeros((filters,) if each else (), np.int8))
    out, z_out = scale(m), zero(m, np.uint8)
    operands = [x, s, z, taps, factors, zeros, out, z_out]
    if m.chance(0.5):
        operands.append(m.constant(m.numbers.integers(-99, 99, filters).astype(np.int32)))
    (name,) = m.node("QLinearConv", operands, **windows)
    m.add("DequantizeLinear", [name, out, z_out], v, shape=shape, kind=WHOLE, bound=512.0)


def step_shift(m: Maker) -> None:
    """Bits: shifts, and, or, exclusive or, not; of integers without a sign for shifts."""
    v = m.pick(lambda v: v.dtype in ("uint8", "int32", "int64"))
    if v is None:
        return
    if m.chance(0.5):
        small = m.tame(v, 64.0)
        if v.dtype != "uint8":
            small = m.add("Cast", [m.add("Abs", [small], small)], small, dtype="uint8",
                          _to=TensorProto.UINT8)  # fmt: skip
        m.add("BitShift", [small, m.scalar(m.number(0, 7), "uint8")], small, bound=ANY,
              _direction=m.one(("LEFT", "RIGHT")))  # fmt: skip
    elif m.chance(0.3):
        m.add("BitwiseNot", [v], v, bound=ANY)
    else:
        op = m.one(("BitwiseAnd", "BitwiseOr", "BitwiseXor"))
        m.add(op, [v, m.scalar(m.number(0, 100), v.dtype)], v, bound=ANY)


def step_remainder(m: Maker) -> None:
    """Quotients and remainders by what data says, either sign, of both kinds."""
    v = m.pick(lambda v: v.dtype in ("int64", "int32"))
    if v is None:
        return
    least = m.add("Abs", [m.tame(v, 64.0)], v, bound=64.0)
    divisor = m.add("Add", [least, m.scalar(1, v.dtype)], least, bound=65.0)
    if m.chance(0.5):
        divisor = m.add("Neg", [divisor], divisor)
    kind = m.number(0, 2)
    if kind == 0:
        m.add("Div", [v, divisor], v)
    else:
        m.add("Mod", [v, divisor], v, bound=65.0, _fmod=kind - 1)


STEPS: tuple[Step, ...] = (
    step_blocks, step_blocks, step_bits, step_bits, step_held, step_held_product,
    step_held_product, step_held_convolution, step_held_convolution, step_integer_product,
    step_integer_product, step_integer_convolution, step_shift, step_remainder,
)  # fmt: skip
