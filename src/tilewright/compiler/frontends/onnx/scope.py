"""Names while one ONNX graph or function body is imported.

A scope of a subgraph sees the names around it; one of a function sees only its inputs.  Made and
used by the importer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import final

from onnx import AttributeProto

from tilewright.compiler.frontends.onnx.values import Operand


@final
@dataclass(slots=True)
class Scope:
    """The values that names refer to here.

    `attributes` are those of the surrounding function's call; `prefix` names its node.
    """

    opsets: Mapping[str, int]
    parent: Scope | None = None
    attributes: Mapping[str, AttributeProto] = field(
        default_factory=dict[str, AttributeProto]
    )
    prefix: str = ""
    depth: int = 0
    names: dict[str, Operand] = field(default_factory=dict[str, Operand])

    def lookup(self, name: str) -> Operand | None:
        """What `name` stands for, looking outwards."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def inside(self) -> Scope:
        """A scope for a subgraph."""
        return Scope(self.opsets, self, self.attributes, self.prefix, self.depth + 1)
