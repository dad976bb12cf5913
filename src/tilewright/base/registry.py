"""Registries: names to objects, looked up once at the border.

A registry knows who registered what, refuses a second owner of a name by naming both, and answers
an unknown name with the closest known ones.  It holds no order that matters (pipelines are written
down, not registered).  Used by ops, backends, drivers, emitters, CLI verbs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar, final

from tilewright.base.errors import InternalError, UserError
from tilewright.base.text import did_you_mean

T = TypeVar("T")


@final
class Registry(Generic[T]):
    """A set of named objects of one kind.

    Args:
        noun: what one entry is called in messages (`op`, `driver`).
        error: the class raised by `lookup` for an unknown name.
    """

    __slots__ = ("_error", "_items", "_owners", "noun")

    def __init__(self, noun: str, *, error: type[UserError] = UserError) -> None:
        self.noun: str = noun
        self._error: type[UserError] = error
        self._items: dict[str, T] = {}
        self._owners: dict[str, str] = {}

    def register(self, name: str, item: T, *, owner: str) -> T:
        """Enter `item` under `name` for `owner` (a module or package name); returns `item`.

        Raises: InternalError when the name is taken, naming both owners.
        """
        if name in self._items:
            raise InternalError(
                f"{self.noun} '{name}' is registered twice, "
                f"by '{self._owners[name]}' and by '{owner}'"
            )
        self._items[name] = item
        self._owners[name] = owner
        return item

    def lookup(self, name: str, *, location: object | None = None) -> T:
        """The object called `name`.

        Raises: the registry's error class, with the closest known names as hint.
        """
        try:
            return self._items[name]
        except KeyError:
            hint = did_you_mean(name, self._items) or self._listing()
            raise self._error(
                f"unknown {self.noun} '{name}'", location=location, hint=hint
            ) from None

    def find(self, name: str) -> T | None:
        """The object called `name`, or None."""
        return self._items.get(name)

    def owner(self, name: str) -> str:
        """Who registered `name`."""
        self.lookup(name)
        return self._owners[name]

    def names(self) -> tuple[str, ...]:
        """All names, sorted."""
        return tuple(sorted(self._items))

    def values(self) -> tuple[T, ...]:
        """All objects, sorted by name."""
        return tuple(self._items[name] for name in self.names())

    def _listing(self) -> str:
        names = self.names()
        if not names:
            return f"no {self.noun} is registered"
        shown = " ".join(names[:12])
        return f"known: {shown}" + (
            f" and {len(names) - 12} more" if len(names) > 12 else ""
        )

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self._items)
