"""Decide conditions from the loops and conditions around them.

    for k in range(n // 4):                      for k in range(n // 4):
        if 4*k + 3 < n: …                   ->       …

Bounds of symbols are numbers; here the extents are expressions.  A condition is `d <= 0` of some
index `d`: loop variables are replaced by their last value where `d` grows with them, and by 0 where it
falls, and what enclosing conditions say is subtracted.  Requires: bounded symbols (`flatten`).  Called
by `machine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from tilewright.base import dtypes, symbolic
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.analysis.accesses import facts_where
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.fields import with_inner
from tilewright.compiler.kernel.rewrite import buffers_written, loads, payloads, with_body


@final
@record
class _Known:
    """What holds at a statement: loops around it, outermost first, and indices `<= 0`."""

    loops: tuple[tuple[str, Dim], ...] = ()
    facts: tuple[Dim, ...] = ()


def decide(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel without conditions that always or never hold."""
    return with_body(kernel, _body(kernel.body, _Known()))


def _body(body: Sequence[ir.Statement], known: _Known) -> ir.Body:
    return tuple(new for old in body for new in _statement(old, known))


def _statement(statement: ir.Statement, known: _Known) -> Sequence[ir.Statement]:
    if isinstance(statement, ir.For):
        return (_loop(statement, known),)
    if not isinstance(statement, ir.If):
        return (statement,)
    condition = _condition(statement.condition, known)
    if isinstance(condition, ir.Const):
        return _body(statement.body, known) if condition.value else ()
    found = tuple(fact for fact in _facts(condition) if _is_fixed(fact, statement.body))
    inside = _Known(known.loops, (*known.facts, *found))
    return (ir.If(condition, _body(statement.body, inside)),)


def _loop(loop: ir.For, known: _Known) -> ir.Statement:
    runs = ((loop.var.name, loop.extent),) if _is_fixed(loop.extent, loop.body) else ()
    inside = _Known((*known.loops, *runs), known.facts)
    return with_inner(loop, _body(loop.body, inside))


def _is_fixed(dim: Dim, body: Sequence[ir.Statement]) -> bool:
    """Whether `dim` is the same all through `body`: it may stand in memory."""
    parts = tuple(payloads(dim))
    if not parts:
        return True
    written = buffers_written(body)
    return not any(load.buffer in written for part in parts for load in loads(part))


# --- conditions --------------------------------------------------------------------------------


def _condition(value: ir.Expression, known: _Known) -> ir.Expression:
    """`value`, with the parts that are decided left out."""
    if isinstance(value, ir.Binary) and value.op == "and" and value.dtype.is_bool:
        left, right = _condition(value.left, known), _condition(value.right, known)
        for one, other in ((left, right), (right, left)):
            if isinstance(one, ir.Const):
                return other if one.value else one
        if left is value.left and right is value.right:
            return value
        return ir.Binary("and", left, right, value.dtype, value.lanes)
    if isinstance(value, ir.Compare):
        difference = _difference(value)
        if difference is not None:
            holds = _surely(difference, known)
            if holds or _surely(1 - difference, known):
                return ir.Const(holds, dtypes.bool_)
    return value


def _facts(value: ir.Expression) -> tuple[Dim, ...]:
    """The indices that are at most 0 where `value` holds."""
    if isinstance(value, ir.Binary) and value.op == "and":
        return (*_facts(value.left), *_facts(value.right))
    difference = _difference(value) if isinstance(value, ir.Compare) else None
    return () if difference is None else (difference,)


def _difference(value: ir.Compare) -> Dim | None:
    """The index `d` with which the comparison says `d <= 0`."""
    said = facts_where(value) if value.left.dtype is dtypes.i64 else ()
    return said[0][0] - said[0][1] if len(said) == 1 else None


def _surely(difference: Dim, known: _Known) -> bool:
    """Whether `difference <= 0` follows from what is known."""
    if _at_most_zero(difference, known.facts):
        return True
    for name, extent in reversed(known.loops):
        linear = symbolic.linear(difference, name)
        if linear is None or not isinstance(linear[0], int):
            continue
        factor, rest = linear
        if isinstance(factor, int) and factor:
            difference = rest + factor * (extent - 1) if factor > 0 else rest
            if _at_most_zero(difference, known.facts):
                return True
    return False


def _at_most_zero(difference: Dim, facts: Sequence[Dim]) -> bool:
    for fact in (0, *facts):
        upper = symbolic.bounds(difference - fact)[1]
        if upper is not None and upper <= 0:
            return True
    return False
