"""Whether a kernel may write a result over one of its operands.

One-sided: True is a proof.  It holds when every load of the operand stands in the store that
overwrites the very same element, the result is never read, and no element is stored twice; then
no workgroup, iteration or lane can see a byte that another one has already replaced.  Called by
`signature`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from tilewright.base import symbolic
from tilewright.compiler.analysis.accesses import Access, Fact, accesses
from tilewright.compiler.analysis.proofs import disjoint, distinct
from tilewright.compiler.kernel.ir import Buffer, Kernel, Load, Store, walk
from tilewright.compiler.kernel.rewrite import loads_of


def may_overwrite(kernel: Kernel, source: Buffer, target: Buffer) -> bool:
    """Whether `target` may share its bytes with `source`."""
    if source.dtype is not target.dtype or source.shape != target.shape:
        return False
    if not _reads_what_it_overwrites(kernel, source, target):
        return False
    writes = [a for a in accesses(kernel.body) if a.write and a.buffer is target]
    return all(_once(write) for write in writes) and all(
        _are_apart(a, b) for i, a in enumerate(writes) for b in writes[:i]
    )


def _reads_what_it_overwrites(kernel: Kernel, source: Buffer, target: Buffer) -> bool:
    """Whether each load of `source` stands in a store to its own element, and none is of `target`."""
    return all(
        load.buffer is source
        and isinstance(statement, Store)
        and statement.buffer is target
        and _same_place(load, statement)
        for statement in walk(kernel.body)
        for load in loads_of(statement)
        if load.buffer in (source, target)
    )


def _same_place(load: Load, store: Store) -> bool:
    lanes = store.value.lanes
    same_lanes = load.lanes == lanes and (lanes == 1 or load.stride == store.stride)
    return same_lanes and load.indices == store.indices


def _once(write: Access) -> bool:
    """Whether no two iterations of a store touch the same element."""
    shared = [loop.var for loop in write.inner]
    alone = replace(write, inner=())
    return distinct(alone, alone, shared, write.inner)


def _are_apart(first: Access, second: Access) -> bool:
    """Whether two stores (one statement may stand in two places) share no element."""
    pairs = zip(first.inner, second.inner, strict=False)
    around = tuple(a for a, _ in takewhile(lambda pair: pair[0] is pair[1], pairs))
    count = len(around)
    shared = [loop.var for loop in around]
    first = replace(first, inner=first.inner[count:])
    second = replace(second, inner=second.inner[count:])
    # They meet in no two iterations of the loops around both ...
    if not distinct(first, second, shared, around) and not disjoint(first, second, shared):
        return False
    # ... nor in one.
    return disjoint(first, second) or _exclude(first.facts, second.facts)


def _exclude(first: Sequence[Fact], second: Sequence[Fact]) -> bool:
    """Whether no iteration satisfies the guards of both: some sum of two of them fails."""
    return any(
        symbolic.proves_less(high_a + high_b, low_a + low_b)
        for low_a, high_a in first
        for low_b, high_b in second
    )
