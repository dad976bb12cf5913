"""Composites that are operations of a dialect which we have, under its name.

What they are called after is imported instead of the function of their decomposition.  Called by the importer.

Source: StableHLO specification, "composite"; CHLO, whose operations JAX writes as composites.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import tilewright.compiler.frontends.stablehlo.table as table
from tilewright.compiler.frontends.stablehlo.row import Row
from tilewright.compiler.frontends.stablehlo.tree import Attribute, Operation

_ATTRIBUTES: Final = {"chlo.top_k": frozenset({"k", "largest"})}


def as_operation(operation: Operation) -> tuple[Row, Operation] | None:
    """The row for what a composite is called after, and the operation that it is; None: its decomposition says all."""
    if operation.name != "stablehlo.composite":
        return None
    name, more = (operation.attributes.get(n) for n in ("name", "composite_attributes"))
    if not isinstance(name, str):
        return None
    given: dict[str, Attribute] = {}
    if isinstance(more, Mapping):
        given = {key: value for key, value in more.items() if isinstance(key, str)}
    found = table.find(name)
    known = _ATTRIBUTES.get(name)
    if found is None or not given.keys() <= (known or frozenset()):
        return None
    if known is None and not found.pointwise:
        return None
    return found, replace(operation, name=name, attributes=given)
