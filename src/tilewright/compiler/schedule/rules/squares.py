"""Square blocks, which are transposed in registers: their rows are written out.

What becomes a square is chosen by `pointwise`, which calls this once loops are vectors; the shuffles are made by
`lowering/transpose`.
"""

from __future__ import annotations

from tilewright.base import symbolic
from tilewright.compiler.kernel.ir import For, Index
from tilewright.compiler.kernel.rewrite import loads, loops, subexpressions
from tilewright.compiler.schedule import primitives as do
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import find


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
