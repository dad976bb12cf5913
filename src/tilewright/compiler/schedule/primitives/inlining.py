"""Primitives that join producers and consumers: inline, reverse_inline, forward.

`inline` computes a temporary where it is read, `reverse_inline` runs a consumer where its operand
is finished, `forward` passes a value on without the memory between.  Called by rules to bring a
fused kernel down to as few nests as its dependences allow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.record import field, record
from tilewright.base.symbolic import Dim
from tilewright.compiler.analysis import dependence
from tilewright.compiler.analysis.accesses import (
    Fact,
    accesses,
    known_facts,
    update_operator,
)
from tilewright.compiler.analysis.proofs import distinct, within
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.expressions import Expressions
from tilewright.compiler.kernel.rewrite import (
    Rewriter,
    as_symbol,
    buffers_of,
    loads,
    loops,
    map_body,
    only_statement,
    stores,
    substitute_expression,
)
from tilewright.compiler.schedule import tree
from tilewright.compiler.schedule.primitives.nests import siblings, touches
from tilewright.compiler.schedule.trace import primitive

E: Final = Expressions


# --- inline: the producer into its consumers -------------------------------------------------


@primitive
def inline(kernel: ir.Kernel, buffer: str) -> ir.Kernel:
    """Compute the elements of a temporary where they are read.

    rewrite:
        for i: t[i] = f(i)
        for j: y[j] = g(t[j + 1])
        ->
        for j: y[j] = g(f(j + 1))

    Raises: ScheduleError unless one plain nest defines each element of the temporary once, and
    what it reads is unchanged until the last use.
    """
    target = tree.find_buffer(kernel, buffer)
    producer, store = definition(kernel, target)
    variables = [as_symbol(i) for i in store.indices]
    own = {load.buffer for load in loads([producer])}
    for later in stores(kernel.body[kernel.body.index(producer) + 1 :]):
        if later.buffer in own:
            raise ScheduleError(
                f"'{later.buffer.name}' changes after '{buffer}' is computed"
            )
    if target in own:
        raise ScheduleError(f"'{buffer}' is defined in terms of itself")

    def read(value: ir.Expression) -> ir.Expression:
        if not isinstance(value, ir.Load) or value.buffer is not target:
            return value
        env = {
            v.name: i
            for v, i in zip(variables, value.indices, strict=True)
            if v is not None
        }
        result = substitute_expression(store.value, env)
        return result if value.mask is None else _masked(result, value.mask)

    rewriter = Rewriter(expression=read)
    body: list[ir.Statement] = []
    for statement in kernel.body:
        if target not in buffers_of(statement):
            body.append(statement)
        elif statement is not producer:
            body.extend(rewriter.statement(statement))
    return tree.prune_locals(replace(kernel, body=tuple(body)))


def _masked(value: ir.Expression, mask: ir.Expression) -> ir.Expression:
    def guarded(part: ir.Expression) -> ir.Expression:
        if isinstance(part, ir.Load):
            both = mask if part.mask is None else E.and_(part.mask, mask)
            return ir.Load(part.buffer, part.indices, part.lanes, part.stride, both)
        return part

    return E.select(mask, Rewriter(expression=guarded).expression(value), 0)


def definition(kernel: ir.Kernel, target: ir.Buffer) -> tuple[ir.For | ir.Store, ir.Store]:
    """The top-level nest whose only store defines every element of `target` once; of a number, the store itself."""
    if target not in kernel.locals:
        raise ScheduleError(f"'{target.name}' is not a temporary")
    writers = [s for s in kernel.body if _writes(s, target)]
    if len(writers) != 1 or not isinstance(writers[0], ir.For | ir.Store):
        raise ScheduleError(f"'{target.name}' is written by {len(writers)} nests, not one")
    producer = writers[0]
    nest = tree.chain(producer) if isinstance(producer, ir.For) else ()
    body = nest[-1].body if nest else (producer,)
    if len(body) != 1 or not isinstance(body[0], ir.Store) or body[0].mask is not None:
        raise ScheduleError(f"'{target.name}' is not defined by one plain store")
    store = body[0]
    extents = {s.var.name: s.extent for s in nest}
    seen: set[str] = set()
    for index, size in zip(store.indices, target.shape, strict=True):
        var = as_symbol(index)
        if index == 0 and size == 1:
            continue
        if var is None or var.name in seen or extents.get(var.name) != size:
            raise ScheduleError(f"'{target.name}' is not defined element by element")
        seen.add(var.name)
    if len(seen) != len(nest):
        raise ScheduleError(f"'{target.name}' is a reduction")
    return producer, store


# --- reverse inline: the consumer into the producer's loops -----------------------------------


@primitive
def reverse_inline(kernel: ir.Kernel, consumer: str, buffer: str) -> ir.Kernel:
    """Run the iteration of a nest that reads an element right after the element is finished.

    The consumer's loops disappear: its variables are solved for from the indices at which the
    producer stores the temporary.  Guards are added where the consumer reads only a part.

    rewrite:
        for i in S: for j in H * 64: t[i, j] = f(i, j)
        for h in H: for s in S: for d in 64: y[h, s, d] = g(t[s, h * 64 + d])
        ->
        for i in S: for j in H * 64: t[i, j] = f(i, j); y[j // 64, i, j % 64] = g(t[i, j])

    Raises: ScheduleError unless one nest finishes every element, once; the indices determine the
    consumer's loops; each of its iterations reads an element; and nothing the consumer touches is in the way.
    """
    target = tree.find_buffer(kernel, buffer)
    outer = tree.find(kernel, consumer)
    if outer not in kernel.body:
        raise ScheduleError(f"'{consumer}' is not a nest at the top of '{kernel.name}'")
    position = kernel.body.index(outer)
    if _writes(outer, target):
        raise ScheduleError(f"'{consumer}' does not only read '{buffer}'")
    producer = _producer(kernel, target, position)
    around, element = _finished(producer, target)
    _check_complete(kernel.body[:position], producer, around, target)
    nest = tree.chain(outer)
    found = {load.indices for load in loads([outer]) if load.buffer is target}
    if len(found) != 1:
        raise ScheduleError(
            f"'{consumer}' reads {len(found)} elements of '{buffer}' at a time"
        )
    indices = next(iter(found))
    if any(symbolic.opaques(index) for index in indices):
        raise ScheduleError(f"'{consumer}' reads '{buffer}' where memory says")
    depth = _loops_used(nest, indices)
    if any(s.var.name not in symbolic.names_in(indices) for s in nest[:depth]):
        raise ScheduleError(f"'{consumer}' reads elements of '{buffer}' more than once")
    _check_always_reads(nest[:depth], indices, target)
    inner_names = frozenset(s.var.name for s in loops(nest[depth - 1].body))
    solution = _Solution({s.var.name: s for s in nest[:depth]}, inner_names)
    for index, value, size in zip(indices, element, target.shape, strict=True):
        solution.equate(index, value, size)
    solution.finish()
    guards = [ir.If(condition, ()) for condition in solution.guards]

    def finished(value: ir.Expression) -> ir.Expression:
        """What is read of the temporary is the element, by whatever quotients its loops are solved for."""
        is_read = isinstance(value, ir.Load) and value.buffer is target
        return replace(value, indices=element) if is_read else value

    moved = Rewriter(dims=solution.env, expression=finished).body(nest[depth - 1].body)
    body = tree.nested(guards, moved)
    _check_nest_parallel(nest[:depth])
    _check_moved_up(kernel, position, producer, around, body, target)
    inner = around[-1]
    without = tree.rewrite(kernel, outer, ())
    return tree.refill(without, inner, _appended(inner.body, target, body))


def _check_always_reads(
    nest: Sequence[ir.For], indices: Sequence[Dim], target: ir.Buffer
) -> None:
    """Refuse a consumer that has something to do where it reads nothing, such as a border: no element is finished then.

    What is read without a question is there; a question that is asked around all that an iteration does leaves nothing out.
    """
    if all(within(at, size, nest) for at, size in zip(indices, target.shape, strict=True)):
        return
    level = nest[-1].body
    while isinstance(inner := only_statement(level), ir.For | ir.If):
        level = inner.body
    asks = any(isinstance(s, ir.If) and touches((s,), target) for s in ir.walk(level))
    read = [load for load in loads(level) if load.buffer is target]
    if asks or any(load.mask is not None for load in read):
        raise ScheduleError(f"not every iteration reads an element of '{target.name}'")


def _producer(kernel: ir.Kernel, target: ir.Buffer, position: int) -> ir.For:
    """The last top-level nest before `position` that stores `target`."""
    for statement in reversed(kernel.body[:position]):
        if isinstance(statement, ir.For) and _writes(statement, target):
            return statement
    raise ScheduleError(f"no nest in front of it produces '{target.name}'")


def _finished(
    producer: ir.For, target: ir.Buffer
) -> tuple[tuple[ir.For, ...], tuple[Dim, ...]]:
    """The loops around all accesses of `target`, at whose end an element is finished; its index."""
    users = accesses([producer], of=target)
    element = users[0].indices
    if any(a.indices != element for a in users):
        raise ScheduleError(f"'{target.name}' is stored at several indices")
    used = symbolic.names_in(element)
    around: list[ir.For] = []
    level: Sequence[ir.Statement] = (producer,)
    while True:
        holder = [s for s in level if touches((s,), target)]
        if len(holder) != 1 or not isinstance(holder[0], ir.For | ir.If):
            break
        if isinstance(holder[0], ir.For):
            inside = {loop.var.name for loop in loops(holder)}
            if holder[0].reduction or used.isdisjoint(inside):
                break
            around.append(holder[0])
        level = holder[0].body
    if not around:
        raise ScheduleError(
            f"no loop around '{target.name}' finishes one element at a time"
        )
    inside = [a for a in accesses(around[-1].body, of=target) if a.write]
    moves = used & {s.var.name for a in inside for s in a.inner}
    if moves or not distinct(inside[0], inside[0], [s.var for s in around]):
        raise ScheduleError(f"elements of '{target.name}' are finished more than once")
    return tuple(around), element


def _check_complete(
    before: Sequence[ir.Statement],
    producer: ir.For,
    around: Sequence[ir.For],
    target: ir.Buffer,
) -> None:
    """Refuse a producer that may make a part only: consumers of the rest would be lost."""
    if sum(_writes(s, target) for s in before) == 1:
        return  # what is read was made: here
    count, size = math.prod(loop.extent for loop in around), math.prod(target.shape)
    path = tree.path_to((producer,), around[-1]) or ()
    if count != size or any(isinstance(s, ir.If) for s in (*path, *around[-1].body)):
        raise ScheduleError(f"several nests make the elements of '{target.name}'")


def _writes(statement: ir.Statement, target: ir.Buffer) -> bool:
    """Whether something in a statement stores to a buffer."""
    return target in buffers_of(statement) and any(
        w.buffer is target for w in stores([statement])
    )


def _check_moved_up(
    kernel: ir.Kernel,
    position: int,
    producer: ir.For,
    around: Sequence[ir.For],
    body: ir.Body,
    target: ir.Buffer,
) -> None:
    moved = accesses(body, facts=_guards_of_store(around[-1].body, target))
    between = accesses(kernel.body[kernel.body.index(producer) + 1 : position])
    inner = dependence.conflict(accesses(around[-1].body), moved, [s.var for s in around])
    touched = dependence.overlap(between, accesses([kernel.body[position]])) or inner
    touched = touched or _conflict_outside(around, body)
    if touched is not None:
        raise ScheduleError(f"code that touches '{touched.name}' is in the way")


def _conflict_outside(around: Sequence[ir.For], body: ir.Body) -> ir.Buffer | None:
    """What stands beside the loops of the producer and is in the way of code at their end.

    The code ran when all was done: now it must not need what comes later in its iteration, nor what
    stands in front but in another one.
    """
    inside = body
    for loop, inner in reversed([*pairwise(around)]):
        inside = (tree.with_inner(inner, inside),)
        moved = accesses(inside)
        place = next(
            n for n, s in enumerate(loop.body) if tree.path_to((s,), inner) is not None
        )
        shared = [s.var for s in around[: around.index(loop) + 1]]
        found = dependence.conflict(accesses(loop.body[:place]), moved, shared)
        found = found or dependence.overlap(accesses(loop.body[place + 1 :]), moved)
        if found is not None:
            return found
    return None


def _guards_of_store(body: ir.Body, target: ir.Buffer) -> tuple[Fact, ...]:
    """What holds where `_appended` puts code."""
    last = [s for s in body if touches((s,), target)][-1]
    if isinstance(last, ir.If) and _writes(last, target):
        return (*known_facts((last,)), *_guards_of_store(last.body, target))
    return ()


def _appended(body: ir.Body, target: ir.Buffer, more: ir.Body) -> ir.Body:
    """`body` with `more` at its end, inside the guard that the last store of `target` has."""
    last = max(n for n, s in enumerate(body) if touches((s,), target))
    statement = body[last]
    if isinstance(statement, ir.If) and _writes(statement, target):
        inner = tree.with_inner(statement, _appended(statement.body, target, more))
        return (*body[:last], inner, *body[last + 1 :])
    return (*body, *more)


@primitive
def forward(kernel: ir.Kernel, buffer: str) -> ir.Kernel:
    """Use a stored value where it is read back in the same iteration.

    rewrite:
        for i: t[i] = f(i); y[i] = g(t[i])
        ->
        for i: y[i] = g(f(i))

    A parameter keeps its store.  Raises: ScheduleError unless one plain store precedes every load
    at the same index, and the value does not change in between.
    """
    target = tree.find_buffer(kernel, buffer)
    writes = [w for w in stores(kernel.body) if w.buffer is target]
    if len(writes) != 1 or writes[0].mask is not None or update_operator(writes[0]):
        raise ScheduleError(f"'{buffer}' is not stored once")
    store = writes[0]
    level = siblings(kernel, store)
    position = level.index(store)
    later = level[position + 1 :]
    users = [a for a in accesses(kernel.body) if a.buffer is target and not a.write]
    here = [a for a in accesses(later) if a.buffer is target]
    if len(users) != len(here) or any(a.indices != store.indices for a in here):
        raise ScheduleError(f"'{buffer}' is read elsewhere or at other elements")
    read = {v.buffer for v in loads(store.value)}
    if any(a.write and a.buffer in read for a in accesses(later)):
        raise ScheduleError(f"what '{buffer}' holds changes before it is read")

    def replaced(value: ir.Expression) -> ir.Expression:
        if not isinstance(value, ir.Load) or value.buffer is not target:
            return value
        return store.value if value.mask is None else _masked(store.value, value.mask)

    changed = map_body(later, expression=replaced)
    kept = () if target in kernel.locals else (store,)
    body = (*level[:position], *kept, *changed)
    return tree.prune_locals(_with_level(kernel, level, body))


def _with_level(kernel: ir.Kernel, level: ir.Body, body: ir.Body) -> ir.Kernel:
    """`kernel` with the whole body `level` (by its statements) replaced."""
    if level is kernel.body or level == kernel.body:
        return replace(kernel, body=body)
    path = tree.path_to(kernel.body, level[0])
    assert path
    parent = path[-1]
    assert isinstance(parent, ir.For | ir.If)
    return tree.refill(kernel, parent, body)


def _loops_used(nest: Sequence[ir.For], indices: Sequence[Dim]) -> int:
    used = symbolic.names_in(indices)
    depths = [depth for depth, loop in enumerate(nest, 1) if loop.var.name in used]
    if not depths:
        raise ScheduleError("the consumer reads one element only")
    return depths[-1]


def _check_nest_parallel(nest: Sequence[ir.For]) -> None:
    found = accesses(nest[-1].body)
    private = frozenset(dependence.private_buffers(nest[-1].body))
    writes = [a for a in found if a.write]
    met = dependence.conflict(writes, found, tuple(s.var for s in nest), private)
    if met is not None:
        raise ScheduleError(f"the consumer's iterations meet in '{met.name}'")


@final
@record(frozen=False)
class _Solution:
    """What is known about the consumer's loops while its indices are solved."""

    loops: Mapping[str, ir.For]
    inner: frozenset[str] = frozenset()
    env: dict[str, Dim] = field(default_factory=dict)
    guards: list[ir.Expression] = field(default_factory=list)
    digits: dict[str, list[tuple[Dim, Dim, Dim]]] = field(default_factory=dict)

    def equate(self, index: Dim, value: Dim, size: Dim) -> None:
        """Solve `index == value`, where `value` runs below `size`."""
        names = [n for n in self.loops if n in symbolic.names_in((index,))]
        if any(name in self.inner for name in symbolic.names_in((index,))):
            raise ScheduleError(f"the index '{index}' runs over inner loops")
        digit = _digit(index, names[0]) if len(names) == 1 else None
        if digit is not None:
            self.digits.setdefault(names[0], []).append((*digit, value))
            return
        factors: list[tuple[Dim, str]] = []
        rest = index
        for name in names:
            part = symbolic.linear(rest, name)
            if part is None or (isinstance(part[0], int) and part[0] < 1):
                raise ScheduleError(f"the index '{index}' cannot be solved for '{name}'")
            factors.append((part[0], name))
            rest = part[1]
        divided = self._mixed_radix(index, factors, value - rest)
        covered = math.prod(self.loops[name].extent for name in names)
        is_part = self._guard(value - rest, covered, size)
        # Of elements that are all read there are none where an extent is 0.
        if is_part and any((symbolic.bounds(by)[0] or 0) < 1 for by in divided):
            raise ScheduleError(f"the index '{index}' may run over nothing: divided by 0")

    def _mixed_radix(
        self, index: Dim, factors: Sequence[tuple[Dim, str]], value: Dim
    ) -> list[Dim]:
        """Make digits of `value`.  Returns: what it is divided by."""
        divided: list[Dim] = []
        size, quotient = 1, value
        left = {name: factor for factor, name in sorted(factors, key=lambda each: each[1])}
        while left:
            name = next((name for name, factor in left.items() if factor == size), None)
            if name is None or name in self.env:
                raise ScheduleError(
                    f"the index '{index}' does not count elements one by one"
                )
            del left[name]
            extent = self.loops[name].extent
            size = size * extent
            self.env[name] = symbolic.mod(quotient, extent) if left else quotient
            if left:
                quotient = symbolic.floordiv(quotient, extent)
                divided.append(extent)
        return divided

    def _guard(self, value: Dim, covered: Dim, size: Dim) -> bool:
        """Ask whether `0 <= value < covered`: no more belongs to the consumer.  Returns: False where nothing else is there."""
        low = E.compare("ge", E.index(value), E.index(0))
        high = E.compare("lt", E.index(value), E.index(covered))
        if covered == size and symbolic.bounds(value)[0] == 0:
            return False
        for condition in (low, high):
            if not (isinstance(condition, ir.Const) and condition.value):
                self.guards.append(condition)
        return True

    def finish(self) -> None:
        """Join digits and see that every loop is determined."""
        for name, parts in self.digits.items():
            if name in self.env:
                raise ScheduleError(f"'{name}' is determined twice")
            self.env[name] = _join_digits(name, parts, self.loops[name].extent)
        missing = [name for name in self.loops if name not in self.env]
        if missing:
            raise ScheduleError(f"the indices do not determine {missing}")


def _digit(index: Dim, name: str) -> tuple[Dim, Dim] | None:
    """(divisor, modulus) when `index` is `i // d`, `i % m` or `i // d % m`; modulus 0: none."""
    atom = symbolic.only_atom(index)
    if not isinstance(atom, symbolic.Operation):
        return None
    inner = as_symbol(atom.left)
    if atom.op == "floordiv" and inner is not None and inner.name == name:
        return (atom.right, 0)
    if atom.op != "mod":
        return None
    if inner is not None and inner.name == name:
        return (1, atom.right)
    deeper = _digit(atom.left, name)
    return None if deeper is None or deeper[1] != 0 else (deeper[0], atom.right)


def _join_digits(name: str, parts: Sequence[tuple[Dim, Dim, Dim]], extent: Dim) -> Dim:
    """The variable from its digits, which must follow each other without gap."""
    pending = list(parts)
    size: Dim = 1
    total: Dim = 0
    while pending:
        found = next((p for p in pending if p[0] == size), None)
        if found is None:
            raise ScheduleError(f"the digits of '{name}' leave a gap")
        pending.remove(found)
        total = total + found[2] * size
        if found[1] == 0:
            break
        size = size * found[1]
    else:
        if size != extent:
            raise ScheduleError(f"the digits of '{name}' do not cover {extent}")
    if pending:
        raise ScheduleError(f"the digits of '{name}' overlap")
    return total
