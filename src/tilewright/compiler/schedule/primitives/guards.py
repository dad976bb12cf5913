"""Primitives on guards: drop_guards, settle_tests, sink_guards.

Tiles that do not divide a loop leave guards around everything in them; what only makes temporaries need not
keep them.  Nothing here changes a value that anybody sees.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final, final

from tilewright.base import dtypes, symbolic
from tilewright.base.record import field, record
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.analysis import dependence
from tilewright.compiler.analysis.accesses import (
    Access,
    Fact,
    accesses,
    differences,
    facts_of,
    facts_where,
    index_sides,
    is_at_most_zero,
)
from tilewright.compiler.analysis.proofs import at_last, distinct, within
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.expressions import Expressions
from tilewright.compiler.kernel.rewrite import (
    Rewriter,
    as_symbol,
    dim_symbols,
    expression_symbols,
    loads,
    loads_below,
    loops,
    map_body,
    only_statement,
    substitute_dim,
    substitute_expression,
)
from tilewright.compiler.kernel.text import expression_text
from tilewright.compiler.schedule import tree
from tilewright.compiler.schedule.primitives.tails import guard_sides
from tilewright.compiler.schedule.trace import primitive

E: Final = Expressions


@primitive
def drop_guards(kernel: ir.Kernel, loop: str) -> ir.Kernel:
    """Let code run for iterations that a guard excludes, where nobody sees the difference.

    Guards around stores to registers and workgroup memory disappear when every load below them
    stays in bounds without them, tests itself that it does, or is one that the guard admits in another iteration, and every
    reader of the stored elements has the same guard, or only makes temporaries that excluded iterations
    have for themselves, and of which the same is true.

    rewrite:
        for j in 16: if j < 5: t[j] = b[j]                  (b has 16 elements)
        for j in 16: if j < 5: y[j] = t[j]
        ->
        for j in 16: t[j] = b[j]
        for j in 16: if j < 5: y[j] = t[j]
    """
    outer = tree.find(kernel, loop)
    for statement in ir.walk(outer.body):
        if isinstance(statement, ir.If) and _droppable(kernel, statement):
            kernel = tree.rewrite(kernel, statement, statement.body)
            return drop_guards(kernel, loop)
    return kernel


def _droppable(kernel: ir.Kernel, guard: ir.If) -> bool:
    if loads_below(guard.condition):
        return False
    around = tree.enclosing_loops(kernel, guard)
    users = accesses(guard.body)
    condition = {s.name for s in expression_symbols(guard.condition)}
    loops_of_condition = [s for s in around if s.var.name in condition]
    facts = tree.facts_at(kernel, guard)
    known = _Known(kernel, guard)
    for access in users:
        nest = (*around, *access.inner)
        if not (
            _is_inside(access, nest, facts) or _admitted_anyway(kernel, guard, access, nest)
        ):
            return False
        if access.write and not _unobserved(known, access, loops_of_condition):
            return False
    return True


def _is_inside(access: Access, inside: Sequence[ir.For], facts: Sequence[Fact]) -> bool:
    """Whether an access stays in bounds, or is a load that asks itself whether it does."""
    said = () if access.mask is None else differences(facts_where(access.mask))
    return all(
        within(index, size, inside, facts)
        or (_follows((0, index), said, ()) and _follows((index, size - 1), said, ()))
        for index, size in zip(access.indices, access.buffer.shape, strict=True)
    )


def _admitted_anyway(
    kernel: ir.Kernel, guard: ir.If, access: Access, inside: Sequence[ir.For]
) -> bool:
    """Whether a load that the guard keeps out of some iterations happens in another, at the same place.

    The guard admits the first iteration of the loops that it tests, and nothing else about the load
    depends on them, or on more than loops and sizes of the call: where it may be in the first iteration,
    it may be in all.
    """
    tested = {s.name for s in expression_symbols(guard.condition)}
    extents = {loop.var.name: loop.extent for loop in inside}
    if (
        access.write
        or access.mask is not None
        or not all(isinstance(extents.get(name), int) for name in tested)
    ):
        return False
    used = {s.name for index in access.indices for s in dim_symbols(index)}
    of_loops = {s.name for extent in extents.values() for s in dim_symbols(extent)}
    sizes = {symbol.name for symbol in kernel.dims}
    if not used <= extents.keys() | sizes or tested & (used | of_loops):
        return False
    path = tree.path_to(kernel.body, guard) or ()
    others = [s.condition for s in path if isinstance(s, ir.If) and s is not guard]
    for condition in (*others, *access.guards):
        if loads_below(condition):
            return False
        if tested & {s.name for s in expression_symbols(condition)}:
            return False
    sides = guard_sides(guard.condition)
    if sides is None:
        return False
    first: dict[str, Dim] = dict.fromkeys(tested, 0)
    index, limit = (substitute_dim(side, first) for side in sides)
    return symbolic.proves_less(index, limit)


@final
@record(frozen=False)
class _Known:
    """What is asked of the kernel around a guard, once: code that is written out stores to many elements of one buffer."""

    kernel: ir.Kernel
    guard: ir.If
    _private: dict[tuple[str, ir.Buffer], bool] = field(default_factory=dict)
    _reads: dict[
        ir.Buffer, list[tuple[tuple[ir.Statement, ...], ir.Statement, ir.Load]]
    ] = field(default_factory=dict)

    def is_private(self, loop: ir.For, buffer: ir.Buffer) -> bool:
        """Whether every iteration of a loop has a buffer for itself, in what the guard lets through."""
        key = (loop.var.name, buffer)
        if key not in self._private:
            inside = {loop.var.name, *(x.var.name for x in loops(loop.body))}
            self._private[key] = not dependence.live_outside(
                self.kernel.body, loop, buffer
            ) and dependence.is_private(
                _let_through(loop.body, self.guard.condition, inside), buffer
            )
        return self._private[key]

    def reads(
        self, buffer: ir.Buffer
    ) -> list[tuple[tuple[ir.Statement, ...], ir.Statement, ir.Load]]:
        """Every load of a buffer, with its statement and what stands around that."""
        if buffer not in self._reads:
            self._reads[buffer] = [*tree.loads_with_paths(self.kernel.body, buffer)]
        return self._reads[buffer]


def _unobserved(known: _Known, write: Access, condition_loops: Sequence[ir.For]) -> bool:
    """Whether elements written only without the guard reach no statement that runs with it."""
    if write.buffer.space not in ir.LOCAL_SPACES:
        return False
    own = [s for s in condition_loops if tree.reference(s.var) in write.indices]
    if not distinct(write, write, [s.var for s in own]):
        return False
    others = [s for s in condition_loops if not any(s is x for x in own)]
    if not all(known.is_private(s, write.buffer) for s in others):
        return False
    places = {s.var.name: tree.reference(s.var) for s in condition_loops}
    return _Excluded(known).are_unread(write.buffer, write.indices, places)


def _let_through(
    body: Sequence[ir.Statement], condition: ir.Expression, inside: AbstractSet[str]
) -> ir.Body:
    """`body` as iterations that a condition admits run it; other loops `inside` may stand for those it tests."""
    sides = guard_sides(condition)
    found: list[ir.Statement] = []
    for statement in body:
        if sides is None or not isinstance(statement, ir.For | ir.If):
            found.append(statement)
            continue
        within_it = _let_through(statement.body, condition, inside)
        other = guard_sides(statement.condition) if isinstance(statement, ir.If) else None
        if (
            other is not None
            and other[1] == sides[1]
            and _form(other[0], inside) == _form(sides[0], inside)
        ):
            found.extend(within_it)
        else:
            found.append(tree.with_inner(statement, within_it))
    return tuple(found)


def _form(index: Dim, inside: AbstractSet[str]) -> tuple[int, list[tuple[int, str]]]:
    """An index without the names of loops `inside`: what copies of a guard in other variables share."""
    if isinstance(index, int):
        return index, []
    terms: list[tuple[int, str]] = []
    for monomial, factor in index.terms:
        names = (
            f"up to {x.upper}" if isinstance(x, Symbol) and x.name in inside else str(x)
            for x in monomial
        )
        terms.append((factor, " ".join(names)))
    return index.constant, sorted(terms)


@final
@record
class _Excluded:
    """The iterations that a guard keeps out, and what their elements of temporaries reach.

    Attributes:
        known: the guard, and the kernel around it.
        seen: statements that were looked at, with the places of the tested variables in them.
    """

    known: _Known
    seen: set[tuple[int, tuple[Dim, ...]]] = field(default_factory=set)

    def are_unread(
        self, buffer: ir.Buffer, indices: Sequence[Dim], places: Mapping[str, Dim]
    ) -> bool:
        """Whether only excluded iterations see the elements at `indices` of excluded ones.

        `places` says what stands for each tested variable, in `indices` or around what is private to its loop.
        """
        return all(
            self._is_guarded(path, indices, places, read)
            or self._stays_apart(path, statement, indices, places, read)
            for path, statement, read in self.known.reads(buffer)
        )

    def _is_guarded(
        self,
        path: Sequence[ir.Statement],
        indices: Sequence[Dim],
        places: Mapping[str, Dim],
        read: ir.Load,
    ) -> bool:
        """Whether the same guard stands around a read, in the variables that stand there."""
        if read.lanes != 1:
            return False
        tested = symbolic.names_in(places.values())
        renamed: dict[str, Dim] = {}
        for x, y in zip(read.indices, indices, strict=True):
            if tested.isdisjoint(symbolic.names_in((y,))):
                continue
            symbol = as_symbol(x)
            if symbol is not None:
                renamed[symbol.name] = y
            elif x != y:
                return False
        here = substitute_expression(self.known.guard.condition, places)
        wanted = expression_text(here)
        return any(
            isinstance(s, ir.If)
            and renamed.keys() <= {x.name for x in expression_symbols(s.condition)}
            and expression_text(substitute_expression(s.condition, renamed)) == wanted
            for s in path
        )

    def _stays_apart(
        self,
        path: Sequence[ir.Statement],
        statement: ir.Statement,
        indices: Sequence[Dim],
        places: Mapping[str, Dim],
        read: ir.Load,
    ) -> bool:
        """Whether a read without the guard only makes elements that are excluded, too, and unread."""
        if (
            not isinstance(statement, ir.Store)
            or statement.buffer.space not in ir.LOCAL_SPACES
        ):
            return False
        if read.lanes != 1 or statement.value.lanes != 1 or _is_indirect(statement):
            return False
        here: dict[str, Dim] = {}
        for name, place in places.items():
            found = _place_read(place, indices, read.indices)
            if found is None:
                return False
            if found not in statement.indices and not self._has_for_itself(
                path, found, statement.buffer
            ):
                return False
            here[name] = found
        key = (id(statement), tuple(here.values()))
        if key in self.seen:
            return True
        self.seen.add(key)
        return self.are_unread(statement.buffer, statement.indices, here)

    def _has_for_itself(
        self, path: Sequence[ir.Statement], place: Dim, buffer: ir.Buffer
    ) -> bool:
        """Whether `place` is the variable of a loop around whose iterations each have the buffer."""
        around = [
            s for s in path if isinstance(s, ir.For) and tree.reference(s.var) == place
        ]
        return any(self.known.is_private(loop, buffer) for loop in around)


def _place_read(place: Dim, written: Sequence[Dim], read: Sequence[Dim]) -> Dim | None:
    """What stands in a read for a variable of the write; None if that is no single index."""
    if place not in written:
        # What has no index for it is private to the loop, and read in the same iteration.
        return place
    found = [x for x, y in zip(read, written, strict=True) if y == place]
    return found[0] if len(found) == 1 else None


def _is_indirect(store: ir.Store) -> bool:
    """Whether memory decides where a statement reads or writes, or whether it does."""
    if store.mask is not None:
        return True
    found = loads((store,))
    places = [*store.indices, *(index for load in found for index in load.indices)]
    return any(load.mask is not None for load in found) or any(
        not isinstance(index, int) and index.opaques for index in places
    )


@primitive
def sink_guards(kernel: ir.Kernel, loop: str) -> ir.Kernel:
    """Move guards inside the loops that are perfectly nested in them.

    rewrite:
        if c: for k: S(k)
        ->
        for k: if c: S(k)

    Only guards inside `loop` move, and only into loops that do not change what they test.
    """
    outer = tree.find(kernel, loop)

    def sink(statement: ir.Statement) -> ir.Statement:
        if not isinstance(statement, ir.If):
            return statement
        inner = only_statement(statement.body)
        if not isinstance(inner, ir.For):
            return statement
        if loads_below(statement.condition):
            return statement
        moved = sink(ir.If(statement.condition, inner.body))
        return tree.with_inner(inner, (moved,))

    return tree.rewrite(kernel, outer, map_body((outer,), statement=sink))


@primitive
def settle_tests(kernel: ir.Kernel, loop: str) -> ir.Kernel:
    """Decide the tests inside a loop that guards around it have decided, or how far loops go.

    Tests compare numbers made of loop variables and sizes; those that nothing decides stay.

    rewrite:
        if n >= 8: for i: y[i] = a[i] if n >= 4 else b[i]
        ->
        if n >= 8: for i: y[i] = a[i]
    """
    outer = tree.find(kernel, loop)
    facts = tree.facts_at(kernel, outer)
    around = (*tree.enclosing_loops(kernel, outer), outer)
    return tree.rewrite(kernel, outer, settled((outer,), facts, around))


def settled(
    body: Sequence[ir.Statement],
    facts: Sequence[Fact],
    around: Sequence[ir.For],
    dims: Mapping[str, Dim] | None = None,
) -> ir.Body:
    """`body`, with symbols replaced, without the tests that `facts` decide, or how far the loops `around` it go."""
    said = differences(facts)

    def decided(value: ir.Expression) -> ir.Expression:
        if isinstance(value, ir.Compare):
            known = _decided(value, said, around)
            return _apart(value) if known is None else E.const(known, dtypes.bool_)
        return without_decided(value)

    def opened(statement: ir.Statement) -> ir.Statement | ir.Body:
        if isinstance(statement, ir.If) and isinstance(statement.condition, ir.Const):
            return statement.body if statement.condition.value else ()
        return statement

    return Rewriter(dims=dims, expression=decided, statement=opened).body(body)


def _apart(test: ir.Compare) -> ir.Expression:
    """A comparison of indices without what both sides have in common, where nothing of it is left: it may be the same in every call."""
    left, right = index_sides(test) or (0, 0)
    common = symbolic.names_in((left,)) & symbolic.names_in((right,))
    if not common or not common.isdisjoint(symbolic.names_in((left - right,))):
        return test
    return E.compare(test.op, E.index(left - right), E.index(0))


def without_decided(value: ir.Expression) -> ir.Expression:
    """What is left of a value whose tests may be decided."""
    if isinstance(value, ir.Binary) and value.op == "and":
        return E.and_(value.left, value.right)
    if isinstance(value, ir.Select):
        return E.select(value.condition, value.if_true, value.if_false)
    if isinstance(value, ir.Load) and isinstance(value.mask, ir.Const) and value.mask.value:
        return replace(value, mask=None)
    return value


def _decided(
    test: ir.Compare, facts: Sequence[Dim], around: Sequence[ir.For]
) -> bool | None:
    """What a comparison of indices comes to in these loops, where `facts` are at most 0; None where they do not tell."""
    sides = index_sides(test)
    if sides is None:
        return None
    for op, known in ((test.op, True), (_OPPOSITE.get(test.op, ""), False)):
        said = facts_of(op, *sides)
        if said and all(_follows(each, facts, around) for each in said):
            return known
    return None


_OPPOSITE: Final = {"le": "gt", "gt": "le", "lt": "ge", "ge": "lt"}


def _follows(wanted: Fact, facts: Sequence[Dim], around: Sequence[ir.For]) -> bool:
    """Whether one of `facts`, or where loops end, says at least as much as `wanted`."""
    behind = wanted[0] - wanted[1]
    return is_at_most_zero(behind, facts) or is_at_most_zero(at_last(behind, around))
