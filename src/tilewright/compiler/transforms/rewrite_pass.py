"""Passes that are tables of rewrites over the ops of the catalogue.

What a rewrite is, and how a table is applied, stands in `passes.rewriting`, which knows no op.  Called by the pass
manager; most passes of the room are of this kind.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.ops import catalogue
from tilewright.compiler.passes import (
    GraphPass,
    PassContext,
    PassResult,
    Rewrites,
    apply_rewrites,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritePass(GraphPass, abc.ABC):
    """A pass that is a table of rewrites by op name; the key `*` holds for every op.

    Rewrites make code faster, so it runs from level 1 on unless it says otherwise.
    """

    level: ClassVar[int] = 1

    @abc.abstractmethod
    def rewrites(self) -> Rewrites:
        """The rewrites, tried in order for each node of the op."""

    def run(self, graph: Graph, _: PassContext, /) -> PassResult:
        """Apply the rewrites until none matches."""
        return apply_rewrites(graph, self.rewrites(), catalogue.schema)
