"""Indices as sums of digits: variables in quotients and remainders, and the values that these make together again.

What it is: pairs of indices of two accesses turned into other pairs that are equal where these are.
What it is not: a proof; `proofs` asks what pairs that are equal say about variables, and is the only caller.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, cast

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.kernel.fields import payloads
from tilewright.compiler.kernel.rewrite import as_symbol, expression_symbols, substitute_dim

Pair = tuple[Dim, Dim]
"""An index of one access and that of another, equal where both touch one element; a variable may differ in the two."""
_of_atom: Final = symbolic.Expr.of_atom


def digits_of_variables(
    pairs: list[Pair], pending: dict[str, Symbol]
) -> tuple[list[Pair], dict[str, Symbol]]:
    """Each variable that indices divide, written as quotient and remainder: two variables."""
    for _ in range(4):
        found = _divided(pairs, pending)
        if found is None:
            return pairs, pending
        name, divisor = found
        var = pending[name]
        top = None if var.upper is None else var.upper // divisor
        quotient = Symbol(f"{name}/{divisor}", 0, top)
        remainder = Symbol(f"{name}%{divisor}", 0, divisor - 1)
        value = _of_atom(quotient) * divisor + _of_atom(remainder)
        pairs = [
            (substitute_dim(x, {name: value}), substitute_dim(y, {name: value}))
            for x, y in pairs
        ]
        pending = {n: v for n, v in pending.items() if n != name}
        pending |= {quotient.name: quotient, remainder.name: remainder}
        if top == 0:
            del pending[quotient.name]
    return pairs, pending


def digits_of_open_size(
    pairs: Sequence[Pair], pending: Mapping[str, Symbol], inner: Iterable[Dim]
) -> tuple[Sequence[Pair], Mapping[str, Symbol]]:
    """The same for a divisor that is at least 1 and that no variable decides, `inner` ones neither; only a call may know it.

    Pairs that have more of a variable than its digits are left out.
    """
    moving = symbolic.names_in(inner) | pending.keys()
    for name, var in tuple(pending.items()):
        atoms = {atom for pair in pairs for x in pair for atom in symbolic.atoms(x)}
        parts = [a for a in atoms if isinstance(a, symbolic.Operation)]
        divisors = {part.right for part in parts if as_symbol(part.left) == var}
        if len(divisors) != 1 or not all(_is_fixed(d, moving) for d in divisors):
            continue
        named = {op: Symbol(f"{name} {op}", 0) for op in ("floordiv", "mod")}
        change = functools.partial(_digit, var, named)
        changed = [
            (substitute_operations(x, change), substitute_operations(y, change))
            for x, y in pairs
        ]
        pairs = [pair for pair in changed if name not in symbolic.names_in(pair)]
        pending = {n: v for n, v in pending.items() if n != name}
        pending |= {digit.name: digit for digit in named.values()}
    return pairs, pending


def joined_digits(pairs: Sequence[Pair]) -> list[Pair]:
    """Combinations of pairs in which a quotient and a remainder of one value become the value.

    Where all indices are equal, so is any sum of their multiples.
    """
    of_value: dict[Dim, list[tuple[int, Dim, Dim]]] = {}
    for u, v in pairs:
        for other, part in operations(u):
            if part.op == "floordiv":
                of_value.setdefault(part.quotient(), []).append((other, u, v))
    found: list[Pair] = []
    for x, y in pairs:
        for factor, part in operations(x):
            if part.op != "mod":
                continue
            # A quotient of a quotient is written as one: (e // 49) // 2 is e // 98.
            for other, u, v in of_value.get(part.quotient(), ()):
                times = _times(factor, part.right, other)
                if times is not None:
                    found.append((x + u * times, y + v * times))
    return found


def agreeing_digits(pairs: Sequence[Pair], pending: Mapping[str, Symbol]) -> list[Pair]:
    """Digits that agree where a pair does, and the rests then: what else is in it reaches less far than the digit's factor.

    In `64*(e % 49) + 8*t + i` with `8*t + i < 64` that is `e % 49`.
    """
    # A pending variable is another in each of a pair.
    theirs = {n: symbolic.symbol(f"{n}~", v.lower, v.upper) for n, v in pending.items()}
    found: list[Pair] = []
    for x, y in pairs:
        if not pending.keys().isdisjoint(read_by(x) | read_by(y)):
            continue
        for (size, digit), (other, same) in itertools.product(digits(x), digits(y)):
            if size != other:
                continue
            rest_x, rest_y = x - _of_atom(digit) * size, y - _of_atom(same) * size
            lower, upper = symbolic.bounds(rest_x - substitute_dim(rest_y, theirs))
            if lower is not None and upper is not None and max(-lower, upper) < abs(size):
                found += [(_of_atom(digit), _of_atom(same)), (rest_x, rest_y)]
    return found


def _is_fixed(divisor: Dim, moving: AbstractSet[str]) -> bool:
    least, names = symbolic.bounds(divisor)[0], symbolic.names_in((divisor,))
    return names.isdisjoint(moving) and not symbolic.opaques(divisor) and (least or 0) > 0


def _digit(
    var: Symbol, named: Mapping[str, Symbol], factor: int, part: symbolic.Operation
) -> Dim | None:
    """The quotient or the remainder of a variable, under its name."""
    found = named.get(part.op) if as_symbol(part.left) == var else None
    return None if found is None else _of_atom(found) * factor


def _divided(
    pairs: Sequence[Pair], pending: Mapping[str, Symbol]
) -> tuple[str, int] | None:
    """A pending variable that an index divides by a number, and the smallest such number."""
    found: list[tuple[int, str]] = []
    for pair in pairs:
        for index in pair:
            for atom in symbolic.atoms(index):
                if not isinstance(atom, symbolic.Operation):
                    continue
                divides = atom.op in ("floordiv", "mod") and isinstance(atom.right, int)
                var = as_symbol(atom.left) if divides else None
                if var is not None and var.name in pending:
                    found.append((cast("int", atom.right), var.name))
    return (min(found)[1], min(found)[0]) if found else None


def _times(factor: int, divisor: Dim, other: int) -> Dim | None:
    """What `other * (e // d)` must be taken times to meet `factor * (e % d)`."""
    if not isinstance(divisor, int):
        return divisor * factor if other == 1 else None
    return factor * divisor // other if factor * divisor % other == 0 else None


def digits(index: Dim) -> list[tuple[int, symbolic.Operation]]:
    """The operations among its terms, but for divisions by what may be 0."""
    return [
        (factor, part)
        for factor, part in operations(index)
        if part.op in ("min", "max") or (symbolic.bounds(part.right)[0] or 0) > 0
    ]


def operations(value: Dim) -> Iterator[tuple[int, symbolic.Operation]]:
    """The terms of a sum that are a factor times an operation."""
    for atoms, factor in () if isinstance(value, int) else value.terms:
        if len(atoms) == 1 and isinstance(atoms[0], symbolic.Operation):
            yield factor, atoms[0]


def substitute_operations(
    value: Dim, change: Callable[[int, symbolic.Operation], Dim | None]
) -> Dim:
    """`value` with what takes the place of operations among its terms, each given its factor; None leaves it."""
    for factor, operation in operations(value):
        made = change(factor, operation)
        if made is not None:
            value = value - _of_atom(operation) * factor + made
    return value


def read_by(index: Dim) -> set[str]:
    """The variables that decide which memory an index is read from."""
    return {s.name for payload in payloads(index) for s in expression_symbols(payload)}
