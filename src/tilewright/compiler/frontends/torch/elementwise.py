"""Rows for arithmetic, comparison, logic and conversion of the elements at one place.

Source: the operators of ATen by name, `torch` reference pages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.compiler.frontends.kit.bit_units import cut, joined
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.promotion import promoted
from tilewright.compiler.frontends.torch.row import Build, row

_PAIR: Final = ("self", "other")
_WORDS: Final = {8: dtypes.u8, 16: dtypes.u16, 32: dtypes.u32, 64: dtypes.u64}


def to_bool(e: NodeMaker, x: Tensor) -> Tensor:
    """Whether an element is not zero; NaN is not."""
    return x if x.dtype.is_bool else e.op("not_equal", x, e.scalar(0, x.dtype))


def convert(e: NodeMaker, x: Tensor, dtype: DType) -> Tensor:
    """`x` with another element type, as torch converts it: what is not zero is true."""
    if dtype.is_bool:
        return to_bool(e, x)
    if x.dtype.is_float and dtype.is_integer and dtype.bits < 64:
        # Torch goes by way of i64 and keeps the low bits, where the graph's cast saturates.
        x = e.cast(x, dtypes.i64)
    return e.cast(x, dtype)


def _binary(op: str, of_bools: str = "") -> Callable[[Call], Tensor]:
    """An op of two operands in the type of the result."""

    def build(call: Call) -> Tensor:
        dtype = call.widened(*_PAIR)
        if dtype.is_bool:
            if not of_bools:
                raise UnsupportedError("truth values are not supported here")
            return call.op(
                of_bools, call.operand("self", dtype), call.operand("other", dtype)
            )
        return call.finish(
            call.op(op, call.operand("self", dtype), call.operand("other", dtype))
        )

    return build


def _add(call: Call) -> Tensor:
    return _weighted(call, "add", "self", "other", of_bools="logical_or")


def _sub(call: Call) -> Tensor:
    return _weighted(call, "sub", "self", "other")


def _rsub(call: Call) -> Tensor:
    return _weighted(call, "sub", "other", "self")


def _weighted(call: Call, op: str, first: str, second: str, of_bools: str = "") -> Tensor:
    """`first op alpha * second`."""
    dtype = call.widened(*_PAIR)
    x, y = call.operand(first, dtype), call.operand(second, dtype)
    alpha = call.number("alpha", 1)
    if dtype.is_bool:
        if not of_bools:
            raise UnsupportedError("truth values are not supported here")
        return call.op(of_bools, x, y) if alpha else x
    if alpha != 1:
        y = call.op("mul", y, call.maker.scalar(alpha, dtype))
    return call.finish(call.op(op, x, y))


def _divide(call: Call) -> Tensor:
    mode = call.text("rounding_mode")
    if mode == "floor":
        return _floor_divide(call)
    dtype = call.widened(*_PAIR)
    found = call.op("div", call.operand("self", dtype), call.operand("other", dtype))
    if mode == "trunc" and dtype.is_float:
        found = truncated(call.maker, found)
    return call.finish(found)


def truncated(e: NodeMaker, x: Tensor) -> Tensor:
    """Rounded toward zero."""
    down, up = e.op("floor", x), e.op("ceil", x)
    return e.op("where", e.op("less", x, e.scalar(0, x.dtype)), up, down)


def _floor_divide(call: Call) -> Tensor:
    e, dtype = call.maker, call.widened(*_PAIR)
    x, y = call.operand("self", dtype), call.operand("other", dtype)
    if not dtype.is_float:
        found = e.op("div", x, y)
        if not dtype.is_signed:
            return found
        rest = e.op("sub", x, e.op("mul", found, y))
        zero = e.scalar(0, dtype)
        signs = e.op("not_equal", e.op("less", rest, zero), e.op("less", y, zero))
        less = e.op("logical_and", e.op("not_equal", rest, zero), signs)
        return e.op("sub", found, e.cast(less, dtype))
    return call.finish(_floor_divide_floats(e, x, y))


def _floor_divide_floats(e: NodeMaker, x: Tensor, y: Tensor) -> Tensor:
    """As CPython divides: the quotient of what is left without the remainder, and x / 0 as it is."""
    zero, one = e.scalar(0, x.dtype), e.scalar(1, x.dtype)
    rest = e.op("mod", x, y, fmod=True)
    quotient = e.op("div", e.op("sub", x, rest), y)
    signs = e.op("not_equal", e.op("less", y, zero), e.op("less", rest, zero))
    less = e.op("logical_and", e.op("not_equal", rest, zero), signs)
    quotient = e.op("where", less, e.op("sub", quotient, one), quotient)
    down = e.op("floor", quotient)
    half = e.scalar(0.5, x.dtype)
    near = e.op("greater", e.op("sub", quotient, down), half)
    found = e.op("where", near, e.op("add", down, one), down)
    return e.op("where", e.op("equal", y, zero), e.op("div", x, y), found)


def _remainder(call: Call) -> Tensor:
    e, dtype = call.maker, call.widened(*_PAIR)
    x, y = call.operand("self", dtype), call.operand("other", dtype)
    if not dtype.is_float:
        return e.op("mod", x, y)
    rest, zero = e.op("mod", x, y, fmod=True), e.scalar(0, dtype)
    signs = e.op("not_equal", e.op("less", rest, zero), e.op("less", y, zero))
    moved = e.op("logical_and", e.op("not_equal", rest, zero), signs)
    return call.finish(e.op("where", moved, e.op("add", rest, y), rest))


def _fmod(call: Call) -> Tensor:
    dtype = call.widened(*_PAIR)
    x, y = call.operand("self", dtype), call.operand("other", dtype)
    return call.finish(call.op("mod", x, y, fmod=True))


def _power(call: Call) -> Tensor:
    e, dtype = call.maker, call.widened("self", "exponent")
    if dtype.is_bool:
        raise UnsupportedError("truth values are not supported here")
    x = call.operand("self", dtype)
    if call.is_number("exponent") and call.number("exponent") == 2:
        return call.finish(e.op("mul", x, x))
    y = call.operand("exponent", dtype)
    if dtype.is_float or not dtype.is_signed:
        return call.finish(e.op("pow", x, y))
    zero, one = e.scalar(0, dtype), e.scalar(1, dtype)
    whole = e.op("pow", x, e.op("max", y, zero))
    # One over a power of a whole number is no whole number, but for 1 and -1.
    is_odd = e.op("equal", e.op("bitwise_and", y, one), one)
    minus = e.scalar(-1, dtype)
    below = e.op("where", e.op("equal", x, minus), e.op("where", is_odd, minus, one), zero)
    below = e.op("where", e.op("equal", x, one), one, below)
    return e.op("where", e.op("less", y, zero), below, whole)


def _compare(op: str) -> Build:
    def build(call: Call) -> Tensor:
        dtype = promoted(call, _PAIR)
        if dtype.is_bool and op not in ("equal", "not_equal"):
            dtype = dtypes.u8
        return call.op(op, call.operand("self", dtype), call.operand("other", dtype))

    return build


def _logical(op: str) -> Build:
    def build(call: Call) -> Tensor:
        x, y = (to_bool(call.maker, call.tensor(name)) for name in _PAIR)
        return call.op(op, x, y)

    return build


def _bits(op: str) -> Build:
    def build(call: Call) -> Tensor:
        dtype = call.dtype()
        x, y = (call.operand(name, dtype) for name in _PAIR)
        name = f"logical_{op}" if dtype.is_bool else f"bitwise_{op}"
        return call.op(name, x, y)

    return build


def _shift(op: str) -> Build:
    def build(call: Call) -> Tensor:
        e, dtype = call.maker, call.dtype()
        if not dtype.is_integer:
            raise UnsupportedError(f"shifts of {dtype} are not supported")
        x, y = (call.operand(name, dtype) for name in _PAIR)
        width, zero = e.scalar(dtype.bits, dtype), e.scalar(0, dtype)
        outside = e.op("logical_or", e.op("less", y, zero), e.op("greater_equal", y, width))
        inside = e.op("where", outside, zero, y)
        most = e.scalar(dtype.bits - 1, dtype)
        lost = zero if op == "shift_left" else e.op("shift_right", x, most)
        return e.op("where", outside, lost, e.op(op, x, inside))

    return build


def _logical_not(call: Call) -> Tensor:
    e, x = call.maker, call.tensor()
    return e.op("logical_not", to_bool(e, x))


def _bitwise_not(call: Call) -> Tensor:
    x = call.tensor()
    return call.op("logical_not" if x.dtype.is_bool else "bitwise_not", x)


def _where(call: Call) -> Tensor:
    dtype = call.dtype()
    condition = to_bool(call.maker, call.tensor("condition"))
    return call.op(
        "where", condition, call.operand("self", dtype), call.operand("other", dtype)
    )


def _ignoring_nan(op: str) -> Build:
    """The extreme of two numbers; one that is not a number loses."""

    def build(call: Call) -> Tensor:
        e, dtype = call.maker, call.dtype()
        if dtype.is_bool:
            return _binary("", "logical_or" if op == "max" else "logical_and")(call)
        x, y = (call.operand(name, dtype) for name in _PAIR)
        found = e.op(op, x, y)
        if not dtype.is_float:
            return found
        found = e.op("where", e.op("is_nan", x), y, found)
        return e.op("where", e.op("is_nan", y), x, found)

    return build


def _clamp(call: Call) -> Tensor:
    dtype = call.dtype()
    most, least = ("logical_or", "logical_and") if dtype.is_bool else ("max", "min")
    x = call.operand("self", dtype)
    low, high = (
        call.operand(name, dtype) if call.has(name) else None for name in ("min", "max")
    )
    # Where the bounds cross, the upper one counts.
    if low is not None:
        x = call.op(most, x, low)
    return x if high is None else call.op(least, x, high)


def _convert(call: Call) -> Tensor:
    """A copy, of another element type if one is given."""
    x = call.tensor()
    wanted = call.element_type("dtype")
    return convert(call.maker, x, x.dtype if wanted is None else wanted)


def _same(call: Call) -> Tensor:
    return call.tensor()


def _convert_to_result(*names: str) -> Build:
    def build(call: Call) -> Tensor:
        for name in names:
            call.argument(name)
        return convert(call.maker, call.tensor(), call.dtype())

    return build


def _prims_convert(call: Call) -> Tensor:
    call.argument("dtype")
    return convert(call.maker, call.tensor("a"), call.dtype())


def _copy(call: Call) -> Tensor:
    source = convert(call.maker, call.tensor("src"), call.dtype())
    call.argument("self")
    return call.maker.broadcast_to(source, call.shape())


def _view_as_type(call: Call) -> Tensor:
    """Narrower elements are more along the last axis, wider ones fewer; truths are bytes."""
    e, x, dtype = call.maker, call.tensor(), call.dtype()
    call.argument("dtype")
    if x.dtype == dtype:
        return x
    if x.dtype.is_bool:
        x = e.cast(x, dtypes.u8)
    held = dtypes.u8 if dtype.is_bool else dtype
    if x.dtype.bits % 8 or held.bits % 8:
        raise UnsupportedError(f"{x.dtype} seen as {dtype} is not supported")
    if x.dtype.bits != held.bits:
        x = _with_width(call, _as_bits(e, x, _WORDS[x.dtype.bits]), _WORDS[held.bits])
    return e.cast(x, dtype) if dtype.is_bool else _as_bits(e, x, dtype)


def _with_width(call: Call, word: Tensor, dtype: DType) -> Tensor:
    """Words of another width than `dtype` as words of it, in the shape of the result."""
    e, before, after = call.maker, word.dtype.bits, dtype.bits
    if before > after:
        return e.reshape(e.cast(cut(e, word, before, after), dtype), call.shape())
    count = after // before
    return joined(e, e.reshape(word, (*call.shape(), count)), count, before, dtype)


def _as_bits(e: NodeMaker, x: Tensor, dtype: DType) -> Tensor:
    return x if x.dtype == dtype else e.op("bitcast", x, dtype=dtype)


def _in_f32(build: Callable[[Call, DType], Tensor]) -> Build:
    """Arithmetic of several steps, in f32 where the result has halves."""

    def widely(call: Call) -> Tensor:
        dtype = call.dtype()
        return call.finish(build(call, dtypes.f32 if dtype in dtypes.HALVES else dtype))

    return widely


def _lerp(call: Call, dtype: DType) -> Tensor:
    e = call.maker
    x, y = call.operand("self", dtype), call.operand("end", dtype)
    weight = call.operand("weight", dtype)
    gap, one = e.op("sub", y, x), e.scalar(1, dtype)
    # From the nearer end: 0 gives one exactly, 1 the other.
    low = e.op("add", x, e.op("mul", weight, gap))
    high = e.op("sub", y, e.op("mul", gap, e.op("sub", one, weight)))
    is_low = e.op("less", e.op("abs", weight), e.scalar(0.5, dtype))
    return e.op("where", is_low, low, high)


def _addcmul(call: Call, dtype: DType) -> Tensor:
    return _added(call, dtype, "mul")


def _addcdiv(call: Call, dtype: DType) -> Tensor:
    return _added(call, dtype, "div")


def _added(call: Call, dtype: DType, op: str) -> Tensor:
    x, y, z = (call.operand(name, dtype) for name in ("self", "tensor1", "tensor2"))
    value = call.maker.scalar(call.number("value", 1), dtype)
    if op == "mul":
        return call.op("add", x, call.op("mul", call.op("mul", value, y), z))
    return call.op("add", x, call.op("div", call.op("mul", value, y), z))


def _copysign(call: Call) -> Tensor:
    e, dtype = call.maker, call.dtype()
    x, y = (call.operand(name, dtype) for name in _PAIR)
    size = e.op("abs", x)
    return e.op("where", is_negative(e, y), e.op("neg", size), size)


def is_negative(e: NodeMaker, x: Tensor) -> Tensor:
    """Whether the sign bit is set, also of a zero and of what is not a number."""
    if not x.dtype.is_signed:
        return e.broadcast_to(e.scalar(False, dtypes.bool_), x.shape)
    if x.dtype.is_float:
        bits = {16: dtypes.i16, 32: dtypes.i32, 64: dtypes.i64}[x.dtype.bits]
        x = e.op("bitcast", x, dtype=bits)
    return e.op("less", x, e.scalar(0, x.dtype))


def _signbit(call: Call) -> Tensor:
    return is_negative(call.maker, call.tensor())


def _hypot(call: Call, dtype: DType) -> Tensor:
    # The longer side is taken out of the root, so that no square is too large or too small.
    e = call.maker
    a, b = (e.op("abs", call.operand(name, dtype)) for name in _PAIR)
    long, short = e.op("max", a, b), e.op("min", a, b)
    ratio, one = e.op("div", short, long), e.scalar(1, dtype)
    root = e.op("sqrt", e.op("add", one, e.op("mul", ratio, ratio)))
    zero = e.scalar(0, dtype)
    found = e.op("where", e.op("equal", long, zero), zero, e.op("mul", long, root))
    either = e.op("logical_or", e.op("is_inf", a), e.op("is_inf", b))
    return e.op("where", either, e.scalar(np.inf, dtype), found)


def _atan2(call: Call, dtype: DType) -> Tensor:
    y, x = (call.operand(name, dtype) for name in _PAIR)
    return angle_of(call.maker, y, x)


def angle_of(e: NodeMaker, y: Tensor, x: Tensor) -> Tensor:
    """The angle of points (x, y) to the first axis, from -pi to pi."""
    dtype = x.dtype
    zero, pi = e.scalar(0, dtype), e.scalar(np.pi, dtype)
    ay, ax = e.op("abs", y), e.op("abs", x)
    both = e.op("logical_and", e.op("is_inf", y), e.op("is_inf", x))
    ratio = e.op("div", ay, ax)
    one = e.scalar(1, dtype)
    ratio = e.op("where", both, one, ratio)
    none = e.op("logical_and", e.op("equal", ay, zero), e.op("equal", ax, zero))
    angle = e.op("atan", e.op("where", none, zero, ratio))
    angle = e.op("where", is_negative(e, x), e.op("sub", pi, angle), angle)
    return e.op("where", is_negative(e, y), e.op("neg", angle), angle)


_EITHER: Final = "{0}.Tensor {0}.Scalar"


def _pairs(name: str) -> str:
    return _EITHER.format(name)


ROWS: Final = (
    row(_pairs("add"), _add),
    row(_pairs("sub"), _sub),
    row(_pairs("rsub"), _rsub),
    row(_pairs("mul"), _binary("mul", "logical_and")),
    row(
        "div.Tensor div.Scalar div.Tensor_mode div.Scalar_mode true_divide.Tensor "
        "true_divide.Scalar",
        _divide,
    ),
    row("floor_divide floor_divide.Scalar", _floor_divide),
    row(_pairs("remainder"), _remainder),
    row(_pairs("fmod"), _fmod),
    row("pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar", _power),
    row("maximum", _binary("max", "logical_or")),
    row("minimum", _binary("min", "logical_and")),
    row("fmax", _ignoring_nan("max")),
    row("fmin", _ignoring_nan("min")),
    row(_pairs("eq"), _compare("equal")),
    row(_pairs("ne"), _compare("not_equal")),
    row(_pairs("lt"), _compare("less")),
    row(_pairs("le"), _compare("less_equal")),
    row(_pairs("gt"), _compare("greater")),
    row(_pairs("ge"), _compare("greater_equal")),
    row("logical_and", _logical("logical_and")),
    row("logical_or", _logical("logical_or")),
    row("logical_xor", _logical("logical_xor")),
    row(
        "bitwise_and.Tensor bitwise_and.Scalar __and__.Tensor __and__.Scalar", _bits("and")
    ),
    row("bitwise_or.Tensor bitwise_or.Scalar __or__.Tensor __or__.Scalar", _bits("or")),
    row(
        "bitwise_xor.Tensor bitwise_xor.Scalar __xor__.Tensor __xor__.Scalar", _bits("xor")
    ),
    row(
        "bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar __lshift__.Tensor "
        "__lshift__.Scalar prims::shift_left",
        _shift("shift_left"),
    ),
    row(
        "bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar __rshift__.Tensor "
        "__rshift__.Scalar prims::shift_right_arithmetic",
        _shift("shift_right"),
    ),
    row("logical_not", _logical_not),
    row("bitwise_not", _bitwise_not),
    row("where.self where.ScalarSelf where.ScalarOther where.Scalar", _where),
    row("clamp clamp.Tensor clamp_min clamp_min.Tensor clamp_max clamp_max.Tensor", _clamp),
    row("_to_copy to.dtype to.dtype_layout", _convert),
    row("prims::convert_element_type", _prims_convert),
    row("type_as to.other", _convert_to_result("other")),
    row(
        "clone alias detach lift_fresh_copy contiguous positive lift lift_fresh detach_copy "
        "alias_copy resolve_conj resolve_neg conj real conj_physical _conj_physical",
        _same,
    ),
    row("copy", _copy),
    row("view.dtype", _view_as_type),
    row("lerp.Tensor lerp.Scalar", _in_f32(_lerp)),
    row("addcmul", _in_f32(_addcmul)),
    row("addcdiv", _in_f32(_addcdiv)),
    row("copysign.Tensor copysign.Scalar", _copysign),
    row("signbit", _signbit),
    row("hypot", _in_f32(_hypot)),
    row("atan2", _in_f32(_atan2)),
)
