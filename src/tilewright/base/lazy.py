"""Attributes that are worked out when they are first read.

`functools.cached_property` holds a lock while it does that, up to Python 3.11: one for all objects
of a class, which a child that is forked meanwhile finds locked for ever.  Called everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, final, overload

T = TypeVar("T")


@final
class lazy(Generic[T]):  # noqa: N801 - used like `property`
    """A method as an attribute that is computed once and kept in the object's `__dict__`.

    Thread-safety: threads that read it first at the same time may compute it each; the last one's
    value stays.  Not for values that must be unique.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute: Callable[[Any], T] = compute
        self._name: str = compute.__name__
        self.__doc__: str | None = compute.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> lazy[T]: ...

    @overload
    def __get__(self, owner: object, kind: type) -> T: ...

    def __get__(self, owner: object | None, kind: type) -> lazy[T] | T:
        if owner is None:
            return self
        value = self._compute(owner)
        # Found there from now on: this is no data descriptor.
        owner.__dict__[self._name] = value
        return value
