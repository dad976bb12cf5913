"""What a kernel's loops touch, found out once: stores, memory accesses and what is read later, per loop.

Called by `registers` and `statements`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

from tilewright.base.record import field, record
from tilewright.compiler.kernel.grid import GRID_KINDS
from tilewright.compiler.kernel.ir import Buffer, For, If, Load, Space, Statement, Store
from tilewright.compiler.kernel.rewrite import buffers_of, loads_of


@final
@record(eq=False, frozen=False)
class BodySummary:
    """What touches memory in the body of a kernel, loop or conditional.

    Attributes:
        stores: every store inside, in order.
        loads: every load that its statements do, those of loops inside left out.
        has_loops: whether a loop is inside.
        later: buffers that may be touched once it has ended, in a further iteration of a loop around it, too.
    """

    stores: list[Store] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    has_loops: bool = False
    later: frozenset[Buffer] = frozenset()

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
    return _collect(body, frozenset(), table), table


def _collect(
    body: Sequence[Statement], later: frozenset[Buffer], table: dict[int, BodySummary]
) -> BodySummary:
    summary = BodySummary()
    for statement, after in zip(body, _after_each(body, later), strict=True):
        summary.loads.extend(loads_of(statement))
        if isinstance(statement, Store):
            summary.stores.append(statement)
        elif isinstance(statement, For | If):
            is_loop = isinstance(statement, For)
            inside = after
            if is_loop and statement.kind not in GRID_KINDS:
                inside |= buffers_of(statement)
            # One statement may stand in several places.
            elsewhere = table.get(id(statement))
            inner = table[id(statement)] = _collect(statement.body, inside, table)
            inner.later = after if elsewhere is None else after | elsewhere.later
            summary.stores.extend(inner.stores)
            if is_loop:
                summary.has_loops = True
            else:
                summary.loads.extend(inner.loads)
                summary.has_loops |= inner.has_loops
    return summary


def _after_each(
    body: Sequence[Statement], later: frozenset[Buffer]
) -> list[frozenset[Buffer]]:
    """What may be touched behind each statement, where `later` may be behind the last."""
    found = [later]
    for statement in reversed(body[1:]):
        found.append(found[-1] | buffers_of(statement))
    return found[::-1] if body else []
