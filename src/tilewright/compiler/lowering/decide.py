"""Decide conditions and masks from the loops and conditions around them.

    for k in range(n // 4):                      for k in range(n // 4):
        if 4*k + 3 < n: …                   ->       …

Bounds of symbols are numbers; here the extents are expressions.  A condition is `d <= 0` of some
index `d`: loop variables are replaced by their last value where `d` grows with them, and by 0 where it
falls, and what enclosing conditions say is subtracted.  What loads test is decided for each step that is written out,
in all lanes.  Requires: bounded symbols (`flatten`).  Called by `machine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, final

from tilewright.base import dtypes, symbolic
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, Expr, Operation
from tilewright.compiler.analysis.accesses import (
    differences,
    facts_where,
    is_at_most_zero,
    is_fixed,
)
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.fields import with_inner
from tilewright.compiler.kernel.lanes import room_of_lanes
from tilewright.compiler.kernel.rewrite import Rewriter, loads, with_body
from tilewright.compiler.lowering.simplify import fold

_EXTREMES: Final = ("min", "max")
_MOST_EXTREMES: Final = 6
"""In a difference: each that is looked at from both sides doubles the questions."""


@final
@record
class _Known:
    """What holds at a statement: loops around it, outermost first, and indices `<= 0`; and whether `masks` are decided."""

    loops: tuple[tuple[str, Dim], ...] = ()
    facts: tuple[Dim, ...] = ()
    masks: bool = False


def decide(kernel: ir.Kernel, *, masks: bool = False) -> ir.Kernel:
    """The kernel without conditions that always or never hold; and without `masks` of loads that always do."""
    return with_body(kernel, _body(kernel.body, _Known(masks=masks)))


def tests_places(body: Sequence[ir.Statement]) -> bool:
    """Whether a load asks where it is before it reads."""
    return any(load.mask is not None for load in loads(body))


def _body(body: Sequence[ir.Statement], known: _Known) -> ir.Body:
    settle = Rewriter(expression=partial(_settled, known))
    return tuple(new for old in body for new in _statement(old, known, settle))


def _statement(
    statement: ir.Statement, known: _Known, settle: Rewriter
) -> Sequence[ir.Statement]:
    if isinstance(statement, ir.For):
        return (_loop(statement, known),)
    if not isinstance(statement, ir.If):
        asks = known.masks and tests_places((statement,))
        return settle.body((statement,)) if asks else (statement,)
    condition = settle.expression(statement.condition)
    if isinstance(condition, ir.Const):
        return _body(statement.body, known) if condition.value else ()
    said = differences(facts_where(condition))
    found = tuple(fact for fact in said if is_fixed(fact, statement.body))
    inside = _Known(known.loops, (*known.facts, *found), known.masks)
    return (ir.If(condition, _body(statement.body, inside)),)


def _loop(loop: ir.For, known: _Known) -> ir.Statement:
    runs = ((loop.var.name, loop.extent),) if is_fixed(loop.extent, loop.body) else ()
    inside = _Known((*known.loops, *runs), known.facts, known.masks)
    return with_inner(loop, _body(loop.body, inside))


# --- conditions --------------------------------------------------------------------------------


def _settled(known: _Known, value: ir.Expression) -> ir.Expression:
    """`value`, with the parts that are decided left out."""
    if isinstance(value, ir.Compare) and value.left.dtype is dtypes.i64:
        # Rarely is nothing of a load there: it is not worth the time to ask for each.
        ways = _differences(value)[: 1 if known.masks else 2]
        for holds, difference in zip((True, False), ways, strict=False):
            if _surely(difference, known):
                return ir.Const(holds, dtypes.bool_, value.lanes)
    return fold(value)


def _differences(value: ir.Compare) -> tuple[Dim, ...]:
    """The indices that are at most 0 where the comparison holds, in all lanes, and where it does not, of one."""
    among = room_of_lanes(value)
    if among is None:
        apart = differences(facts_where(value))
        return (apart[0], 1 - apart[0]) if len(apart) == 1 else ()
    room, stride = among
    least, most = sorted((0, (value.left.lanes - 1) * stride))
    all_hold = {"lt": most + 1 - room, "ge": room - least}
    return (all_hold[value.op],) if value.op in all_hold else ()


def _surely(difference: Dim, known: _Known, extremes: int = _MOST_EXTREMES) -> bool:
    """Whether `difference <= 0` follows from what is known, with so many extremes seen from their sides."""
    if is_at_most_zero(difference, known.facts):
        return True
    last = difference
    for name, extent in reversed(known.loops):
        linear = symbolic.linear(last, name)
        if linear is None or not isinstance(linear[0], int):
            continue
        factor, rest = linear
        if isinstance(factor, int) and factor:
            last = rest + factor * (extent - 1) if factor > 0 else rest
            if is_at_most_zero(last, known.facts):
                return True
    return extremes > 0 and _surely_by_sides(difference, known, extremes)


def _surely_by_sides(difference: Dim, known: _Known, extremes: int) -> bool:
    """The same where the least or the largest of two numbers is part of a difference: from what is known of both, or of one."""
    terms = () if isinstance(difference, int) else difference.terms
    for monomial, factor in terms:
        atom = monomial[0]
        if isinstance(atom, Operation) and atom.op in _EXTREMES and len(monomial) == 1:
            rest = difference - Expr(((monomial, factor),), 0)
            is_one_enough = (atom.op == "min") == (factor > 0)
            ways = (
                _surely(rest + factor * side, known, extremes - 1)
                for side in (atom.left, atom.right)
            )
            return any(ways) if is_one_enough else all(ways)
    return False
