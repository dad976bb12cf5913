"""What every front end hands to the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, final

from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.schema import Array
from tilewright.formats.output_checks import Check


class Calling(Protocol):
    """How a model is called that takes and gives more than arrays one after the other."""

    def __call__(
        self,
        run: Callable[[Sequence[Array]], Sequence[Array]],
        arguments: Sequence[object],
        named: Mapping[str, object],
    ) -> object:
        """Call `run` with arrays for what the user gives; make of its results what the user gets."""
        ...


@final
class ModelGraph(NamedTuple):
    """A foreign model as a graph.

    Attributes:
        graph: in ops of ours.
        files: those that the model lies in, which nobody may write over.
        checks: what the outputs must be to each other, where the model checks itself.
        calling: how it is called; None: with arrays.
    """

    graph: Graph
    files: tuple[Path, ...] = ()
    checks: tuple[Check, ...] = ()
    calling: Calling | None = None
