"""Which iterations need each other: the legality of moving code.

Works on multi-dimensional indices, so it runs before flattening; what cannot be proven (`proofs`) is
taken for a dependence.  Called by the primitives' checks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.analysis.accesses import Access, accesses, loads_of, written_of
from tilewright.compiler.analysis.proofs import disjoint, distinct, within
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.fields import payloads
from tilewright.compiler.kernel.rewrite import buffers_of, buffers_written, loads, may_hold
from tilewright.compiler.kernel.text import expression_text

_FEW_ELEMENTS: Final = 64
"""Of a private array, that stores may define one by one: a transform of some tile."""


def conflict(
    first: Iterable[Access],
    second: Sequence[Access],
    shared: Sequence[Symbol],
    ignore: AbstractSet[ir.Buffer] = frozenset(),
    *,
    updates_commute: bool = True,
) -> ir.Buffer | None:
    """A buffer of which two accesses, at least one writing, may touch the same element in unequal iterations.

    Updates with the same commutative operator are none, unless `updates_commute` is False.
    """
    first = tuple(first)
    moving = _moving(first, second)
    for a, b in _meeting(first, second, updates_commute):
        if a.buffer in ignore:
            continue
        if id(a) in moving or id(b) in moving or not _are_apart(a, b, shared):
            return a.buffer
    return None


def overlap(first: Iterable[Access], second: Sequence[Access]) -> ir.Buffer | None:
    """A buffer of which two accesses, at least one writing, may touch the same element at all."""
    first = tuple(first)
    moving = _moving(first, second)
    for a, b in _meeting(first, second, updates_commute=True):
        if id(a) in moving or id(b) in moving or not disjoint(a, b):
            return a.buffer
    return None


def _meeting(
    first: Sequence[Access], second: Sequence[Access], updates_commute: bool
) -> Iterator[tuple[Access, Access]]:
    """The pairs that touch one buffer, at least one writing, and are not told to commute."""
    for a in first:
        for b in second:
            if a.buffer is not b.buffer or not (a.write or b.write):
                continue
            if updates_commute and a.update is not None and a.update == b.update:
                continue
            yield a, b


def _moving(first: Sequence[Access], second: Sequence[Access]) -> set[int]:
    """By id, the accesses that move with what all of them write."""
    changed = _changed(first) | _changed(second)
    return {id(access) for access in (*first, *second) if _moves(access, changed)}


def _changed(found: Iterable[Access]) -> frozenset[ir.Buffer]:
    """The buffers that accesses write."""
    return frozenset(access.buffer for access in found if access.write)


def _moves(access: Access, changed: AbstractSet[ir.Buffer]) -> bool:
    """Whether an index is read from memory that changes: equal text is no equal value then."""
    if not any(map(symbolic.opaques, access.indices)):
        return False
    return any(
        load.buffer in changed
        for index in access.indices
        for payload in payloads(index)
        for load in loads(payload)
    )


def _are_apart(a: Access, b: Access, shared: Sequence[Symbol]) -> bool:
    """Whether two accesses surely meet in no two iterations."""
    return (
        _are_numbered_apart(a, b)
        or _are_at_one_place(a, b, shared)
        or distinct(a, b, shared)
        or disjoint(a, b, shared)
    )


def _are_at_one_place(a: Access, b: Access, shared: Sequence[Symbol]) -> bool:
    """Whether both have an index that moves with the only shared loop and with none inside of it: most pairs of lanes."""
    if len(shared) != 1 or not a.lanes == b.lanes == 1:
        return False
    inside = [loop.var.name for loop in (*a.inner, *b.inner)]
    for x, y in zip(a.indices, b.indices, strict=True):
        factor, rest = symbolic.linear(x, shared[0].name) or (0, x)
        moves = x == y and isinstance(factor, int) and factor != 0
        if moves and not symbolic.opaques(x) and not _mentions(rest, inside):
            return True
    return False


def _are_numbered_apart(a: Access, b: Access) -> bool:
    """Whether an index of both is a number, and not the same: most pairs in code that is written out."""
    return a.lanes == b.lanes == 1 and _are_numbered_differently(a, b)


def _are_numbered_differently(a: Access, b: Access) -> bool:
    for x, y in zip(a.indices, b.indices, strict=True):
        if isinstance(x, int) and isinstance(y, int) and x != y:
            return True
    return False


def carried(
    loop: ir.For,
    outer: Sequence[Symbol] = (),
    *,
    scope: Sequence[ir.Statement],
    updates_commute: bool = True,
) -> ir.Buffer | None:
    """The buffer by which two iterations of `loop` (or of `outer` loops around it) depend on each other.

    Buffers private to an iteration (and not read elsewhere in `scope`) carry nothing; updates
    with the same commutative operator are no dependence unless `updates_commute` is False.
    """
    found = accesses(loop.body)
    private = frozenset(only_inside(private_buffers(loop.body), scope, loop))
    writes = [a for a in found if a.write]
    shared = (*outer, loop.var)
    return conflict(writes, found, shared, private, updates_commute=updates_commute)


def check_fixed(loops: Iterable[ir.For], body: Sequence[ir.Statement]) -> None:
    """Check that `body` may run between two looks at how often `loops` run.

    A loop runs as often as its extent said at first; code that looks again must find the same.
    Raises: ScheduleError if `body` changes memory that decides an extent.
    """
    for loop in loops:
        found = written_of(payloads(loop.extent), body)
        if found is not None:
            raise ScheduleError(
                f"'{found.name}' decides how often '{loop.var.name}' runs and changes in it"
            )


def check_guard_fixed(guard: ir.If, body: Sequence[ir.Statement]) -> None:
    """Check that `body` may run between two tests of a guard.

    Raises: ScheduleError if `body` changes memory that the condition reads.
    """
    found = written_of((guard.condition,), body)
    if found is not None:
        raise ScheduleError(f"'{found.name}' decides whether code runs that changes it")


def private_buffers(body: Sequence[ir.Statement]) -> list[ir.Buffer]:
    """Local buffers of which `body` reads only what it wrote before, in the same run of `body`.

    The caller must know that nothing after `body` reads them (`live_outside`).
    """
    if all(b.space is ir.Space.DEVICE for s in body for b in buffers_of(s)):
        return []
    found = accesses(body)
    changed = _changed(found)
    local = [a.buffer for a in found if a.write and a.buffer.space is not ir.Space.DEVICE]
    own = ((b, [a for a in found if a.buffer is b]) for b in dict.fromkeys(local))
    return [b for b, order in own if _reads_its_own(order, changed)]


def is_private(body: Sequence[ir.Statement], buffer: ir.Buffer) -> bool:
    """Whether `buffer` is one of the `private_buffers` of `body`."""
    return buffer.space is not ir.Space.DEVICE and reads_its_own(body, buffer)


def reads_its_own(body: Sequence[ir.Statement], buffer: ir.Buffer) -> bool:
    """Whether code writes a buffer, wherever it lies, and reads of it only what it wrote before."""
    order = accesses(body, of=buffer)
    is_written = any(access.write for access in order)
    return is_written and _reads_its_own(order, buffers_written(body).keys())


def _reads_its_own(order: Sequence[Access], changed: AbstractSet[ir.Buffer]) -> bool:
    return _written_first(order) and not any(_moves(a, changed) for a in order)


def lines_of_an_iteration(kernel: ir.Kernel, outer: ir.For) -> list[ir.Buffer]:
    """Temporaries in device memory that an iteration of a loop writes before it reads them, and that nothing else reads."""
    return [
        buffer
        for buffer in kernel.locals
        if buffer.space is ir.Space.DEVICE
        and buffer.data is None
        and not live_outside(kernel.body, outer, buffer)
        and reads_its_own(outer.body, buffer)
    ]


def _written_first(order: Sequence[Access]) -> bool:
    writes: list[Access] = []
    known: set[object] = set()  # reads of written code are mostly those of a few elements
    for access in order:
        if access.write:
            writes.append(access)
            continue
        key = (
            access.indices, access.lanes,
            tuple(map(id, access.inner)), tuple(map(id, access.guards)),
        )  # fmt: skip
        if key in known:
            continue
        if not _covered(writes, access):
            return False
        known.add(key)
    return True


def _covered(writes: Sequence[Access], read: Access) -> bool:
    """Whether one write, or several that each define an element, defined what `read` may touch."""
    if any(_covers(w, read) for w in writes):
        return True
    elements = _elements(read)
    return elements is not None and all(
        any(_covers(w, element) for w in writes) for element in elements
    )


def _elements(read: Access) -> Iterable[Access] | None:
    """A read that goes over a few elements with variables of loops, as one read of each element; None if it does not."""
    extents = {str(loop.var.name): loop.extent for loop in read.inner}
    choices: list[Sequence[Dim]] = []
    for index in read.indices:
        extent = extents.get(str(index))
        choices.append(range(extent) if isinstance(extent, int) else (index,))
    is_one = all(
        choice[:1] == (index,) for choice, index in zip(choices, read.indices, strict=True)
    )
    if is_one or math.prod(map(len, choices)) > _FEW_ELEMENTS:
        return None
    return (replace(read, indices=indices) for indices in itertools.product(*choices))


def _covers(write: Access, read: Access) -> bool:
    """Whether the finished loops of `write` defined every element that `read` may touch."""
    if write.lanes != read.lanes or _are_numbered_differently(write, read):
        return False
    own = {
        loop.var.name: loop
        for loop in write.inner
        if not any(loop is other for other in read.inner)
    }
    if not _runs_if(write, read):
        return False
    if any(_mentions(loop.extent, own) for loop in own.values()):
        return False
    may_be_empty = dict(own)
    for x, y in zip(write.indices, read.indices, strict=True):
        if x == y and not _mentions(x, own):
            continue
        if not _spans(x, y, own, read):
            return False
        alone = [name for name in own if _mentions(x, (name,))]
        if len(alone) == 1:
            # A number below its extent is read, so the loop runs.
            may_be_empty.pop(alone[0], None)
    return all(within(0, loop.extent, read.inner) for loop in may_be_empty.values())


def _runs_if(write: Access, read: Access) -> bool:
    """Whether the guards around a write hold wherever those around a read do: they are the same.

    One that asks memory may be answered otherwise later.
    """
    around = {expression_text(guard) for guard in read.guards} if write.guards else ()
    return all(
        expression_text(guard) in around and not loads(guard) for guard in write.guards
    )


def _mentions(dim: Dim, names: Iterable[str]) -> bool:
    if isinstance(dim, int):
        return False
    return any(name in dim.names for name in names) or any(True for _ in payloads(dim))


def _spans(x: Dim, y: Dim, own: dict[str, ir.For], read: Access) -> bool:
    """Whether the written range `x` over its `own` loops contains every value of `y`."""
    mentioned = [name for name in own if _mentions(x, (name,))]
    ordered: list[tuple[int, ir.For]] = []
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


def only_inside(
    buffers: Iterable[ir.Buffer], body: Sequence[ir.Statement], part: ir.Statement
) -> list[ir.Buffer]:
    """Those of `buffers` that nothing in `body` outside `part` touches."""
    wanted = list(buffers)
    touched = _touched_outside(body, part) if wanted else ()
    return [buffer for buffer in wanted if buffer not in touched]


def _touched_outside(body: Sequence[ir.Statement], part: ir.Statement) -> set[ir.Buffer]:
    found: set[ir.Buffer] = set()
    for statement in body:
        if statement is part:
            continue
        if isinstance(statement, (ir.For, ir.If)) and may_hold(statement, part):
            found.update(load.buffer for load in loads_of(statement))
            found |= _touched_outside(statement.body, part)
        else:
            found |= buffers_of(statement)
    return found


def live_outside(
    body: Sequence[ir.Statement], part: ir.Statement, buffer: ir.Buffer
) -> bool:
    """Whether anything in `body` outside `part` touches `buffer`."""
    return buffer in _touched_outside(body, part)
