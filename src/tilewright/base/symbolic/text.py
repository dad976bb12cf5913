"""The text form of expressions: reads back what `str` prints.

Text may come from a file that nobody vouches for, so nesting, numbers and the size of products
are bounded.  Printing is `str`'s work.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

from tilewright.base.errors import UserError
from tilewright.base.symbolic.algebra import (
    Dim,
    Expr,
    Monomial,
    Operation,
    floordiv,
    maximum,
    minimum,
    mod,
    symbol,
)
from tilewright.base.text_reader import TextReader

_DEPTH_LIMIT: Final = 100
_MOST_NESTED: Final = 80
"""Of sizes in models: what is made of them is printed and read back, too."""
_TERM_LIMIT: Final = 1000
_FACTOR_LIMIT: Final = 100
_DIGIT_LIMIT: Final = 40
_SHOWN: Final = 80
_WORD: Final = re.compile(r"[\w.$']+")
_SPACE: Final = re.compile(r"\s*")
_OPERATORS: Final[Mapping[str, Callable[[Dim, Dim], Dim]]] = {
    "floordiv": floordiv,
    "mod": mod,
    "min": minimum,
    "max": maximum,
}


def is_deep(value: Dim) -> bool:
    """Whether parts of parts of `value` go farther than any size of a model: what looks into each would not come back."""
    text = str(value)
    if isinstance(value, int) or len(text) <= 2 * _MOST_NESTED:
        return False
    steps = ((character == "(") - (character == ")") for character in text)
    return max(itertools.accumulate(steps)) > _MOST_NESTED


def parse(text: str) -> Dim:
    """Read back what `str` prints; names are sizes, so they are at least 0.

    Raises: UserError on anything else, and on expressions too large to be dimensions.
    """
    reader = TextReader(text, "dimension", space=_SPACE)
    try:
        if not text.isascii():
            raise reader.error("names are of letters, digits and . $ '")
        value = DimReader(reader, lambda name, _: symbol(name)).read()
        reader.expect_end("the end of it")
    except UserError as error:
        shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
        problem = f"is not a dimension (at column {reader.position + 1}): {error.message}"
        raise UserError(f"'{shown}' {problem}") from error
    return value


@final
class DimReader:
    """Reads one expression after another from a text: `+ - * // % ( ) , names integers`.

    Args:
        text: where it is read from.
        named: what a name stands for, which begins at a position; raises for one that means nothing.
        opaque: reads what stands between `<` and `>`, where that may stand.
        as_written: only bring terms and factors in order, and simplify nothing else, so that what was printed comes
            back even where bounds have been sharpened since.
        subject: what errors call an expression.
    """

    def __init__(
        self,
        text: TextReader,
        named: Callable[[str, int], Dim],
        *,
        opaque: Callable[[], Dim] | None = None,
        as_written: bool = False,
        subject: str = "a dimension",
    ) -> None:
        self.text: TextReader = text
        self.named: Callable[[str, int], Dim] = named
        self.opaque: Callable[[], Dim] | None = opaque
        self.as_written: bool = as_written
        self.subject: str = subject
        self.depth: int = 0

    def read(self) -> Dim:
        """A sum of products."""
        return self._nested(self._terms)

    def _nested(self, read: Callable[[], Dim]) -> Dim:
        self.depth += 1
        if self.depth > _DEPTH_LIMIT:
            raise self.text.error(f"{self.subject} is nested too deeply")
        value = read()
        self.depth -= 1
        return value

    def _terms(self) -> Dim:
        terms = [self._product()]
        while True:
            if self.text.accept("+"):
                terms.append(self._product())
            elif self.text.accept("-"):
                terms.append(_negative(self._product()))
            else:
                break
        total = _ordered_sum(terms) if self.as_written else None
        if total is not None:
            return total
        total, *others = terms
        for term in others:
            total = self._limited(total + term)
        return total

    def _product(self) -> Dim:
        value = self._unit()
        while True:
            start = self.text.skip_space()
            if self.text.accept("//"):
                value = self._divided("floordiv", value, start)
            elif self.text.accept("%"):
                value = self._divided("mod", value, start)
            elif self.text.accept("*"):
                value = self._times(value, self._unit())
            else:
                return value

    def _divided(self, op: str, value: Dim, start: int) -> Dim:
        divisor = self._unit()
        if isinstance(divisor, int) and divisor < 1:
            raise self.text.error(f"a divisor of {divisor}, expected at least 1", at=start)
        return self._combined(op, value, divisor)

    def _combined(self, op: str, left: Dim, right: Dim) -> Dim:
        are_numbers = isinstance(left, int) and isinstance(right, int)
        if self.as_written and not are_numbers:
            return Expr.of_atom(Operation(op, left, right))
        return _OPERATORS[op](left, right)

    def _times(self, left: Dim, right: Dim) -> Dim:
        (terms, factors), (other_terms, other_factors) = _size(left), _size(right)
        if terms * other_terms > _TERM_LIMIT or factors + other_factors > _FACTOR_LIMIT:
            raise self._too_large()
        product = _ordered_product(left, right) if self.as_written else None
        return self._limited(left * right) if product is None else product

    def _limited(self, value: Dim) -> Dim:
        if _size(value)[0] > _TERM_LIMIT:
            raise self._too_large()
        return value

    def _too_large(self) -> UserError:
        return self.text.error(f"{self.subject} is too large")

    def _unit(self) -> Dim:
        text = self.text
        if text.accept("("):
            value = self.read()
            text.expect(")")
            return value
        if self.opaque is not None and text.accept("<"):
            return self.opaque()
        if text.accept("-"):
            return _negative(self._nested(self._unit))
        start = text.skip_space()
        word = text.read(_WORD, self.subject)
        if word.isdecimal():
            if len(word) > _DIGIT_LIMIT:
                raise text.error("a number too large", at=start)
            return int(word)
        if word in ("min", "max") and text.accept("("):
            return self._nested(lambda: self._extreme(word))
        return self.named(word, start)

    def _extreme(self, op: str) -> Dim:
        left = self.read()
        self.text.expect(",")
        right = self.read()
        self.text.expect(")")
        return self._combined(op, left, right)


def _ordered_sum(terms: Sequence[Dim]) -> Dim | None:
    """The sum of terms that stand in order, a number last; None where they do not."""
    if len(terms) == 1:
        return terms[0]
    *parts, last = terms
    if not isinstance(last, int):
        parts, last = [*parts, last], 0
    found = [single for single in map(_single, parts) if single is not None]
    keys = [[atom.key for atom in monomial] for monomial, _ in found]
    in_order = len(found) == len(parts) and all(a < b for a, b in itertools.pairwise(keys))
    return Expr(tuple(found), last) if in_order else None


def _ordered_product(left: Dim, right: Dim) -> Dim | None:
    """The product of two single terms, or of a number and one; None for others."""
    a, b = _single(left), _single(right)
    if b is not None and isinstance(left, int) and left:
        a = ((), left)
    if a is None or b is None:
        return None
    atoms = sorted((*a[0], *b[0]), key=lambda atom: atom.key)
    return Expr(((tuple(atoms), a[1] * b[1]),), 0)


def _single(value: Dim) -> tuple[Monomial, int] | None:
    """The only term of a sum, if it has but one."""
    if isinstance(value, int) or value.constant or len(value.terms) != 1:
        return None
    return value.terms[0]


def _negative(value: Dim) -> Dim:
    single = _single(value)
    return -value if single is None else Expr(((single[0], -single[1]),), 0)


def _size(value: Dim) -> tuple[int, int]:
    """How many terms, and how many factors the longest of them has."""
    if isinstance(value, int):
        return 1, 0
    return len(value.terms) + 1, max(len(monomial) for monomial, _ in value.terms)
