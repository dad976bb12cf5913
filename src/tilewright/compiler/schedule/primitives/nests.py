"""Primitives that move statements between loops: fuse_nests, fission, inline, reverse_inline.

They work before flattening, on multi-dimensional indices; a store moves only when it is proven
that no element is read before it is written.  Buffers keep their shape (see `memory`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.kernel.expressions import Expressions
from tilewright.compiler.kernel.ir import (
    Body,
    Buffer,
    Comment,
    Const,
    Expression,
    For,
    If,
    Kernel,
    Load,
    Space,
    Statement,
    Store,
)
from tilewright.compiler.kernel.rewrite import (
    Rewriter,
    as_symbol,
    loads,
    map_body,
    rename_loops,
    stores,
    substitute,
    substitute_expression,
)
from tilewright.compiler.schedule.dependence import (
    accesses,
    conflict,
    live_outside,
    private_buffers,
)
from tilewright.compiler.schedule.trace import names_of, primitive
from tilewright.compiler.schedule.tree import (
    chain,
    find,
    find_buffer,
    make_loop,
    path_to,
    prune_locals,
    reference,
    rewrite,
    swap,
    with_inner,
)

E: Final = Expressions


def siblings(kernel: Kernel, statement: Statement) -> Body:
    """The body in which `statement` stands."""
    path = path_to(kernel.body, statement)
    assert path is not None
    if not path:
        return kernel.body
    parent = path[-1]
    assert isinstance(parent, For | If)
    return parent.body


@primitive
def fuse_nests(kernel: Kernel, first: str, second: str) -> Kernel:
    """Run the bodies of two loops with equal extents, standing side by side, in one loop.

    rewrite:
        for i in n: A(i)
        for j in n: B(j)
        ->
        for i in n: A(i); B(i)

    Raises: ScheduleError if the extents differ, if an iteration of the second loop needs an
    element that a later iteration of the first one touches, or if code between them is in the way.
    """
    a, b = find(kernel, first), find(kernel, second)
    level = siblings(kernel, a)
    if all(s is not b for s in level):
        raise ScheduleError(f"'{first}' and '{second}' do not stand side by side")
    if a.extent != b.extent:
        raise ScheduleError(
            f"'{first}' runs {a.extent} times, '{second}' {b.extent}", location=kernel.name
        )
    low, high = (next(n for n, s in enumerate(level) if s is x) for x in (a, b))
    if low > high:
        raise ScheduleError(f"'{second}' stands before '{first}'")
    between = accesses(level[low + 1 : high])
    up, down = (conflict(between, accesses([x]), ()) for x in (b, a))
    if up is not None and down is not None:
        raise ScheduleError(
            f"'{second}' cannot pass code that touches '{up[0].buffer.name}'"
        )
    body = substitute(b.body, {second: reference(a.var)})
    pair = conflict(accesses(a.body), accesses(body), (a.var,))
    if pair is not None:
        raise ScheduleError(
            f"an iteration of '{second}' needs '{pair[0].buffer.name}' of another iteration "
            f"of '{first}'",
            location=kernel.name,
        )
    fused = For(a.var, a.extent, (*a.body, *body), a.kind, a.reduction and b.reduction)
    kept, gone = (a, b) if up is None else (b, a)
    without = swap(kernel.body, gone, ())
    return replace(kernel, body=swap(without, kept, (fused,)))


@primitive
def fission(kernel: Kernel, loop: str, depth: int = 1, scope: str = "register") -> Kernel:
    """Give each statement in a nest of `depth` loops its own copy of the loops.

    Local buffers that carry a value between the statements of one iteration get one element per
    iteration, in `scope` ("register" or "workgroup").

    rewrite:
        for i in n: t = A(i); B(i, t)
        ->
        for i in n: t[i] = A(i)
        for i_2 in n: B(i_2, t[i_2])

    Raises: ScheduleError if a later statement of one iteration must run before an earlier
    statement of another.
    """
    outer = find(kernel, loop)
    nest, body = _nest_of_depth(outer, depth)
    parts = _guarded_parts(body)
    if len(parts) < 2:
        return kernel
    variables = tuple(s.var for s in nest)
    private = [b for b in private_buffers(body) if not live_outside(kernel.body, outer, b)]
    expanded = [b for b in private if _crosses(parts, b)]
    _check_fission(parts, variables, frozenset(private))
    new_buffers = {b: _expand(b, nest, Space(scope)) for b in expanded}
    names = names_of(kernel)
    result: list[Statement] = []
    for position, part in enumerate(parts):
        code = _index_expanded(part, new_buffers, variables)
        for statement in reversed(nest):
            code = (with_inner(statement, code),)
        result.extend(code if position == 0 else rename_loops(code, names))
    changed = rewrite(kernel, outer, result)
    renamed = tuple(new_buffers.get(b, b) for b in changed.locals)
    return replace(changed, locals=renamed)


def _nest_of_depth(outer: For, depth: int) -> tuple[tuple[For, ...], Body]:
    nest = chain(outer)
    if not 1 <= depth <= len(nest):
        raise ScheduleError(
            f"'{outer.var.name}' has {len(nest)} perfectly nested loops, not {depth}"
        )
    return nest[:depth], nest[depth - 1].body


def _guarded_parts(body: Body) -> list[Body]:
    """The statements of `body` one by one; a guard around all is repeated for each."""
    real = [s for s in body if not isinstance(s, Comment)]
    if len(real) == 1 and isinstance(real[0], If):
        condition = real[0].condition
        return [(If(condition, part),) for part in _guarded_parts(real[0].body)]
    return [(s,) for s in real]


def _crosses(parts: Sequence[Body], buffer: Buffer) -> bool:
    users = [n for n, part in enumerate(parts) if _touches(part, buffer)]
    return len(users) > 1


def _touches(body: Body, buffer: Buffer) -> bool:
    return any(access.buffer is buffer for access in accesses(body))


def _check_fission(
    parts: Sequence[Body], variables: Sequence[Symbol], private: frozenset[Buffer]
) -> None:
    found = [accesses(part) for part in parts]
    for position, first in enumerate(found):
        for second in found[position + 1 :]:
            pair = conflict(first, second, variables, private)
            if pair is not None:
                raise ScheduleError(
                    f"iterations of {[v.name for v in variables]} depend on each other through "
                    f"'{pair[0].buffer.name}'"
                )


def _expand(buffer: Buffer, nest: Sequence[For], space: Space) -> Buffer:
    extents = tuple(largest(s.extent) for s in nest)
    return Buffer(buffer.name, buffer.dtype, (*extents, *buffer.shape), space)


def largest(extent: Dim) -> int:
    """The most that `extent` can be.  Raises: ScheduleError when it has no upper bound."""
    upper = symbolic.bounds(extent)[1]
    if upper is None:
        raise ScheduleError(f"an extent of '{extent}' has no upper bound")
    return upper


def _index_expanded(
    body: Body, buffers: Mapping[Buffer, Buffer], variables: Sequence[Symbol]
) -> Body:
    index = tuple(reference(v) for v in variables)

    def load(value: Expression) -> Expression:
        if isinstance(value, Load) and value.buffer in buffers:
            return Load(
                buffers[value.buffer],
                (*index, *value.indices),
                value.lanes,
                value.stride,
                value.mask,
            )
        return value

    def store(statement: Statement) -> Statement:
        if isinstance(statement, Store) and statement.buffer in buffers:
            return Store(
                buffers[statement.buffer],
                (*index, *statement.indices),
                statement.value,
                statement.stride,
                statement.mask,
            )
        return statement

    return map_body(body, expression=load, statement=store)


# --- inline: the producer into its consumers -------------------------------------------------


@primitive
def inline(kernel: Kernel, buffer: str) -> Kernel:
    """Compute the elements of a temporary where they are read.

    rewrite:
        for i: t[i] = f(i)
        for j: y[j] = g(t[j + 1])
        ->
        for j: y[j] = g(f(j + 1))

    Raises: ScheduleError unless one plain nest defines each element of the temporary once, and
    what it reads is unchanged until the last use.
    """
    target = find_buffer(kernel, buffer)
    producer, store = _definition(kernel, target)
    variables = [as_symbol(i) for i in store.indices]
    own = {access.buffer for access in accesses([producer]) if not access.write}
    position = next(n for n, s in enumerate(kernel.body) if s is producer)
    for access in accesses(kernel.body[position + 1 :]):
        if access.write and access.buffer in own:
            raise ScheduleError(
                f"'{access.buffer.name}' changes after '{buffer}' is computed"
            )
    if target in own:
        raise ScheduleError(f"'{buffer}' is defined in terms of itself")

    def read(value: Expression) -> Expression:
        if not isinstance(value, Load) or value.buffer is not target:
            return value
        env = {
            v.name: i
            for v, i in zip(variables, value.indices, strict=True)
            if v is not None
        }
        result = substitute_expression(store.value, env)
        return result if value.mask is None else _masked(result, value.mask)

    rest = tuple(s for s in kernel.body if s is not producer)
    return prune_locals(replace(kernel, body=Rewriter(expression=read).body(rest)))


def _masked(value: Expression, mask: Expression) -> Expression:
    def guarded(part: Expression) -> Expression:
        if isinstance(part, Load):
            both = mask if part.mask is None else E.and_(part.mask, mask)
            return Load(part.buffer, part.indices, part.lanes, part.stride, both)
        return part

    return E.select(mask, Rewriter(expression=guarded).expression(value), 0)


def _definition(kernel: Kernel, target: Buffer) -> tuple[For, Store]:
    """The top-level nest whose only store defines every element of `target` once."""
    if all(target is not b for b in kernel.locals):
        raise ScheduleError(f"'{target.name}' is not a temporary", location=kernel.name)
    writers = [s for s in kernel.body if any(w.buffer is target for w in stores([s]))]
    if len(writers) != 1 or not isinstance(writers[0], For):
        raise ScheduleError(f"'{target.name}' is written by {len(writers)} nests, not one")
    producer = writers[0]
    nest = chain(producer)
    body = [s for s in nest[-1].body if not isinstance(s, Comment)]
    if len(body) != 1 or not isinstance(body[0], Store) or body[0].mask is not None:
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
def reverse_inline(kernel: Kernel, consumer: str, buffer: str) -> Kernel:
    """Make a nest that reads a temporary once per element run in the order of its producer.

    The loops of the consumer are replaced by loops over the dimensions of the temporary, in
    order, so that `fuse_nests` can join them with the loops that produce it.

    rewrite:
        for h: for s: for d: y[h, s, d] = g(t[s, h * 64 + d])
        ->
        for i in S: for j in H * 64: y[j // 64, i, j % 64] = g(t[i, j])

    Raises: ScheduleError unless the indices into the temporary determine the consumer's loops.
    """
    target = find_buffer(kernel, buffer)
    outer = find(kernel, consumer)
    nest = chain(outer)
    found = {load.indices for load in loads([outer]) if load.buffer is target}
    if len(found) != 1:
        raise ScheduleError(
            f"'{consumer}' reads {len(found)} elements of '{buffer}' at a time"
        )
    indices = next(iter(found))
    depth = _loops_used(nest, indices)
    if any(s.var.name not in _names(indices) for s in nest[:depth]):
        raise ScheduleError(f"'{consumer}' reads elements of '{buffer}' more than once")
    names = names_of(kernel)
    new = [
        make_loop(names.fresh(f"{buffer}_{n}"), e, ()) for n, e in enumerate(target.shape)
    ]
    solution = _Solution({s.var.name: s for s in nest[:depth]})
    for index, made in zip(indices, new, strict=True):
        value = 0 if made.extent == 1 else reference(made.var)
        solution.equate(index, value, made.extent)
    solution.finish()
    body = substitute(nest[depth - 1].body, solution.env)
    for condition in reversed(solution.guards):
        body = (If(condition, body),)
    for loop in reversed(new):
        if loop.extent != 1:
            body = (with_inner(loop, body),)
    _check_nest_parallel(nest[:depth])
    return rewrite(kernel, outer, body)


def _names(indices: Sequence[Dim]) -> set[str]:
    return {s.name for index in indices for s in symbolic.symbols(index)}


def _loops_used(nest: Sequence[For], indices: Sequence[Dim]) -> int:
    used = _names(indices)
    depth = 0
    for position, loop in enumerate(nest):
        if loop.var.name in used:
            depth = position + 1
    if not depth:
        raise ScheduleError("the consumer reads one element only")
    return depth


def _check_nest_parallel(nest: Sequence[For]) -> None:
    found = accesses(nest[-1].body)
    private = frozenset(private_buffers(nest[-1].body))
    pair = conflict(
        [a for a in found if a.write], found, tuple(s.var for s in nest), private
    )
    if pair is not None:
        raise ScheduleError(f"the consumer's iterations meet in '{pair[0].buffer.name}'")


@final
@dataclass(slots=True)
class _Solution:
    """What is known about the consumer's loops while its indices are solved."""

    loops: Mapping[str, For]
    env: dict[str, Dim] = field(default_factory=dict)
    guards: list[Expression] = field(default_factory=list)
    digits: dict[str, list[tuple[Dim, Dim, Dim]]] = field(default_factory=dict)

    def equate(self, index: Dim, value: Dim, size: Dim) -> None:
        """Solve `index == value`, where `value` runs below `size`."""
        names = [n for n in self.loops if n in _names((index,))]
        digit = _digit(index, names[0]) if len(names) == 1 else None
        if digit is not None:
            self.digits.setdefault(names[0], []).append((*digit, value))
            return
        factors: list[tuple[int, str]] = []
        rest = index
        for name in names:
            part = symbolic.linear(rest, name)
            if part is None or not isinstance(part[0], int) or part[0] < 1:
                raise ScheduleError(f"the index '{index}' cannot be solved for '{name}'")
            factors.append((part[0], name))
            rest = part[1]
        self._mixed_radix(index, sorted(factors), value - rest)
        self._guard(value - rest, self._covered(names), size)

    def _covered(self, names: Sequence[str]) -> Dim:
        count: Dim = 1
        for name in names:
            count = count * self.loops[name].extent
        return count

    def _mixed_radix(
        self, index: Dim, factors: Sequence[tuple[int, str]], value: Dim
    ) -> None:
        size: Dim = 1
        for position, (factor, name) in enumerate(factors):
            if factor != size or name in self.env:
                raise ScheduleError(
                    f"the index '{index}' does not count elements one by one"
                )
            extent = self.loops[name].extent
            quotient = symbolic.floordiv(value, size)
            size = size * extent
            last = position == len(factors) - 1
            self.env[name] = quotient if last else symbolic.mod(quotient, extent)

    def _guard(self, value: Dim, covered: Dim, size: Dim) -> None:
        """Only `0 <= value < covered` belongs to the consumer."""
        low = E.compare("ge", E.index(value), E.index(0))
        high = E.compare("lt", E.index(value), E.index(covered))
        if covered == size and symbolic.bounds(value)[0] == 0:
            return
        for condition in (low, high):
            if not (isinstance(condition, Const) and condition.value):
                self.guards.append(condition)

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
    if isinstance(index, int) or index.constant or len(index.terms) != 1:
        return None
    ((monomial, factor),) = index.terms
    if factor != 1 or len(monomial) != 1 or not isinstance(monomial[0], symbolic.Operation):
        return None
    atom = monomial[0]
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
