"""Write mathematical functions as arithmetic, for any number of lanes; no library is called.

    exp(x)   ->   scale(1 + r + r**2 * polynomial(r), n)   with x = n ln2 + r

Accuracy (tests measure it): exp 1 ulp, normal_cdf 2e-7 in f32, log 2, sigmoid 2.5, tanh 2, erf 7 (f64 4), sin and cos 2 at any size of the
argument, pow 2; NaN, infinities, zeros of both signs and denormals as in IEEE 754.  Halves compute in
f32.  What needs a loop becomes a `Call` of a primitive, behind a `Select` where it is rare.

Requires: vectors and copies are made, so that no expression is copied any more.
Ensures: no operator is left that a printer would call a library for.  Called by `machine`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from tilewright.base import dtypes
from tilewright.base.dtypes import HALVES
from tilewright.compiler.kernel import expressions, primitives
from tilewright.compiler.kernel.ir import Binary, Call, Const, Expression, Kernel, Unary
from tilewright.compiler.kernel.rewrite import map_body, with_body
from tilewright.compiler.lowering.math import (
    angles,
    exponentials,
    powers,
    remainders,
)
from tilewright.compiler.lowering.math.pieces import Means

E = expressions.Expressions

_UNARY: Final[dict[str, Callable[[Expression, Means], Expression]]] = {
    "exp": exponentials.exp,
    "exp_nonpositive": exponentials.exp_nonpositive,
    "sigmoid": exponentials.sigmoid,
    "tanh": exponentials.tanh,
    "erf": exponentials.erf,
    "normal_cdf": exponentials.normal_cdf,
    "log": powers.log,
    "rsqrt": powers.rsqrt,
    "sin": angles.sin,
    "cos": angles.cos,
}
_BINARY: Final[dict[str, Callable[[Expression, Expression, Means], Expression]]] = {
    "pow": powers.power,
    "mod": remainders.remainder,
    "floormod": remainders.floor_remainder,
}


def expand_math(kernel: Kernel, means: Means) -> Kernel:
    """The kernel with every mathematical function written out."""
    expander = _Expander(means)
    return with_body(kernel, map_body(kernel.body, expression=expander.image))


@final
class _Expander:
    def __init__(self, means: Means) -> None:
        self.means: Means = means

    def image(self, value: Expression) -> Expression:
        """A function written out; anything else as it is."""
        if isinstance(value, Unary) and value.op in _UNARY:
            return self._unary(value)
        if isinstance(value, Binary) and value.op in _BINARY:
            return self._binary(value)
        return value

    def _unary(self, value: Unary) -> Expression:
        x = _computed(value.operand)
        return E.cast(_UNARY[value.op](x, self.means), value.dtype)

    def _binary(self, value: Binary) -> Expression:
        if not value.dtype.is_float:
            if value.op != "pow":
                return value
            function = primitives.integer_power(value.dtype)
            return Call(function, (value.left, value.right), value.lanes)
        x = _computed(value.left)
        if value.op == "pow" and isinstance(value.right, Const):
            simple = powers.constant_power(x, float(value.right.value))
            if simple is not None:
                return E.cast(simple, value.dtype)
        y = _computed(value.right)
        return E.cast(_BINARY[value.op](x, y, self.means), value.dtype)


def _computed(x: Expression) -> Expression:
    """A float in the type that it is computed in."""
    return E.cast(x, dtypes.f32) if x.dtype in HALVES else x
