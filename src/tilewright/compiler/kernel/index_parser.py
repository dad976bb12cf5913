"""Indices, extents and shapes of kernel text, as they are written.

Terms and factors are brought in order; nothing else is simplified, so that what was printed comes back even where
bounds have been sharpened since.  Called by `expression_parser`, which reads the loads inside indices for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tilewright.base.symbolic import Dim, Expr, Monomial, Operation, Symbol
from tilewright.base.text_reader import TextReader

_TERM_LIMIT: Final = 1000
_DEPTH_LIMIT: Final = 100


class IndexParser:
    """Reads one index after another from a line.

    Args:
        line: where it is read from.
        symbols: the variables and sizes that may be named.
        opaque: reads what stands between `<` and `>`.
    """

    def __init__(
        self, line: TextReader, symbols: Mapping[str, Symbol], opaque: Callable[[], Dim]
    ) -> None:
        self.line: TextReader = line
        self.symbols: Mapping[str, Symbol] = symbols
        self.opaque: Callable[[], Dim] = opaque
        self.depth: int = 0

    def read(self) -> Dim:
        """A sum of products."""
        return self._nested(self._terms)

    def _terms(self) -> Dim:
        terms = [self._product()]
        while True:
            if self.line.accept("+"):
                terms.append(self._product())
            elif self.line.accept("-"):
                terms.append(_negative(self._product()))
            else:
                return self._sum(terms)

    def _sum(self, terms: Sequence[Dim]) -> Dim:
        if len(terms) == 1:
            return terms[0]
        *parts, last = terms
        if not isinstance(last, int):
            parts, last = [*parts, last], 0
        found = [_single(part) for part in parts]
        keys = [[] if term is None else [a.key for a in term[0]] for term in found]
        if all(keys) and all(a < b for a, b in itertools.pairwise(keys)):
            return Expr(tuple(term for term in found if term is not None), last)
        total: Dim = 0
        for term in terms:
            total = self._limited(total + term)
        return total

    def _product(self) -> Dim:
        value = self._unit()
        while True:
            start = self.line.skip_space()
            if self.line.accept("//"):
                value = self._divided("floordiv", value, self._unit(), start)
            elif self.line.accept("%"):
                value = self._divided("mod", value, self._unit(), start)
            elif self.line.accept("*"):
                value = self._times(value, self._unit())
            else:
                return value

    def _times(self, left: Dim, right: Dim) -> Dim:
        if isinstance(left, int) and isinstance(right, Expr) and left:
            single = _single(right)
            if single is not None:
                return Expr(((single[0], single[1] * left),), 0)
        a, b = _single(left), _single(right)
        if a is not None and b is not None:
            atoms = sorted((*a[0], *b[0]), key=lambda atom: atom.key)
            if len(atoms) > _DEPTH_LIMIT:
                raise self.line.error("an index with too many factors")
            return Expr(((tuple(atoms), a[1] * b[1]),), 0)
        if _size(left) * _size(right) > _TERM_LIMIT:
            raise self.line.error("an index with too many terms")
        return self._limited(left * right)

    def _divided(self, op: str, left: Dim, right: Dim, start: int) -> Dim:
        if isinstance(right, int) and right < 1:
            raise self.line.error(f"a divisor of {right}, expected at least 1", at=start)
        if isinstance(left, int) and isinstance(right, int):
            return left // right if op == "floordiv" else left % right
        return Expr.of_atom(Operation(op, left, right))

    def _limited(self, value: Dim) -> Dim:
        if _size(value) > _TERM_LIMIT:
            raise self.line.error("an index with too many terms")
        return value

    def _unit(self) -> Dim:
        line = self.line
        if line.accept("("):
            value = self.read()
            line.expect(")")
            return value
        if line.accept("<"):
            return self.opaque()
        if line.accept("-"):
            return _negative(self._nested(self._unit))
        if line.is_at_digit():
            return line.whole("a number")
        start = line.skip_space()
        name = line.word("an index")
        if name in _FUNCTIONS and line.accept("("):
            return self._nested(lambda: self._function(name))
        if name not in self.symbols:
            raise line.unknown("variable or size", name, self.symbols, start)
        return Expr.of_atom(self.symbols[name])

    def _function(self, name: str) -> Dim:
        left = self.read()
        self.line.expect(",")
        right = self.read()
        self.line.expect(")")
        if isinstance(left, int) and isinstance(right, int):
            return _FUNCTIONS[name](left, right)
        return Expr.of_atom(Operation(name, left, right))

    def _nested(self, read: Callable[[], Dim]) -> Dim:
        self.depth += 1
        if self.depth > _DEPTH_LIMIT:
            raise self.line.error("an index is nested too deeply")
        value = read()
        self.depth -= 1
        return value


_FUNCTIONS: Final[Mapping[str, Callable[[int, int], int]]] = {"min": min, "max": max}


def _single(value: Dim) -> tuple[Monomial, int] | None:
    """The only term of a sum, if it has but one."""
    if isinstance(value, int) or value.constant or len(value.terms) != 1:
        return None
    return value.terms[0]


def _negative(value: Dim) -> Dim:
    single = _single(value)
    return -value if single is None else Expr(((single[0], -single[1]),), 0)


def _size(value: Dim) -> int:
    return 1 if isinstance(value, int) else len(value.terms) + 1
