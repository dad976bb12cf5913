"""REGISTER buffers as SSA values: which elements form one value, and who writes them.

Accesses with constant indices are grouped: a group of equal accesses is one SSA value; accesses
that overlap differently share one wide value, and their parts are shuffled in and out.  A buffer
with an index that is not constant, or with a group too wide, stays in memory on the stack.
Called by memory and statements of this room.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

from tilewright.base.record import field, record
from tilewright.compiler.kernel.ir import Buffer, Kernel, Load, Space, Store
from tilewright.compiler.printers.llvm_text.body_summary import BodySummary

MAX_GROUP_LANES: Final = 64

LanesAt = tuple[int, int, int]
"""First element, lanes, stride."""


@final
@record(eq=False)
class Slot:
    """Elements `first .. first + lanes` of a buffer as one SSA value.  Compared by identity."""

    buffer: Buffer
    first: int
    lanes: int


@final
@record(eq=False, frozen=False)
class Registers:
    """Where the elements of REGISTER buffers live.

    Attributes:
        places: load or store (by id) -> its slot and the elements it touches; none for memory.
        memory: buffers that stay in memory.
    """

    places: dict[int, tuple[Slot, LanesAt]] = field(default_factory=dict)
    memory: list[Buffer] = field(default_factory=list)

    def place(self, node: Load | Store) -> tuple[Slot, LanesAt] | None:
        """The slot of an access and the elements it touches; None for memory."""
        return self.places.get(id(node))

    def written(self, stores: Iterable[Store]) -> list[Slot]:
        """The slots that stores write, in order."""
        found: dict[Slot, None] = {}
        for store in stores:
            place = self.places.get(id(store))
            if place is not None:
                found[place[0]] = None
        return list(found)


def _access(node: Load | Store) -> LanesAt | None:
    """The elements touched; None when they are not constant."""
    (index,) = node.indices
    if not isinstance(index, int):
        return None
    lanes = node.lanes if isinstance(node, Load) else node.value.lanes
    return (index, lanes, node.stride if lanes > 1 else 1)


def plan_registers(
    kernel: Kernel, summary: BodySummary, inner: Iterable[BodySummary]
) -> Registers:
    """Decide for every REGISTER buffer of a flattened kernel."""
    nodes: dict[int, Load | Store] = {id(store): store for store in summary.stores}
    for part in (summary, *inner):
        nodes.update({id(load): load for load in part.loads})
    accesses: dict[Buffer, dict[LanesAt, list[int]]] = {}
    memory: set[Buffer] = set()
    for node in nodes.values():
        if node.buffer.space is not Space.REGISTER:
            continue
        access = _access(node)
        if access is None:
            memory.add(node.buffer)
        else:
            users = accesses.setdefault(node.buffer, {})
            users.setdefault(access, []).append(id(node))
    registers = Registers()
    for buffer, found in accesses.items():
        slots = None if buffer in memory else _group(buffer, found)
        if slots is None:
            memory.add(buffer)
            continue
        for access, users in found.items():
            place = (slots[access], access)
            registers.places.update(dict.fromkeys(users, place))
    registers.memory = [b for b in kernel.locals if b in memory]
    return registers


def _group(buffer: Buffer, accesses: Iterable[LanesAt]) -> dict[LanesAt, Slot] | None:
    """Slots for overlapping accesses; None when one would be too wide."""

    def span(access: LanesAt) -> tuple[int, int]:
        first, lanes, stride = access
        last = first + (lanes - 1) * stride
        return (min(first, last), max(first, last))

    slots: dict[LanesAt, Slot] = {}
    group: list[LanesAt] = []
    low = high = -1

    def close() -> bool:
        if not group:
            return True
        slot = Slot(buffer, low, high - low + 1)
        slots.update(dict.fromkeys(group, slot))
        exact = all(access[1:] == (slot.lanes, 1) for access in group)
        return exact or slot.lanes <= MAX_GROUP_LANES

    for access in sorted(accesses, key=span):
        first, last = span(access)
        if first > high:
            if not close():
                return None
            group, low = [], first
        group.append(access)
        high = max(high, last)
    return slots if close() else None
