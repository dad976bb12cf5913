"""What every front end hands to the pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, final

from tilewright.compiler.frontends.kit.output_checks import Check
from tilewright.compiler.graph.ir import Graph


@final
class ModelGraph(NamedTuple):
    """A foreign model as a graph.

    Attributes:
        graph: in ops of ours.
        files: those that the model lies in, which nobody may write over.
        checks: what the outputs must be to each other, where the model checks itself.
    """

    graph: Graph
    files: tuple[Path, ...] = ()
    checks: tuple[Check, ...] = ()
