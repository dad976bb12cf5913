"""The primitive `interior`: code of its own for the runs of a loop in which every tested place is inside.

Windows at the border of an image test every place that they read; the others, nearly all of them, need not.
Copies code, as the primitives on tails do, and decides the tests in one of the copies.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Atom, Dim, Expr, Operation
from tilewright.compiler.analysis import dependence
from tilewright.compiler.analysis.accesses import facts_where
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.expressions import Expressions
from tilewright.compiler.kernel.rewrite import (
    expressions,
    loads,
    loops,
    map_body,
    subexpressions,
)
from tilewright.compiler.schedule.handles import WHOLE, Piece, copy_piece
from tilewright.compiler.schedule.primitives.guards import without_decided
from tilewright.compiler.schedule.primitives.tails import copy_of
from tilewright.compiler.schedule.trace import primitive
from tilewright.compiler.schedule.tree import find_inside, nested, rewrite

E = Expressions

_Extents = Mapping[str, int | None]
"""How often each loop runs, where that is known."""


@primitive
def interior(kernel: ir.Kernel, loop: str) -> tuple[ir.Kernel, tuple[Piece, ...]]:
    """Give the runs of a loop in which every test of a place holds their own code, without the tests.

    rewrite:
        for i in 4: t[i] = a[r + i - 1] where r + i - 1 >= 0
        ->
        if r - 1 >= 0: for i in 4: t[i] = a[r + i - 1]
        if not (r - 1 >= 0): for i_2 in 4: t[i_2] = a[r + i_2 - 1] where r + i_2 - 1 >= 0

    What decides whether elements of buffers are read counts as a test, as far as it compares numbers made of loop
    variables and sizes.  With them, the least and largest values of numbers are decided where they are numbers
    that do not change in the loop (of how much of a window is inside, all of it).
    Raises: ScheduleError if nothing is tested, or if no run passes; for a loop of workgroups.
    """
    old = find_inside(kernel, loop)
    dependence.check_fixed((old,), old.body)
    extents = _extents(old)
    tests = frozenset(_tests(old, extents))
    if not tests:
        raise ScheduleError(f"'{loop}' tests no place")
    rooms = tests.union(_of_numbers(old, extents))
    asked = [E.compare("ge", E.index(room), E.index(0)) for room in _strictest(rooms)]
    if any(isinstance(c, ir.Const) and not c.value for c in asked):
        raise ScheduleError(f"no run of '{loop}' is all inside")
    inside: ir.Body = _without_tests(old, extents, tests)
    left = [c for c in asked if not isinstance(c, ir.Const)]
    if not left:
        return rewrite(kernel, old, inside), (WHOLE,)
    # One in the other: each is a fact inside.
    inside = nested((ir.If(condition, ()) for condition in left), inside)
    every = functools.reduce(E.and_, left)
    kernel, rest = copy_of(kernel, (old,), old)
    code = (*inside, ir.If(E.not_(every), rest))
    return rewrite(kernel, old, code), (WHOLE, copy_piece((old,), rest))


def _strictest(rooms: Iterable[Dim]) -> Iterator[Dim]:
    """Of numbers that differ by constants the least, which says whether all are at least 0."""
    found: dict[Dim, int] = {}
    for room in rooms:
        constant = room if isinstance(room, int) else room.constant
        rest = room - constant
        found[rest] = min(constant, found.get(rest, constant))
    for rest in sorted(found, key=str):
        yield rest + found[rest]


def _extents(old: ir.For) -> _Extents:
    around = (old, *loops(old.body))
    return {x.var.name: x.extent if isinstance(x.extent, int) else None for x in around}


def _tests(old: ir.For, extents: _Extents) -> Iterator[Dim]:
    """What is at least 0 where each comparison that decides whether places are read holds throughout."""
    for load in loads(old.body):
        if load.mask is None:
            continue
        for part in subexpressions(load.mask):
            room = _throughout(part, extents)
            if room is not None:
                yield room


def _throughout(test: ir.Expression, extents: _Extents) -> Dim | None:
    """What is at least 0 where a comparison holds in all iterations; None where that cannot be said beforehand."""
    said = facts_where(test) if isinstance(test, ir.Compare) else ()
    return _least(said[0][1] - said[0][0], extents) if len(said) == 1 else None


def _least(value: Dim, extents: _Extents) -> Dim | None:
    """The least of the values in all iterations of the loops."""
    if isinstance(value, Expr) and value.opaques:
        return None
    for name, extent in extents.items():
        if isinstance(value, int) or name not in value.names:
            continue
        linear = symbolic.linear(value, name)
        if extent is None or linear is None:
            return None
        factor, rest = linear
        if not isinstance(factor, int):
            return None
        value = rest + min(factor, 0) * max(extent - 1, 0)
    return value


def _of_numbers(old: ir.For, extents: _Extents) -> Iterator[Dim]:
    """When the extremes in numbers are constant throughout."""
    for value in expressions(old.body):
        if isinstance(value, ir.Index):
            for atom in symbolic.atoms(value.dim):
                found = _constant_arm(atom, extents)
                if found is not None:
                    yield found[1]


def _constant_arm(atom: Atom, extents: _Extents) -> tuple[int, Dim] | None:
    """The constant side of an extreme whose other side changes in the loops, and what is at least 0 where it is that."""
    if not isinstance(atom, Operation) or atom.op not in ("min", "max"):
        return None
    sides = (atom.left, atom.right)
    constant = next((s for s in sides if isinstance(s, int)), None)
    other = next((s for s in sides if not isinstance(s, int)), None)
    if constant is None or other is None or other.names.isdisjoint(extents):
        return None
    room = constant - other if atom.op == "max" else other - constant
    least = _least(room, extents)
    return None if least is None else (constant, least)


def _settled(value: Dim, extents: _Extents) -> Dim:
    """A number with what is constant in it as constants."""

    def constant(atom: Atom) -> int | None:
        found = _constant_arm(atom, extents)
        return None if found is None else found[0]

    return symbolic.map_atoms(value, constant)


def _without_tests(old: ir.For, extents: _Extents, tests: frozenset[Dim]) -> ir.Body:
    """The loop with all tests held and the numbers constant."""

    def held(value: ir.Expression) -> ir.Expression:
        if isinstance(value, ir.Compare) and _throughout(value, extents) in tests:
            return E.const(True, dtypes.bool_)
        if isinstance(value, ir.Index) and value.lanes == 1:
            return E.index(_settled(value.dim, extents), value.dtype)
        return without_decided(value)

    return map_body((old,), expression=held)
