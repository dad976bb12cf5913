"""Identities of attention, as rewrites for `simplify`: what exporters write for masks that hide nothing.

All are exact.
"""

from __future__ import annotations

from typing import Final

from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops.shapes import surely_broadcasts
from tilewright.compiler.passes import Emitter, Rewrites, need
from tilewright.compiler.transforms.matching import maker, splat_of

_BIAS: Final = 3
_MASK: Final = 4


def drop_idle_mask(node: Node, emit: Emitter) -> Value | None:
    """A bias of zeros and a mask that shows everything can go."""
    idle = {
        place
        for place, nothing in ((_BIAS, 0), (_MASK, 1))
        if splat_of(node.optional_operand(place)) == nothing
    }
    need(idle)
    kept = [None if i in idle else value for i, value in enumerate(node.operands)]
    return emit.op(node.op, kept, node.attributes)


def mask_by_itself(node: Node, emit: Emitter) -> Value | None:
    """What a bias or mask repeats is read where it is."""
    operands = list(node.operands)
    for place in (_BIAS, _MASK):
        spread = maker(node.optional_operand(place), "broadcast_to")
        if spread is None:
            continue
        source, wanted = spread.operand(), spread.result.type.shape
        units = (1,) * (len(wanted) - source.type.rank)
        shape = (*units, *source.type.shape)
        # Sizes that only a call compares are compared where they are repeated.
        if surely_broadcasts(shape, wanted):
            operands[place] = emit.reshape(source, shape)
    need(operands != list(node.operands))
    return emit.op(node.op, operands, node.attributes)


REWRITES: Final[Rewrites] = {
    "attention": (drop_idle_mask, mask_by_itself),
}
