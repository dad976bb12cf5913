"""Square blocks, which are transposed in registers: their rows are written out.

What becomes a square is chosen by `pointwise`, which calls this once loops are vectors; the shuffles are made by
`lowering/transpose`.
"""

from __future__ import annotations

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim
from tilewright.compiler.analysis.accesses import facts_where
from tilewright.compiler.kernel.ir import Compare, For, Index
from tilewright.compiler.kernel.rewrite import expressions, loads, loops, subexpressions
from tilewright.compiler.schedule import primitives as do
from tilewright.compiler.schedule.handles import WHOLE, Piece
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import enclosing_loops, find


def write_out_blocks(s: Schedule, row: str, lanes: int) -> None:
    """Write out the rows of whole square blocks, which are then transposed in registers.

    Where only a call knows how many places are there, as in the last panel of an open number of columns, blocks that test
    none have code of their own: what has a mask is no row of a block.
    """
    for part in s.parts(do.specialize, row):
        block = find(s.kernel, part[row])
        if block.extent != lanes:
            continue
        if _is_tested_by_open_size(s, block):
            s.attempt(do.interior, block.var.name)
        s.apply(do.unroll, block.var.name)


def _is_tested_by_open_size(s: Schedule, block: For) -> bool:
    """Whether a size that only a call knows decides whether a place is read."""
    counted = {loop.var.name for loop in loops(s.kernel.body)}
    masks = (v.mask for v in loads(block.body) if v.mask is not None)
    numbers = [p.dim for m in masks for p in subexpressions(m) if isinstance(p, Index)]
    return not symbolic.names_in(numbers) <= counted


def tiles_apart(s: Schedule, row: str) -> tuple[Piece, ...]:
    """The first tiles around `row`, in which tests tell elements apart, as those of a joined tensor, and the others, which test nothing."""
    for loop in enclosing_loops(s.kernel, find(s.kernel, row)):
        if first := _decided_from(loop):
            parts = s.parts(do.partition, loop.var.name, first)
            s.apply(do.settle_tests, parts[-1][loop.var.name])
            return parts
    return (WHOLE,)


def _decided_from(loop: For) -> int:
    """The iteration in the first half of a loop from which on tests that it changes are decided; 0 where there are none."""
    most = loop.extent // 2 if isinstance(loop.extent, int) else 0
    tests = [x for x in expressions(loop.body) if most and isinstance(x, Compare)]
    facts = (fact for test in tests for fact in facts_where(test))
    found = (_decided_at(high - low, loop.var.name) for low, high in facts)
    return max((n for n in found if 0 < n <= most), default=0)


def _decided_at(value: Dim, name: str) -> int:
    """The iteration of a loop from which on a value is at least 0 or below it whatever other loops do; 0 where that is not known."""
    factor, rest = symbolic.linear(value, name) or (0, 0)
    if not isinstance(factor, int) or factor == 0:
        return 0
    least, most = symbolic.bounds(rest)
    if factor > 0:
        return 0 if least is None else -(least // factor)
    return 0 if most is None else most // -factor + 1
