"""Entry points: what installed packages offer under a name, and the import of exactly that.

A package says in its metadata that it offers an object under a name in a group.  Listing reads metadata
and imports nothing; `load` imports the one object of the group and name that a caller asked for.  Not a
registry: what is loaded is kept by who asked.  Called where code generators and kinds of modules are looked up.

Source: PyPA, entry points specification.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from tilewright.base.errors import UserError
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.record import record

if TYPE_CHECKING:
    import importlib.metadata

_SHOWN: Final = 200
_NAMELESS: Final = "without a name"


@final
class EntryPointGroup(enum.Enum):
    """The groups that packages may offer something in."""

    CODE_GENERATORS = "tilewright.byoc"
    MODULE_KINDS = "tilewright.module_kinds"


@final
@record(kw_only=True)
class EntryPoint:
    """One row of a package's metadata.

    Attributes:
        name: what it is offered as.
        value: `module`, or `module:object`.
        package: name and version of the package, for people.
    """

    group: EntryPointGroup
    name: str
    value: str
    package: str

    def load(self) -> object:
        """Import the object: a module where the value names no more.

        Raises: UserError naming the package, if that fails in any way.
        """
        reader = _reader()
        try:
            with LATE_IMPORTS:
                return reader.EntryPoint(self.name, self.value, self.group.value).load()
        except Exception as error:  # code of others, which may raise anything
            raise self.failure(error) from error

    def failure(self, error: BaseException) -> UserError:
        """What to raise where the code of the package failed."""
        text = f"{type(error).__name__}: {error}"
        return UserError(
            f"cannot be loaded: {text[:_SHOWN]}",
            location=self,
            hint="reinstall or remove the package; TILEWRIGHT_DEBUG=1 shows where it failed",
        )

    def __str__(self) -> str:
        return f"package {self.package}, entry point '{self.name}' of '{self.group.value}'"


def list_entry_points(group: EntryPointGroup) -> tuple[EntryPoint, ...]:
    """All entry points of a group, by name; imports nothing.

    Raises: UserError naming the package, if what it offers in the group cannot be read.
    """
    # Python 3.12 and later import what reads headers where a package is first asked for its name.
    with LATE_IMPORTS:
        found = {row for own in _reader().distributions() for row in _rows_of(own, group)}
    return tuple(sorted(found, key=lambda row: (row.name, row.package, row.value)))


def find_entry_point(group: EntryPointGroup, name: str) -> EntryPoint | None:
    """The entry point of exactly this name, or None; imports nothing.

    Raises: UserError if several packages offer it.
    """
    found = [row for row in list_entry_points(group) if row.name == name]
    if len(found) > 1:
        packages = " and ".join(row.package for row in found)
        raise UserError(
            f"several packages offer '{name}' in '{group.value}': {packages}",
            hint="remove all but one of them",
        )
    return found[0] if found else None


def _reader():
    """What reads metadata; it loads headers of mail and archives, for which only who asks should wait."""
    with LATE_IMPORTS:
        import importlib.metadata as reader  # noqa: PLC0415
    return reader


def _rows_of(
    own: importlib.metadata.Distribution, group: EntryPointGroup
) -> Iterator[EntryPoint]:
    """What one package offers in a group.

    Read by itself: from Python 3.15 on one malformed row, of whatever package and group, hides those of all others.
    """
    text = own.read_text("entry_points.txt") or ""
    if group.value not in text:
        return
    package = _package(own)
    with LATE_IMPORTS:
        import configparser  # noqa: PLC0415 - 3 ms that only who finds a row should pay
    table = configparser.ConfigParser(delimiters="=", strict=False, interpolation=None)
    # Names of entry points tell small letters from capitals.
    table.optionxform = str  # pyright: ignore[reportAttributeAccessIssue]
    try:
        table.read_string(text)
    except configparser.Error as error:
        raise UserError(
            f"entry points of package {package} cannot be read: {error}"[:_SHOWN],
            hint="reinstall or remove the package",
        ) from error
    if group.value in table and not _is_hidden(package):
        for name, value in table[group.value].items():
            yield EntryPoint(group=group, name=name, value=value, package=package)


def _is_hidden(package: str) -> bool:
    """Whether another version of a package comes first on the path."""
    name = package.rpartition(" ")[0]
    found = (_package(own) for own in _reader().distributions(name=name))
    return package != _NAMELESS and next(found, package) != package


def _package(own: importlib.metadata.Distribution) -> str:
    # What is not in the metadata warns, or raises, where it is read.
    try:
        told = own.metadata
    except FileNotFoundError:
        return _NAMELESS
    if "Name" not in told or "Version" not in told:
        return _NAMELESS
    return f"{told['Name']} {told['Version']}"
