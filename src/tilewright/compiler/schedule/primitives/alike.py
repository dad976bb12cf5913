"""Primitives on iterations that are alike: split_alike.

Loops around a loop may decide how often it runs, and how often loops inside of it do, as a causal mask does: its first
iterations run in full whatever the others decide.  Apart from the rest they can be shared.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, Expr, Operation, Symbol
from tilewright.compiler.analysis import dependence
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.rewrite import loops, map_body
from tilewright.compiler.schedule import tree
from tilewright.compiler.schedule.handles import Piece
from tilewright.compiler.schedule.primitives.tails import in_cases, run_of
from tilewright.compiler.schedule.trace import primitive


@primitive
def split_alike(
    kernel: ir.Kernel, loop: str, around: str
) -> tuple[ir.Kernel, tuple[Piece, ...]]:
    """Cut off the first iterations of a loop that are there, and whose loops run in full, in all iterations of those around it.

    rewrite:
        for t in 4: for b in (8 * t + 16) // 8: for j in min(8, 8 * t + 9 - 8 * b): S(j)
        ->
        for t in 4:
            for b in 1: for j in 8: S(j)
            for b_2 in (8 * t + 16) // 8 - 1: for j_2 in min(8, 8 * t + 1 - 8 * b_2): S(j_2)

    `around` is the outermost loop whose iterations count.  Loops inside that run no time then are left out.

    Raises: ScheduleError where no loop from `around` on decides, where nothing says that what they decide only grows with
    them, where no iteration is alike, and for a loop of workgroups.
    """
    old, outer = tree.find_inside(kernel, loop), tree.find(kernel, around)
    path = tree.path_to((outer,), old)
    if path is None:
        raise ScheduleError(f"'{loop}' is not in '{around}'")
    dependence.check_fixed((old,), old.body)
    names = frozenset(x.var.name for x in path if isinstance(x, ir.For))
    inner = loops(old.body)
    extents = [x.extent for x in inner]
    if names.isdisjoint(symbolic.names_in((old.extent, *extents))):
        raise ScheduleError(f"'{loop}' is the same in all iterations of '{around}'")
    alike = _Alike(loop, names, frozenset(x.var.name for x in inner))
    count = alike.count(old.extent, extents)
    if count == 0:
        raise ScheduleError(f"no iteration of '{loop}' is alike in all of '{around}'")
    runs = (
        run_of(old, count, alike.settled_body(old.body)),
        run_of(old, old.extent - count, old.body, count),
    )
    return in_cases(kernel, old, ((None, (run,)) for run in runs))


@record
class _Limit:
    """Iterations that are alike: so many as `least // step`, where that is not below 0."""

    least: Dim
    step: int


@record
class _Alike:
    """What holds in the first iterations of `loop`, whatever loops called `names` around it are at; those in it are `inner`."""

    loop: str
    names: AbstractSet[str]
    inner: AbstractSet[str]

    def count(self, extent: Dim, inner: Sequence[Dim]) -> Dim:
        """How many iterations are alike.  Raises: ScheduleError where nothing says so."""
        limits = [_Limit(*_quotient(self._least(extent)))]
        limits += [x for dim in inner for x in self._limits(dim)]
        count: Dim | None = None
        for step in sorted({x.step for x in limits}):
            alike = [x.least for x in limits if x.step == step]
            needed = [x for x in alike if not _is_above(x, alike)]
            least = functools.reduce(symbolic.minimum, needed)
            here = symbolic.floordiv(symbolic.maximum(0, least), step)
            count = here if count is None else symbolic.minimum(count, here)
        assert count is not None, "the loop itself has an end"
        return count

    def _limits(self, dim: Dim) -> Iterator[_Limit]:
        """Up to where every least of a number and of what the loops decide is the number."""
        if symbolic.opaques(dim):
            return
        for operation in _operations(dim):
            settled = self._settled_operation(operation)
            if settled is not None:
                number, least, step = settled
                yield _Limit(least - number + step, step)

    def _settled_operation(self, operation: Operation) -> tuple[int, Dim, int] | None:
        """Of `min(number, rest - step * loop)`: the number, the least of the rest, the step."""
        if operation.op != "min":
            return None
        sides = [self.settled(x) for x in (operation.left, operation.right)]
        for number, other in (sides, reversed(sides)):
            split = symbolic.linear(other, self.loop)
            if not isinstance(number, int) or split is None:
                continue
            step, rest = split
            is_fixed = self.inner.isdisjoint(symbolic.names_in((rest,)))
            if isinstance(step, int) and step < 0 and is_fixed and _grows(rest, self.names):
                return number, self._at_first(rest), -step
        return None

    def settled(self, dim: Dim) -> Dim:
        """A size as it is in iterations that are alike."""
        return dim if symbolic.opaques(dim) else symbolic.map_atoms(dim, self._number)

    def _number(self, atom: symbolic.Atom) -> int | None:
        """What an atom is in them, if that is a number."""
        found = self._settled_operation(atom) if isinstance(atom, Operation) else None
        return None if found is None else found[0]

    def settled_body(self, body: ir.Body) -> ir.Body:
        """Code in iterations that are alike."""

        def settled(statement: ir.Statement) -> ir.Statement | ir.Body:
            if not isinstance(statement, ir.For):
                return statement
            extent = self.settled(statement.extent)
            return () if extent == 0 else replace(statement, extent=extent)

        return map_body(body, statement=settled)

    def _least(self, value: Dim) -> Dim:
        if not _grows(value, self.names):
            raise ScheduleError(
                f"nothing says that '{value}' grows with {sorted(self.names)}"
            )
        return self._at_first(value)

    def _at_first(self, value: Dim) -> Dim:
        return symbolic.substitute(value, dict.fromkeys(self.names, 0))


def _operations(dim: Dim) -> Iterable[Operation]:
    return (x for x in symbolic.atoms(dim) if isinstance(x, Operation))


def _quotient(value: Dim) -> tuple[Dim, int]:
    """A size as dividend and divisor."""
    atom = symbolic.only_atom(value)
    if (
        isinstance(atom, Operation)
        and atom.op == "floordiv"
        and isinstance(atom.right, int)
    ):
        return atom.left, atom.right
    return value, 1


def _is_above(value: Dim, others: Iterable[Dim]) -> bool:
    """Whether another one is surely less."""
    return any(symbolic.proves_less(x, value) for x in others)


def _grows(value: Dim, names: AbstractSet[str]) -> bool:
    """Whether a size never falls where one of some variables, which are in no memory that it reads, rises."""
    if isinstance(value, int):
        return True
    if value.opaques:
        return False
    return all(
        _has_none(monomial, names)
        or (factor > 0 and len(monomial) == 1 and _atom_grows(monomial[0], names))
        for monomial, factor in value.terms
    )


def _has_none(monomial: symbolic.Monomial, names: AbstractSet[str]) -> bool:
    return all(names.isdisjoint(Expr.of_atom(atom).names) for atom in monomial)


def _atom_grows(atom: symbolic.Atom, names: AbstractSet[str]) -> bool:
    if isinstance(atom, Symbol):
        return True
    if not isinstance(atom, Operation):
        return False
    if atom.op == "floordiv":
        return isinstance(atom.right, int) and atom.right > 0 and _grows(atom.left, names)
    return atom.op in ("min", "max") and all(_grows(x, names) for x in atom.parts())
