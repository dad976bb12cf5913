"""Rows for functions of complex numbers, comparisons, and what sums products.

Looked up with the other rows of complex numbers.

Source: the operators of ATen by name; the formulas stand in `kit.complex_functions`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.complex_functions import FUNCTIONS, power
from tilewright.compiler.frontends.kit.complex_pairs import Pair, quotient
from tilewright.compiler.frontends.kit.complex_parts import Complex, product
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.axes import axes_of, axis_of
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.complex_operands import (
    Held,
    as_complex,
    known_number,
    multiple,
    operand_of,
)
from tilewright.compiler.frontends.torch.contraction import matrix_product
from tilewright.compiler.frontends.torch.convolution import FORMS, Form
from tilewright.compiler.frontends.torch.program import Ref
from tilewright.compiler.frontends.torch.reduction import moments, reduced
from tilewright.compiler.ops.shapes import element_count

Build = Callable[[Call], Held]


def _function(name: str) -> Build:
    def build(call: Call) -> Complex:
        e, dtype = call.maker, call.dtype()
        return FUNCTIONS[name](Pair.of(e, operand_of(call, "self"))).rounded(dtype)

    return build


def _logarithm(base: float) -> Build:
    def build(call: Call) -> Complex:
        z = FUNCTIONS["log"](Pair.of(call.maker, operand_of(call, "self")))
        return z.scaled(z.x.number(1 / math.log(base))).rounded(call.dtype())

    return build


def _power_of_two(call: Call) -> Complex:
    z = Pair.of(call.maker, operand_of(call, "self"))
    return FUNCTIONS["exp"](z.scaled(z.x.number(math.log(2)))).rounded(call.dtype())


def _kept(call: Call) -> Held:
    """Dropout of a module that is not trained."""
    if call.number("p") and call.flag("train"):
        raise UnsupportedError("dropout of complex numbers is not supported")
    return call.held("input")


def _power(call: Call) -> Complex:
    """Small whole powers are products, as torch has them."""
    e, exponent = call.maker, call.argument("exponent")
    z = operand_of(call, "self")
    if exponent == 2:
        return _times(e, z, z)
    w = operand_of(call, "exponent")
    return power(Pair.of(e, z), Pair.of(e, w)).rounded(call.dtype())


def _times(e: NodeMaker, x: Complex, y: Complex) -> Complex:
    return product(e, x, y, lambda a, b: e.op("mul", a, b))


def _plus(e: NodeMaker, x: Complex, y: Complex) -> Complex:
    return Complex(e.op("add", x.real, y.real), e.op("add", x.imaginary, y.imaginary))


def _both(call: Call, name: str) -> Complex:
    """An operand of a comparison, as complex numbers of its own type."""
    found = call.argument(name)
    if isinstance(found, Ref):
        return as_complex(call.maker, call.held(name))
    dtype = as_complex(call.maker, call.held("self")).real.dtype
    number = known_number(call, name)
    return Complex(*(call.maker.scalar(n, dtype) for n in (number.real, number.imag)))


def _alike(*, negated: bool) -> Build:
    def build(call: Call) -> Tensor:
        x, y = (Pair.of(call.maker, _both(call, name)) for name in ("self", "other"))
        pairs = ((x.x, y.x), (x.y, y.y))
        op, join = ("not_equal", "logical_or") if negated else ("equal", "logical_and")
        return call.op(join, *(call.op(op, a.tensor, b.tensor) for a, b in pairs))

    return build


def _each_part(op: str, join: str) -> Build:
    """What is asked of both parts."""

    def build(call: Call) -> Tensor:
        z = as_complex(call.maker, call.held())
        return call.op(join, *(call.op(op, part) for part in (z.real, z.imaginary)))

    return build


def _finite(call: Call) -> Tensor:
    e, z = call.maker, as_complex(call.maker, call.held("self"))
    bad = [e.op(op, x) for op in ("is_nan", "is_inf") for x in (z.real, z.imaginary)]
    return e.op("logical_not", functools.reduce(lambda a, b: e.op("logical_or", a, b), bad))


def _self_gated(call: Call) -> Complex:
    z = operand_of(call, "self")
    gate = FUNCTIONS["sigmoid"](Pair.of(call.maker, z)).rounded(call.dtype())
    return _times(call.maker, z, gate)


def _linear(call: Call) -> Complex:
    e, weight = call.maker, operand_of(call, "weight")
    turned = weight.map(lambda part: e.transpose(part, (1, 0)))
    x = operand_of(call, "input")
    if x.real.rank < 2:
        raise UnsupportedError("products of complex vectors are not supported")
    found = product(e, x, turned, lambda a, b: matrix_product(e, a, b))
    return _plus(e, found, operand_of(call, "bias")) if call.has("bias") else found


def _added_product(first: str, second: str) -> Build:
    """`beta self + alpha (first @ second)`."""

    def build(call: Call) -> Complex:
        e = call.maker
        x, y = operand_of(call, first), operand_of(call, second)
        if is_vector := y.real.rank == 1:
            y = y.map(lambda part: e.unsqueeze(part, (1,)))
        found = product(e, x, y, lambda a, b: matrix_product(e, a, b))
        found = found.map(lambda part: e.squeeze(part, (1,))) if is_vector else found
        found, old = multiple(call, found, "alpha"), operand_of(call, "self")
        # With a factor of 0 what is no number in it counts for nothing.
        return (
            found
            if call.argument("beta") == 0
            else _plus(e, found, multiple(call, old, "beta"))
        )

    return build


def _vectors(*, conjugated: bool) -> Build:
    """The sum of products of two vectors."""

    def build(call: Call) -> Complex:
        e, x = call.maker, operand_of(call, "self")
        y = operand_of(call, "other" if conjugated else "tensor")
        if conjugated:
            x = Complex(x.real, e.op("neg", x.imaginary))
        return _times(e, x, y).map(
            lambda part: e.op("reduce_sum", part, axes=(0,), keepdims=False)
        )

    return build


def _outer(call: Call) -> Complex:
    e, x, y = call.maker, operand_of(call, "self"), operand_of(call, "vec2")
    column = x.map(lambda part: e.unsqueeze(part, (1,)))
    return _times(e, column, y)


def _added_multiple(call: Call) -> Complex:
    e = call.maker
    found = _times(e, operand_of(call, "tensor1"), operand_of(call, "tensor2"))
    return _plus(e, operand_of(call, "self"), multiple(call, found, "value"))


def _added_quotient(call: Call) -> Complex:
    e, (x, y) = call.maker, (operand_of(call, name) for name in ("tensor1", "tensor2"))
    found = quotient(Pair.of(e, x), Pair.of(e, y)).rounded(call.dtype())
    return _plus(e, operand_of(call, "self"), multiple(call, found, "value"))


def _convolved(form: Form) -> Build:
    """The products of both parts, and the bias."""

    def build(call: Call) -> Complex:
        e, x, w = call.maker, operand_of(call, "input"), operand_of(call, "weight")
        found = product(e, x, w, lambda a, b: form(call, a, b, None))
        if not call.has("bias"):
            return found
        spatial = tuple(range(1, w.real.rank - 1))
        bias = operand_of(call, "bias").map(lambda part: e.unsqueeze(part, spatial))
        return _plus(e, found, bias)

    return build


def _variance(*, root: bool, with_mean: bool) -> Callable[[Call], Held | Sequence[Held]]:
    """Of how far numbers are from their mean in the plane."""

    def build(call: Call) -> Held | Sequence[Held]:
        z = as_complex(call.maker, call.held("self"))
        (a, x), (b, y) = (moments(call, part) for part in (z.real, z.imaginary))
        found = call.op("add", a, b)
        found = call.finish(call.op("sqrt", found) if root else found)
        return (found, Complex(x, y).map(call.finish)) if with_mean else found

    return build


def _logarithm_of_sum(call: Call) -> Complex:
    """Of powers; the largest real part is taken out of them."""
    e, z = call.maker, operand_of(call, "self")
    axes, keep = axes_of(call, z.real.rank), call.flag("keepdim")
    zero, real = e.scalar(0, z.real.dtype), z.real
    if all(real.shape[axis] != 0 for axis in axes):
        most = reduced(e, "reduce_max", real, axes, keep=True)
        most = e.op("where", e.op("is_inf", most), zero, most)
        real = e.op("sub", real, most)
    else:
        most = zero
    powers = FUNCTIONS["exp"](Pair.of(e, Complex(real, z.imaginary))).rounded(call.dtype())
    total = powers.map(lambda part: reduced(e, "reduce_sum", part, axes, keep=keep))
    found = FUNCTIONS["log"](Pair.of(e, total)).rounded(call.dtype())
    most = most if most is zero else e.reshape(most, found.real.shape)
    return Complex(e.op("add", found.real, most), found.imaginary)


def _root_mean_square(call: Call) -> Complex:
    """The root is of the mean of the squares themselves, as torch has it, not of their magnitudes."""
    e, z = call.maker, operand_of(call, "input")
    rank = z.real.rank
    axes = tuple(range(rank - len(call.sizes("normalized_shape")), rank))
    smallest = 2.0**-52 if z.real.dtype == dtypes.f64 else 2.0**-23
    epsilon = float(call.number("eps")) if call.has("eps") else smallest
    if any(size == 0 for size in z.real.shape):
        call.argument("weight")
        return z
    mean = _times(e, z, z).map(
        lambda part: reduced(e, "reduce_mean", part, axes, keep=True)
    )
    real = e.op("add", mean.real, e.scalar(epsilon, mean.real.dtype))
    root = FUNCTIONS["rsqrt"](Pair.of(e, Complex(real, mean.imaginary)))
    found = _times(e, z, root.rounded(call.dtype()))
    return _times(e, found, operand_of(call, "weight")) if call.has("weight") else found


def _even_steps(call: Call) -> Complex:
    """From the nearer end, as torch has it."""
    call.argument("dtype")
    count, places = call.integer("steps"), np.arange(call.integer("steps"))
    start, end = known_number(call, "start"), known_number(call, "end")
    step = (end - start) / max(count - 1, 1)
    near = places < max(count // 2, 1)
    found = np.where(near, start + step * places, end - step * (count - 1 - places))
    e, parts = call.maker, (np.real(found), np.imag(found))
    return Complex(*(e.cast(e.constant(part.copy()), call.dtype()) for part in parts))


def _between(call: Call) -> Complex:
    """`self + weight (end - self)`."""
    e, x, y = call.maker, operand_of(call, "self"), operand_of(call, "end")
    gap = Complex(e.op("sub", y.real, x.real), e.op("sub", y.imaginary, x.imaginary))
    return _plus(e, x, _times(e, operand_of(call, "weight"), gap))


def _factors(call: Call) -> Complex:
    """What is multiplied, in the type of the result: for a real one the imaginary parts are dropped before."""
    call.element_type()
    z = operand_of(call, "self")
    return z if call.is_complex() else as_complex(call.maker, z.real)


def _product_of_all(call: Call) -> Complex:
    """Half by half; along an axis of none, or of as many as a call decides, the last running product behind a one."""
    e, z = call.maker, _factors(call)
    keep = call.flag("keepdim")
    if call.has("dim"):
        axis = axis_of(call, z.real.rank)
        if not z.real.rank:
            return z
    else:
        count = element_count(z.real.shape)
        z = z.map(lambda part: e.reshape(part, (count,)))
        axis = 0
    size = z.real.shape[axis]
    if not isinstance(size, int) or size == 0:
        shape = (*z.real.shape[:axis], 1, *z.real.shape[axis + 1 :])
        one = as_complex(e, e.full(1, z.real.dtype, shape))
        z = _piece(e, _running(e, _side_by_side(e, [one, z], axis), axis), axis, size, 1)
        size = 1
    while size > 1:
        half = size // 2
        below, above = _piece(e, z, axis, 0, half), _piece(e, z, axis, half, half)
        rest = [_piece(e, z, axis, 2 * half, 1)] if size % 2 else []
        z = _side_by_side(e, [_times(e, below, above), *rest], axis)
        size = half + size % 2
    if keep:
        return z
    return z.map(lambda part: e.squeeze(part, (axis,)))


def _running_product(call: Call) -> Complex:
    e, z = call.maker, _factors(call)
    if not z.real.rank:
        call.argument("dim")
        return z
    return _running(e, z, axis_of(call, z.real.rank))


def _running(e: NodeMaker, z: Complex, axis: int) -> Complex:
    """Running products: each times what is 1, 2, 4, … places before, in a loop where a call decides the size."""
    size, shift = z.real.shape[axis], 1
    if not isinstance(size, int):
        return _running_of_open(e, z, axis)
    while shift < size:
        front, back = _piece(e, z, axis, 0, shift), _piece(e, z, axis, shift, size - shift)
        before = _piece(e, z, axis, 0, size - shift)
        z = _side_by_side(e, [front, _times(e, back, before)], axis)
        shift *= 2
    return z


def _running_of_open(e: NodeMaker, z: Complex, axis: int) -> Complex:
    places = e.iota(z.real.shape, axis)
    size, first = e.dim(z.real.shape[axis]), e.scalar(0, dtypes.i64)

    def go_on(values: list[Tensor]) -> Tensor:
        return e.op("less", values[0], size)

    def trip(values: list[Tensor]) -> list[Tensor]:
        shift, *parts = values
        sources = e.op("sub", places, shift)
        has_before = e.op("greater_equal", sources, first)
        taken = e.op("max", sources, first)
        before = Complex(*(e.op("gather_elements", p, taken, axis=axis) for p in parts))
        made = _times(e, Complex(*parts), before)
        pairs = zip((made.real, made.imaginary), parts, strict=True)
        kept = [e.op("where", has_before, new, old) for new, old in pairs]
        return [e.op("add", shift, shift), *kept]

    begin = [e.scalar(1, dtypes.i64), z.real, z.imaginary]
    _, *ended = control.loop(e, begin, go_on, trip)
    return Complex(*ended)


def _piece(e: NodeMaker, z: Complex, axis: int, start: Dim, size: Dim) -> Complex:
    return z.map(lambda part: e.slice(part, axis, start, size))


def _side_by_side(e: NodeMaker, pieces: Sequence[Complex], axis: int) -> Complex:
    columns = ([z.real for z in pieces], [z.imaginary for z in pieces])
    return Complex(*(e.concat(column, axis) for column in columns))


_UNARY: Final = {
    "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan", "atanh": "atanh", "cos": "cos", "cosh": "cosh",
    "exp": "exp", "expm1": "exponential_minus_one", "log": "log", "log1p": "log_plus_one", "rsqrt": "rsqrt", "sgn": "sign", "sigmoid": "sigmoid",
    "sin": "sin", "sinh": "sinh", "special_expit": "sigmoid", "special_expm1": "exponential_minus_one", "special_log1p": "log_plus_one", "sqrt": "sqrt",
    "tan": "tan", "tanh": "tanh",
}  # fmt: skip
"""Operators of ATen by the function that each is."""

ROWS: Final[dict[str, Callable[[Call], Held | Sequence[Held]]]] = {
    **{name: _function(function) for name, function in _UNARY.items()},
    "log2": _logarithm(2), "log10": _logarithm(10), "exp2": _power_of_two, "special_exp2": _power_of_two, "dropout": _kept,
    **dict.fromkeys(("pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar"), _power),
    **dict.fromkeys(("eq.Tensor", "eq.Scalar"), _alike(negated=False)),
    **dict.fromkeys(("ne.Tensor", "ne.Scalar"), _alike(negated=True)),
    **{name: _convolved(form) for names, form in FORMS for name in names.split()},
    **{
        f"{name}{form}": _variance(root=name.startswith("std"), with_mean=name.endswith("mean"))
        for name in ("var", "std", "var_mean", "std_mean") for form in ("", ".dim", ".correction")
    },
    "isnan": _each_part("is_nan", "logical_or"), "isinf": _each_part("is_inf", "logical_or"),
    "isfinite": _finite, "silu": _self_gated, "cumprod": _running_product,
    "linear": _linear, "addmm": _added_product("mat1", "mat2"), "addmv": _added_product("mat", "vec"), "addcdiv": _added_quotient, "baddbmm": _added_product("batch1", "batch2"),
    "dot": _vectors(conjugated=False), "vdot": _vectors(conjugated=True), "outer": _outer, "ger": _outer,
    "logsumexp": _logarithm_of_sum, "special_logsumexp": _logarithm_of_sum, "rms_norm": _root_mean_square, "linspace": _even_steps,
    "addcmul": _added_multiple, **dict.fromkeys(("lerp.Scalar", "lerp.Tensor"), _between),
    **dict.fromkeys(("prod", "prod.dim_int"), _product_of_all),
}  # fmt: skip
"""By the names of overloads, spelled short."""
