"""Which accesses surely touch different elements, and which indices are surely in bounds.

Answers are one-sided: True is a proof, False means "not proven".  Not a solver: linear indices with
integer factors compared in mixed radix, quotients and remainders of one value put together again.
Called by `dependence` and the primitives.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, cast

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.analysis.accesses import Access, Fact
from tilewright.compiler.analysis.strides import linear_index
from tilewright.compiler.kernel.ir import For, Load
from tilewright.compiler.kernel.rewrite import (
    as_symbol,
    expression_symbols,
    payloads,
    substitute_dim,
)

_of_atom: Final = symbolic.Expr.of_atom
_Term = tuple[symbolic.Monomial, int]
_MOST_DIGITS: Final = 4
"""One value is taken apart into so many digits and one more: images in windows that are rolled have four."""


def distinct(
    first: Access,
    second: Access,
    shared: Sequence[Symbol],
    around: Sequence[For] = (),
) -> bool:
    """Whether the two touch the same element only when all `shared` variables are equal.

    Inner loops of the two run independently; variables outside are the same for both.  `around`: loops of the shared
    variables, as far as they are known.
    """
    upper = _limits(first, second)
    plain = _copies((loop.var for loop in first.inner), first, upper)
    renamed = _copies((loop.var for loop in second.inner), second, upper, "'")
    pairs = [
        (_rebound(x, plain), substitute_dim(y, renamed))
        for x, y in zip(first.indices, second.indices, strict=True)
    ]
    pending = {
        var.name: Symbol(var.name, var.lower, _most(upper(var, first), upper(var, second)))
        for var in shared
        if _most(upper(var, first), upper(var, second)) != 0
        and not (_pinned(var, first) and _pinned(var, second))
    }
    is_scalar = first.lanes == second.lanes == 1
    if is_scalar and not _undetermined(pairs, pending):
        return True  # as most are: no index is split
    if is_scalar:
        pending = {
            name: var
            for name, var in pending.items()
            if not _stay_in_blocks(first, second, var, around)
        }
    pairs, pending = _digits_of_variables(pairs, pending)
    if len(pairs) > 1:
        # The position in memory sees through indices that were split off one loop (i // n, i % n).
        xs, ys = zip(*pairs, strict=True)
        pairs.append((linear_index(first.buffer, xs), linear_index(second.buffer, ys)))
        # A value that was split into two digits may itself be a digit of another.
        for _ in range(_MOST_DIGITS):
            known = set(pairs)
            more = dict.fromkeys(_joined_digits(pairs, pairs))
            new = [pair for pair in more if pair not in known]
            if not new:
                break
            pairs.extend(new)
    facts = [fact for fact in first.facts if fact in second.facts]
    pairs += _guarded_parts(pairs, facts, pending, plain, renamed)
    if not is_scalar:
        return not pending
    if not _undetermined(pairs, pending):
        return True
    inner = (*plain.values(), *renamed.values())
    return not _undetermined(*_digits_of_open_size(pairs, pending, inner))


def _stay_in_blocks(
    first: Access, second: Access, var: Symbol, around: Sequence[For]
) -> bool:
    """Whether a variable numbers equal blocks of some index, and neither access leaves its own."""
    for x, y in zip(first.indices, second.indices, strict=True):
        size = _block_size(x, var, first, around)
        if size and size == _block_size(y, var, second, around):
            return True
    return False


def _block_size(index: Dim, var: Symbol, access: Access, around: Sequence[For]) -> int:
    """The size of the blocks, one for each value of a variable, in which an index of an access stays; 0 for none."""
    if isinstance(index, int):
        return 0
    size = next((n for atoms, n in index.terms if atoms == (var,)), 0)
    if size <= 0:
        return 0
    loops = (*around, *access.inner)
    within = index - _of_atom(var) * size
    if not _is_never_negative(within, loops):
        return 0
    limits = [at_last(within, loops)]
    limits += [high + at_last(within - low, loops) for low, high in access.facts]
    tops = [symbolic.bounds(x)[1] for limit in limits for x in _without_minimum(limit)]
    return size if any(top is not None and top < size for top in tops) else 0


def _is_never_negative(value: Dim, loops: Sequence[For]) -> bool:
    """Whether a value is at least 0 inside of loops: by its bounds, or because all of its terms are."""
    least, most = symbolic.bounds(value)[0], symbolic.bounds(_highest(-value, loops))[1]
    if (least is not None and least >= 0) or (most is not None and most <= 0):
        return True
    if isinstance(value, int) or value.constant < 0:
        return False
    return all(
        factor > 0 and all(_is_atom_never_negative(atom, loops) for atom in atoms)
        for atoms, factor in value.terms
    )


def _is_atom_never_negative(atom: symbolic.Atom, loops: Sequence[For]) -> bool:
    if isinstance(atom, symbolic.Operation) and atom.op in ("floordiv", "min"):
        return _is_never_negative(atom.left, loops) and _is_never_negative(
            atom.right, loops
        )
    least = symbolic.bounds(_of_atom(atom))[0]
    return least is not None and least >= 0


def _undetermined(
    pairs: Sequence[tuple[Dim, Dim]], pending: Mapping[str, Symbol]
) -> Mapping[str, Symbol]:
    """Those of the pending variables that may differ where both of each pair are equal."""
    left, progress = dict(pending), True
    while left and progress:
        progress = False
        for x, y in pairs:
            for name in _determined(x, y, left):
                progress = left.pop(name, None) is not None or progress
    return left


def _guarded_parts(
    pairs: Sequence[tuple[Dim, Dim]],
    facts: Sequence[Fact],
    pending: Mapping[str, Symbol],
    plain: Mapping[str, Dim],
    renamed: Mapping[str, Dim],
) -> list[tuple[Dim, Dim]]:
    """Sums within an index that a guard keeps below the factors of all other variables.

    In `g * 68 + (p * 48 + lane)` with `p * 48 + lane < 68` the sum in brackets is a digit, though its
    variables alone reach further.
    """
    found: list[tuple[Dim, Dim]] = []
    for low, high in facts:
        least = symbolic.bounds(low)[0]
        if isinstance(low, int) or not isinstance(high, int) or least is None:
            continue
        left, right = _rebound(low, plain), substitute_dim(low, renamed)
        inside = symbolic.names_in((low,))
        for x, y in pairs:
            above = x - left
            names = symbolic.names_in((above,))
            if not inside.isdisjoint(names):
                continue
            others = {name: var for name, var in pending.items() if name not in inside}
            moving = names & others.keys()
            known = _determined(above, y - right, others, high - least)
            if moving and moving <= set(known):
                found.append((_without(x, moving), _without(y, moving)))
    return found


def _without(value: Dim, names: Iterable[str]) -> Dim:
    """`value` less the terms of variables in which it is linear."""
    for name in names:
        part = symbolic.linear(value, name)
        assert part is not None, f"{value} is not linear in {name}"
        value = part[1]
    return value


def _digits_of_variables(
    pairs: list[tuple[Dim, Dim]], pending: dict[str, Symbol]
) -> tuple[list[tuple[Dim, Dim]], dict[str, Symbol]]:
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


def _digits_of_open_size(
    pairs: Sequence[tuple[Dim, Dim]], pending: Mapping[str, Symbol], inner: Iterable[Dim]
) -> tuple[Sequence[tuple[Dim, Dim]], Mapping[str, Symbol]]:
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
        digits = {op: Symbol(f"{name} {op}", 0) for op in ("floordiv", "mod")}
        named = functools.partial(_digit, var, digits)
        changed = [(_changed(x, named), _changed(y, named)) for x, y in pairs]
        pairs = [pair for pair in changed if name not in symbolic.names_in(pair)]
        pending = {n: v for n, v in pending.items() if n != name}
        pending |= {digit.name: digit for digit in digits.values()}
    return pairs, pending


def _is_fixed(divisor: Dim, moving: AbstractSet[str]) -> bool:
    least, names = symbolic.bounds(divisor)[0], symbolic.names_in((divisor,))
    return names.isdisjoint(moving) and not symbolic.opaques(divisor) and (least or 0) > 0


def _digit(
    var: Symbol, digits: Mapping[str, Symbol], factor: int, part: symbolic.Operation
) -> Dim | None:
    """The quotient or the remainder of a variable, under its name."""
    found = digits.get(part.op) if as_symbol(part.left) == var else None
    return None if found is None else _of_atom(found) * factor


def _divided(
    pairs: Sequence[tuple[Dim, Dim]], pending: Mapping[str, Symbol]
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


def _joined_digits(
    remainders: Sequence[tuple[Dim, Dim]], quotients: Sequence[tuple[Dim, Dim]]
) -> list[tuple[Dim, Dim]]:
    """Combinations of pairs in which a quotient and a remainder of one value become the value.

    Where all indices are equal, so is any sum of their multiples.
    """
    of_value: dict[Dim, list[tuple[int, Dim, Dim]]] = {}
    for u, v in quotients:
        for other, left, right in _operations(u, "floordiv"):
            of_value.setdefault(symbolic.floordiv(left, right), []).append((other, u, v))
    found: list[tuple[Dim, Dim]] = []
    for x, y in remainders:
        for factor, value, divisor in _operations(x, "mod"):
            # A quotient of a quotient is written as one: (e // 49) // 2 is e // 98.
            for other, u, v in of_value.get(symbolic.floordiv(value, divisor), ()):
                times = _times(factor, divisor, other)
                if times is not None:
                    found.append((x + u * times, y + v * times))
    return found


def _times(factor: int, divisor: Dim, other: int) -> Dim | None:
    """What `other * (e // d)` must be taken times to meet `factor * (e % d)`."""
    if not isinstance(divisor, int):
        return divisor * factor if other == 1 else None
    return factor * divisor // other if factor * divisor % other == 0 else None


def _operations(index: Dim, op: str) -> list[tuple[int, Dim, Dim]]:
    """(factor, left, right) of the terms `factor * (left op right)` of an index."""
    return [
        (factor, atom.left, atom.right)
        for _, factor, atom in _terms(index)
        if atom is not None and atom.op == op
    ]


def _terms(value: Dim) -> Iterator[tuple[_Term, int, symbolic.Operation | None]]:
    """The terms of a sum but for its constant, each with its factor, and the operation if it is one."""
    for monomial, factor in () if isinstance(value, int) else value.terms:
        atom = monomial[0] if len(monomial) == 1 else None
        operation = atom if isinstance(atom, symbolic.Operation) else None
        yield (monomial, factor), factor, operation


def _pinned(var: Symbol, access: Access) -> bool:
    """Whether guards leave one value of a loop variable at an access, the same for all."""
    lows = [high for low, high in access.facts if as_symbol(low) == var]
    return any(as_symbol(high) == var and low in lows for low, high in access.facts)


def _most(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else max(left, right)


_Upper = Callable[[Symbol, Access], int | None]
"""The highest value of a loop variable at an access; None where it has no bound."""


def _limits(*both: Access) -> _Upper:
    """The highest value of a loop variable at an access, given its guards."""
    known: dict[tuple[int, str], int] = {}
    for access in both:
        for low, high in access.facts:
            for name, most in _most_of_each(low, high):
                key = (id(access), name)
                known[key] = min(most, known.get(key, most))

    def upper(var: Symbol, access: Access) -> int | None:
        limit = known.get((id(access), var.name))
        if limit is None or var.upper is None:
            return var.upper if limit is None else limit
        return min(limit, var.upper)

    return upper


def _copies(
    variables: Iterable[Symbol], access: Access, upper: _Upper, mark: str = ""
) -> dict[str, Dim]:
    """Each variable as the access has it: under a name with `mark`, within what its guards leave."""
    return {
        v.name: symbolic.symbol(v.name + mark, v.lower, upper(v, access)) for v in variables
    }


def _most_of_each(low: Dim, high: Dim) -> list[tuple[str, int]]:
    """The highest value of every variable in a sum that is at most `high`."""
    found: list[tuple[str, int]] = []
    for symbol in () if isinstance(low, int) else symbolic.symbols(low):
        part = symbolic.linear(low, symbol.name)
        least = None if part is None else symbolic.bounds(part[1])[0]
        if part is None or least is None or not isinstance(high, int):
            continue
        if isinstance(part[0], int) and part[0] > 0:
            found.append((symbol.name, (high - least) // part[0]))
    return found


def _determined(x: Dim, y: Dim, pending: Mapping[str, Symbol], apart: int = 0) -> list[str]:
    """The pending variables that must agree when `x` is within `apart` of `y` with its own copies."""
    mentioned = symbolic.names_in((x, y))
    moving = [name for name in pending if name in mentioned]
    if not moving or not pending.keys().isdisjoint(_read_by(x) | _read_by(y)):
        return []
    factors: list[tuple[int, str]] = []
    for name in moving:
        left, right = symbolic.linear(x, name), symbolic.linear(y, name)
        if left is None or right is None or left[0] != right[0]:
            return []
        if not isinstance(left[0], int):
            return []
        factors.append((abs(left[0]), name))
        x, y = left[1], right[1]
    lower, upper = symbolic.bounds(x - y)
    if lower is None or upper is None:
        return []
    return _mixed_radix(sorted(factors), max(abs(lower), abs(upper)) + apart, pending)


def _read_by(index: Dim) -> set[str]:
    """The variables that decide which memory an index is read from."""
    return {s.name for payload in payloads(index) for s in expression_symbols(payload)}


def _mixed_radix(
    factors: list[tuple[int, str]], reach: int, pending: Mapping[str, Symbol]
) -> list[str]:
    """The top variables whose factor exceeds all that the lower terms can reach."""
    found: list[str] = []
    bounded = True
    for factor, name in factors:
        found = [*found, name] if bounded and factor > reach else []
        upper = pending[name].upper
        if upper is None:
            bounded = False
        else:
            reach += factor * upper
    return found


def disjoint(first: Access, second: Access, shared: Iterable[Symbol] = ()) -> bool:
    """Whether the two never touch the same element, `shared` running independently too."""
    if first.lanes != 1 or second.lanes != 1:
        return False
    upper = _limits(first, second)
    mine = [*(loop.var for loop in first.inner), *shared]
    others = [*(loop.var for loop in second.inner), *shared]
    plain = _copies(mine, first, upper)
    renamed = _copies(others, second, upper, "'")
    inner = tuple(
        For(
            Symbol(loop.var.name + "'", loop.var.lower, loop.var.upper),
            substitute_dim(loop.extent, renamed),
            (),
        )
        for loop in second.inner
    )
    first_facts, second_facts = (
        [(substitute_dim(low, own), substitute_dim(high, own)) for low, high in each.facts]
        for each, own in ((first, plain), (second, renamed))
    )
    for one, y in zip(first.indices, second.indices, strict=True):
        x = _rebound(one, plain)
        other = substitute_dim(y, renamed)
        lower, upper = symbolic.bounds(x - other)
        if (lower is not None and lower > 0) or (upper is not None and upper < 0):
            return True
        if _leaves_a_remainder(x - other):
            return True
        if _below(x, first.inner, first_facts, other, inner, second_facts):
            return True
        if _below(other, inner, second_facts, x, first.inner, first_facts):
            return True
    return False


def _leaves_a_remainder(difference: Dim) -> bool:
    """Whether a number divides every term but the constant: `2*i` is no `2*j + 1`."""
    if isinstance(difference, int):
        return difference != 0
    common = math.gcd(*(factor for _, factor in difference.terms))
    return difference.constant % common != 0


def _rebound(value: Dim, bounded: Mapping[str, Dim]) -> Dim:
    """`value` with symbols of the same names but tighter bounds; by way of other names."""
    own = (a for a in symbolic.atoms(value) if isinstance(a, Symbol) and a.key in bounded)
    has_these = all(a.bounds() == symbolic.bounds(bounded[a.key]) for a in own)
    if has_these and not symbolic.opaques(value):
        return value
    between = {name: symbolic.symbol(f"{name}~") for name in bounded}
    back = {f"{name}~": symbol for name, symbol in bounded.items()}
    return substitute_dim(substitute_dim(value, between), back)


def _below(
    x: Dim,
    x_loops: Sequence[For],
    x_facts: Sequence[Fact],
    y: Dim,
    y_loops: Sequence[For],
    y_facts: Sequence[Fact],
) -> bool:
    """Whether `x < y`, from the loops around each and from what holds there."""
    uppers = _uppers(x, x_loops, x_facts)
    # What is below y is what -y is below of; facts read backwards.
    turned = [(-high, -low) for low, high in y_facts]
    lowers = [-value for value in _uppers(-y, y_loops, turned)]
    return any(symbolic.proves_less(u, v) for u in uppers for v in lowers)


def _uppers(value: Dim, loops: Sequence[For], facts: Sequence[Fact]) -> list[Dim]:
    """Upper bounds of `value`, quotients bounded by what bounds their dividends."""
    found = _extremes(value, loops)
    for low, high in facts:
        above = symbolic.bounds(value - low)[1]
        if above is not None:
            found.append(high + above)

    def quotient_top(factor: int, part: symbolic.Operation) -> int | None:
        if part.op != "floordiv" or not isinstance(part.right, int) or factor <= 0:
            return None
        tops = [symbolic.bounds(u)[1] for u in _uppers(part.left, loops, facts)]
        known = [top for top in tops if top is not None]
        return min(known) // part.right * factor if known else None

    bounded = _changed(value, quotient_top)
    return found if bounded is value else [*found, bounded]


def _changed(value: Dim, change: Callable[[int, symbolic.Operation], Dim | None]) -> Dim:
    """`value` with what takes the place of operations among its terms, each given its factor; None leaves it."""
    for term, factor, operation in _terms(value):
        made = None if operation is None else change(factor, operation)
        if made is not None:
            value = value - symbolic.Expr((term,), 0) + made
    return value


def _extremes(value: Dim, loops: Sequence[For]) -> list[Dim]:
    """Upper bounds of `value`: each loop at the end that makes it largest, inner loops first."""
    found = _without_minimum(value)
    for loop in reversed(loops):
        ends: list[Dim] = []
        for candidate in found:
            part = symbolic.linear(candidate, loop.var.name)
            if part is None or not isinstance(part[0], int):
                ends.append(candidate)
            elif part[0] > 0:
                ends.extend(_without_minimum(part[1] + part[0] * (loop.extent - 1)))
            else:
                ends.append(part[1])
        found = ends[:8]
    return found


def _without_minimum(value: Dim) -> list[Dim]:
    """`value`, and what it is at most when a `min(a, b)` in it is taken for a or for b."""
    found = [value]
    for term, factor, operation in _terms(value):
        if operation is not None and operation.op == "min" and factor >= 0:
            rest = value - symbolic.Expr((term,), 0)
            found += [rest + operation.left * factor, rest + operation.right * factor]
    return found


def _is_less(value: Dim, size: Dim) -> bool:
    """Whether an upper bound of `value` is less than `size`."""
    return any(symbolic.proves_less(x, size) for x in _without_minimum(value))


def within(
    offset: Dim, size: Dim, loops: Sequence[For] = (), facts: Sequence[Fact] = ()
) -> bool:
    """Whether `0 <= offset < size`, given the loops around and what guards established."""
    lower, _ = symbolic.bounds(offset)
    if lower is None or lower < 0:
        return False
    if symbolic.proves_less(offset, size):
        return True
    # Loops that the size goes by must stay in both: from the innermost outward, one after the other.
    for depth in range(len(loops), -1, -1):
        if _is_less(at_last(offset, loops[depth:]), size):
            return True
    if _is_less(_highest(offset, loops), size):
        return True
    for low, high in facts:
        # The offset exceeds `low`, hence `high`, by at most this.
        above = symbolic.bounds(_highest(offset - low, loops))[1]
        if above is not None and symbolic.proves_less(high + above, size):
            return True
    return False


def in_bounds(
    access: Access | Load, loops: Sequence[For] = (), facts: Sequence[Fact] = ()
) -> bool:
    """The same of all indices of an access in its buffer."""
    pairs = zip(access.indices, access.buffer.shape, strict=True)
    return all(within(index, size, loops, facts) for index, size in pairs)


def _highest(value: Dim, loops: Sequence[For]) -> Dim:
    """An upper bound of `value`: variables at their last iteration, quotients not rounded."""
    return _unrounded(at_last(value, loops))


def at_last(value: Dim, loops: Sequence[For]) -> Dim:
    """An upper bound of `value`: variables at their last iteration."""
    for loop in reversed(loops):
        split = symbolic.linear(value, loop.var.name)
        if split is None or not isinstance(split[0], int) or split[0] <= 0:
            continue
        value = split[1] + split[0] * (loop.extent - 1)
    return value


def _unrounded(value: Dim) -> Dim:
    """An upper bound of `value`: quotients that are not rounded."""

    def whole(factor: int, part: symbolic.Operation) -> Dim | None:
        by = part.right
        if part.op != "floordiv" or not isinstance(by, int) or factor <= 0 or factor % by:
            return None
        return part.left * (factor // by)

    return _changed(value, whole)
