"""What a piece of code loads and stores, and what the guards around each access establish.

Observation only, on multi-dimensional indices.  Called by `proofs`, `dependence` and the primitives.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, final

from tilewright.base import dtypes, symbolic
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.fields import payloads
from tilewright.compiler.kernel.rewrite import (
    buffers_of,
    buffers_written,
    is_target,
    loads,
    loads_below,
    loads_of,
)

_KNOWN_STORES: Final = 4096
"""Stores whose operators are remembered: they are frozen, and most of a kernel stays as it is between two looks."""
COMMUTATIVE: Final = frozenset({"add", "mul", "min", "max", "and", "or", "xor"})


Fact = tuple[Dim, Dim]
"""Something known to hold: the first dimension is at most the second."""


@final
@record(eq=False)
class Access:
    """One load or store.  `inner`: the loops between the analysed body and the access."""

    buffer: ir.Buffer
    indices: tuple[Dim, ...]
    write: bool
    inner: tuple[ir.For, ...]
    update: str | None = None  # the operator when it belongs to `T[i] = T[i] op e`
    statement: ir.Statement | None = None
    lanes: int = 1
    facts: tuple[
        Fact, ...
    ] = ()  # what the guards between the body and the access establish
    stride: int = 1  # elements from one lane to the next
    guards: tuple[ir.Expression, ...] = ()  # the conditions of those guards
    mask: ir.Expression | None = None  # where it is false a load stays away


def accesses(
    body: Sequence[ir.Statement],
    inner: tuple[ir.For, ...] = (),
    facts: tuple[Fact, ...] = (),
    guards: tuple[ir.Expression, ...] = (),
    of: ir.Buffer | None = None,
) -> list[Access]:
    """Every access in `body`, in program order (a store's loads before its write).

    Args:
        body: where they are.
        inner: the loops around it, of those that count.
        facts: what is known there.
        guards: the conditions around it.
        of: the only buffer whose accesses are wanted; None for all.
    """
    found: list[Access] = []
    for statement in body:
        if of is not None and of not in buffers_of(statement):
            continue
        store = statement if isinstance(statement, ir.Store) else None
        update = None if store is None else update_operator(store)
        for load in loads_of(statement):
            if of is not None and load.buffer is not of:
                continue
            is_updated = update and store and is_target(load, store)
            of_update = update if is_updated else None
            found.append(
                Access(
                    load.buffer, load.indices, False, inner, of_update, statement, load.lanes,
                    facts, load.stride, guards, load.mask,
                )
            )  # fmt: skip
        if store is not None and of in (None, store.buffer):
            lanes = store.value.lanes
            found.append(
                Access(
                    store.buffer, store.indices, True, inner, update, store, lanes,
                    facts, store.stride, guards,
                )
            )  # fmt: skip
        elif isinstance(statement, ir.For):
            found += accesses(statement.body, (*inner, statement), facts, guards, of)
        elif isinstance(statement, ir.If):
            more = tuple(known_facts((statement,)))
            inside = (*guards, statement.condition)
            found += accesses(statement.body, inner, (*facts, *more), inside, of)
    return found


@functools.lru_cache(maxsize=_KNOWN_STORES)
def update_operator(store: ir.Store) -> str | None:
    """The operator of `T[i] = T[i] op e` (e free of T); None otherwise."""
    value = store.value
    if not isinstance(value, ir.Binary) or value.op not in COMMUTATIVE:
        return None
    sides = (value.left, value.right)
    for total, other in (sides, sides[::-1]):
        if is_target(total, store):
            met = any(load.buffer is store.buffer for load in loads_below(other))
            return None if met else value.op
    return None


def known_facts(path: Sequence[ir.Statement]) -> list[Fact]:
    """What holds all through the guards on a path: nothing about memory that changes inside of them."""
    return [
        fact
        for guard in path
        if isinstance(guard, ir.If)
        for fact in facts_where(guard.condition)
        if all(is_fixed(side, guard.body) for side in fact)
    ]


def is_fixed(dim: Dim, body: Sequence[ir.Statement]) -> bool:
    """Whether `dim` is the same all through `body`: it may stand in memory."""
    return written_of(payloads(dim), body) is None


def written_of(
    values: Iterable[ir.Expression], body: Sequence[ir.Statement]
) -> ir.Buffer | None:
    """A buffer that `values` read and `body` writes."""
    read = {load.buffer for value in values for load in loads(value)}
    return next((b for b in buffers_written(body) if b in read), None) if read else None


def facts_where(condition: ir.Expression) -> tuple[Fact, ...]:
    """What comparisons of indices say where a condition holds: it is one of them, or several joined by `and`."""
    if isinstance(condition, ir.Binary) and condition.op == "and":
        return (*facts_where(condition.left), *facts_where(condition.right))
    if not isinstance(condition, ir.Compare):
        return ()
    sides = index_sides(condition)
    return () if sides is None else facts_of(condition.op, *sides)


def differences(facts: Iterable[Fact]) -> tuple[Dim, ...]:
    """What is at most 0 where `facts` hold."""
    return tuple([low - high for low, high in facts])


def is_at_most_zero(value: Dim, facts: Iterable[Dim] = ()) -> bool:
    """Whether `value <= 0` follows from bounds of symbols, or with one of `facts`, which are at most 0."""
    return symbolic.proves_at_most(value, (0, *facts))


def facts_of(op: str, left: Dim, right: Dim) -> tuple[Fact, ...]:
    """What a comparison of indices says where it holds; nothing of one that only says they differ."""
    says = _SAYS.get(op)
    return () if says is None else says(left, right)


_SAYS: Final[Mapping[str, Callable[[Dim, Dim], tuple[Fact, ...]]]] = {
    "le": lambda left, right: ((left, right),),
    "lt": lambda left, right: ((left, right - 1),),
    "ge": lambda left, right: ((right, left),),
    "gt": lambda left, right: ((right, left - 1),),
    "eq": lambda left, right: ((left, right), (right, left)),
}


def index_sides(condition: ir.Compare) -> tuple[Dim, Dim] | None:
    """Both sides of a comparison of indices that no memory decides, and that no index is too large for."""
    if condition.left.dtype is not dtypes.i64:
        return None
    sides: list[Dim] = []
    for side in (condition.left, condition.right):
        if isinstance(side, ir.Index) and side.lanes == 1:
            sides.append(side.dim)
        elif isinstance(side, ir.Const) and side.lanes == 1 and side.dtype.is_integer:
            sides.append(int(side.value))
        else:
            return None
    return sides[0], sides[1]
