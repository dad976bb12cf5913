"""Constructors of kernel expressions: dtype checks, lanes, coercion of numbers, safe folding.

`Expressions` is a namespace of static functions (`E.add(x, 1)`); `KernelBuilder` inherits it, so
bodies write `b.add(x, 1)`.  Only rewrites that are exact for every value (NaN, -0, wrap-around)
happen here; cost-driven simplification belongs to lowering.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Concatenate, Final, ParamSpec

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import DType
from tilewright.base.errors import InternalError
from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel import ir, numerics
from tilewright.compiler.kernel.rewrite import as_index, from_index
from tilewright.compiler.kernel.text import expression_text

Scalar = float | int  # or bool
Operand = ir.Expression | Scalar
Operands = ParamSpec("Operands")

_COMMUTATIVE: Final = ("add", "mul", "and", "or", "xor")
_BITWISE: Final = ("and", "or", "xor", "shl", "shr")


def const(value: Scalar, dtype: DType, lanes: int = 1) -> ir.Const:
    """The number `value` as `dtype`: integers wrap, floats are rounded to the type."""
    if dtype.is_bool:
        return ir.Const(bool(value), dtype, lanes)
    if dtype.is_float:
        rounded = numerics.array(float(value), dtypes.f64).astype(dtype.numpy)
        return ir.Const(float(rounded), dtype, lanes)
    if isinstance(value, float) and not value.is_integer():
        raise InternalError(f"constant {value} is not a value of {dtype}")
    return ir.Const(int(numerics.array(int(value), dtype)), dtype, lanes)


def splat(value: ir.Expression, lanes: int) -> ir.Expression:
    """A scalar in every lane; vectors of that width pass through."""
    if value.lanes == lanes:
        return value
    if value.lanes != 1:
        raise InternalError(f"cannot widen {value.lanes} lanes to {lanes}")
    if isinstance(value, ir.Const):
        return ir.Const(value.value, value.dtype, lanes)
    return ir.Splat(value, lanes, value.dtype)


def _pair(op: str, x: Operand, y: Operand) -> tuple[ir.Expression, ir.Expression]:
    """Both as expressions of one dtype and one lane count."""
    if isinstance(x, Scalar):
        if isinstance(y, Scalar):
            raise InternalError(f"'{op}' of two plain numbers has no data type")
        x = const(x, y.dtype, y.lanes)
    elif isinstance(y, Scalar):
        y = const(y, x.dtype, x.lanes)
    if x.dtype is not y.dtype:
        raise InternalError(
            f"operands of '{op}' differ: {x.dtype} ({expression_text(x)}) and {y.dtype} "
            f"({expression_text(y)})"
        )
    lanes = max(x.lanes, y.lanes)
    return splat(x, lanes), splat(y, lanes)


def binary(op: str, x: Operand, y: Operand) -> ir.Expression:
    """`x op y`; a number takes the dtype of the other side."""
    left, right = _pair(op, x, y)
    dtype = left.dtype
    if op not in ir.BINARY_OPS:
        raise InternalError(f"unknown binary operator '{op}'")
    if op in _BITWISE and dtype.is_float:
        raise InternalError(f"operator '{op}' needs integers or bool, got {dtype}")
    if isinstance(left, ir.Const) and isinstance(right, ir.Const):
        folded = _fold_binary(op, left, right)
        if folded is not None:
            return folded
    if isinstance(left, ir.Const) and op in _COMMUTATIVE:
        left, right = right, left
    simple = _neutral(op, left, right)
    return simple if simple is not None else ir.Binary(op, left, right, dtype, left.lanes)


def _fold_binary(op: str, x: ir.Const, y: ir.Const) -> ir.Const | None:
    dtype = x.dtype
    if dtype.is_integer and op in ("div", "mod", "floormod") and y.value == 0:
        return None
    if op in ("shl", "shr") and not 0 <= y.value < dtype.bits:
        return None
    left, right = numerics.array(x.value, dtype), numerics.array(y.value, dtype)
    value = _folded(numerics.binary, op, left, right, dtype)
    return ir.Const(_plain(value, dtype), dtype, x.lanes)


def _folded(
    compute: Callable[Operands, numerics.Values],
    *operands: Operands.args,
    **options: Operands.kwargs,
) -> numerics.Values:
    """What `numerics` makes of constants; numpy does not warn of infinities, NaN and integers that wrap."""
    with np.errstate(all="ignore"):
        return compute(*operands, **options)


def _plain(value: numerics.Values, dtype: DType) -> Scalar:
    if dtype.is_bool:
        return bool(value)
    return float(value) if dtype.is_float else int(value)


def _neutral(op: str, left: ir.Expression, right: ir.Expression) -> ir.Expression | None:
    """`left` (or an absorbing constant) when `right` is a constant that makes `op` trivial."""
    if not isinstance(right, ir.Const):
        return None
    number, dtype = right.value, left.dtype
    if op in ("mul", "div") and number == 1:
        return left
    if dtype.is_float:
        keeps = op == "sub" and number == 0 and math.copysign(1, number) > 0
        return left if keeps else None
    if op in ("add", "sub", "or", "xor", "shl", "shr") and number == 0:
        return left
    if op in ("mul", "and") and number == 0:
        return right
    if op == "and" and number == numerics.identity("and", dtype):
        return left
    return right if op == "or" and dtype.is_bool else None


def unary(op: str, x: ir.Expression) -> ir.Expression:
    """`op(x)`; `is_nan` gives bool."""
    if op not in ir.UNARY_OPS:
        raise InternalError(f"unknown unary operator '{op}'")
    if op == "is_nan":
        if not x.dtype.is_float:
            return const(False, dtypes.bool_, x.lanes)
        return ir.Unary(op, x, dtypes.bool_, x.lanes)
    if isinstance(x, ir.Const):
        value = _folded(numerics.unary, op, numerics.array(x.value, x.dtype), x.dtype)
        return ir.Const(_plain(value, x.dtype), x.dtype, x.lanes)
    if op == "abs" and not x.dtype.is_signed:
        return x
    if op == "not" and isinstance(x, ir.Unary) and x.op == "not":
        return x.operand
    return ir.Unary(op, x, x.dtype, x.lanes)


def compare(op: str, x: Operand, y: Operand) -> ir.Expression:
    """`x op y` as bool; comparisons of indices are decided when their bounds decide them."""
    left, right = _pair(op, x, y)
    if op not in ir.COMPARE_OPS:
        raise InternalError(f"unknown comparison '{op}'")
    if isinstance(left, ir.Const) and isinstance(right, ir.Const):
        value = _folded(
            numerics.compare,
            op,
            numerics.array(left.value, left.dtype),
            numerics.array(right.value, right.dtype),
        )
        return ir.Const(bool(value), dtypes.bool_, left.lanes)
    plain = isinstance(left, ir.Index | ir.Const) and isinstance(right, ir.Index | ir.Const)
    if plain and left.lanes == 1 and left.dtype is dtypes.i64:
        known = _decided(op, as_index(left), as_index(right))
        if known is not None:
            return const(known, dtypes.bool_)
    return ir.Compare(op, left, right, left.lanes)


def _decided(op: str, left: Dim, right: Dim) -> bool | None:
    """`left op right` when bounds settle it, which most often they do not: samples say so sooner."""
    within = symbolic.sampled_difference(left, right)
    if within is not None and decide(op, within) is None:
        return None
    return decide(op, symbolic.bounds(left - right))


def decide(op: str, difference: symbolic.Bounds) -> bool | None:
    """`left op right` when bounds of `left - right` settle it."""
    low, high = difference
    if op in ("ge", "gt", "ne"):
        opposite = decide({"ge": "lt", "gt": "le", "ne": "eq"}[op], difference)
        return None if opposite is None else not opposite
    if op == "eq":
        if low == 0 and high == 0:
            return True
        apart = (low is not None and low > 0) or (high is not None and high < 0)
        return False if apart else None
    edge = 0 if op == "le" else -1
    if high is not None and high <= edge:
        return True
    return False if low is not None and low > edge else None


def select(condition: ir.Expression, x: Operand, y: Operand) -> ir.Expression:
    """`x` where `condition`, else `y`."""
    left, right = _pair("select", x, y)
    if not condition.dtype.is_bool:
        raise InternalError(f"a condition must be bool, got {condition.dtype}")
    if isinstance(condition, ir.Const):
        return left if condition.value else right
    lanes = max(condition.lanes, left.lanes)
    left, right = splat(left, lanes), splat(right, lanes)
    return ir.Select(splat(condition, lanes), left, right, left.dtype, lanes)


def cast(x: ir.Expression, dtype: DType) -> ir.Expression:
    """`x` converted to `dtype`; nothing if it has that type."""
    if x.dtype is dtype:
        return x
    if isinstance(x, ir.Const):
        value = _folded(numerics.cast, numerics.array(x.value, x.dtype), dtype)
        return ir.Const(_plain(value, dtype), dtype, x.lanes)
    return ir.Cast(x, dtype, x.lanes)


def bitcast(x: ir.Expression, dtype: DType) -> ir.Expression:
    """The bits of `x` as values of `dtype`, in as many lanes as fill the same bytes."""
    if x.dtype is dtype:
        return x
    lanes, rest = divmod(x.lanes * x.dtype.itemsize, dtype.itemsize)
    if rest:
        raise InternalError(f"{x.lanes} lanes of {x.dtype} are no whole number of {dtype}")
    if isinstance(x, ir.Const) and lanes == x.lanes:
        value = numerics.bitcast(numerics.array(x.value, x.dtype), dtype)
        return ir.Const(_plain(value, dtype), dtype, x.lanes)
    return ir.Bitcast(x, dtype, lanes)


def fma(a: Operand, b: Operand, c: ir.Expression) -> ir.Expression:
    """`a * b + c` with one rounding."""
    left, right = _pair("fma", a, b)
    left, total = _pair("fma", left, c)
    right = splat(right, left.lanes)
    return ir.Fma(left, right, total, total.dtype, total.lanes)


def horizontal(op: str, x: ir.Expression) -> ir.Expression:
    """The lanes of `x` combined into a scalar."""
    return x if x.lanes == 1 else ir.Horizontal(op, x, x.dtype)


def _named(
    function: Callable[Concatenate[str, Operands], ir.Expression], op: str
) -> staticmethod[Operands, ir.Expression]:
    """`function` of one operator."""
    return staticmethod(partial(function, op))


class Expressions:
    """The expression helpers under short names; see the functions of this module."""

    const = staticmethod(const)
    splat = staticmethod(splat)
    cast = staticmethod(cast)
    bitcast = staticmethod(bitcast)
    select = staticmethod(select)
    fma = staticmethod(fma)
    unary = staticmethod(unary)
    binary = staticmethod(binary)
    compare = staticmethod(compare)
    horizontal = staticmethod(horizontal)
    as_index = staticmethod(as_index)
    index = staticmethod(from_index)

    add = _named(binary, "add")
    sub = _named(binary, "sub")
    mul = _named(binary, "mul")
    div = _named(binary, "div")
    mod = _named(binary, "mod")
    floormod = _named(binary, "floormod")
    min = _named(binary, "min")
    max = _named(binary, "max")
    pow = _named(binary, "pow")
    and_ = _named(binary, "and")
    or_ = _named(binary, "or")
    xor = _named(binary, "xor")
    shl = _named(binary, "shl")
    shr = _named(binary, "shr")
    eq = _named(compare, "eq")
    ne = _named(compare, "ne")
    lt = _named(compare, "lt")
    le = _named(compare, "le")
    gt = _named(compare, "gt")
    ge = _named(compare, "ge")
    neg = _named(unary, "neg")
    abs = _named(unary, "abs")
    exp = _named(unary, "exp")
    log = _named(unary, "log")
    sqrt = _named(unary, "sqrt")
    rsqrt = _named(unary, "rsqrt")
    floor = _named(unary, "floor")
    ceil = _named(unary, "ceil")
    round = _named(unary, "round")
    trunc = _named(unary, "trunc")
    sin = _named(unary, "sin")
    cos = _named(unary, "cos")
    exp_nonpositive = _named(unary, "exp_nonpositive")
    tanh = _named(unary, "tanh")
    erf = _named(unary, "erf")
    normal_cdf = _named(unary, "normal_cdf")
    sigmoid = _named(unary, "sigmoid")
    not_ = _named(unary, "not")
    is_nan = _named(unary, "is_nan")
