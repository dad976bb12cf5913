"""Sizes that a call decides: expressions of torch (SymPy) as ours.

Symbols get the names that the user gave them (`Dim("batch")`) and the ranges that torch knows.  Called by
`reader`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any, Final, final

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Expr
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.torch.program import (
    Formula,
    Ref,
    Relation,
    Rounded,
)

_LARGEST: Final = 1 << 48
_SHORT: Final = 1 << 12
"""Ratios of smaller numbers, times a size, are exact in f64."""
_DATA: Final = "data$"
_BELOW: Final = "$below"
"""Of a number of data that may be negative there are two sizes: what it has above zero, and below."""


def environment_of(nodes: Iterable[Any]) -> Any:
    """Where torch keeps what it knows of the sizes in a graph; None where all are numbers."""
    for node in nodes:
        value = getattr(node, "meta", {}).get("val")
        for size in (value, *getattr(value, "shape", ())):
            environment = getattr(getattr(size, "node", None), "shape_env", None)
            if environment is not None:
                return environment
    return None


@final
class Sizes:
    """Translates sizes of one program.

    Args:
        ranges: what values each symbol of torch takes.
        names: what the user calls the symbols.
    """

    def __init__(self, ranges: Mapping[Any, Any], names: Mapping[str, str]) -> None:
        self._ranges: Mapping[Any, Any] = ranges
        self._names: Mapping[str, str] = names
        self._symbols: dict[str, Dim] = {}
        self._rounded: dict[str, Rounded] = {}
        self._elements: dict[str, Ref] = {}

    @property
    def given_names(self) -> frozenset[str]:
        """What the user calls symbols."""
        return frozenset(self._names.values())

    @property
    def symbols(self) -> Mapping[str, Dim]:
        """Every symbol that was met, by our name."""
        return self._symbols

    @property
    def rounded(self) -> tuple[Rounded, ...]:
        """The sizes that were met which have to be computed, each behind those that it follows from."""
        return tuple(self._rounded.values())

    def size(self, size: Any) -> Dim:
        """A size: a number, or a `SymInt`.  Raises: UnsupportedError for one that data decides."""
        if isinstance(size, int):
            return size
        node = getattr(size, "node", None)
        if node is None:
            raise UnsupportedError(f"a size of type {type(size).__name__} is not supported")
        known = node.maybe_as_int()
        return int(known) if known is not None else self.expression(node.expr)

    def expression(self, expression: Any) -> Dim:
        """An expression of SymPy.  Raises: UnsupportedError for what ours have no word for."""
        if expression.is_Integer:
            return int(expression)
        if expression.is_Symbol:
            return self._symbol(expression)
        name = type(expression).__name__
        if name in _ROUNDINGS:
            return self._rounded_number(expression)
        build = _OPERATIONS.get(name)
        if build is None:
            form = _AS_PYTHON.get(name)
            text = str(expression) if form is None else form.format(*expression.args)
            raise UnsupportedError(f"the size '{text}' is not supported", hint=_NO_WORD)
        return build([self.expression(argument) for argument in expression.args])

    def real(self, value: Any) -> Dim | float | Formula:
        """A real number of sizes and of elements (`SymFloat`).  Raises: UnsupportedError as `expression`."""
        known = value.node.maybe_as_float()
        found = float(known) if known is not None else self._real(value.node.expr)
        # An element alone is a number of Python, too, and no tensor.
        return Formula("mul", (found, 1.0)) if isinstance(found, Ref) else found

    def read(self, value: Any, element: Ref) -> None:
        """From here on, a real number (`SymFloat`) is an element of the data."""
        self._elements[str(value.node.expr)] = element

    def _real(self, expression: Any) -> Dim | float | Formula | Ref:
        if expression.is_number:
            return float(expression)
        if str(expression) in self._elements:
            return self._elements[str(expression)]
        name = type(expression).__name__
        if name == "ToFloat":
            return self._real(expression.args[0])
        if expression.is_integer or name in _ROUNDINGS:
            return self.expression(expression)
        if name == _TO_BASE_2:
            return binary_logarithm(self._real(expression.args[0]))
        op = _FUNCTIONS.get(name)
        if op is None:
            raise UnsupportedError(f"the number '{expression}' is not supported")
        return Formula(op, tuple(self._real(part) for part in expression.args))

    def _rounded_number(self, expression: Any) -> Dim:
        """What rounds a real number: an expression of sizes where it is one, else a symbol for it."""
        number, rounding = self._real(expression.args[0]), type(expression).__name__
        if _has_element(number):
            raise UnsupportedError(
                f"the size '{expression}', which data decides, is not supported"
            )
        if isinstance(number, int | Expr):
            return number
        exact = _EXACT.get(rounding)
        ratio = _short_ratio(number)
        if exact is not None and ratio is not None:
            size, share = ratio
            return exact(size * share.numerator, share.denominator)
        text = str(expression)
        if text not in self._rounded:
            op = _ROUNDINGS[rounding]
            formula = Formula(op, (number,)) if op else number
            if not isinstance(formula, Formula):
                raise UnsupportedError(f"the number '{expression}' is not supported")
            low = 0 if _is_not_negative(formula) else None
            size = symbolic.symbol(f"rounded${len(self._rounded)}", low)
            self._rounded[text] = Rounded(size, formula, tuple(_needs(formula)))
        return self._rounded[text].size

    def truth(self, value: Any) -> bool | Relation:
        """Whether something holds of sizes (`SymBool`).  Raises: UnsupportedError as `expression`."""
        known = value.node.maybe_as_bool()
        return bool(known) if known is not None else self.relation(value.node.expr)

    def relation(self, expression: Any) -> bool | Relation:
        """Whether something of SymPy holds.  Raises: UnsupportedError as `expression`."""
        name = type(expression).__name__
        if name in ("BooleanTrue", "BooleanFalse"):
            return bool(expression)
        if name in _RELATIONS:
            sides = tuple(map(self._side, expression.args))
            return Relation(_RELATIONS[name], sides)
        if name in _CONNECTIVES:
            parts = tuple(self.relation(part) for part in expression.args)
            return Relation(_CONNECTIVES[name], parts)
        raise UnsupportedError(f"the condition '{expression}' is not supported")

    def _side(self, expression: Any) -> Dim | float | Formula | Ref:
        """What is compared: a size, or a real number, which may be an element."""
        is_size = expression.is_integer and not expression.is_Float
        return self.expression(expression) if is_size else self._real(expression)

    def _symbol(self, symbol: Any) -> Dim:
        name = str(symbol)
        is_data = name.startswith("u") and name[1:].isdigit()
        own = f"{_DATA}{name}" if is_data else self._names.get(name, name)
        if own not in self._symbols:
            bounds = self._ranges.get(symbol)
            low, high = (None, None) if bounds is None else _limits(bounds)
            # Torch takes upper limits from the first operand, which a broadcast may exceed.
            self._symbols[own] = _number(own, low, None if is_data else high)
        return self._symbols[own]


def _number(name: str, low: int | None, high: int | None) -> Dim:
    if low is not None and low >= 0:
        return symbolic.symbol(name, low, high)
    return symbolic.symbol(name, 0) - symbolic.symbol(f"{name}{_BELOW}", 0)


def parts_of_signed(number: Dim) -> tuple[Dim, Dim] | None:
    """What a number has above zero and below; None for one that is never negative."""
    found = {s.name: Expr.of_atom(s) for s in symbolic.symbols(number)}
    for name, above in found.items():
        below = found.get(f"{name}{_BELOW}")
        if below is not None:
            return above, below
    return None


def of_data(dims: Iterable[Dim]) -> list[Dim]:
    """The sizes among those of some dimensions that only data decides."""
    found = {s.name: s for dim in dims for s in symbolic.symbols(dim)}
    return [
        symbolic.symbol(name, s.lower, s.upper)
        for name, s in found.items()
        if name.startswith(_DATA)
    ]


def _has_element(number: Dim | float | Formula | Ref) -> bool:
    """Whether a number follows from elements."""
    if isinstance(number, Formula):
        return any(map(_has_element, number.parts))
    return isinstance(number, Ref)


def _short_ratio(number: Dim | float | Formula | Ref) -> tuple[Dim, Fraction] | None:
    """The size and the share of it that a number is, if its arithmetic is exact (a quotient: rounds to the same)."""
    if not isinstance(number, Formula) or len(number.parts) != 2:
        return None
    one, other = number.parts
    size, given = (one, other) if isinstance(one, Expr) else (other, one)
    if not isinstance(size, Expr) or not isinstance(given, int | float):
        return None
    if number.op == "mul":
        share = Fraction(given)
    elif number.op == "div" and size is one and given == int(given) > 0:
        share = Fraction(1, int(given))
    else:
        return None
    is_exact = 0 < share.numerator <= _SHORT and share.denominator <= _SHORT
    return (size, share) if is_exact and _is_not_negative(size) else None


def _is_not_negative(number: Dim | float | Formula | Ref) -> bool:
    """Whether it is surely at least 0."""
    if isinstance(number, Ref):
        return False
    if isinstance(number, Formula):
        return number.op not in _SIGNED and all(map(_is_not_negative, number.parts))
    low = symbolic.bounds(number)[0] if isinstance(number, Expr) else number
    return low is not None and low >= 0


def _needs(formula: Formula) -> list[Dim]:
    """The symbols that a number follows from."""
    found: dict[Dim, None] = {}
    for part in formula.parts:
        if isinstance(part, Formula):
            found.update(dict.fromkeys(_needs(part)))
        elif isinstance(part, Expr):
            found.update((Expr.of_atom(s), None) for s in symbolic.symbols(part))
    return list(found)


def binary_logarithm(number: Dim | float | Formula | Ref) -> Formula:
    """A quotient of two logarithms, which is exact for powers of 2, as a product with a constant is not."""
    return Formula("div", (Formula("log", (number,)), math.log(2)))


def _limits(bounds: Any) -> tuple[int | None, int | None]:
    def limit(value: Any) -> int | None:
        is_number = bool(getattr(value, "is_Integer", False))
        number = int(value) if is_number else None
        return None if number is None or abs(number) > _LARGEST else number

    return limit(bounds.lower), limit(bounds.upper)


def folded(combine: Callable[[Dim, Dim], Dim]) -> Callable[..., Dim]:
    """Of any number of sizes, but one at the least, what `combine` makes of two, from the first on."""

    def build(first: Dim, *rest: Dim) -> Dim:
        return functools.reduce(combine, rest, first)

    return build


def _fold(combine: Callable[[Dim, Dim], Dim]) -> Callable[[list[Dim]], Dim]:
    return lambda parts: folded(combine)(*parts)


def _power(parts: list[Dim]) -> Dim:
    base, exponent = parts
    if not isinstance(exponent, int) or not 0 <= exponent <= 8:
        raise UnsupportedError("a size with a power that is no small number")
    found: Dim = 1
    for _ in range(exponent):
        found = found * base
    return found


def _modular(parts: list[Dim]) -> Dim:
    value, divisor, modulus = parts
    return symbolic.mod(symbolic.floordiv(value, divisor), modulus)


def _both(parts: list[Dim]) -> Dim:
    """`n & 12`: each run of the constant's bits as a digit of the number; below zero, too, as Python has it."""
    constants = [part for part in parts if isinstance(part, int)]
    if len(parts) != 2 or len(constants) != 1:
        raise UnsupportedError("'&' and '|' of two sizes are not supported", hint=_NO_BITS)
    (mask,), (number,) = constants, [part for part in parts if not isinstance(part, int)]
    found: Dim = 0
    while mask:
        low = mask & -mask
        rest = mask + low  # begins at the first bit behind the lowest run
        digit = symbolic.floordiv(number, low)
        # The last run of a constant below zero (`n & ~7`) has no end.
        if rest:
            digit = symbolic.mod(digit, (rest & -rest) // low)
        found = found + digit * low
        mask &= rest
    return found


def _either(parts: list[Dim]) -> Dim:
    """`n | 4`: what both have counts once."""
    shared = _both(parts)
    return parts[0] + parts[1] - shared


_OPERATIONS: Final[dict[str, Callable[[list[Dim]], Dim]]] = {
    "Add": _fold(lambda x, y: x + y),
    "BitwiseFn_bitwise_and": _both,
    "BitwiseFn_bitwise_or": _either,
    "CeilDiv": _fold(symbolic.ceildiv),
    "CleanDiv": _fold(symbolic.floordiv),
    "FloorDiv": _fold(symbolic.floordiv),
    "Max": _fold(symbolic.maximum),
    "Min": _fold(symbolic.minimum),
    "Mod": _fold(symbolic.mod),
    "ModularIndexing": _modular,
    "Mul": _fold(lambda x, y: x * y),
    "Pow": _power,
    "PythonMod": _fold(symbolic.mod),
}


_AS_PYTHON: Final = {"PowByNatural": "{} ** {}"}
"""What Python calls expressions of torch that have names of its own."""
_NO_WORD: Final = (
    "compute it with + - * // % min max, or with tensors: 2 ** torch.scalar_tensor(n)"
)
_NO_BITS: Final = "combine a size with a constant, or compute with tensors: torch.scalar_tensor(n, dtype=torch.int64)"


_FUNCTIONS: Final = {
    "Add": "add", "Mul": "mul", "IntTrueDiv": "div", "FloatTrueDiv": "div", "FloatPow": "pow",
    "Pow": "pow", "Max": "max", "Min": "min", "Abs": "abs", "OpaqueUnaryFn_sqrt": "sqrt",
    "OpaqueUnaryFn_exp": "exp", "OpaqueUnaryFn_log": "log",
    "OpaqueUnaryFn_sin": "sin", "OpaqueUnaryFn_cos": "cos", "OpaqueUnaryFn_tanh": "tanh",
}  # fmt: skip
_TO_BASE_2: Final = "OpaqueUnaryFn_log2"
_SIGNED: Final = ("log", "sin", "cos", "tanh")
# A conversion to whole numbers goes towards zero by itself.
_ROUNDINGS: Final = {
    "TruncToInt": "", "FloorToInt": "floor", "CeilToInt": "ceil", "RoundToInt": "round",
}  # fmt: skip
_EXACT: Final[dict[str, Callable[[Dim, int], Dim]]] = {
    "TruncToInt": symbolic.floordiv,
    "FloorToInt": symbolic.floordiv,
    "CeilToInt": symbolic.ceildiv,
}
_RELATIONS: Final = {
    "Equality": "equal", "Unequality": "not_equal", "StrictLessThan": "less",
    "StrictGreaterThan": "greater", "LessThan": "less_equal", "GreaterThan": "greater_equal",
}  # fmt: skip
_CONNECTIVES: Final = {"And": "logical_and", "Or": "logical_or", "Not": "logical_not"}
