"""Sizes as C: numbers as they are, expressions as calls of `tw_size.h`.

Called by `tables`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

from tilewright.base.errors import InternalError, UserError
from tilewright.base.symbolic import Atom, Dim, Expr, Operation, Symbol
from tilewright.base.text import identifier, unique
from tilewright.compiler.packaging.library.names import comment

_INT64_MAX: Final = (1 << 63) - 1


@final
class Sizes:
    """The sizes of a program: each expression gets a number when it is first met.

    Args:
        names: of the symbols, in the order in which their values come.
    """

    def __init__(self, names: Sequence[str]) -> None:
        taken: set[str] = set()
        self._names: dict[str, str] = {}
        for symbol in names:
            name = unique(f"d_{identifier(symbol)}", taken)
            taken.add(name)
            self._names[symbol] = name
        self._ordinals: dict[Expr, int] = {}

    def __len__(self) -> int:
        return len(self._ordinals)

    def number(self, value: Dim) -> str:
        """A `tw_number_t`.  Raises: UserError for a number that C has no type for."""
        if isinstance(value, int):
            if abs(value) > _INT64_MAX:
                raise UserError(f"size {value} does not fit 63 bits")
            return str(value)
        return f"TW_SIZE({self._ordinals.setdefault(value, len(self._ordinals))})"

    def numbers(self, values: Sequence[Dim]) -> str:
        """Several, separated."""
        return ", ".join(map(self.number, values))

    def function(self, name: str) -> list[str]:
        """The lines of a function that computes all sizes."""
        used = {symbol.name for size in self._ordinals for symbol in size.symbols}
        declared = [
            f"  const int64_t {word} = symbols[{index}];"
            for index, (symbol, word) in enumerate(self._names.items())
            if symbol in used
        ]
        return [
            "// Every size that depends on a call.",
            f"static void {name}(const int64_t* symbols, int64_t* sizes) {{",
            *declared,
            *(
                f"  sizes[{ordinal}] = {c_expression(size, self._names)};"
                f"  // {comment(str(size))}"
                for size, ordinal in self._ordinals.items()
            ),
            "}",
        ]


def c_expression(value: Dim, names: Mapping[str, str]) -> str:
    """An expression of C with the value of `value`, where `names` are the variables of its symbols."""
    if isinstance(value, int):
        return f"INT64_C({value})"
    terms = [_term(monomial, factor, names) for monomial, factor in value.terms]
    if value.constant:
        terms.append(f"INT64_C({value.constant})")
    return _fold("tw_size_add", terms)


def _term(monomial: Sequence[Atom], factor: int, names: Mapping[str, str]) -> str:
    factors = [_atom(atom, names) for atom in monomial]
    if factor != 1:
        factors.append(f"INT64_C({factor})")
    return _fold("tw_size_mul", factors)


def _atom(atom: Atom, names: Mapping[str, str]) -> str:
    match atom:
        case Symbol():
            return names[atom.name]
        case Operation():
            left, right = c_expression(atom.left, names), c_expression(atom.right, names)
            return f"tw_size_{atom.op}({left}, {right})"
        case _:
            raise InternalError(f"size '{atom}' is no number of a call")


def _fold(function: str, operands: Sequence[str]) -> str:
    text = operands[0]
    for operand in operands[1:]:
        text = f"{function}({text}, {operand})"
    return text
