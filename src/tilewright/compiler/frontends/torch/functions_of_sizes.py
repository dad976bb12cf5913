"""Functions of `math` of sizes that calls decide, while a module is traced: `math.log(x.shape[1])`.

Python makes a number of what such a function is given, which fixes the size.  Here it is the element of a tensor with
one, so that every call computes it, in f64 as Python does.  Called by `export`.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Generator
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch.open_sizes import noted
from tilewright.compiler.frontends.torch.substitutes import Substitute, Tracing

# Torch's numbers have no types that we see.
Held = Any
Function = Callable[..., Any]


@contextlib.contextmanager
def functions_of_sizes() -> Generator[None]:
    """While this thread traces in this context, functions of sizes are computed by every call.

    Contexts of several threads may overlap; for other threads `math` is what it was.
    """
    with contextlib.ExitStack() as kept:
        for substitute in _FUNCTIONS:
            kept.enter_context(substitute.used())
        yield


def _is_open(number: Held) -> bool:
    """Whether it is a number of sizes, or of data, that a trace does not know."""
    return border.is_instance(number, "SymInt") or border.is_instance(number, "SymFloat")


def _unless_known(build: Function, original: Function, tracing: Tracing) -> Function:
    @functools.wraps(original)
    def function(*args: Any) -> Any:
        if not tracing.depth or not any(map(_is_open, args)):
            return original(*args)
        met = noted()
        if met is not None:
            met.functions_are_computed = True
        return build(*args)

    return function


def _element(name: str) -> Function:
    """By the function of tensors that has this name."""

    def build(*args: Held) -> Held:
        torch = border.load()
        given = [torch.scalar_tensor(arg, dtype=torch.float64) for arg in args]
        return getattr(torch, name)(*given).item()

    return build


def _logarithm(number: Held, base: Held = math.e) -> Held:
    """To a base as Python computes it: a quotient of two logarithms."""
    of_number, of_base = (_element("log")(part) for part in (number, base))
    return of_number if base is math.e else of_number / of_base


def _whole_root(number: Held) -> Held:
    """Exact, for sizes have fewer digits than f64."""
    return math.floor(border.load().sym_sqrt(number))


_BY_NAME: Final = {
    **{
        name: _element(name)
        for name in (
            "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "copysign", "cos", "cosh", "erf", "erfc",
            "exp", "exp2", "expm1", "fmod", "hypot", "ldexp", "lgamma", "log10", "log1p", "log2", "pow", "sin", "sinh", "tan", "tanh",
        )
    },
    "degrees": _element("rad2deg"), "fabs": _element("abs"), "isqrt": _whole_root, "log": _logarithm,
    "radians": _element("deg2rad"), "sqrt": lambda number: border.load().sym_sqrt(number),
}  # fmt: skip
_FUNCTIONS: Final = tuple(
    Substitute(lambda: math, name, functools.partial(_unless_known, build))
    for name, build in _BY_NAME.items()
    if hasattr(math, name)
)
