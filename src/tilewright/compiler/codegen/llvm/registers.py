"""REGISTER buffers as SSA values: which elements form one value, and who writes them.

Accesses with constant indices are grouped: a group of equal accesses is one SSA value; accesses
that overlap differently share one wide value, and their parts are shuffled in and out.  A buffer
with an index that is not constant, or with a group too wide, stays in memory on the stack.
Called by memory and statements of this room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, final

from tilewright.compiler.kernel.ir import (
    Buffer,
    Expression,
    For,
    If,
    Kernel,
    Load,
    Space,
    Statement,
    Store,
    walk,
)
from tilewright.compiler.kernel.rewrite import payloads

MAX_GROUP_LANES: Final = 64

Access = tuple[int, int, int]
"""First element, lanes, stride."""


@final
@dataclass(frozen=True, slots=True)
class Slot:
    """Elements `first .. first + lanes` of a buffer as one SSA value."""

    buffer: Buffer
    first: int
    lanes: int


@final
@dataclass(slots=True, eq=False)
class Registers:
    """Where the elements of REGISTER buffers live.

    Attributes:
        slots: the slot of every access to a buffer held in SSA values.
        memory: buffers that stay in memory.
    """

    slots: dict[tuple[Buffer, Access], Slot] = field(default_factory=dict)
    memory: list[Buffer] = field(default_factory=list)

    def slot(self, buffer: Buffer, access: Access) -> Slot | None:
        """The slot that holds the elements of an access; None for memory."""
        return self.slots.get((buffer, access))


def expressions_of(statement: Statement) -> Iterator[Expression]:
    """The expressions a statement evaluates itself, not those of its body."""
    if isinstance(statement, Store):
        yield statement.value
        if statement.mask is not None:
            yield statement.mask
        for index in statement.indices:
            yield from payloads(index)
    elif isinstance(statement, If):
        yield statement.condition
    elif isinstance(statement, For):
        yield from payloads(statement.extent)


def children(value: Expression) -> tuple[Expression, ...]:
    """The operands of an expression, data-dependent indices included."""
    if isinstance(value, Load):
        inside = [p for index in value.indices for p in payloads(index)]
        return (*inside, value.mask) if value.mask is not None else tuple(inside)
    names = _OPERANDS.get(type(value).__name__)
    if names is None:
        return tuple(payloads(value.dim)) if type(value).__name__ == "Index" else ()
    return tuple(getattr(value, name) for name in names)


_OPERANDS: Final = {
    "Unary": ("operand",),
    "Binary": ("left", "right"),
    "Fma": ("a", "b", "c"),
    "Compare": ("left", "right"),
    "Select": ("condition", "if_true", "if_false"),
    "Cast": ("operand",),
    "Splat": ("operand",),
    "Horizontal": ("operand",),
}


def loads_of(statement: Statement, seen: set[int]) -> Iterator[Load]:
    """Every load a statement does itself; `seen` holds the ids of visited expressions."""
    stack = list(expressions_of(statement))
    while stack:
        value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Load):
            yield value
        stack.extend(children(value))


def access_of(node: Load | Store) -> Access | None:
    """The elements touched; None when they are not constant."""
    (index,) = node.indices
    if not isinstance(index, int):
        return None
    lanes = node.lanes if isinstance(node, Load) else node.value.lanes
    return (index, lanes, node.stride if lanes > 1 else 1)


def plan_registers(kernel: Kernel) -> Registers:
    """Decide for every REGISTER buffer of a flattened kernel."""
    accesses: dict[Buffer, set[Access]] = {}
    memory: set[Buffer] = set()
    seen: set[int] = set()
    for statement in walk(kernel.body):
        nodes: list[Load | Store] = list(loads_of(statement, seen))
        if isinstance(statement, Store):
            nodes.append(statement)
        for node in nodes:
            if node.buffer.space is not Space.REGISTER:
                continue
            access = access_of(node)
            if access is None:
                memory.add(node.buffer)
            else:
                accesses.setdefault(node.buffer, set()).add(access)
    registers = Registers()
    for buffer, found in accesses.items():
        slots = None if buffer in memory else _group(buffer, found)
        if slots is None:
            memory.add(buffer)
        else:
            registers.slots.update(slots)
    registers.memory = [b for b in kernel.locals if b in memory]
    return registers


def _group(
    buffer: Buffer, accesses: Iterable[Access]
) -> dict[tuple[Buffer, Access], Slot] | None:
    """Slots for overlapping accesses; None when one would be too wide."""

    def span(access: Access) -> tuple[int, int]:
        first, lanes, stride = access
        last = first + (lanes - 1) * stride
        return (min(first, last), max(first, last))

    slots: dict[tuple[Buffer, Access], Slot] = {}
    group: list[Access] = []
    low = high = -1

    def close() -> bool:
        if not group:
            return True
        slot = Slot(buffer, low, high - low + 1)
        slots.update({(buffer, access): slot for access in group})
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


def written_slots(body: Iterable[Statement], registers: Registers) -> list[Slot]:
    """The slots that a body stores to, in order."""
    found: dict[Slot, None] = {}
    for statement in walk(tuple(body)):
        if isinstance(statement, Store) and statement.buffer.space is Space.REGISTER:
            access = access_of(statement)
            slot = None if access is None else registers.slot(statement.buffer, access)
            if slot is not None:
                found[slot] = None
    return list(found)


def written_buffers(body: Iterable[Statement]) -> set[Buffer]:
    """The buffers that a body stores to."""
    return {s.buffer for s in walk(tuple(body)) if isinstance(s, Store)}
