"""What became of each node of a foreign model: filled by importers, read by `coverage`."""

from __future__ import annotations

from typing import final

from tilewright.base.record import field, record
from tilewright.compiler.graph.ir import Node


@final
@record(frozen=False)
class Record:
    """What became of one foreign node; the raw material of a coverage report."""

    op_type: str
    domain: str
    node: str
    dtypes: tuple[str, ...] = ()
    dims: tuple[str, ...] = ()
    emitted: list[Node] = field(default_factory=list[Node])
    reasons: list[str] = field(default_factory=list[str])

    @property
    def title(self) -> str:
        """The op type with its domain, as messages show it."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type
