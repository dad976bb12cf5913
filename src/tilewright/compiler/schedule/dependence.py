"""Which iterations touch the same elements: the legality of moving code.

Works on multi-dimensional indices, so it runs before flattening.  Answers are one-sided: True is
a proof, False means "not proven".  Not a solver: linear indices with integer factors, compared in
mixed radix.  Called by the primitives' checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.kernel.ir import (
    Binary,
    Buffer,
    Compare,
    Const,
    Expression,
    Fma,
    For,
    If,
    Index,
    Load,
    Space,
    Statement,
    Store,
)
from tilewright.compiler.kernel.rewrite import (
    as_symbol,
    payloads,
    statement_expressions,
    subexpressions,
    substitute_dim,
)
from tilewright.compiler.schedule.tree import reference

COMMUTATIVE: Final = frozenset({"add", "mul", "min", "max", "and", "or", "xor"})


Fact = tuple[Dim, Dim]
"""Something known to hold: the first dimension is at most the second."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """One load or store.  `inner`: the loops between the analysed body and the access."""

    buffer: Buffer
    indices: tuple[Dim, ...]
    write: bool
    inner: tuple[For, ...]
    update: str | None = None  # the operator when it belongs to `T[i] = T[i] op e`
    statement: Statement | None = None
    lanes: int = 1
    facts: tuple[
        Fact, ...
    ] = ()  # what the guards between the body and the access establish


def accesses(
    body: Sequence[Statement],
    inner: tuple[For, ...] = (),
    facts: tuple[Fact, ...] = (),
) -> list[Access]:
    """Every access in `body`, in program order (a store's loads before its write)."""
    found: list[Access] = []
    for statement in body:
        update = update_operator(statement) if isinstance(statement, Store) else None
        for load in _loads(statement):
            of_update = (
                update
                if isinstance(statement, Store)
                and load.buffer is statement.buffer
                and load.indices == statement.indices
                else None
            )
            found.append(
                Access(
                    load.buffer, load.indices, False, inner, of_update, statement, load.lanes,
                    facts,
                )
            )  # fmt: skip
        if isinstance(statement, Store):
            lanes = statement.value.lanes
            found.append(
                Access(
                    statement.buffer, statement.indices, True, inner, update, statement, lanes,
                    facts,
                )
            )  # fmt: skip
        elif isinstance(statement, For):
            found.extend(accesses(statement.body, (*inner, statement), facts))
        elif isinstance(statement, If):
            more = tuple(known_facts((statement,)))
            found.extend(accesses(statement.body, inner, (*facts, *more)))
    return found


def _loads(statement: Statement) -> Iterator[Load]:
    for root in statement_expressions(statement):
        for part in subexpressions(root):
            if isinstance(part, Load):
                yield part


def update_operator(store: Store) -> str | None:
    """The operator of `T[i] = T[i] op e` (e free of T), `add` for an fma; None otherwise."""
    value, rest = store.value, ()
    if isinstance(value, Binary) and value.op in COMMUTATIVE:
        if _is_target(value.left, store):
            rest = (value.right,)
        elif _is_target(value.right, store):
            rest = (value.left,)
        op = value.op
    elif isinstance(value, Fma) and _is_target(value.c, store):
        rest, op = (value.a, value.b), "add"
    else:
        return None
    free = all(
        not (isinstance(part, Load) and part.buffer is store.buffer)
        for root in rest
        for part in subexpressions(root)
    )
    return op if rest and free else None


def _is_target(value: Expression, store: Store) -> bool:
    return (
        isinstance(value, Load)
        and value.buffer is store.buffer
        and value.indices == store.indices
    )


# --- do two accesses meet? -------------------------------------------------------------------


def distinct(first: Access, second: Access, shared: Sequence[Symbol]) -> bool:
    """Whether the two touch the same element only when all `shared` variables are equal.

    Inner loops of the two run independently; variables outside are the same for both.
    """
    upper = _limits(first, second)
    plain = {
        loop.var.name: symbolic.symbol(
            loop.var.name, loop.var.lower, upper(loop.var, first)
        )
        for loop in first.inner
    }
    renamed = {
        loop.var.name: symbolic.symbol(
            loop.var.name + "'", loop.var.lower, upper(loop.var, second)
        )
        for loop in second.inner
    }
    pairs = [
        (substitute_dim(x, plain), substitute_dim(y, renamed))
        for x, y in zip(first.indices, second.indices, strict=True)
    ]
    if len(pairs) > 1:
        # The position in memory sees through indices that were split off one loop (i // n, i % n).
        xs, ys = zip(*pairs, strict=True)
        pairs.append((_position(first.buffer, xs), _position(second.buffer, ys)))
        pairs.extend(_joined_digits(pairs))
    pending = {
        var.name: Symbol(var.name, var.lower, _most(upper(var, first), upper(var, second)))
        for var in shared
        if var.upper != 0 and not (_pinned(var, first) and _pinned(var, second))
    }
    progress = first.lanes == second.lanes == 1
    while pending and progress:
        progress = False
        for x, y in pairs:
            for name in _determined(x, y, pending):
                progress = pending.pop(name, None) is not None or progress
    return not pending


def _joined_digits(pairs: Sequence[tuple[Dim, Dim]]) -> list[tuple[Dim, Dim]]:
    """Combinations of pairs in which a quotient and a remainder of one value become the value.

    Where all indices are equal, so is any sum of their multiples.
    """
    found: list[tuple[Dim, Dim]] = []
    for x, y in pairs:
        for factor, value, divisor in _operations(x, "mod"):
            for u, v in pairs:
                for other, left, right in _operations(u, "floordiv"):
                    if left == value and right == divisor and factor * divisor % other == 0:
                        times = factor * divisor // other
                        found.append((x + u * times, y + v * times))
    return found


def _operations(index: Dim, op: str) -> list[tuple[int, Dim, int]]:
    """(factor, left, right) of the terms `factor * (left op right)` of an index."""
    found: list[tuple[int, Dim, int]] = []
    for monomial, factor in () if isinstance(index, int) else index.terms:
        atom = monomial[0]
        if len(monomial) > 1 or not isinstance(atom, symbolic.Operation):
            continue
        if atom.op == op and isinstance(atom.right, int):
            found.append((factor, atom.left, atom.right))
    return found


def _position(buffer: Buffer, indices: Sequence[Dim]) -> Dim:
    position: Dim = 0
    for extent, index in zip(buffer.shape, indices, strict=True):
        position = position * extent + index
    return position


def _pinned(var: Symbol, access: Access) -> bool:
    """Whether guards leave one value of a loop variable at an access, the same for all."""
    lows = [high for low, high in access.facts if as_symbol(low) == var]
    return any(as_symbol(high) == var and low in lows for low, high in access.facts)


def _most(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else max(left, right)


def _limits(*both: Access) -> Callable[[Symbol, Access], int | None]:
    """The highest value of a loop variable at an access, given its guards."""
    known: dict[tuple[int, str], int] = {}
    for access in both:
        for low, high in access.facts:
            var = as_symbol(low)
            if var is not None and isinstance(high, int):
                key = (id(access), var.name)
                known[key] = min(high, known.get(key, high))

    def upper(var: Symbol, access: Access) -> int | None:
        limit = known.get((id(access), var.name))
        if limit is None or var.upper is None:
            return var.upper if limit is None else limit
        return min(limit, var.upper)

    return upper


def _primed(var: Symbol) -> Dim:
    return symbolic.symbol(var.name + "'", var.lower, var.upper)


def _determined(x: Dim, y: Dim, pending: dict[str, Symbol]) -> list[str]:
    """The pending variables that must agree when `x` equals `y` with its own copies."""
    factors: list[tuple[int, str]] = []
    for name in pending:
        left, right = symbolic.linear(x, name), symbolic.linear(y, name)
        if left is None or right is None or left[0] != right[0]:
            return []
        if not isinstance(left[0], int):
            return []
        if left[0] != 0:
            factors.append((abs(left[0]), name))
        x, y = left[1], right[1]
    lower, upper = symbolic.bounds(x - y)
    if lower is None or upper is None:
        return []
    return _mixed_radix(sorted(factors), max(abs(lower), abs(upper)), pending)


def _mixed_radix(
    factors: list[tuple[int, str]], reach: int, pending: dict[str, Symbol]
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
    renamed = {loop.var.name: _primed(loop.var) for loop in second.inner}
    renamed |= {var.name: _primed(var) for var in shared}
    renamed_names = {name: name + "'" for name in renamed}
    if first.lanes != 1 or second.lanes != 1:
        return False
    inner = tuple(
        For(
            Symbol(renamed_names[loop.var.name], loop.var.lower, loop.var.upper),
            substitute_dim(loop.extent, renamed),
            (),
        )
        for loop in second.inner
    )
    first_facts = first.facts
    second_facts = [
        (substitute_dim(low, renamed), substitute_dim(high, renamed))
        for low, high in second.facts
    ]
    for x, y in zip(first.indices, second.indices, strict=True):
        other = substitute_dim(y, renamed)
        lower, upper = symbolic.bounds(x - other)
        if (lower is not None and lower > 0) or (upper is not None and upper < 0):
            return True
        if _below(x, first.inner, first_facts, other, inner, second_facts):
            return True
        if _below(other, inner, second_facts, x, first.inner, first_facts):
            return True
    return False


def _below(
    x: Dim,
    x_loops: Sequence[For],
    x_facts: Sequence[Fact],
    y: Dim,
    y_loops: Sequence[For],
    y_facts: Sequence[Fact],
) -> bool:
    """Whether `x < y`, from the loops around each and from what holds there."""
    uppers = _extremes(x, x_loops)
    for low, high in x_facts:
        above = symbolic.bounds(x - low)[1]
        if above is not None:
            uppers.append(high + above)
    lowers = [-value for value in _extremes(-y, y_loops)]
    for low, high in y_facts:
        below = symbolic.bounds(y - high)[0]
        if below is not None:
            lowers.append(low + below)
    return any(symbolic.proves_less(u, v) for u in uppers for v in lowers)


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
    for monomial, factor in () if isinstance(value, int) else value.terms:
        atom = monomial[0]
        if len(monomial) > 1 or not isinstance(atom, symbolic.Operation) or factor < 0:
            continue
        if atom.op == "min":
            rest = value - symbolic.Expr(((monomial, factor),), 0)
            found += [rest + atom.left * factor, rest + atom.right * factor]
    return found


def conflict(
    first: Iterable[Access],
    second: Sequence[Access],
    shared: Sequence[Symbol],
    ignore: frozenset[Buffer] = frozenset(),
) -> tuple[Access, Access] | None:
    """A pair that may touch the same element, at least one writing, in unequal iterations."""
    for a in first:
        for b in second:
            if a.buffer is not b.buffer or not (a.write or b.write) or a.buffer in ignore:
                continue
            if a.update is not None and a.update == b.update:
                continue
            if not distinct(a, b, shared) and not disjoint(a, b, shared):
                return (a, b)
    return None


def overlap(
    first: Iterable[Access], second: Sequence[Access]
) -> tuple[Access, Access] | None:
    """A pair, at least one writing, that may touch the same element at all."""
    for a in first:
        for b in second:
            if a.buffer is not b.buffer or not (a.write or b.write):
                continue
            if a.update is not None and a.update == b.update:
                continue
            if not disjoint(a, b):
                return (a, b)
    return None


def carried(
    loop: For,
    outer: Sequence[Symbol] = (),
    *,
    scope: Sequence[Statement],
    updates_commute: bool = True,
) -> tuple[Access, Access] | None:
    """A dependence between two iterations of `loop` (or of `outer` loops around it).

    Buffers private to an iteration (and not read elsewhere in `scope`) carry nothing; updates
    with the same commutative operator are no dependence unless `updates_commute` is False.
    """
    found = accesses(loop.body)
    private = frozenset(
        b for b in private_buffers(loop.body) if not live_outside(scope, loop, b)
    )
    writes = [a for a in found if a.write]
    shared = (*outer, loop.var)
    for a in writes:
        for b in found:
            if a.buffer is not b.buffer or a.buffer in private:
                continue
            if updates_commute and a.update is not None and a.update == b.update:
                continue
            if not distinct(a, b, shared) and not disjoint(a, b, shared):
                return (a, b)
    return None


# --- private buffers -------------------------------------------------------------------------


def private_buffers(body: Sequence[Statement]) -> list[Buffer]:
    """Local buffers of which `body` reads only what it wrote before, in the same run of `body`.

    The caller must know that nothing after `body` reads them (`live_outside`).
    """
    order = accesses(body)
    buffers = {
        a.buffer: None for a in order if a.write and a.buffer.space is not Space.DEVICE
    }
    return [b for b in buffers if _written_first([a for a in order if a.buffer is b])]


def _written_first(order: Sequence[Access]) -> bool:
    writes: list[Access] = []
    for access in order:
        if access.write:
            writes.append(access)
        elif not any(_covers(w, access) for w in writes):
            return False
    return True


def _covers(write: Access, read: Access) -> bool:
    """Whether the finished loops of `write` defined every element that `read` may touch."""
    common = {loop.var.name for loop in write.inner} & {
        loop.var.name for loop in read.inner
    }
    own = {loop.var.name: loop for loop in write.inner if loop.var.name not in common}
    if write.lanes != read.lanes:
        return False
    for x, y in zip(write.indices, read.indices, strict=True):
        if x == y and not _mentions(x, own):
            continue
        if not _spans(x, y, own, read):
            return False
    return True


def _mentions(dim: Dim, names: Iterable[str]) -> bool:
    symbols = {s.name for s in symbolic.symbols(dim)}
    return any(name in symbols for name in names) or any(True for _ in payloads(dim))


def _spans(x: Dim, y: Dim, own: dict[str, For], read: Access) -> bool:
    """Whether the written range `x` over its `own` loops contains every value of `y`."""
    mentioned = [name for name in own if _mentions(x, (name,))]
    ordered: list[tuple[int, For]] = []
    rest = x
    for name in mentioned:
        split = symbolic.linear(rest, name)
        if split is None or not isinstance(split[0], int) or split[0] < 1:
            return False
        ordered.append((split[0], own[name]))
        rest = split[1]
    size: Dim = 1
    for factor, loop in sorted(ordered, key=lambda pair: pair[0]):
        if factor != size:
            return False
        size = size * loop.extent
    return within(y - rest, size, read.inner)


def within(
    offset: Dim, size: Dim, loops: Sequence[For] = (), facts: Sequence[Fact] = ()
) -> bool:
    """Whether `0 <= offset < size`, given the loops around and what guards established."""
    lower, _ = symbolic.bounds(offset)
    if lower is None or lower < 0:
        return False
    if symbolic.proves_less(offset, size):
        return True
    if symbolic.proves_less(_highest(offset, loops), size):
        return True
    for low, high in facts:
        # The offset exceeds `low`, hence `high`, by at most this.
        above = symbolic.bounds(_highest(offset - low, loops))[1]
        if above is not None and symbolic.proves_less(high + above, size):
            return True
    return False


def _highest(value: Dim, loops: Sequence[For]) -> Dim:
    """An upper bound of `value`: variables at their last iteration, quotients not rounded."""
    for loop in reversed(loops):
        split = symbolic.linear(value, loop.var.name)
        if split is None or not isinstance(split[0], int) or split[0] <= 0:
            continue
        value = split[1] + split[0] * (loop.extent - 1)
    if isinstance(value, int):
        return value
    total: Dim = value.constant
    for monomial, factor in value.terms:
        atom = monomial[0]
        term: Dim = symbolic.Expr(((monomial, factor),), 0)
        if len(monomial) == 1 and isinstance(atom, symbolic.Operation) and factor > 0:
            by = atom.right
            if atom.op == "floordiv" and isinstance(by, int) and factor % by == 0:
                term = atom.left * (factor // by)
        total = total + term
    return total


def known_facts(path: Sequence[Statement]) -> list[Fact]:
    """What holds inside the guards on a path."""
    found: list[Fact] = []
    for statement in path:
        if not isinstance(statement, If) or not isinstance(statement.condition, Compare):
            continue
        condition = statement.condition
        sides = index_sides(condition)
        if sides is None:
            continue
        low, high = sides
        if condition.op in ("le", "eq"):
            found.append((low, high))
        elif condition.op == "lt":
            found.append((low, high - 1))
        elif condition.op == "ge":
            found.append((high, low))
        elif condition.op == "gt":
            found.append((high, low - 1))
        if condition.op == "eq":
            found.append((high, low))
    return found


def index_sides(condition: Compare) -> tuple[Dim, Dim] | None:
    """Both sides of a comparison of indices that no memory decides."""
    sides: list[Dim] = []
    for side in (condition.left, condition.right):
        if isinstance(side, Index) and side.lanes == 1:
            sides.append(side.dim)
        elif isinstance(side, Const) and side.lanes == 1 and side.dtype.is_integer:
            sides.append(int(side.value))
        else:
            return None
    return sides[0], sides[1]


def live_outside(body: Sequence[Statement], part: Statement, buffer: Buffer) -> bool:
    """Whether anything in `body` outside `part` touches `buffer`."""
    for statement in body:
        if statement is part:
            continue
        if any(load.buffer is buffer for load in _loads(statement)):
            return True
        if isinstance(statement, Store) and statement.buffer is buffer:
            return True
        if isinstance(statement, For | If) and live_outside(statement.body, part, buffer):
            return True
    return False


def variable(loop: For) -> Dim:
    """The loop's variable as an index."""
    return reference(loop.var)
