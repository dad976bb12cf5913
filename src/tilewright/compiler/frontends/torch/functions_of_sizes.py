"""Functions of `math` of sizes that calls decide, while a module is traced: `math.log(x.shape[1])`.

Python makes a number of what such a function is given, which fixes the size.  Here it is the element of a tensor with
one, so that every call computes it, in f64 as Python does.  What is made a number in another way (`range(x.shape[0])`) is
noted, for torch says nothing where it may choose which sizes stay open.  Called by `export`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final, final

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch.failed_exports import is_of_module
from tilewright.compiler.frontends.torch.substitutes import Substitute, Tracing

# Torch's numbers have no types that we see.
Held = Any
Function = Callable[..., Any]


@final
class _Own(threading.local):
    """Of a thread.

    Attributes:
        places: where its last trace made numbers of sizes.
        were_computed: whether calls were to compute a function of sizes since it was forgotten.
    """

    places: tuple[str, ...] = ()
    were_computed: bool = False


_OWN: Final = _Own()


def places_of_numbers() -> tuple[str, ...]:
    """Files and lines where this thread's last trace made a number of a size that calls were to decide."""
    return tuple(dict.fromkeys(_OWN.places))


def forget_functions() -> None:
    """Begin anew to notice whether this thread's traces meet functions of sizes."""
    _OWN.were_computed = False


def functions_were_computed() -> bool:
    """Whether a trace of this thread met a function of sizes that calls compute, since it was forgotten."""
    return _OWN.were_computed


@contextlib.contextmanager
def functions_of_sizes(*, are_computed: bool = True) -> Generator[None]:
    """While this thread traces in this context, functions of sizes are computed by every call.

    Contexts of several threads may overlap; for other threads `math` is what it was.

    Args:
        are_computed: else only numbers that are made of sizes are noted.
    """
    _OWN.places = ()
    with contextlib.ExitStack() as kept:
        for substitute in (*(_FUNCTIONS if are_computed else ()), _NUMBERS):
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
        _OWN.were_computed = True
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
            "exp", "exp2", "expm1", "fmod", "hypot", "lgamma", "log10", "log1p", "log2", "sin", "sinh", "tan", "tanh",
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


def _noted(original: Function, tracing: Tracing) -> Function:
    @functools.wraps(original)
    def index(number: Held) -> int:
        frame = inspect.currentframe()
        asker = None if frame is None else frame.f_back
        is_fixed = tracing.depth and number.node.expr.free_symbols
        if is_fixed and asker is not None and is_of_module(asker.f_code.co_filename):
            place = f"{Path(asker.f_code.co_filename).name}:{asker.f_lineno}"
            _OWN.places = (*_OWN.places, place)
        return original(number)

    return index


_NUMBERS: Final = Substitute(lambda: border.load().SymInt, "__index__", _noted)
