"""Names of values while a region is read: each sees those around it.

Made and used by the parser of operations.
"""

from __future__ import annotations

from typing import final

from tilewright.compiler.frontends.stablehlo.tree import Value


@final
class Scope:
    """Values by name; several results of one operation share a name (`%0#1`)."""

    __slots__ = ("_names", "_parent")

    def __init__(self, parent: Scope | None = None) -> None:
        self._parent: Scope | None = parent
        self._names: dict[str, Value] = {}

    def find(self, name: str) -> Value | None:
        """The value called `name`, looking outwards."""
        scope: Scope | None = self
        while scope is not None:
            found = scope._names.get(name)
            if found is not None:
                return found
            scope = scope._parent
        return None

    def define(self, name: str, value: Value) -> bool:
        """Bind a name.  Returns: whether it was free in this region."""
        if name in self._names:
            return False
        self._names[name] = value
        return True
