"""Names while one ONNX graph or function body is imported.

A scope of a subgraph sees the names around it; one of a function sees only its inputs.  Made and
used by the importer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar, final

from onnx import AttributeProto, NodeProto

from tilewright.base.errors import ModelError
from tilewright.base.record import field, record
from tilewright.compiler.frontends.onnx.attributes import text_of
from tilewright.compiler.frontends.onnx.values import Operand

T = TypeVar("T")


def by_name(pairs: Iterable[tuple[str, T]], kind: str) -> dict[str, T]:
    """What each name stands for.  Raises: ModelError for a name that stands for two."""
    found: dict[str, T] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            raise ModelError(f"{kind} '{name}' is there twice")
    return found


@final
@record(frozen=False)
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

    def bind(self, names: Sequence[str], given: Sequence[Operand | None]) -> None:
        """From here on names stand for operands, those that are left out for nothing.  Raises: ModelError for a name that is there twice."""
        for name, held in zip(names, given, strict=False):
            if held is None or not name:
                continue
            if name in self.names:
                raise ModelError(f"input '{name}' is there twice")
            self.names[name] = held

    def lookup(self, name: str) -> Operand | None:
        """What `name` stands for, looking outwards."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def attributes_of(self, node: NodeProto) -> dict[str, AttributeProto]:
        """The attributes of `node`, references to those of the function replaced.  Raises: ModelError for one that is there twice."""
        found: dict[str, AttributeProto] = {}
        for attribute in node.attribute:
            name, reference = text_of(attribute.name), text_of(attribute.ref_attr_name)
            if name in found:
                raise ModelError(f"attribute '{name}' is there twice")
            if not reference:
                found[name] = attribute
            elif reference in self.attributes:
                found[name] = self.attributes[reference]
        return found

    def inside(self) -> Scope:
        """A scope for a subgraph."""
        return Scope(self.opsets, self, self.attributes, self.prefix, self.depth + 1)
