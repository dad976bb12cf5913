"""Concatenations of more operands than a kernel may have become trees of smaller ones.

Steps of a recurrence and experts of a mixture put hundreds of results together.  A kernel binds
at most so many buffers as the executable format has room for.
"""

from __future__ import annotations

from typing import ClassVar, Final, final

from tilewright.base.options import count_option
from tilewright.base.record import record
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.passes import Emitter, Rewrites, need
from tilewright.compiler.transforms.rewrite_pass import RewritePass
from tilewright.formats.executable import MAX_BINDINGS

MOST_OPERANDS: Final = MAX_BINDINGS - 16
"""What a kernel can bind beside results, findings and scratch."""


@final
@record(kw_only=True)
class SplitConcat(RewritePass):
    """Write a long `concat` as a `concat` of shorter ones.

    Requires: simplified, and no simplification after it, which would join them again.
    Ensures: no `concat` has more than `most_operands` operands.
    """

    level: ClassVar[int] = 0
    required_because: ClassVar[str] = "a kernel would have more operands than one can bind"
    most_operands: int = 32

    def __post_init__(self) -> None:
        """Raises: UserError for more operands than a kernel can bind."""
        most, name = self.most_operands, "split-concat.most_operands"
        count_option(name, most, least=2, most=MOST_OPERANDS)

    def rewrites(self) -> Rewrites:
        """One rewrite."""
        return {"concat": (self.split,)}

    def split(self, node: Node, emit: Emitter) -> Value | None:
        """concat(a, b, c, d) is concat(concat(a, b), concat(c, d))."""
        parts, axis = node.present_operands, node.number("axis")
        need(len(parts) > self.most_operands)
        while len(parts) > self.most_operands:
            count = -(-len(parts) // self.most_operands)
            size = -(-len(parts) // max(2, min(count, self.most_operands)))
            size = min(size, self.most_operands)
            runs = [parts[at : at + size] for at in range(0, len(parts), size)]
            parts = [emit.concat(run, axis) for run in runs]
        return emit.concat(parts, axis)
