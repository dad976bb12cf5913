"""Rows for operations on the elements at one place: arithmetic, comparison, logic, conversion.

Source: StableHLO specification, per operation in the row; CHLO for what JAX leaves undecomposed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Expr
from tilewright.compiler.frontends.kit.complex_functions import (
    FUNCTIONS as OF_COMPLEX,
)
from tilewright.compiler.frontends.kit.complex_functions import (
    arc_tangent_of_two,
    divide,
    power,
)
from tilewright.compiler.frontends.kit.complex_pairs import Pair
from tilewright.compiler.frontends.kit.complex_parts import product
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.rounding import away_from_zero
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.kit.wide import (
    Wide,
    angle,
    exp_minus_one,
    log_plus_one,
)
from tilewright.compiler.frontends.stablehlo.attribute_demands import (
    accuracy,
)
from tilewright.compiler.frontends.stablehlo.bits import total_order
from tilewright.compiler.frontends.stablehlo.call import Call, Comparison, real
from tilewright.compiler.frontends.stablehlo.demands import (
    ANY,
    SAME_SHAPE,
    elements,
    gives,
    kind_of,
    of_parts,
    one_element,
    one_shape,
    part,
    pointwise,
    predicate,
    takes,
    tensor_of,
)
from tilewright.compiler.frontends.stablehlo.elements import bits_of
from tilewright.compiler.frontends.stablehlo.held import Complex, Held
from tilewright.compiler.frontends.stablehlo.literal_values import held_of
from tilewright.compiler.frontends.stablehlo.narrow import saturated
from tilewright.compiler.frontends.stablehlo.numbers import (
    count_bits,
    leading_zeros,
    signed,
    unsigned,
    widely,
    zero_where,
)
from tilewright.compiler.frontends.stablehlo.quantized_demands import (
    axes_agree,
)
from tilewright.compiler.frontends.stablehlo.row import Build, Result, Row, row
from tilewright.compiler.frontends.stablehlo.tree import ComplexType, Dense, TensorType


def _constant(call: Call) -> Held:
    value = call.attribute("value")
    if not isinstance(value, Dense):
        raise ModelError("attribute 'value' is no literal of elements")
    return held_of(value, call.maker)


def _unary(op: str) -> Build:
    return lambda call: call.maker.op(op, call.tensor(0))


def _of_complex(op: str, otherwise: Build) -> Build:
    """A function that has a form of its own for complex numbers."""

    def build(call: Call) -> Result:
        held = call.held(0)
        if not isinstance(held, Complex):
            return otherwise(call)
        if op not in OF_COMPLEX:
            raise UnsupportedError("complex numbers are not supported here")
        return OF_COMPLEX[op](Pair.of(call.maker, held)).rounded(held.real.dtype)

    return build


def _in_f64(op: str) -> Build:
    """The op in f64, rounded once: the specification's tests ask for three units in the last place."""

    def build(call: Call) -> Tensor:
        x = call.tensor(0)
        return call.maker.cast(call.maker.op(op, widely(call.maker, x)), x.dtype)

    return _of_complex(op, build)


def _binary(op: str, of_bools: str = "") -> Build:
    """A graph op of two operands, and the one that does the same to truth values."""

    def build(call: Call) -> Tensor:
        x, y = call.tensor(0), call.tensor(1)
        return call.maker.op(of_bools if of_bools and x.dtype.is_bool else op, x, y)

    return build


def _whole(held: Held) -> Complex:
    if not isinstance(held, Complex):
        raise ModelError("mixes real and complex operands")
    return held


def _parts(held: Held) -> tuple[Tensor, Tensor]:
    held = _whole(held)
    return held.real, held.imaginary


def _multiply(call: Call) -> Held:
    return product_of(call.maker, call.held(0), call.held(1))


def product_of(e: NodeMaker, left: Held, right: Held) -> Held:
    """The product of two tensors of one type."""
    if not isinstance(left, Complex):
        x, y = real(left), real(right)
        return e.op("logical_and" if x.dtype.is_bool else "mul", x, y)
    return product(e, left, _whole(right), lambda x, y: e.op("mul", x, y))


def _of_two(call: Call, function: Callable[[Pair, Pair], Pair]) -> Complex:
    """A function of two complex numbers, in f64."""
    pairs = [Pair.of(call.maker, _whole(call.held(place))) for place in (0, 1)]
    return function(*pairs).rounded(call.dtype())


def _divide(call: Call) -> Held:
    if isinstance(call.held(0), Complex):
        return _of_two(call, divide)
    x, y = call.tensor(0), call.tensor(1)
    e = call.maker
    found = e.op("div", x, y)
    if x.dtype.is_float:
        return found
    # Nothing is promised for a division by zero; all bits set is what XLA gives.
    none = e.scalar(-1 if x.dtype.is_signed else (1 << x.dtype.bits) - 1, x.dtype)
    return e.op("where", e.op("equal", y, e.scalar(0, y.dtype)), none, found)


def _remainder(call: Call) -> Tensor:
    e, x, y = call.maker, call.tensor(0), call.tensor(1)
    found = e.op("mod", x, y, fmod=True)
    if x.dtype.is_float:
        return found
    return e.op("where", e.op("equal", y, e.scalar(0, y.dtype)), x, found)


def _power(call: Call) -> Held:
    if isinstance(call.held(0), Complex):
        return _of_two(call, power)
    e, x, y = call.maker, call.tensor(0), call.tensor(1)
    if x.dtype.is_float or not x.dtype.is_signed:
        return e.op("pow", x, y)
    zero, one = e.scalar(0, x.dtype), e.scalar(1, x.dtype)
    whole = e.op("pow", x, e.op("max", y, zero))
    # One over a power of a whole number is no whole number, but for 1 and -1.
    is_odd = e.op("equal", e.op("bitwise_and", y, one), one)
    minus = e.scalar(-1, x.dtype)
    of_minus = e.op("where", is_odd, minus, one)
    below = e.op("where", e.op("equal", x, minus), of_minus, zero)
    below = e.op("where", e.op("equal", x, one), one, below)
    return e.op("where", e.op("less", y, zero), below, whole)


def _negate(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    if x.dtype.is_signed:
        return e.op("neg", x)
    return e.op("sub", e.scalar(0, x.dtype), x)


def _abs(call: Call) -> Tensor:
    held = call.held(0)
    if not isinstance(held, Complex):
        return call.maker.op("abs", real(held))
    # The longer side is taken out of the root, so that no square is too large or too small.
    e = call.maker
    a, b = e.op("abs", held.real), e.op("abs", held.imaginary)
    long, short = e.op("max", a, b), e.op("min", a, b)
    ratio = e.op("div", short, long)
    one = e.scalar(1, a.dtype)
    root = e.op("sqrt", e.op("add", one, e.op("mul", ratio, ratio)))
    found = zero_where(
        e, e.op("equal", long, e.scalar(0, a.dtype)), e.op("mul", long, root)
    )
    either = e.op("logical_or", e.op("is_inf", a), e.op("is_inf", b))
    return e.op("where", either, e.scalar(np.inf, a.dtype), found)


def _not(call: Call) -> Tensor:
    x = call.tensor(0)
    return call.maker.op("logical_not" if x.dtype.is_bool else "bitwise_not", x)


def _away_from_zero(call: Call) -> Tensor:
    return away_from_zero(call.maker, call.tensor(0))


def _cube_root(call: Call) -> Tensor:
    """By a power in f64, and one step of Newton's for those that have as many digits."""
    e, x = call.maker, call.tensor(0)
    wide = widely(e, x)
    size = e.op("abs", wide)
    root = e.op("pow", size, e.scalar(1 / 3, dtypes.f64))
    square = e.op("mul", root, root)
    error = e.op("sub", root, e.op("div", size, square))
    better = e.op("sub", root, e.op("div", error, e.scalar(3.0, dtypes.f64)))
    is_special = e.op(
        "logical_or",
        e.op("equal", size, e.scalar(0, dtypes.f64)),
        e.op("is_inf", size),
    )
    better = e.op("where", is_special, root, better)
    below = e.op("less", wide, e.scalar(0, dtypes.f64))
    return e.cast(e.op("where", below, e.op("neg", better), better), x.dtype)


def _corrected(function: Callable[[Wide], Wide]) -> Build:
    """A formula in f64, rounded once."""

    def build(call: Call) -> Tensor:
        x = call.tensor(0)
        return function(Wide.of(call.maker, x)).rounded(x.dtype)

    return build


def _extreme(op: str, of_bools: str) -> Build:
    """The larger or smaller of two; of complex numbers by their real parts, then by the others."""
    otherwise = _binary(op, of_bools)

    def build(call: Call) -> Result:
        if not isinstance(call.held(0), Complex):
            return otherwise(call)
        e = call.maker
        (a, b), (c, d) = _parts(call.held(0)), _parts(call.held(1))
        beats = "greater" if op == "max" else "less"
        tied = e.op("logical_and", e.op("equal", a, c), e.op(beats, b, d))
        first = e.op("logical_or", e.op(beats, a, c), tied)
        return Complex(e.op("where", first, a, c), e.op("where", first, b, d))

    return build


def _is_finite(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    return e.op("logical_not", e.op("logical_or", e.op("is_nan", x), e.op("is_inf", x)))


_COMPARE: Final = {
    "EQ": "equal", "NE": "not_equal", "LT": "less", "LE": "less_equal", "GT": "greater",
    "GE": "greater_equal",
}  # fmt: skip


def _compare(call: Call) -> Tensor:
    e = call.maker
    direction = call.keyword("comparison_direction")
    if direction not in _COMPARE:
        raise ModelError(f"comparison direction '{direction}' is unknown")
    order = call.keyword("compare_type")
    op = _COMPARE[direction]
    if isinstance(call.held(0), Complex):
        return _compare_parts(e, op, call)
    x, y = call.tensor(0), call.tensor(1)
    if order == "TOTALORDER" and x.dtype.is_float:
        x, y = total_order(e, x), total_order(e, y)
    found = e.op(op, x, y)
    if found.array is None:
        _note_sizes(call, found, direction, x, y)
    return found


def _note_sizes(call: Call, found: Tensor, direction: str, x: Tensor, y: Tensor) -> None:
    """Remember which sizes are compared, should a module go on to assert it."""
    pair = [call.maker.contents(each) for each in (x, y)]
    sizes = [c.elements.item() for c in pair if c is not None and c.elements.size == 1]
    if len(sizes) == 2 and all(isinstance(size, int | Expr) for size in sizes):
        call.services.compared(found, Comparison(direction, *sizes))


def _compare_parts(e: NodeMaker, op: str, call: Call) -> Tensor:
    (a, b), (c, d) = _parts(call.held(0)), _parts(call.held(1))
    if op not in ("equal", "not_equal"):
        raise UnsupportedError("complex numbers have no order")
    both = "logical_and" if op == "equal" else "logical_or"
    return e.op(both, e.op(op, a, c), e.op(op, b, d))


def _select(call: Call) -> Tensor:
    return call.maker.op("where", call.tensor(0), call.tensor(1), call.tensor(2))


def _select_any(call: Call) -> Held:
    condition, chosen, other = call.tensor(0), call.held(1), call.held(2)
    if not isinstance(chosen, Complex):
        return _select(call)
    pairs = zip(_parts(chosen), _parts(other), strict=True)
    return Complex(*(call.maker.op("where", condition, x, y) for x, y in pairs))


def _clamp(call: Call) -> Tensor:
    e, low, x, high = call.maker, call.tensor(0), call.tensor(1), call.tensor(2)
    larger, smaller = ("logical_or", "logical_and") if x.dtype.is_bool else ("max", "min")
    return e.op(smaller, e.op(larger, x, low), high)


def _convert(call: Call) -> Held:
    e, held, dtype = call.maker, call.held(0), call.dtype()
    result = call.operation.results[0].type
    to_complex = isinstance(result, TensorType) and isinstance(result.element, ComplexType)
    if isinstance(held, Complex):
        if not to_complex:
            return e.cast(saturated(e, held.real, result), dtype)
        return Complex(e.cast(held.real, dtype), e.cast(held.imaginary, dtype))
    x = e.cast(saturated(e, real(held), result), dtype)
    return Complex(x, e.full(0, dtype, x.shape)) if to_complex else x


def _own_bits(call: Call) -> Tensor:
    """The first operand with nothing above the bits of its type."""
    x, type_ = call.tensor(0), call.operation.operands[0].type
    bits = bits_of(type_.element) if isinstance(type_, TensorType) else x.dtype.bits
    if bits >= x.dtype.bits or x.dtype.is_bool:
        return x
    return call.maker.op("bitwise_and", x, call.maker.scalar((1 << bits) - 1, x.dtype))


def _leading_zeros(call: Call) -> Tensor:
    e, x, type_ = call.maker, call.tensor(0), call.operation.operands[0].type
    bits = bits_of(type_.element) if isinstance(type_, TensorType) else x.dtype.bits
    found = leading_zeros(e, _own_bits(call))
    return e.op("sub", found, e.scalar(x.dtype.bits - bits, x.dtype))


def _shift(direction: str) -> Build:
    """Shifts of all bits out, and those by a negative number, which is a large one without a sign."""

    def build(call: Call) -> Tensor:
        e, x, y = call.maker, call.tensor(0), call.tensor(1)
        if direction == "shift_right":
            x = _own_bits(call)
        plain = unsigned(x.dtype)
        places, bits = e.cast(y, plain), e.scalar(x.dtype.bits, plain)
        fits = e.op("less", places, bits)
        if direction == "arithmetic":
            # Beyond the width, what is left is the sign.
            most = e.scalar(x.dtype.bits - 1, plain)
            places = e.cast(e.op("where", fits, places, most), signed(x.dtype))
            found = e.op("shift_right", e.cast(x, signed(x.dtype)), places)
            return e.cast(found, x.dtype)
        places = zero_where(e, e.op("logical_not", fits), places)
        found = e.op(direction, e.cast(x, plain), places)
        found = e.op("where", fits, found, e.scalar(0, plain))
        return e.cast(found, x.dtype)

    return build


def _complex(call: Call) -> Complex:
    return Complex(call.tensor(0), call.tensor(1))


def _real(call: Call) -> Tensor:
    held = call.held(0)
    return held.real if isinstance(held, Complex) else real(held)


def _imaginary(call: Call) -> Tensor:
    held = call.held(0)
    if isinstance(held, Complex):
        return held.imaginary
    x = real(held)
    return call.maker.full(0, x.dtype, x.shape)


def _atan2(call: Call) -> Held:
    if isinstance(call.held(0), Complex):
        return _of_two(call, arc_tangent_of_two)
    e = call.maker
    found = angle(Wide.of(e, call.tensor(0)), Wide.of(e, call.tensor(1)))
    return found.rounded(call.dtype())


def _conjugate(call: Call) -> Held:
    held = call.held(0)
    if not isinstance(held, Complex):
        return held
    return Complex(held.real, call.maker.op("neg", held.imaginary))


def _is_infinity(number: float) -> Build:
    def build(call: Call) -> Tensor:
        x = call.tensor(0)
        return call.maker.op("equal", x, call.maker.scalar(number, x.dtype))

    return build


def _high_half(call: Call) -> Tensor:
    """The upper half of the product of whole numbers of twice as many bits."""
    e, x, y = call.maker, call.tensor(0), call.tensor(1)
    if x.dtype.is_float or x.dtype.is_bool:
        raise ModelError(f"got {x.type}, expected whole numbers")
    bits = x.dtype.bits
    if bits < 64:
        wide = dtypes.i64 if x.dtype.is_signed else dtypes.u64
        product = e.op("mul", e.cast(x, wide), e.cast(y, wide))
        return e.cast(e.op("shift_right", product, e.scalar(bits, wide)), x.dtype)
    a, b = (e.cast(each, dtypes.u64) for each in (x, y))
    mask, places = e.scalar((1 << 32) - 1, dtypes.u64), e.scalar(32, dtypes.u64)
    low_a, low_b = (e.op("bitwise_and", each, mask) for each in (a, b))
    high_a, high_b = (e.op("shift_right", each, places) for each in (a, b))
    carried = e.op("shift_right", e.op("mul", low_a, low_b), places)
    middle = e.op("add", e.op("mul", high_a, low_b), carried)
    rest = e.op("add", e.op("mul", low_a, high_b), e.op("bitwise_and", middle, mask))
    found = e.op("add", e.op("mul", high_a, high_b), e.op("shift_right", middle, places))
    found = e.op("add", found, e.op("shift_right", rest, places))
    if not x.dtype.is_signed:
        return found
    zero = e.scalar(0, dtypes.i64)
    for sign, other in ((x, b), (y, a)):
        taken = zero_where(e, e.op("greater_equal", sign, zero), other)
        found = e.op("sub", found, taken)
    return e.cast(found, dtypes.i64)


def _square(call: Call) -> Held:
    return product_of(call.maker, call.held(0), call.held(0))


_UNARY: Final = {
    "ceil": "ceil", "floor": "floor", "round_nearest_even": "round",
}  # fmt: skip
_OWN: Final = {
    "cosine": "cos", "exponential": "exp", "log": "log", "logistic": "sigmoid",
    "rsqrt": "rsqrt", "sine": "sin", "sqrt": "sqrt", "tanh": "tanh", "chlo.erf": "erf",
}  # fmt: skip
"""Functions whose kernels are good to about two units in the last place in their own type."""
_FUNCTIONS: Final = {
    "tan": "tan", "chlo.acos": "acos", "chlo.acosh": "acosh", "chlo.asin": "asin", "chlo.asinh": "asinh",
    "chlo.atan": "atan", "chlo.atanh": "atanh", "chlo.cosh": "cosh",
    "chlo.sinh": "sinh", "chlo.tan": "tan",
}  # fmt: skip
_BINARY: Final[dict[str, tuple[str, str]]] = {
    "and": ("bitwise_and", "logical_and"),
    "or": ("bitwise_or", "logical_or"),
    "xor": ("bitwise_xor", "logical_xor"),
}


def _clamp_shapes(call: Call) -> None:
    """A limit is one number or has the shape of the operand."""
    for place in (0, 2):
        limit = tensor_of(call.operation.operands[place].type, f"operand {place}")
        one_shape(1, *([] if limit.shape == () else [place]))(call)


def condition_fits(call: Call) -> None:
    """A condition is one truth value or has the shape of what it chooses from."""
    condition = tensor_of(call.operation.operands[0].type, "operand 0")
    one_shape(*([] if condition.shape == () else [0]), 1, 2)(call)


_ORDERS: Final = {
    "b": ("UNSIGNED",), "s": ("SIGNED",), "u": ("UNSIGNED",), "f": ("FLOAT", "TOTALORDER"), "c": ("FLOAT",),
    "q": ("SIGNED", "UNSIGNED", "FLOAT", "TOTALORDER"),
}  # fmt: skip
# Whole numbers are equal in any order, of which writers make use: truth values are compared as signed integers.
_EQUALITIES: Final = ("EQ", "NE")


def _order_fits(call: Call) -> None:
    """The order that is compared by, if it is stated and decides anything, is one of the elements."""
    element = tensor_of(call.operation.operands[0].type, "operand 0").element
    kind = kind_of(element)
    stated, fitting = call.keyword("compare_type"), _ORDERS[kind]
    if kind in "bsu" and call.keyword("comparison_direction") in _EQUALITIES:
        fitting = ("SIGNED", "UNSIGNED")
    if stated not in ("", "NOTYPE", *fitting):
        raise ModelError(
            f"compare_type is {stated} for {element}, expected {' or '.join(fitting)}"
        )


ROWS: Final[tuple[Row, ...]] = (
    *(row(name, _unary(op), pointwise=True, demands=pointwise(1, "fq")) for name, op in _UNARY.items()),
    *(row(name, _in_f64(op), pointwise=True, demands=(*pointwise(1, "fcq"), accuracy)) for name, op in _FUNCTIONS.items()),
    *(row(name, _of_complex(op, _unary(op)), pointwise=True, demands=(*pointwise(1, "fcq"), accuracy)) for name, op in _OWN.items()),
    *(row(name, _binary(*ops), pointwise=True, demands=pointwise(2, "bsu")) for name, ops in _BINARY.items()),
    row("maximum", _extreme("max", "logical_or"), pointwise=True, demands=pointwise(2, ANY)),
    row("minimum", _extreme("min", "logical_and"), pointwise=True, demands=pointwise(2, ANY)),
    row("abs", _abs, pointwise=True, demands=(takes(1), elements("sfcq"), SAME_SHAPE, part)),
    row("add", _binary("add", "logical_or"), by_parts=True, pointwise=True, demands=(*pointwise(2, "bsufcqQ"), axes_agree)),
    row("atan2", _atan2, pointwise=True, demands=pointwise(2, "fcq")),
    row("cbrt", _of_complex("cbrt", _cube_root), pointwise=True, demands=(*pointwise(1, "fcq"), accuracy)),
    row("clamp", _clamp, pointwise=True, demands=(takes(3), elements(ANY), one_element(), _clamp_shapes)),
    row("compare", _compare, pointwise=True, demands=(*predicate(2, ANY), _order_fits)),
    row("chlo.conj", _conjugate, pointwise=True, demands=pointwise(1, "fc")),
    row("chlo.constant", _constant, pointwise=True, keeps=True, demands=(takes(0),)),
    row("chlo.is_inf", lambda c: c.maker.op("is_inf", c.tensor(0)), pointwise=True, demands=predicate(1, "f")),
    row("chlo.is_neg_inf", _is_infinity(-np.inf), pointwise=True, demands=predicate(1, "f")),
    row("chlo.is_pos_inf", _is_infinity(np.inf), pointwise=True, demands=predicate(1, "f")),
    row("chlo.mulhi", _high_half, pointwise=True, demands=pointwise(2, "su")),
    row("chlo.square", _square, pointwise=True, demands=pointwise(1, "sufc")),
    row("complex", _complex, pointwise=True, demands=(takes(2), elements("f"), one_element(0, 1, results=False), SAME_SHAPE, of_parts(joined=True))),
    row("constant", _constant, pointwise=True, keeps=True, demands=(takes(0),)),
    row("convert", _convert, pointwise=True, demands=(takes(1), elements("bsufc"), gives("bsufc"), SAME_SHAPE)),
    row("count_leading_zeros", _leading_zeros, pointwise=True, demands=pointwise(1, "su")),
    row("divide", _divide, pointwise=True, demands=pointwise(2, "sufcq")),
    row("exponential_minus_one", _of_complex("exponential_minus_one", _corrected(exp_minus_one)), pointwise=True, demands=(*pointwise(1, "fcq"), accuracy)),
    row("imag", _imaginary, pointwise=True, demands=(takes(1), elements("fc"), SAME_SHAPE, part)),
    row("is_finite", _is_finite, pointwise=True, demands=predicate(1, "fq")),
    row("log_plus_one", _of_complex("log_plus_one", _corrected(log_plus_one)), pointwise=True, demands=(*pointwise(1, "fcq"), accuracy)),
    row("multiply", _multiply, pointwise=True, demands=pointwise(2, ANY)),
    row("negate", _negate, by_parts=True, pointwise=True, demands=pointwise(1, "sufcq")),
    row("not", _not, pointwise=True, demands=pointwise(1, "bsu")),
    row("popcnt", lambda c: count_bits(c.maker, _own_bits(c)), pointwise=True, demands=pointwise(1, "su")),
    row("power", _power, pointwise=True, demands=pointwise(2, "sufcq")),
    row("real", _real, pointwise=True, demands=(takes(1), elements("fc"), SAME_SHAPE, part)),
    row("remainder", _remainder, pointwise=True, demands=pointwise(2, "sufcq")),
    row("round_nearest_afz", _away_from_zero, pointwise=True, demands=pointwise(1, "fq")),
    row("sign", _of_complex("sign", _unary("sign")), pointwise=True, demands=pointwise(1, "sfcq")),
    row("select", _select_any, pointwise=True, demands=(takes(3), elements("b", 0), elements(ANY, 1, 2), one_element(1, 2), condition_fits)),
    row("shift_left", _shift("shift_left"), pointwise=True, demands=pointwise(2, "su")),
    row("shift_right_arithmetic", _shift("arithmetic"), pointwise=True, demands=pointwise(2, "su")),
    row("shift_right_logical", _shift("shift_right"), pointwise=True, demands=pointwise(2, "su")),
    row("subtract", _binary("sub"), by_parts=True, pointwise=True, demands=pointwise(2, "sufcq")),
)  # fmt: skip
