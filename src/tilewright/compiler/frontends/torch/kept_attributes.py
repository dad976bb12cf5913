"""Attributes that modules keep what they compute in, as they were before a trace.

What a trace leaves there are tensors without elements, whether it succeeds or fails.  Lists, dictionaries and sets
that attributes hold count as well; objects of other classes do not.  Called by `export` and `differentiated`.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, Final, final

_MAPPINGS: Final = (dict, OrderedDict)
_COLLECTIONS: Final = (list, set)


@contextlib.contextmanager
def kept_attributes(model: Any) -> Generator[None]:
    """After this context, attributes of modules are what they were before it."""
    before = _before(model)
    try:
        yield
    finally:
        _put_back(before)


@contextlib.contextmanager
def unchanged_attributes(model: Any) -> Generator[None]:
    """As `kept_attributes`.  Raises: TypeError where they changed and nothing else failed."""
    before, changed = _before(model), set[str]()
    try:
        yield
    finally:
        changed |= _put_back(before)
    if changed:
        raise TypeError(f"the module changes its attributes: {', '.join(sorted(changed))}")


@final
@dataclass(frozen=True, slots=True)
class _Container:
    """What can change in place, and a copy of what it held.

    Attributes:
        attribute: that it was found in; empty for the attributes of a module.
        changing: a mapping, a list or a set.
        held: the copy.
    """

    attribute: str
    changing: Any
    held: Any

    def put_back(self) -> set[str]:
        """The names of the attributes that had changed.  What is as it was is not touched: other threads may read it."""
        if isinstance(self.changing, dict):
            names = _put_back_entries(self.changing, self.held)
            return {self.attribute} if self.attribute and names else names
        now = list(self.changing)
        if len(now) == len(self.held) and all(
            a is b for a, b in zip(now, self.held, strict=True)
        ):
            return set()
        if isinstance(self.changing, list):
            self.changing[:] = self.held
        else:
            self.changing.clear()
            self.changing.update(self.held)
        return {self.attribute}


def _put_back_entries(changing: dict[Any, Any], held: dict[Any, Any]) -> set[str]:
    fresh = [name for name in changing if name not in held]
    others = [
        n for n, value in held.items() if n not in changing or changing[n] is not value
    ]
    for name in fresh:
        del changing[name]
    for name in others:
        changing[name] = held[name]
    return {str(name) for name in (*fresh, *others)}


def _put_back(containers: Iterable[_Container]) -> set[str]:
    return {name for container in containers for name in container.put_back()}


def _before(model: Any) -> list[_Container]:
    """All containers of a module, those within containers included, each once."""
    found: list[_Container] = []
    seen: set[int] = set()
    for module in model.modules():
        attributes: dict[str, Any] = vars(module)
        found.append(_Container("", attributes, dict(attributes)))
        waiting = list(attributes.items())
        while waiting:
            name, value = waiting.pop()
            if type(value) not in (*_MAPPINGS, *_COLLECTIONS) or id(value) in seen:
                continue
            seen.add(id(value))
            is_mapping = isinstance(value, dict)
            found.append(
                _Container(name, value, dict(value) if is_mapping else list(value))
            )
            waiting += [(name, item) for item in (value.values() if is_mapping else value)]
    return found
