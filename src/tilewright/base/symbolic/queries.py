"""Questions about finished expressions: proofs, substitution, values, symbols, linear forms.

Built on the arithmetic of `algebra`; changes nothing about the normal form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from tilewright.base.errors import InputError, UserError
from tilewright.base.symbolic.algebra import (
    Atom,
    Dim,
    Expr,
    Monomial,
    Opaque,
    Operation,
    Symbol,
    bounds,
    mod,
)
from tilewright.base.symbolic.intervals import Bounds
from tilewright.base.symbolic.samples import NUMBERS, samples


def proves_equal(left: Dim, right: Dim) -> bool:
    """Whether the two are equal for every value of their symbols."""
    return left == right


def proves_less(left: Dim, right: Dim) -> bool:
    """Whether `left < right` holds for every value of the symbols within their bounds."""
    a, b = samples(left), samples(right)
    if a and b and (a[0] >= b[0] or a[1] >= b[1]):
        return False
    upper = bounds(left - right)[1]
    return upper is not None and upper < 0


def proves_at_most(value: Dim, limits: Iterable[Dim]) -> bool:
    """Whether for one of `limits` `value <= limit` holds for every value of the symbols within their bounds."""
    here = samples(value)
    for limit in limits:
        there = samples(limit)
        if here and there and (here[0] > there[0] or here[1] > there[1]):
            continue
        upper = bounds(value - limit)[1]
        if upper is not None and upper <= 0:
            return True
    return False


def sampled_difference(left: Dim, right: Dim) -> Bounds | None:
    """An interval within that of `left - right`: what this one leaves open, that one does, too; None where there is no sample."""
    a, b = samples(left), samples(right)
    if not a or not b:
        return None
    near, far = a[0] - b[0], a[1] - b[1]
    return (near, far) if near <= far else (far, near)


def only_atom(value: Dim) -> Atom | None:
    """The atom that `value` is, if it is one and nothing else."""
    if isinstance(value, int) or value.constant or len(value.terms) != 1:
        return None
    ((monomial, factor),) = value.terms
    return monomial[0] if factor == 1 and len(monomial) == 1 else None


def is_multiple(value: Dim, divisor: int) -> bool:
    """Whether `divisor` surely divides `value`."""
    return mod(value, divisor) == 0


def substitute(value: Dim, env: Mapping[str, Dim]) -> Dim:
    """`value` with symbols replaced by name, simplified again."""
    if isinstance(value, int) or value.names.isdisjoint(env):
        return value
    kept: list[tuple[Monomial, int]] = []
    changed: list[Dim] = []
    for term in value.terms:
        monomial, factor = term
        if not [atom for atom in monomial if _is_replaced(atom, env)]:
            kept.append(term)
            continue
        image: Dim = factor
        for atom in monomial:
            image = image * _substitute_atom(atom, env)
        changed.append(image)
    # Some terms of a normal form are one, in the same order.
    result: Dim = Expr(tuple(kept), value.constant) if kept else value.constant
    for image in changed:
        result = result + image
    return result


def substitute_if_defined(value: Dim, env: Mapping[str, Dim]) -> Dim | None:
    """The same for numbers that are guesses; None where one of them makes a divisor 0."""
    try:
        return substitute(value, env)
    except UserError:
        return None


def _is_replaced(atom: Atom, env: Mapping[str, Dim]) -> bool:
    """Whether `env` says what takes the place of an atom, or of a symbol in it."""
    if type(atom) is Symbol:
        return atom.key in env
    return type(atom) is Operation and not atom.names.isdisjoint(env)


def _substitute_atom(atom: Atom, env: Mapping[str, Dim]) -> Dim:
    if isinstance(atom, Symbol):
        replacement = env.get(atom.key)
        return Expr.of_atom(atom) if replacement is None else replacement
    if not _is_replaced(atom, env):
        return Expr.of_atom(atom)
    return atom.rebuild(lambda part: substitute(part, env))


def quotients(value: Dim) -> Iterator[tuple[Dim, int]]:
    """(dividend, divisor) of every division by a number in `value`, inner ones first."""
    for atom in () if isinstance(value, int) else reversed(value.atoms):
        if not isinstance(atom, Operation) or atom.op != "floordiv":
            continue
        if isinstance(atom.right, int):
            yield atom.left, atom.right


def map_opaque(value: Dim, visit: Callable[[Opaque], Dim]) -> Dim:
    """`value` with every opaque atom replaced by what `visit` returns for it."""
    if isinstance(value, int) or not value.opaques:
        return value
    kept: list[tuple[Monomial, int]] = []
    changed: list[Dim] = []
    for term in value.terms:
        monomial, factor = term
        if not any(_has_opaque(atom) for atom in monomial):
            kept.append(term)
            continue
        image: Dim = factor
        for atom in monomial:
            new = (
                visit(atom)
                if isinstance(atom, Opaque)
                else atom.rebuild(lambda part: map_opaque(part, visit))
            )
            image = image * new
        changed.append(image)
    # Some terms of a normal form are one, in the same order.
    result: Dim = Expr(tuple(kept), value.constant) if kept else value.constant
    for image in changed:
        result = result + image
    return result


def map_atoms(value: Dim, visit: Callable[[Atom], Dim | None]) -> Dim:
    """`value` with what `visit` returns in the place of atoms; of one for which that is None, its parts are visited."""
    if isinstance(value, int):
        return value
    result: Dim = value.constant
    for monomial, factor in value.terms:
        term: Dim = factor
        for atom in monomial:
            new = visit(atom)
            if new is None:
                new = atom.rebuild(lambda part: map_atoms(part, visit))
            term = term * new
        result = result + term
    return result


def _has_opaque(atom: Atom) -> bool:
    """Whether an atom is a value that the algebra knows nothing about, or is made of one."""
    if isinstance(atom, Opaque):
        return True
    return any(isinstance(part, Expr) and part.opaques for part in atom.parts())


def evaluate(value: Dim, env: Mapping[str, int]) -> int:
    """The number `value` stands for.

    Raises: UserError naming the first symbol that `env` lacks; InputError where sizes divide by zero.
    """
    if isinstance(value, int):
        return value
    try:
        return _number(value, env)
    except KeyError:
        result = substitute(value, env)  # what is missing may not matter, or is named
    except ZeroDivisionError as error:
        names = sorted(s.name for s in symbols(value))
        given = ", ".join(f"{name} = {env[name]}" for name in names if name in env)
        raise InputError(f"a size divides by zero: {value} for {given}") from error
    if isinstance(result, int):
        return result
    missing = sorted(s.name for s in symbols(result))
    raise UserError(f"dimension '{value}' needs a value for {missing}")


def _number(value: Dim, env: Mapping[str, int]) -> int:
    """The value where every symbol has one; calls compute many, so nothing is built on the way."""
    if isinstance(value, int):
        return value
    total = value.constant
    for monomial, factor in value.terms:
        product = factor
        for atom in monomial:
            if isinstance(atom, Operation):
                compute = NUMBERS[atom.op]
                product *= compute(_number(atom.left, env), _number(atom.right, env))
            else:
                product *= env[atom.key]
        total += product
    return total


def atoms(value: Dim) -> tuple[Atom, ...]:
    """Every atom of `value`, the nested ones included."""
    return () if isinstance(value, int) else value.atoms


def opaques(value: Dim) -> tuple[Opaque, ...]:
    """The values in `value` that the algebra knows nothing about."""
    return () if isinstance(value, int) else value.opaques


def names_in(dims: Iterable[Dim]) -> frozenset[str]:
    """The names of the symbols in some sizes."""
    return frozenset().union(*(dim.names for dim in dims if isinstance(dim, Expr)))


def symbols(value: Dim) -> frozenset[Symbol]:
    """The symbols that `value` depends on."""
    return frozenset() if isinstance(value, int) else value.symbols


def linear(value: Dim, name: str) -> tuple[Dim, Dim] | None:
    """`value` as `factor * name + rest`, or None when it is not linear in that symbol."""
    if isinstance(value, int) or name not in value.names:
        return (0, value)
    factor: Dim = 0
    kept: list[tuple[Monomial, int]] = []
    for term in value.terms:
        monomial, amount = term
        others = tuple([a for a in monomial if a.key != name or type(a) is not Symbol])
        if [atom for atom in others if type(atom) is Operation and name in atom.names]:
            return None
        if others == monomial:
            kept.append(term)
            continue
        if len(others) < len(monomial) - 1:
            return None
        factor = factor + (Expr(((others, amount),), 0) if others else amount)
    # Some terms of a normal form are one, in the same order.
    rest = Expr(tuple(kept), value.constant) if kept else value.constant
    return (factor, rest)
