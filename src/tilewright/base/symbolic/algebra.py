"""Expressions in normal form: atoms, polynomials over them, and the arithmetic that keeps it.

The rules live here and nowhere else; questions about finished expressions are in `queries`, the
text form in `text`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Final, final

from tilewright.base.errors import InternalError, UserError
from tilewright.base.symbolic.intervals import (
    Bounds,
    floordiv_bounds,
    max_bounds,
    min_bounds,
    mod_bounds,
    product_bounds,
)
from tilewright.base.symbolic.narrowing import Quotient, narrowed, sum_bounds
from tilewright.base.symbolic.polynomials import divide, key_of, product_of


class Atom:
    """An indivisible factor of a monomial; ordered and compared by `key`."""

    __slots__ = ("_hash", "key")

    def __init__(self, key: str) -> None:
        self.key: str = key
        self._hash: int = hash(key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Atom) and self.key == other.key)

    def __lt__(self, other: Atom) -> bool:
        return self.key < other.key

    def __repr__(self) -> str:
        return self.key

    def bounds(self) -> Bounds:
        return (None, None)

    def rebuild(self, visit: Callable[[Dim], Dim]) -> Dim:
        """The atom with its parts replaced by `visit(part)`."""
        del visit
        return Expr.of_atom(self)

    def parts(self) -> tuple[Dim, ...]:
        return ()


@final
class Symbol(Atom):
    """A named integer with inclusive bounds; the name is its identity."""

    __slots__ = ("lower", "name", "upper")

    def __init__(self, name: str, lower: int | None = 0, upper: int | None = None) -> None:
        super().__init__(name)
        self.name: str = name
        self.lower: int | None = lower
        self.upper: int | None = upper

    def bounds(self) -> Bounds:
        return (self.lower, self.upper)

    def __reduce__(self) -> tuple[object, ...]:
        return (Symbol, (self.key, self.lower, self.upper))


@final
class Operation(Atom):
    """`floordiv`, `mod`, `min` or `max` of two dimensions that did not simplify."""

    __slots__ = ("_bounds", "_multiple", "_quotient", "left", "names", "op", "right")

    def __init__(self, op: str, left: Dim, right: Dim) -> None:
        super().__init__(_operation_text(op, left, right))
        self.op: str = op
        self.left: Dim = left
        self.right: Dim = right
        names = [part.names for part in (left, right) if isinstance(part, Expr)]
        self.names: frozenset[str] = frozenset().union(*names)
        self._bounds: Bounds | None = None
        self._multiple: Dim | None = None
        self._quotient: Dim | None = None

    def quotient(self) -> Dim:
        """`left // right`: of a remainder, what it is the rest of."""
        if self._quotient is None:
            self._quotient = floordiv(self.left, self.right)
        return self._quotient

    def multiple(self) -> Dim:
        """`left // right * right`: what a remainder lacks to be `left`."""
        if self._multiple is None:
            self._multiple = self.quotient() * self.right
        return self._multiple

    def bounds(self) -> Bounds:
        if self._bounds is None:
            interval = _OPERATIONS[self.op][1]
            self._bounds = interval(bounds(self.left), bounds(self.right))
        return self._bounds

    def rebuild(self, visit: Callable[[Dim], Dim]) -> Dim:
        return _OPERATIONS[self.op][0](visit(self.left), visit(self.right))

    def parts(self) -> tuple[Dim, ...]:
        return (self.left, self.right)

    def __reduce__(self) -> tuple[object, ...]:
        return (Operation, (self.op, self.left, self.right))


def _operation_text(op: str, left: Dim, right: Dim) -> str:
    sign = {"floordiv": "//", "mod": "%"}.get(op)
    if sign is None:
        return f"{op}({left}, {right})"
    return f"({left} {sign} {_divisor_text(right)})"


def _divisor_text(right: Dim) -> str:
    """A product needs parentheses: `x // 2*n` reads as `(x // 2) * n`."""
    if isinstance(right, int) or right.constant or len(right.terms) != 1:
        return str(right)
    ((monomial, factor),) = right.terms
    return str(right) if factor == 1 and len(monomial) == 1 else f"({right})"


@final
class Opaque(Atom):
    """A value the algebra knows nothing about, such as an index loaded from memory."""

    __slots__ = ("payload",)

    def __init__(self, payload: Hashable, key: str) -> None:
        super().__init__(key)
        self.payload: Hashable = payload

    def __reduce__(self) -> tuple[object, ...]:
        return (Opaque, (self.payload, self.key))


Monomial = tuple[Atom, ...]


@final
class Expr:
    """A non-constant integer polynomial; build it with operators on `symbol(...)`.

    Answers about it are kept with the object, not by value: symbols compare by name alone, so
    equal expressions may differ in the bounds of their symbols.
    """

    __slots__ = (
        "_atoms", "_bounds", "_hash", "_names", "_opaques", "_symbols", "_text", "constant", "samples",
        "terms",
    )  # fmt: skip

    def __init__(self, terms: tuple[tuple[Monomial, int], ...], constant: int) -> None:
        self.terms: tuple[tuple[Monomial, int], ...] = terms
        self.constant: int = constant
        self.samples: tuple[int, ...] | None = None  # what `samples` found
        self._hash: int | None = None
        self._atoms: tuple[Atom, ...] | None = None
        self._bounds: Bounds | None = None
        self._names: frozenset[str] | None = None
        self._opaques: tuple[Opaque, ...] | None = None
        self._symbols: frozenset[Symbol] | None = None
        self._text: str | None = None

    @staticmethod
    def of_atom(atom: Atom) -> Expr:
        return Expr((((atom,), 1),), 0)

    @property
    def atoms(self) -> tuple[Atom, ...]:
        """Every atom, each followed by those of its parts."""
        if self._atoms is None:
            found: list[Atom] = []
            for monomial, _ in self.terms:
                for atom in monomial:
                    found.append(atom)
                    if isinstance(atom, Operation):
                        for part in (atom.left, atom.right):
                            if isinstance(part, Expr):
                                found.extend(part.atoms)
            self._atoms = tuple(found)
        return self._atoms

    @property
    def opaques(self) -> tuple[Opaque, ...]:
        """The opaque values among the atoms."""
        if self._opaques is None:
            self._opaques = tuple([a for a in self.atoms if isinstance(a, Opaque)])
        return self._opaques

    @property
    def symbols(self) -> frozenset[Symbol]:
        """The symbols among the atoms."""
        if self._symbols is None:
            self._symbols = frozenset([a for a in self.atoms if isinstance(a, Symbol)])
        return self._symbols

    @property
    def names(self) -> frozenset[str]:
        """The names of the symbols."""
        if self._names is None:
            found: set[str] = set()
            for monomial, _ in self.terms:
                for atom in monomial:
                    if isinstance(atom, Symbol):
                        found.add(atom.key)
                    elif isinstance(atom, Operation):
                        found |= atom.names
            self._names = frozenset(found)
        return self._names

    @property
    def bounds(self) -> Bounds:
        """Inclusive interval that surely contains the value; None is an open end."""
        if self._bounds is None:
            self._bounds = _bounds_of(self)
        return self._bounds

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.terms, self.constant))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Expr)
            and self.constant == other.constant
            and self.terms == other.terms
        )

    def __add__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            return self if other == 0 else Expr(self.terms, self.constant + other)
        merged = dict(self.terms)
        for monomial, factor in other.terms:
            merged[monomial] = merged.get(monomial, 0) + factor
        return _polynomial(merged, self.constant + other.constant)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            return self if other == 0 else Expr(self.terms, self.constant - other)
        merged = dict(self.terms)
        for monomial, factor in other.terms:
            merged[monomial] = merged.get(monomial, 0) - factor
        return _polynomial(merged, self.constant - other.constant)

    def __rsub__(self, other: int) -> Dim:
        return -self + other

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            if other in (0, 1):
                return self if other else 0
            # A multiple of a normal form is one, in the same order.
            scaled = tuple([(m, f * other) for m, f in self.terms])
            return Expr(scaled, self.constant * other)
        product: dict[Monomial, int] = {}
        theirs = _all_terms(other)
        for left, a in _all_terms(self):
            for right, b in theirs:
                monomial = product_of(left, right)
                product[monomial] = product.get(monomial, 0) + a * b
        constant = product.pop((), 0)
        return _polynomial(product, constant)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: int) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __rmod__(self, other: int) -> Dim:
        return mod(other, self)

    def __bool__(self) -> bool:
        raise InternalError(f"truth value of symbolic dimension '{self}' was asked for")

    def __str__(self) -> str:
        if self._text is None:
            self._text = self._printed()
        return self._text

    def _printed(self) -> str:
        pieces: list[str] = []
        for monomial, factor in self.terms:
            text = "*".join(a.key for a in monomial)
            sign = "-" if factor < 0 else "+"
            size = "" if abs(factor) == 1 else f"{abs(factor)}*"
            pieces.append(f"{sign} {size}{text}")
        if self.constant:
            pieces.append(f"{'-' if self.constant < 0 else '+'} {abs(self.constant)}")
        text = " ".join(pieces).removeprefix("+ ")
        text = "-" + text[2:] if text.startswith("- ") else text
        return f"({text})" if len(pieces) > 1 else text

    __repr__ = __str__

    def __reduce__(self) -> tuple[object, ...]:
        return (Expr, (self.terms, self.constant))


Dim = int | Expr


def symbol(name: str, lower: int | None = 0, upper: int | None = None) -> Expr:
    """A fresh reference to the symbol called `name`, with inclusive bounds."""
    return Expr.of_atom(Symbol(name, lower, upper))


def opaque(payload: Hashable, key: str) -> Expr:
    """A dimension whose value only `payload` knows; equal keys mean equal values."""
    return Expr.of_atom(Opaque(payload, key))


def _all_terms(value: Expr) -> tuple[tuple[Monomial, int], ...]:
    """The terms, the constant among them unless it is 0."""
    return (*value.terms, ((), value.constant)) if value.constant else value.terms


def _polynomial(terms: Mapping[Monomial, int], constant: int) -> Dim:
    kept = [(m, f) for m, f in terms.items() if f]
    if len(kept) < 2:
        return Expr(tuple(kept), constant) if kept else constant
    for monomial, factor in kept:
        for atom in monomial:
            if isinstance(atom, Operation) and atom.op == "mod":
                joined = _join_quotient(terms, monomial, factor, atom)
                if joined is not None:
                    return joined + constant
    kept.sort(key=_term_order)
    return Expr(tuple(kept), constant)


def _term_order(term: tuple[Monomial, int]) -> tuple[str, ...]:
    """Terms stand in the order of their monomials, which are unique in a polynomial."""
    return tuple(map(key_of, term[0]))


def _join_quotient(
    terms: Mapping[Monomial, int], monomial: Monomial, factor: int, atom: Operation
) -> Dim | None:
    """The sum of `terms` when they hold `k * (x % d)` and `k * d * (x // d)`: that is `k * x`."""
    rest = list(monomial)
    rest.remove(atom)
    product = atom.multiple()
    if isinstance(product, int):
        wanted = {tuple(rest): product * factor}
    elif product.constant:
        return None
    else:
        wanted = {product_of(m, tuple(rest)): f * factor for m, f in product.terms}
    found = all(m and amount and terms.get(m) == amount for m, amount in wanted.items())
    if not found:
        return None
    whole: Dim = atom.left * factor
    for other in rest:
        whole = whole * Expr.of_atom(other)
    left = {m: f for m, f in terms.items() if m != monomial and m not in wanted}
    return _polynomial(left, 0) + whole


def _split(value: Dim, divisor: int) -> tuple[Dim, Dim]:
    """`value` as `divisor * quotient + rest` with every divisible term in the quotient."""
    if isinstance(value, int):
        return value // divisor, value % divisor
    quotient = {m: f // divisor for m, f in value.terms if f % divisor == 0}
    rest = {m: f for m, f in value.terms if f % divisor}
    return (
        _polynomial(quotient, value.constant // divisor),
        _polynomial(rest, value.constant % divisor),
    )


def _reduce(value: Dim, divisor: int) -> tuple[int, Dim, Dim] | None:
    """`value` as `unit * high + low` with `0 <= low < unit` and `unit` a divisor of `divisor`.

    Then `value // divisor` is `high // (divisor // unit)`: what `low` adds cannot carry.
    """
    if isinstance(value, int):
        return None
    units = {math.gcd(factor, divisor) for _, factor in value.terms}
    for unit in sorted(units - {1, divisor}, reverse=True):
        high, low = _split(value, unit)
        if _within(low, 0, unit - 1):
            return unit, high, low
    return None


def floordiv(left: Dim, right: Dim) -> Dim:
    """`left // right`, rounded toward minus infinity.

    Raises: UserError when `right` is the constant zero.
    """
    if isinstance(right, int):
        return _floordiv_by_number(left, right)
    if left == right:
        return 1
    if _is_remainder_of(left, right):
        return 0
    exact = _divide_exactly(left, right)
    return exact if exact is not None else Expr.of_atom(Operation("floordiv", left, right))


def _floordiv_by_number(left: Dim, right: int) -> Dim:
    if right == 0:
        raise UserError(f"division of dimension '{left}' by zero")
    if isinstance(left, int):
        return left // right
    if right < 0:
        return _floordiv_by_number(-left, -right)
    if right == 1:
        return left
    quotient, rest = _split(left, right)
    if _within(rest, 0, right - 1):
        return quotient
    inner = _as_quotient(rest)
    if inner is not None:
        return quotient + floordiv(inner[0], inner[1] * right)
    reduced = _reduce(rest, right)
    if reduced is not None:
        return quotient + floordiv(reduced[1], right // reduced[0])
    return quotient + Expr.of_atom(Operation("floordiv", rest, right))


def _is_remainder_of(value: Dim, divisor: Expr) -> bool:
    """Whether surely `0 <= value < divisor`."""
    low, high = bounds(value)[0], bounds(value - divisor)[1]
    return low is not None and low >= 0 and high is not None and high < 0


def _as_quotient(value: Dim) -> tuple[Dim, int] | None:
    """`(x, d)` when `value` is exactly `x // d` with a number `d`: `y // d + r` is `(y + r * d) // d`."""
    found: tuple[Dim, Operation, int] | None = None
    for monomial, factor in () if isinstance(value, int) else value.terms:
        atom = monomial[0]
        if factor == 1 and len(monomial) == 1 and isinstance(atom, Operation):
            if found or atom.op != "floordiv" or not isinstance(atom.right, int):
                return None
            found = (value - Expr(((monomial, 1),), 0), atom, atom.right)
        elif not all(isinstance(x, Symbol) for x in monomial):
            return None
    if found is None:
        return None
    rest, quotient, divisor = found
    return quotient.left + rest * divisor, divisor


def _divide_exactly(left: Dim, right: Expr) -> Dim | None:
    """`left / right` when nothing is left over."""
    if isinstance(left, int):
        return 0 if left == 0 else None
    result = divide(dict(_all_terms(left)), dict(_all_terms(right)))
    return None if result is None else _polynomial(result, result.pop((), 0))


def mod(left: Dim, right: Dim) -> Dim:
    """`left % right`, with the sign of `right`.

    Raises: UserError when `right` is the constant zero.
    """
    if isinstance(right, int):
        return _mod_by_number(left, right)
    if _is_remainder_of(left, right):
        return left
    if left == right or (
        isinstance(left, Expr) and _divide_exactly(left, right) is not None
    ):
        return 0
    return Expr.of_atom(Operation("mod", left, right))


def _mod_by_number(left: Dim, right: int) -> Dim:
    if right == 0:
        raise UserError(f"remainder of dimension '{left}' by zero")
    if isinstance(left, int):
        return left % right
    if right < 0:
        return -_mod_by_number(-left, -right)
    if right == 1:
        return 0
    _, rest = _split(left, right)
    if isinstance(rest, int) or _within(rest, 0, right - 1):
        return rest
    reduced = _reduce(rest, right)
    if reduced is not None:
        unit, high, low = reduced
        return mod(high, right // unit) * unit + low
    return Expr.of_atom(Operation("mod", rest, right))


def ceildiv(left: Dim, right: Dim) -> Dim:
    """The smallest integer not below `left / right`, for a positive `right`."""
    return floordiv(left + right - 1, right)


def minimum(left: Dim, right: Dim) -> Dim:
    """The smaller of two dimensions."""
    return _extreme("min", left, right)


def maximum(left: Dim, right: Dim) -> Dim:
    """The larger of two dimensions."""
    return _extreme("max", left, right)


def _extreme(op: str, left: Dim, right: Dim) -> Dim:
    if isinstance(left, int) and isinstance(right, int):
        return min(left, right) if op == "min" else max(left, right)
    lower, upper = bounds(left - right)
    if lower == upper == 0:
        return min(left, right, key=str)
    if upper is not None and upper <= 0:
        return left if op == "min" else right
    if lower is not None and lower >= 0:
        return right if op == "min" else left
    first, second = sorted((left, right), key=str)
    return Expr.of_atom(Operation(op, first, second))


def bounds(value: Dim) -> Bounds:
    """Inclusive interval that surely contains `value`; None is an open end."""
    return (value, value) if isinstance(value, int) else value.bounds


def _bounds_of(value: Expr) -> Bounds:
    terms = _all_terms(value)
    interval = sum_bounds(terms, (0, 0), _monomial_bounds)
    if len(value.terms) < 2:
        return interval
    quotients = {m: found for m, _ in value.terms if (found := _quotient_by_number(m))}
    return narrowed(interval, terms, quotients, _monomial_bounds) if quotients else interval


def _quotient_by_number(monomial: Monomial) -> Quotient[Atom] | None:
    """What a monomial is a quotient of, if it is one and nothing else."""
    atom = monomial[0]
    if len(monomial) > 1 or not isinstance(atom, Operation) or atom.op != "floordiv":
        return None
    left, right = atom.left, atom.right
    if isinstance(left, int) or isinstance(right, Expr) or right < 1:
        return None
    return Quotient(_all_terms(left), right)


def _monomial_bounds(monomial: Monomial) -> Bounds:
    interval = monomial[0].bounds()
    for atom in monomial[1:]:
        interval = product_bounds(interval, atom.bounds())
    return interval


_OPERATIONS: Final[
    dict[str, tuple[Callable[[Dim, Dim], Dim], Callable[[Bounds, Bounds], Bounds]]]
] = {
    "floordiv": (floordiv, floordiv_bounds),
    "mod": (mod, mod_bounds),
    "min": (minimum, min_bounds),
    "max": (maximum, max_bounds),
}


def _within(value: Dim, low: int, high: int) -> bool:
    least, most = bounds(value)
    return least is not None and most is not None and least >= low and most <= high
