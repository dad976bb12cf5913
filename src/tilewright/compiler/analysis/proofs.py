"""Which accesses surely touch different elements, and which indices are surely in bounds.

Answers are one-sided: True is a proof, False means "not proven".  Not a solver: linear indices with
integer factors compared in mixed radix, quotients and remainders of one value put together again.
Called by `dependence` and the primitives.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.analysis.accesses import Access, Fact
from tilewright.compiler.analysis.digits import (
    Pair,
    agreeing_digits,
    digits,
    digits_of_open_size,
    digits_of_variables,
    joined_digits,
    operations,
    read_by,
    substitute_operations,
)
from tilewright.compiler.analysis.strides import linear_index
from tilewright.compiler.kernel.ir import For, Load
from tilewright.compiler.kernel.rewrite import as_symbol, substitute_dim

_of_atom: Final = symbolic.Expr.of_atom
_MOST_DIGITS: Final = 4
"""One value is taken apart into so many digits and one more: images in windows that are rolled have four."""
_MOST_PAIRS: Final = 48
"""More indices than these are not made of those of an access: kernels have a dozen, and digits of digits grow without end."""


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
        pairs += _digits_in_blocks(first, second, around, plain, renamed)
    pairs, pending = digits_of_variables(pairs, pending)
    if not is_scalar:
        return not pending
    if len(first.indices) > 1:
        # The position in memory sees through indices that were split off one loop (i // n, i % n).
        xs, ys = zip(*pairs[: len(first.indices)], strict=True)
        pairs.append((linear_index(first.buffer, xs), linear_index(second.buffer, ys)))
    pairs = _with_more(pairs, joined_digits)
    facts = [fact for fact in first.facts if fact in second.facts]
    pairs += _guarded_parts(pairs, facts, pending, plain, renamed)
    if not _undetermined(pairs, pending):
        return True
    inner = (*plain.values(), *renamed.values())
    if not _undetermined(*digits_of_open_size(pairs, pending, inner)):
        return True
    # What agrees in digits of digits is asked last: few need it, and it takes longest.
    agreeing = functools.partial(agreeing_digits, pending=pending)
    more = _with_more(pairs, agreeing)
    if len(more) == len(pairs):
        return False
    more = _with_more(more, lambda known: [*agreeing(known), *joined_digits(known)])
    return not _undetermined(more, pending)


def _with_more(
    pairs: Sequence[Pair], made_of: Callable[[Sequence[Pair]], Iterable[Pair]]
) -> list[Pair]:
    """Pairs and those made of them: a value that was split into two digits may itself be a digit of another."""
    found = dict.fromkeys(pairs)
    for _ in range(_MOST_DIGITS):
        count = len(found)
        room = max(0, _MOST_PAIRS - count)
        new = (pair for pair in made_of(tuple(found)) if pair not in found)
        found |= dict.fromkeys(itertools.islice(dict.fromkeys(new), room))
        if len(found) in (count, _MOST_PAIRS):
            break
    return list(found)


def _stay_in_blocks(
    first: Access, second: Access, var: Symbol, around: Sequence[For]
) -> bool:
    """Whether a variable numbers equal blocks of some index, and neither access leaves its own."""
    for x, y in zip(first.indices, second.indices, strict=True):
        size = _block_size(x, var, first, around)
        if size and size == _block_size(y, var, second, around):
            return True
    return False


def _digits_in_blocks(
    first: Access,
    second: Access,
    around: Sequence[For],
    plain: Mapping[str, Dim],
    renamed: Mapping[str, Dim],
) -> list[Pair]:
    """Quotients and remainders that number equal blocks of some index, which neither access leaves: they agree."""
    found: list[Pair] = []
    for x, y in zip(first.indices, second.indices, strict=True):
        for (size, digit), (other, same) in itertools.product(digits(x), digits(y)):
            if (
                size == other
                and _block_size(x, digit, first, around) == size
                and _block_size(y, same, second, around) == size
            ):
                mine = _rebound(_of_atom(digit), plain)
                found.append((mine, substitute_dim(_of_atom(same), renamed)))
    return found


def _block_size(
    index: Dim, number: symbolic.Atom, access: Access, around: Sequence[For]
) -> int:
    """The size of the blocks, one for each value of what numbers them, in which an index of an access stays; 0 for none."""
    if isinstance(index, int):
        return 0
    size = next((n for atoms, n in index.terms if atoms == (number,)), 0)
    if size <= 0:
        return 0
    loops = (*around, *access.inner)
    within = index - _of_atom(number) * size
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
    if not moving or not pending.keys().isdisjoint(read_by(x) | read_by(y)):
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
    """Upper bounds of `value`, quotients bounded by what bounds their dividends, remainders by an open size by that size."""
    found = _extremes(value, loops)
    for low, high in facts:
        above = symbolic.bounds(value - low)[1]
        if above is not None:
            found.append(high + above)

    def top(factor: int, part: symbolic.Operation) -> Dim | None:
        by = part.right
        if factor <= 0 or part.op not in ("floordiv", "mod"):
            return None
        if not isinstance(by, int):
            is_size = (symbolic.bounds(by)[0] or 0) > 0
            most = _most_by_open_size(part, loops, facts) if is_size else None
            return None if most is None else most * factor
        if part.op == "mod":
            return None
        tops = [symbolic.bounds(u)[1] for u in _uppers(part.left, loops, facts)]
        known = [each for each in tops if each is not None]
        return min(known) // by * factor if known else None

    bounded = substitute_operations(value, top)
    return found if bounded is value else [*found, bounded]


def _most_by_open_size(
    part: symbolic.Operation, loops: Sequence[For], facts: Sequence[Fact]
) -> Dim | None:
    """What a quotient or a remainder by a size of a call, at least 1, is at most; of a quotient, where its dividend ends at whole ones."""
    if part.op == "mod":
        return part.right - 1
    for end in (u + 1 for u in _uppers(part.left, loops, facts)):
        whole = symbolic.floordiv(end, part.right)
        if whole * part.right == end:
            return whole - 1
    return None


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
    for factor, operation in operations(value):
        if operation.op == "min" and factor >= 0:
            rest = value - _of_atom(operation) * factor
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

    return substitute_operations(value, whole)
