"""Sizes that a call decides: expressions of torch (SymPy) as ours.

Symbols get the names that the user gave them (`Dim("batch")`) and the ranges that torch knows.  Called by
`reader`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, final

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Expr
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.torch.program import Relation

_LARGEST: Final = 1 << 48
_DATA: Final = "data$"


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

    @property
    def symbols(self) -> Mapping[str, Dim]:
        """Every symbol that was met, by our name."""
        return self._symbols

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
        build = _OPERATIONS.get(type(expression).__name__)
        if build is None:
            raise UnsupportedError(f"the size '{expression}' is not supported")
        return build([self.expression(argument) for argument in expression.args])

    def truth(self, value: Any) -> bool | Relation:
        """Whether something holds of sizes (`SymBool`).  Raises: UnsupportedError as `expression`."""
        known = value.node.maybe_as_bool()
        return bool(known) if known is not None else self._relation(value.node.expr)

    def _relation(self, expression: Any) -> bool | Relation:
        name = type(expression).__name__
        if name in ("BooleanTrue", "BooleanFalse"):
            return bool(expression)
        if name in _RELATIONS:
            sides = tuple(self.expression(side) for side in expression.args)
            return Relation(_RELATIONS[name], sides)
        if name in _CONNECTIVES:
            parts = tuple(self._relation(part) for part in expression.args)
            return Relation(_CONNECTIVES[name], parts)
        raise UnsupportedError(f"the condition '{expression}' is not supported")

    def _symbol(self, symbol: Any) -> Dim:
        name = str(symbol)
        is_data = name.startswith("u") and name[1:].isdigit()
        own = f"{_DATA}{name}" if is_data else self._names.get(name, name)
        if own not in self._symbols:
            bounds = self._ranges.get(symbol)
            low, high = (None, None) if bounds is None else _limits(bounds)
            if is_data:
                # Torch takes upper limits from the first operand, which a broadcast may exceed.
                self._symbols[own] = symbolic.symbol(own, low)
            else:
                self._symbols[own] = symbolic.symbol(own, max(low or 0, 0), high)
        return self._symbols[own]


def of_data(dims: Iterable[Dim]) -> list[Dim]:
    """The sizes among those of some dimensions that only data decides."""
    found = {s.name: s for dim in dims for s in symbolic.symbols(dim)}
    return [
        symbolic.symbol(name, s.lower, s.upper)
        for name, s in found.items()
        if name.startswith(_DATA)
    ]


def _limits(bounds: Any) -> tuple[int | None, int | None]:
    def limit(value: Any) -> int | None:
        is_number = bool(getattr(value, "is_Integer", False))
        number = int(value) if is_number else None
        return None if number is None or abs(number) > _LARGEST else number

    return limit(bounds.lower), limit(bounds.upper)


def _fold(combine: Callable[[Dim, Dim], Dim]) -> Callable[[list[Dim]], Dim]:
    def build(parts: list[Dim]) -> Dim:
        found, *rest = parts
        for part in rest:
            found = combine(found, part)
        return found

    return build


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


_OPERATIONS: Final[dict[str, Callable[[list[Dim]], Dim]]] = {
    "Add": _fold(lambda x, y: x + y),
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


_RELATIONS: Final = {
    "Equality": "equal", "Unequality": "not_equal", "StrictLessThan": "less",
    "StrictGreaterThan": "greater", "LessThan": "less_equal", "GreaterThan": "greater_equal",
}  # fmt: skip
_CONNECTIVES: Final = {"And": "logical_and", "Or": "logical_or", "Not": "logical_not"}


def is_symbolic(value: object) -> bool:
    """Whether a size follows from a call."""
    return isinstance(value, Expr)
