"""Finding a place in a kernel and putting something else there.

Loops are addressed by the name of their variable, buffers by their name; both are unique within a
kernel.  Nothing here decides whether a rewrite is right (see `analysis`).  Called by the
primitives and the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tilewright.base import symbolic
from tilewright.base.dtypes import DType
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim, Symbol
from tilewright.base.text import did_you_mean
from tilewright.compiler.analysis.accesses import Fact, known_facts
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.fields import with_inner
from tilewright.compiler.kernel.grid import GRID_KINDS
from tilewright.compiler.kernel.rewrite import (
    FreshNames,
    buffers_of,
    loads_of,
    loops,
    map_body,
    may_hold,
    only_statement,
)
from tilewright.compiler.kernel.text import implied_bounds

Indices = tuple[Dim, ...]


def find(kernel: ir.Kernel, name: str) -> ir.For:
    """The loop over `name`.  Raises: ScheduleError when there is none."""
    found = loops(kernel.body)
    for loop in found:
        if loop.var.key == name:
            return loop
    names = [loop.var.name for loop in found]
    hint = did_you_mean(name, names) or f"loops: {' '.join(names)}"
    raise ScheduleError(f"no loop '{name}'", location=kernel.name, hint=hint)


def find_inside(kernel: ir.Kernel, name: str) -> ir.For:
    """The same of a loop in a workgroup.

    Raises: ScheduleError, too, for a loop of workgroups: their number is that of all calls, and nothing stands in front of them.
    """
    loop = find(kernel, name)
    if loop.kind in GRID_KINDS:
        raise ScheduleError(f"'{name}' is made of workgroups", location=kernel.name)
    return loop


def find_buffer(kernel: ir.Kernel, name: str) -> ir.Buffer:
    """The parameter or local called `name`.  Raises: ScheduleError when there is none."""
    buffers = {buffer.name: buffer for buffer in kernel.buffers}
    if name in buffers:
        return buffers[name]
    hint = did_you_mean(name, buffers)
    raise ScheduleError(f"no buffer '{name}'", location=kernel.name, hint=hint)


def path_to(
    body: Sequence[ir.Statement], target: ir.Statement
) -> tuple[ir.Statement, ...] | None:
    """The statements around `target`, outermost first, without itself; None if not there."""
    for statement in body:
        if statement is target:
            return ()
        if isinstance(statement, (ir.For, ir.If)) and may_hold(statement, target):
            inner = path_to(statement.body, target)
            if inner is not None:
                return (statement, *inner)
    return None


def path_inside(outer: ir.For, inner: ir.For) -> tuple[ir.Statement, ...]:
    """The same from `outer`, which is part of it, to a loop in it or to itself.  Raises: ScheduleError where it is elsewhere."""
    path = path_to((outer,), inner)
    if path is None:
        raise ScheduleError(f"'{inner.var.name}' is not inside '{outer.var.name}'")
    return path


def loads_with_paths(
    body: Sequence[ir.Statement], buffer: ir.Buffer, path: tuple[ir.Statement, ...] = ()
) -> Iterator[tuple[tuple[ir.Statement, ...], ir.Statement, ir.Load]]:
    """Every load of a buffer, behind its statement and what stands around that, outermost first."""
    for statement in body:
        for load in loads_of(statement):
            if load.buffer is buffer:
                yield path, statement, load
        if isinstance(statement, ir.For | ir.If):
            yield from loads_with_paths(statement.body, buffer, (*path, statement))


def enclosing_loops(kernel: ir.Kernel, target: ir.Statement) -> tuple[ir.For, ...]:
    """The loops around `target`, outermost first."""
    path = path_to(kernel.body, target) or ()
    return tuple(s for s in path if isinstance(s, ir.For))


def facts_at(kernel: ir.Kernel, target: ir.Statement) -> list[Fact]:
    """What the guards around `target` say."""
    return known_facts(path_to(kernel.body, target) or ())


def swap(body: ir.Body, target: ir.Statement, new: Sequence[ir.Statement]) -> ir.Body:
    """`body` with the statement `target` (by identity) replaced by `new`."""
    found = _swap(body, target, tuple(new))
    assert found is not None, "the statement to replace is not in the body"
    return found


def _swap(body: ir.Body, target: ir.Statement, new: ir.Body) -> ir.Body | None:
    for position, statement in enumerate(body):
        if statement is target:
            return body[:position] + new + body[position + 1 :]
        if isinstance(statement, (ir.For, ir.If)) and may_hold(statement, target):
            inner = _swap(statement.body, target, new)
            if inner is not None:
                changed = with_inner(statement, inner)
                return (*body[:position], changed, *body[position + 1 :])
    return None


def rewrite(
    kernel: ir.Kernel, target: ir.Statement, new: Sequence[ir.Statement]
) -> ir.Kernel:
    """`kernel` with one statement replaced by others."""
    return replace(kernel, body=swap(kernel.body, target, new))


def refill(kernel: ir.Kernel, around: ir.For | ir.If, body: ir.Body) -> ir.Kernel:
    """`kernel` with another body in one of its loops or guards."""
    return rewrite(kernel, around, (with_inner(around, body),))


def map_accesses(
    body: ir.Body, old: ir.Buffer, new: ir.Buffer, index: Callable[[Indices], Indices]
) -> ir.Body:
    """`body` with accesses of `old` made to `new` at `index(indices)`."""

    def load(value: ir.Expression) -> ir.Expression:
        if isinstance(value, ir.Load) and value.buffer is old:
            where = index(value.indices)
            return ir.Load(new, where, value.lanes, value.stride, value.mask)
        return value

    def store(statement: ir.Statement) -> ir.Statement:
        if isinstance(statement, ir.Store) and statement.buffer is old:
            where = index(statement.indices)
            return ir.Store(new, where, statement.value, statement.stride, statement.mask)
        return statement

    return map_body(body, expression=load, statement=store)


def make_loop(
    name: str,
    extent: Dim,
    body: Sequence[ir.Statement],
    kind: ir.LoopKind = ir.LoopKind.SERIAL,
    *,
    reduction: bool = False,
) -> ir.For:
    """A loop whose variable carries the bounds that `extent` implies."""
    return ir.For(loop_symbol(name, extent), extent, tuple(body), kind, reduction)


def register(names: FreshNames, stem: str, dtype: DType, *shape: int) -> ir.Buffer:
    """A new buffer in registers."""
    return ir.Buffer(names.fresh(stem), dtype, shape, ir.Space.REGISTER)


def loop_symbol(name: str, extent: Dim) -> Symbol:
    """The variable of a loop over `extent`, with bounds."""
    return Symbol(name, *implied_bounds(extent))


def free_name(kernel: ir.Kernel, name: str, *own: str) -> str:
    """A name that is given to a loop, which may have one of its `own` loops.  Raises: ScheduleError where others have it."""
    if name not in own and FreshNames.of(kernel).fresh(name) != name:
        raise ScheduleError(f"the name '{name}' is taken")
    return name


def reference(var: Symbol) -> Dim:
    """The variable as an index."""
    return symbolic.Expr.of_atom(var)


def nested(around: Iterable[ir.For | ir.If], body: ir.Body) -> ir.Body:
    """`body` inside of loops and guards, outermost first, whose own bodies do not count."""
    for statement in reversed([*around]):
        body = (with_inner(statement, body),)
    return body


def bare(nest: Iterable[ir.For]) -> list[ir.For]:
    """Loops over the same iterations of which nothing is decided, and which sum up nothing."""
    return [ir.For(loop.var, loop.extent, ()) for loop in nest]


def chain(loop: ir.For) -> tuple[ir.For, ...]:
    """`loop` and the loops perfectly nested in it."""
    found, inner = [loop], only_statement(loop.body)
    while isinstance(inner, ir.For):
        found.append(inner)
        inner = only_statement(inner.body)
    return tuple(found)


def swap_locals(kernel: ir.Kernel, new: Mapping[ir.Buffer, ir.Buffer]) -> ir.Kernel:
    """`kernel` with other local buffers in the place of some."""
    return replace(kernel, locals=tuple(new.get(b, b) for b in kernel.locals))


def add_locals(kernel: ir.Kernel, buffers: Iterable[ir.Buffer]) -> ir.Kernel:
    """`kernel` with more local buffers."""
    return replace(kernel, locals=(*kernel.locals, *buffers))


def prune_locals(kernel: ir.Kernel) -> ir.Kernel:
    """`kernel` without local buffers that nothing uses."""
    from_body = used_buffers(kernel.body)
    return replace(kernel, locals=tuple(b for b in kernel.locals if b in from_body))


def used_buffers(body: Sequence[ir.Statement]) -> set[ir.Buffer]:
    """Every buffer that `body` loads or stores."""
    return set[ir.Buffer]().union(*map(buffers_of, body))
