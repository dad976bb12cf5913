"""Primitives on reductions: begin_with, rfactor, subtotal, term_by_term.

They may reassociate sums in loops marked `reduction` (see the semantics in `kernel/ir.py`);
nothing else changes a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.compiler.analysis import dependence
from tilewright.compiler.analysis.accesses import Access, accesses
from tilewright.compiler.kernel import ir, numerics
from tilewright.compiler.kernel.expressions import Expressions, binary, const, horizontal
from tilewright.compiler.kernel.fields import parts
from tilewright.compiler.kernel.rewrite import (
    FreshNames,
    buffers_written,
    is_target,
    loads,
    map_body,
    only_statement,
    rename_loops,
    stores,
    subexpressions,
)
from tilewright.compiler.schedule import tree
from tilewright.compiler.schedule.handles import BufferName, LoopName
from tilewright.compiler.schedule.trace import primitive

E: Final = Expressions

_FEW_TERMS: Final = 3
"""A sum of fewer has nothing that could wait for another."""


@primitive
def rfactor(
    kernel: ir.Kernel,
    buffer: str,
    loops: Sequence[str],
    lanes: int = 1,
    into: str | None = None,
) -> tuple[ir.Kernel, tuple[BufferName, LoopName]]:
    """Give every iteration of inner reduction loops its own partial result.

    With `lanes` > 1 the partial results are combined as vectors, then across lanes.  Makes the buffer of
    them and the nest that sets it up.

    rewrite:
        t = 0; for k: for l in 16: t += a[k * 16 + l]
        ->
        t = 0; for l in 16: p[l] = 0
        for k: for l in 16: p[l] += a[k * 16 + l]
        t += p[0] + ... + p[15]

    Raises: ScheduleError unless the loops are reductions with constant extents that only update
    one element of the buffer, always with the same operator.
    """
    target = tree.find_buffer(kernel, buffer)
    partial_loops = [tree.find(kernel, name) for name in loops]
    outer, op = _reduction_around(kernel, target, partial_loops)
    extents = [s.extent for s in partial_loops]
    if not all(isinstance(e, int) for e in extents):
        raise ScheduleError(f"partial results need constant extents, got {extents}")
    shape = tuple(e for e in extents if isinstance(e, int))
    if lanes > 1 and shape[-1] % lanes:
        raise ScheduleError(f"{shape[-1]} partial results are no multiple of {lanes} lanes")
    names = FreshNames.of(kernel)
    part = tree.register(names, into or f"{buffer}_p", target.dtype, *shape)
    where = tuple(tree.reference(s.var) for s in partial_loops)
    element = next(s.indices for s in stores((outer,)) if s.buffer is target)

    identity = const(numerics.identity(op, target.dtype), target.dtype)
    first = tree.nested(tree.bare(partial_loops), (ir.Store(part, where, identity),))
    start = rename_loops(first, names)
    nest = start[0]
    assert isinstance(nest, ir.For), "there is a loop at least"
    inner = partial_loops[-1]
    redirected = tree.map_accesses((inner,), target, part, lambda _: where)
    changed = tree.swap((outer,), inner, redirected)
    total = _combine(op, part, lanes)
    finish = ir.Store(target, element, binary(op, ir.Load(target, element), total))
    kernel = tree.rewrite(kernel, outer, (*start, *changed, finish))
    return tree.add_locals(kernel, (part,)), (
        BufferName(part.name),
        LoopName(nest.var.name),
    )


@primitive
def begin_with(kernel: ir.Kernel, buffer: str, loop: str) -> ir.Kernel:
    """Let a sum of integers begin with what is added to it, or taken off it, once it is finished.

    Integers wrap, so the order of a sum does not matter; one addition less is left for each sum.

    rewrite:
        for i in n: t = 0
                    for k: t += S(k)
                    y[i] = f(t + a[i])
        ->
        for i in n: t = a[i]
                    for k: t += S(k)
                    y[i] = f(t)

    Raises: ScheduleError unless the loop holds such a sum in an integer that no other code reads, and every reader adds the
    same number, which nothing in the loop writes and no guard stands before.
    """
    outer, target = tree.find(kernel, loop), tree.find_buffer(kernel, buffer)
    start, *others = outer.body
    if (
        not isinstance(start, ir.Store)
        or start.buffer is not target
        or not _is_zero(start.value)
    ):
        raise ScheduleError(f"no sum in '{buffer}' begins in '{loop}'")
    if not target.dtype.is_integer or dependence.live_outside(kernel.body, outer, target):
        raise ScheduleError(f"'{buffer}' is no integer of '{loop}' alone")
    sums = [x for x in others if isinstance(x, ir.For) and x.reduction]
    readers = [x for x in others if isinstance(x, ir.Store) and x.buffer is not target]
    updates = [a.update for a in accesses(sums, of=target)]
    if len(sums) + len(readers) < len(others) or not updates or {*updates} != {"add"}:
        raise ScheduleError(f"'{loop}' does not sum up '{buffer}' and then read it")
    total = ir.Load(target, start.indices)
    added = _only_addition(readers, total)
    number = added.right
    if added.op == "sub":
        number = binary("sub", const(0, number.dtype, number.lanes), number)
    if any(x.buffer in buffers_written(outer.body) for x in loads(number)):
        raise ScheduleError(f"what is added to '{buffer}' changes")
    last = map_body(readers, expression=lambda x: total if x is added else x)
    body = (ir.Store(target, start.indices, number), *sums, *last)
    return tree.refill(kernel, outer, body)


def _is_zero(value: ir.Expression) -> bool:
    return isinstance(value, ir.Const) and value.value == 0


def _only_addition(readers: Sequence[ir.Store], total: ir.Load) -> ir.Binary:
    """The sum or difference of a total and a number that is all that is made of the total.

    Raises: ScheduleError where it is not.
    """
    values = {id(x): x for store in readers for x in subexpressions(store.value)}
    uses = [x for x in values.values() if any(is_target(y, total) for y in parts(x))]
    whole = any(is_target(store.value, total) for store in readers)
    (first, *more) = uses or [total]
    if whole or more or not isinstance(first, ir.Binary) or first.op not in ("add", "sub"):
        raise ScheduleError(f"readers of '{total.buffer.name}' do not add one number to it")
    if not is_target(first.left, total) or any(
        load.buffer is total.buffer for load in loads(first.right)
    ):
        raise ScheduleError(f"'{total.buffer.name}' is not what a number is added to")
    return first


@primitive
def subtotal(kernel: ir.Kernel, buffer: str, loop: str) -> tuple[ir.Kernel, BufferName]:
    """Let every pass through an inner reduction loop add up on its own.

    A sum of n numbers is then off by what about n / m + m additions round, not n.

    rewrite:
        t = 0; for k: for l in m: t += a[k, l]
        ->
        t = 0; for k: p = 0; for l in m: p += a[k, l]
                      t += p

    Raises: ScheduleError unless the loop is a reduction inside a reduction, that only updates one
    element of the buffer, always with the same operator.
    """
    target = tree.find_buffer(kernel, buffer)
    inner = tree.find(kernel, loop)
    around, op = _reduction_around(kernel, target, [inner])
    if around is inner:
        raise ScheduleError(f"no reduction around '{loop}' adds its sums to '{buffer}'")
    part = tree.register(FreshNames.of(kernel), f"{buffer}_s", target.dtype)
    element = next(w.indices for w in stores((inner,)) if w.buffer is target)
    identity = const(numerics.identity(op, target.dtype), target.dtype)
    changed = tree.map_accesses((inner,), target, part, lambda _: ())
    total = binary(op, ir.Load(target, element), ir.Load(part, ()))
    body = (ir.Store(part, (), identity), *changed, ir.Store(target, element, total))
    kernel = tree.rewrite(kernel, inner, body)
    return tree.add_locals(kernel, (part,)), BufferName(part.name)


@primitive
def term_by_term(kernel: ir.Kernel, loop: str) -> tuple[ir.Kernel, BufferName]:
    """Give each term of a long sum a statement of its own, in the order in which they are added.

    `fission` can then take one term for all iterations before the next term, so that no addition waits for the one
    before it.  Every sum keeps its bits.

    rewrite:
        for i in n: y[i] = (((a[i] + b[i]) + c[i]) + d[i]) * e[i]
        ->
        for i in n: t = a[i]
                    t = t + b[i]
                    t = t + c[i]
                    t = t + d[i]
                    y[i] = t * e[i]

    Raises: ScheduleError unless the loop holds one store, of a value in which at least three terms are added one
    after another, none of which reads the buffer that is stored.
    """
    outer = tree.find(kernel, loop)
    store = only_statement(outer.body)
    if not isinstance(store, ir.Store):
        raise ScheduleError(f"'{loop}' holds more than one store")
    total, terms = _longest_sum(store.value)
    if len(terms) < _FEW_TERMS:
        raise ScheduleError(
            f"no {_FEW_TERMS} terms are added one after another in '{loop}'"
        )
    if any(load.buffer is store.buffer for load in loads(total)):
        raise ScheduleError(
            f"a term of the sum in '{loop}' reads '{store.buffer.name}', which is stored"
        )
    running = tree.register(FreshNames.of(kernel), "terms", total.dtype)
    so_far = ir.Load(running, ())
    steps = (terms[0], *(binary("add", so_far, term) for term in terms[1:]))
    last = map_body((store,), expression=lambda part: so_far if part is total else part)
    body = (*(ir.Store(running, (), value) for value in steps), *last)
    kernel = tree.refill(kernel, outer, body)
    return tree.add_locals(kernel, (running,)), BufferName(running.name)


def _longest_sum(value: ir.Expression) -> tuple[ir.Expression, tuple[ir.Expression, ...]]:
    """The part of `value` with the most terms added from left to right, and the terms."""
    best: tuple[ir.Expression, tuple[ir.Expression, ...]] = (value, (value,))
    for part in subexpressions(value):
        if len(terms := terms_of(part)) > len(best[1]):
            best = (part, terms)
    return best


def terms_of(value: ir.Expression) -> tuple[ir.Expression, ...]:
    """What is added from left to right; `value` itself where it is no sum."""
    terms: list[ir.Expression] = []
    while isinstance(value, ir.Binary) and value.op == "add":
        terms.append(value.right)
        value = value.left
    return (value, *reversed(terms))


def _combine(op: str, part: ir.Buffer, lanes: int) -> ir.Expression:
    """All elements of `part` combined: a balanced tree, vectors first."""
    shape = [d for d in part.shape if isinstance(d, int)]
    positions: list[tuple[int, ...]] = [()]
    for axis, extent in enumerate(shape):
        step = lanes if axis == len(shape) - 1 else 1
        positions = [(*p, n) for p in positions for n in range(0, extent, step)]
    values: list[ir.Expression] = [ir.Load(part, p, lanes) for p in positions]
    while len(values) > 1:
        pairs = [binary(op, a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + values[len(pairs) * 2 :]
    return horizontal(op, values[0])


def _reduction_around(
    kernel: ir.Kernel, target: ir.Buffer, partial_loops: Sequence[ir.For]
) -> tuple[ir.For, str]:
    """The outermost loop in which `target` is only updated at one element, and the operator."""
    if not partial_loops:
        raise ScheduleError("rfactor needs at least one loop")
    innermost = partial_loops[-1]
    around = (*tree.enclosing_loops(kernel, innermost), innermost)
    if any(all(loop is not s for s in around) for loop in partial_loops):
        raise ScheduleError(f"{[s.var.name for s in partial_loops]} are not nested")
    best: ir.For | None = None
    operators: set[str | None] = set()
    for loop in reversed(around):
        found = accesses((loop,), of=target)
        if not found or not _fixed(found, loop) or any(a.update is None for a in found):
            break
        if not loop.reduction:
            break
        best, operators = loop, {a.update for a in found}
    inside = () if best is None else around[around.index(best) :]
    if best is None or any(all(loop is not s for s in inside) for loop in partial_loops):
        raise ScheduleError(
            f"'{target.name}' is not the result of a reduction over "
            f"{[s.var.name for s in partial_loops]}"
        )
    if len(operators) != 1:
        raise ScheduleError(f"'{target.name}' is updated with several operators")
    op = operators.pop()
    assert op is not None
    return best, op


def _fixed(found: Sequence[Access], loop: ir.For) -> bool:
    inner = {loop.var.name, *(s.var.name for a in found for s in a.inner)}
    return all(a.indices == found[0].indices for a in found) and not any(
        s.name in inner for index in found[0].indices for s in symbolic.symbols(index)
    )
