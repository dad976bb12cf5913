"""Which iterations touch the same elements: the legality of moving code.

Works on multi-dimensional indices, so it runs before flattening.  Answers are one-sided: True is
a proof, False means "not proven".  Not a solver: linear indices with integer factors, compared in
mixed radix.  Called by the primitives' checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.kernel.ir import (
    Binary,
    Buffer,
    Expression,
    Fma,
    For,
    If,
    Load,
    Space,
    Statement,
    Store,
)
from tilewright.compiler.kernel.rewrite import (
    payloads,
    statement_expressions,
    subexpressions,
    substitute_dim,
)
from tilewright.compiler.schedule.tree import reference

COMMUTATIVE: Final = frozenset({"add", "mul", "min", "max", "and", "or", "xor"})


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


def accesses(
    body: Sequence[Statement], inner: tuple[For, ...] = (), *, loops_inside: bool = True
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
                    load.buffer,
                    load.indices,
                    False,
                    inner,
                    of_update,
                    statement,
                    load.lanes,
                )
            )
        if isinstance(statement, Store):
            lanes = statement.value.lanes
            found.append(
                Access(
                    statement.buffer,
                    statement.indices,
                    True,
                    inner,
                    update,
                    statement,
                    lanes,
                )
            )
        elif isinstance(statement, For) and loops_inside:
            found.extend(accesses(statement.body, (*inner, statement)))
        elif isinstance(statement, If) and loops_inside:
            found.extend(accesses(statement.body, inner))
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
    renamed = {loop.var.name: _primed(loop.var) for loop in second.inner}
    pairs = [
        (x, substitute_dim(y, renamed))
        for x, y in zip(first.indices, second.indices, strict=True)
    ]
    pending = {var.name: var for var in shared if var.upper != 0}
    progress = first.lanes == second.lanes == 1
    while pending and progress:
        progress = False
        for x, y in pairs:
            for name in _determined(x, y, pending):
                progress = pending.pop(name, None) is not None or progress
    return not pending


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
    if first.lanes != 1 or second.lanes != 1:
        return False
    for x, y in zip(first.indices, second.indices, strict=True):
        lower, upper = symbolic.bounds(x - substitute_dim(y, renamed))
        if (lower is not None and lower > 0) or (upper is not None and upper < 0):
            return True
    return False


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


def within(offset: Dim, size: Dim, loops: Sequence[For] = ()) -> bool:
    """Whether `0 <= offset < size`, given the loops whose variables `offset` uses."""
    lower, _ = symbolic.bounds(offset)
    if lower is None or lower < 0:
        return False
    if symbolic.proves_less(offset, size):
        return True
    # A variable is at most its extent - 1 even where the extent is symbolic.
    highest = offset
    for loop in reversed(loops):
        split = symbolic.linear(highest, loop.var.name)
        if split is None or not isinstance(split[0], int) or split[0] < 0:
            continue
        highest = split[1] + split[0] * (loop.extent - 1)
    return symbolic.proves_less(highest, size)


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
