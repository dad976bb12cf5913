"""What a kernel's loops touch, found out once: stores and memory accesses per loop.

Called by `registers` and `statements`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import final

from tilewright.base.record import field, record
from tilewright.compiler.kernel.ir import (
    Expression,
    For,
    If,
    Load,
    Space,
    Statement,
    Store,
)
from tilewright.compiler.kernel.rewrite import parts


@final
@record(eq=False, frozen=False)
class BodySummary:
    """What touches memory in the body of a kernel, loop or conditional.

    Attributes:
        stores: every store inside, in order.
        loads: every load that its statements do, those of loops inside left out.
        has_loops: whether a loop is inside.
    """

    stores: list[Store] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    has_loops: bool = False

    def accesses(self) -> Iterator[Load | Store]:
        """Loads and stores of device, workgroup and constant memory."""
        for load in self.loads:
            if load.buffer.space is not Space.REGISTER:
                yield load
        for store in self.stores:
            if store.buffer.space is not Space.REGISTER:
                yield store


def summarize(body: Sequence[Statement]) -> tuple[BodySummary, dict[int, BodySummary]]:
    """A summary of a whole body, and of every loop and conditional inside, by id."""
    table: dict[int, BodySummary] = {}
    return _collect(body, table), table


def _collect(body: Sequence[Statement], table: dict[int, BodySummary]) -> BodySummary:
    summary = BodySummary()
    seen: set[int] = set()
    for statement in body:
        summary.loads.extend(_loads(parts(statement), seen))
        if isinstance(statement, Store):
            summary.stores.append(statement)
        elif isinstance(statement, For | If):
            inner = table[id(statement)] = _collect(statement.body, table)
            summary.stores.extend(inner.stores)
            if isinstance(statement, For):
                summary.has_loops = True
            else:
                summary.loads.extend(inner.loads)
                summary.has_loops |= inner.has_loops
    return summary


def _loads(roots: Iterable[Expression], seen: set[int]) -> Iterator[Load]:
    """The loads below `roots`; `seen` holds the ids of visited expressions."""
    stack = list(roots)
    while stack:
        value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Load):
            yield value
        stack.extend(parts(value))
