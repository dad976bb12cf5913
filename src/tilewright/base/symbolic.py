"""Integer expressions: dimensions of tensors, extents of loops, offsets into buffers.

A `Dim` is a Python `int` or an `Expr` over named symbols.  Expressions are kept in one normal
form (a polynomial over atoms), so equal ones compare equal and a constant result is always a
plain `int`.  Not a solver: what the normal form and interval bounds cannot decide stays
undecided.  Used by every room from shapes to kernel indices.

Semantics: mathematical integers; `//` and `%` round toward minus infinity, divisors are positive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Final, final

from tilewright.base.errors import InternalError, UserError


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
        return Expr.of_atom(self)

    def parts(self) -> tuple[Dim, ...]:
        return ()


@final
class Symbol(Atom):
    """A named integer with inclusive bounds; the name is its identity."""

    __slots__ = ("lower", "upper")

    def __init__(self, name: str, lower: int | None = 0, upper: int | None = None) -> None:
        super().__init__(name)
        self.lower: int | None = lower
        self.upper: int | None = upper

    @property
    def name(self) -> str:
        return self.key

    def bounds(self) -> Bounds:
        return (self.lower, self.upper)

    def __reduce__(self) -> tuple[object, ...]:
        return (Symbol, (self.key, self.lower, self.upper))


@final
class Operation(Atom):
    """`floordiv`, `mod`, `min` or `max` of two dimensions that did not simplify."""

    __slots__ = ("left", "op", "right")

    def __init__(self, op: str, left: Dim, right: Dim) -> None:
        text = {"floordiv": "({} // {})", "mod": "({} % {})"}.get(op, op + "({}, {})")
        super().__init__(text.format(left, right))
        self.op: str = op
        self.left: Dim = left
        self.right: Dim = right

    def bounds(self) -> Bounds:
        return _OPERATIONS[self.op][1](bounds(self.left), bounds(self.right))

    def rebuild(self, visit: Callable[[Dim], Dim]) -> Dim:
        return _OPERATIONS[self.op][0](visit(self.left), visit(self.right))

    def parts(self) -> tuple[Dim, ...]:
        return (self.left, self.right)

    def __reduce__(self) -> tuple[object, ...]:
        return (Operation, (self.op, self.left, self.right))


@final
class Opaque(Atom):
    """A value the algebra knows nothing about, such as an index loaded from memory."""

    __slots__ = ("payload",)

    def __init__(self, payload: Hashable, key: str) -> None:
        super().__init__(key)
        self.payload: Hashable = payload

    def __reduce__(self) -> tuple[object, ...]:
        return (Opaque, (self.payload, self.key))


Bounds = tuple[int | None, int | None]
Monomial = tuple[Atom, ...]


@final
class Expr:
    """A non-constant integer polynomial; build it with operators on `symbol(...)`."""

    __slots__ = ("_hash", "constant", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...], constant: int) -> None:
        self.terms: tuple[tuple[Monomial, int], ...] = terms
        self.constant: int = constant
        self._hash: int = hash((terms, constant))

    @staticmethod
    def of_atom(atom: Atom) -> Expr:
        return Expr((((atom,), 1),), 0)

    def __hash__(self) -> int:
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
        return self + (-other)

    def __rsub__(self, other: int) -> Dim:
        return -self + other

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            if other == 1:
                return self
            scaled = {m: f * other for m, f in self.terms}
            return _polynomial(scaled, self.constant * other)
        product: dict[Monomial, int] = {}
        mine = (*self.terms, ((), self.constant))
        theirs = (*other.terms, ((), other.constant))
        for left, a in mine:
            for right, b in theirs:
                monomial = tuple(sorted(left + right))
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


def _polynomial(terms: Mapping[Monomial, int], constant: int) -> Dim:
    kept = [(m, f) for m, f in terms.items() if f]
    if not kept:
        return constant
    for monomial, factor in kept:
        for atom in monomial:
            if isinstance(atom, Operation) and atom.op == "mod":
                joined = _join_quotient(terms, monomial, factor, atom)
                if joined is not None:
                    return joined + constant
    kept.sort(key=lambda term: ([a.key for a in term[0]], term[1]))
    return Expr(tuple(kept), constant)


def _join_quotient(
    terms: Mapping[Monomial, int], monomial: Monomial, factor: int, atom: Operation
) -> Dim | None:
    """The sum of `terms` when they hold `k * (x % d)` and `k * d * (x // d)`: that is `k * x`."""
    rest = list(monomial)
    rest.remove(atom)
    quotient = floordiv(atom.left, atom.right)
    product = quotient * atom.right * factor
    for other in rest:
        product = product * Expr.of_atom(other)
    if isinstance(product, int) or product.constant or len(product.terms) != 1:
        return None
    ((wanted, amount),) = product.terms
    if terms.get(wanted) != amount:
        return None
    whole: Dim = atom.left * factor
    for other in rest:
        whole = whole * Expr.of_atom(other)
    left = {m: f for m, f in terms.items() if m not in (monomial, wanted)}
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
        if right == 0:
            raise UserError(f"division of dimension '{left}' by zero")
        if isinstance(left, int):
            return left // right
        if right == 1:
            return left
        if right < 0:
            return Expr.of_atom(Operation("floordiv", left, right))
        quotient, rest = _split(left, right)
        if _within(rest, 0, right - 1):
            return quotient
        if isinstance(rest, Expr) and len(rest.terms) == 1 and rest.constant == 0:
            ((monomial, factor),) = rest.terms
            inner = monomial[0]
            nested = (
                factor == 1
                and len(monomial) == 1
                and isinstance(inner, Operation)
                and inner.op == "floordiv"
                and isinstance(inner.right, int)
            )
            if nested and isinstance(inner, Operation) and isinstance(inner.right, int):
                return quotient + floordiv(inner.left, inner.right * right)
        reduced = _reduce(rest, right)
        if reduced is not None:
            return quotient + floordiv(reduced[1], right // reduced[0])
        return quotient + Expr.of_atom(Operation("floordiv", rest, right))
    if left == right:
        return 1
    exact = _divide_exactly(left, right)
    return exact if exact is not None else Expr.of_atom(Operation("floordiv", left, right))


def _divide_exactly(left: Dim, right: Expr) -> Dim | None:
    """`left / right` when `right` is one monomial that divides every term."""
    if len(right.terms) != 1 or right.constant or isinstance(left, int):
        return 0 if left == 0 else None
    ((monomial, factor),) = right.terms
    if left.constant:
        return None
    result: dict[Monomial, int] = {}
    for candidate, amount in left.terms:
        rest = list(candidate)
        for atom in monomial:
            if atom not in rest:
                return None
            rest.remove(atom)
        if amount % factor:
            return None
        result[tuple(rest)] = amount // factor
    constant = result.pop((), 0)
    return _polynomial(result, constant)


def mod(left: Dim, right: Dim) -> Dim:
    """`left % right`, with the sign of `right`."""
    if isinstance(right, int):
        if right == 0:
            raise UserError(f"remainder of dimension '{left}' by zero")
        if isinstance(left, int):
            return left % right
        if right == 1:
            return 0
        _, rest = _split(left, right)
        if _within(rest, 0, right - 1):
            return rest
        if isinstance(rest, int):
            return rest % right
        reduced = _reduce(rest, right)
        if reduced is not None:
            unit, high, low = reduced
            return mod(high, right // unit) * unit + low
        return Expr.of_atom(Operation("mod", rest, right))
    if left == right or (
        isinstance(left, Expr) and _divide_exactly(left, right) is not None
    ):
        return 0
    return Expr.of_atom(Operation("mod", left, right))


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
    if upper is not None and upper <= 0:
        return left if op == "min" else right
    if lower is not None and lower >= 0:
        return right if op == "min" else left
    first, second = sorted((left, right), key=str)
    return Expr.of_atom(Operation(op, first, second))


def bounds(value: Dim) -> Bounds:
    """Inclusive interval that surely contains `value`; None is an open end."""
    if isinstance(value, int):
        return (value, value)
    lower: int | None = value.constant
    upper: int | None = value.constant
    for monomial, factor in value.terms:
        low, high = _monomial_bounds(monomial)
        if factor < 0:
            low, high = high, low
        lower = None if lower is None or low is None else lower + low * factor
        upper = None if upper is None or high is None else upper + high * factor
    return (lower, upper)


def _monomial_bounds(monomial: Monomial) -> Bounds:
    interval = monomial[0].bounds()
    for atom in monomial[1:]:
        interval = _product_bounds(interval, atom.bounds())
    return interval


def _product_bounds(a: Bounds, b: Bounds) -> Bounds:
    (al, ah), (bl, bh) = a, b
    if al is not None and bl is not None and al >= 0 and bl >= 0:
        return (al * bl, None if ah is None or bh is None else ah * bh)
    if al is None or ah is None or bl is None or bh is None:
        return (None, None)
    corners = (al * bl, al * bh, ah * bl, ah * bh)
    return (min(corners), max(corners))


def _floordiv_bounds(a: Bounds, b: Bounds) -> Bounds:
    (low, high), (divisor_low, divisor_high) = a, b
    if divisor_low is None or divisor_low < 1:
        return (None, None)
    if low is None or low < 0:
        least = None if low is None else low // divisor_low
    else:
        least = 0 if divisor_high is None else low // divisor_high
    if high is None:
        return (least, None)
    return (least, high // divisor_low if high >= 0 else -1)


def _mod_bounds(a: Bounds, b: Bounds) -> Bounds:
    top = None if b[1] is None else b[1] - 1
    nonnegative = a[0] is not None and a[0] >= 0
    if nonnegative and a[1] is not None:
        top = a[1] if top is None else min(top, a[1])
    return (0, top) if b[0] is not None and b[0] > 0 else (None, None)


def _min_bounds(a: Bounds, b: Bounds) -> Bounds:
    highs = [h for h in (a[1], b[1]) if h is not None]
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    return (low, min(highs) if highs else None)


def _max_bounds(a: Bounds, b: Bounds) -> Bounds:
    lows = [low for low in (a[0], b[0]) if low is not None]
    high = None if a[1] is None or b[1] is None else max(a[1], b[1])
    return (max(lows) if lows else None, high)


_OPERATIONS: Final[
    dict[str, tuple[Callable[[Dim, Dim], Dim], Callable[[Bounds, Bounds], Bounds]]]
] = {
    "floordiv": (floordiv, _floordiv_bounds),
    "mod": (mod, _mod_bounds),
    "min": (minimum, _min_bounds),
    "max": (maximum, _max_bounds),
}


def _within(value: Dim, low: int, high: int) -> bool:
    least, most = bounds(value)
    return least is not None and most is not None and least >= low and most <= high


def proves_equal(left: Dim, right: Dim) -> bool:
    """Whether the two are equal for every value of their symbols."""
    return left == right


def proves_less(left: Dim, right: Dim) -> bool:
    """Whether `left < right` holds for every value of the symbols within their bounds."""
    upper = bounds(left - right)[1]
    return upper is not None and upper < 0


def is_multiple(value: Dim, divisor: int) -> bool:
    """Whether `divisor` surely divides `value`."""
    return mod(value, divisor) == 0


def substitute(value: Dim, env: Mapping[str, Dim]) -> Dim:
    """`value` with symbols replaced by name, simplified again."""
    if isinstance(value, int):
        return value
    result: Dim = value.constant
    for monomial, factor in value.terms:
        term: Dim = factor
        for atom in monomial:
            term = term * _substitute_atom(atom, env)
        result = result + term
    return result


def _substitute_atom(atom: Atom, env: Mapping[str, Dim]) -> Dim:
    if isinstance(atom, Symbol):
        replacement = env.get(atom.key)
        return Expr.of_atom(atom) if replacement is None else replacement
    return atom.rebuild(lambda part: substitute(part, env))


def map_opaque(value: Dim, visit: Callable[[Opaque], Dim]) -> Dim:
    """`value` with every opaque atom replaced by what `visit` returns for it."""
    if isinstance(value, int):
        return value
    result: Dim = value.constant
    for monomial, factor in value.terms:
        term: Dim = factor
        for atom in monomial:
            new = (
                visit(atom)
                if isinstance(atom, Opaque)
                else atom.rebuild(lambda part: map_opaque(part, visit))
            )
            term = term * new
        result = result + term
    return result


def evaluate(value: Dim, env: Mapping[str, int]) -> int:
    """The number `value` stands for.

    Raises: UserError naming the first symbol that `env` lacks.
    """
    if isinstance(value, int):
        return value
    result = substitute(value, env)
    if isinstance(result, int):
        return result
    missing = sorted(s.name for s in symbols(result))
    raise UserError(f"dimension '{value}' needs a value for {missing}")


def atoms(value: Dim) -> Iterable[Atom]:
    """Every atom of `value`, the nested ones included."""
    if isinstance(value, int):
        return
    for monomial, _ in value.terms:
        for atom in monomial:
            yield atom
            for part in atom.parts():
                yield from atoms(part)


def symbols(value: Dim) -> frozenset[Symbol]:
    """The symbols that `value` depends on."""
    return frozenset(a for a in atoms(value) if isinstance(a, Symbol))


def linear(value: Dim, name: str) -> tuple[Dim, Dim] | None:
    """`value` as `factor * name + rest`, or None when it is not linear in that symbol."""
    if isinstance(value, int):
        return (0, value)
    factor: Dim = 0
    rest: Dim = value.constant
    for monomial, amount in value.terms:
        count = sum(isinstance(a, Symbol) and a.key == name for a in monomial)
        others: Dim = amount
        for atom in monomial:
            if isinstance(atom, Symbol) and atom.key == name:
                continue
            if any(s.key == name for p in atom.parts() for s in symbols(p)):
                return None
            others = others * Expr.of_atom(atom)
        if count > 1:
            return None
        if count == 1:
            factor = factor + others
        else:
            rest = rest + others
    return (factor, rest)


def parse(text: str) -> Dim:
    """Read back what `str` prints.  Raises: UserError on anything else."""
    return _Parser(text).parse()


class _Parser:
    """Recursive descent over `+ - * // % ( ) , names integers`."""

    def __init__(self, text: str) -> None:
        self.text: str = text
        self.position: int = 0

    def parse(self) -> Dim:
        value = self._sum()
        self._space()
        if self.position != len(self.text):
            raise self._error()
        return value

    def _error(self) -> UserError:
        return UserError(
            f"'{self.text}' is not a dimension (at column {self.position + 1})"
        )

    def _space(self) -> None:
        while self.position < len(self.text) and self.text[self.position].isspace():
            self.position += 1

    def _accept(self, token: str) -> bool:
        self._space()
        if self.text.startswith(token, self.position):
            self.position += len(token)
            return True
        return False

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise self._error()

    def _sum(self) -> Dim:
        value: Dim = -self._product() if self._accept("-") else self._product()
        while True:
            if self._accept("+"):
                value = value + self._product()
            elif self._accept("-"):
                value = value - self._product()
            else:
                return value

    def _product(self) -> Dim:
        value = self._unit()
        while True:
            if self._accept("*"):
                value = value * self._unit()
            elif self._accept("//"):
                value = floordiv(value, self._unit())
            elif self._accept("%"):
                value = mod(value, self._unit())
            else:
                return value

    def _unit(self) -> Dim:
        if self._accept("("):
            value = self._sum()
            self._expect(")")
            return value
        if self._accept("-"):
            return -self._unit()
        start = self.position
        while self.position < len(self.text) and (
            self.text[self.position].isalnum() or self.text[self.position] in "_.$'"
        ):
            self.position += 1
        word = self.text[start : self.position]
        if not word:
            raise self._error()
        if word.isdigit():
            return int(word)
        if word in ("min", "max") and self._accept("("):
            left = self._sum()
            self._expect(",")
            right = self._sum()
            self._expect(")")
            return _extreme(word, left, right)
        return symbol(word)
