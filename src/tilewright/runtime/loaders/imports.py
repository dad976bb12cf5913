"""Functions of the host that kernels may call: who provides them, and how they are found.

A provider is a table of addresses, or a plugin: a shared library that resolves names itself.
Providers are asked in the order in which they were registered.  Called by loaders of native code.

Source: IREE `hal/local/executable_plugin.h`, version 0.1.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from tilewright.base.errors import ArchiveError, UserError
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.text import did_you_mean
from tilewright.runtime.native.foreign_functions import address_of

if TYPE_CHECKING:
    from tilewright.runtime.native.plugin_library import PluginLibrary

Import = tuple[int, int]
"""Addresses of a function `int f(void* params, void* context, void* reserved)` and its context."""

OPTIONAL: Final = "?"
"""What the names of imports begin with that may be missing."""


class ImportProvider(ABC):
    """Finds functions by name.

    Thread-safety: may be asked from any thread.
    """

    @abstractmethod
    def resolve(self, names: Sequence[str]) -> Mapping[str, Import]:
        """Those of the names that it has."""

    @property
    def known_names(self) -> Sequence[str]:
        """What it has, where it can tell; for hints."""
        return ()


@final
class FunctionTable(ImportProvider):
    """Functions at known addresses.

    Args:
        functions: name to a ctypes function, an address, or a pair of address and context.
    Ownership: keeps the ctypes functions alive.
    """

    def __init__(self, functions: Mapping[str, object]) -> None:
        self._keep: tuple[object, ...] = tuple(functions.values())
        self._found: Mapping[str, Import] = {
            n: _address(n, f) for n, f in functions.items()
        }

    @property
    def known_names(self) -> Sequence[str]:
        return tuple(self._found)

    def resolve(self, names: Sequence[str]) -> Mapping[str, Import]:
        return {name: self._found[name] for name in names if name in self._found}


def _address(name: str, function: object) -> Import:
    if isinstance(function, tuple):
        address, context = function  # pyright: ignore[reportUnknownVariableType]
        return int(address), int(context)  # pyright: ignore[reportUnknownArgumentType]
    try:
        return address_of(function), 0
    except TypeError as error:
        raise UserError(
            f"import '{name}' is {type(function).__name__}, expected a ctypes function or an address"
        ) from error


@final
class Plugin(ImportProvider):
    """A shared library that resolves names itself.

    Args:
        path: the library.
        parameters: key and value pairs that it understands.

    Raises: InputError for a file that is no plugin; ArchiveError for one of another version or that
    refuses to load.
    """

    def __init__(
        self, path: str | Path, parameters: Mapping[str, str] | None = None
    ) -> None:
        with LATE_IMPORTS:  # most processes have no plugin
            from tilewright.runtime.native.plugin_library import (  # noqa: PLC0415
                PluginLibrary,
            )

        self._library: PluginLibrary = PluginLibrary(path, parameters)

    @property
    def name(self) -> str:
        """What it calls itself."""
        return self._library.name

    def resolve(self, names: Sequence[str]) -> Mapping[str, Import]:
        return self._library.resolve(names)

    def close(self) -> None:
        """Unload; no kernel that calls it may run any more."""
        self._library.close()


# --- the process's providers ---------------------------------------------------------------------

_PROVIDERS: Final[list[ImportProvider]] = []


def register_import_provider(provider: ImportProvider) -> None:
    """Offer functions to every executable that is loaded from now on."""
    _PROVIDERS.append(provider)


def unregister_import_provider(provider: ImportProvider) -> None:
    """Offer them no longer; executables that have them keep them."""
    _PROVIDERS.remove(provider)


def resolve_imports(names: Sequence[str], location: str) -> tuple[Import, ...]:
    """What to put into an executable's environment, in the order of its table.

    Raises: ArchiveError naming the required imports that nobody provides.
    """
    missing = [name.removeprefix(OPTIONAL) for name in names]
    found: dict[str, Import] = {}
    for provider in _PROVIDERS:
        if missing:
            found.update(provider.resolve(missing))
            missing = [name for name in missing if name not in found]
    required = [
        name for name in names if not name.startswith(OPTIONAL) and name not in found
    ]
    if required:
        known = [name for provider in _PROVIDERS for name in provider.known_names]
        raise ArchiveError(
            f"the library imports {', '.join(repr(name) for name in required)}, which nobody provides",
            location=location,
            hint=did_you_mean(required[0], known)
            or "load a plugin that has it: --executable_plugin=plugin.so",
        )
    return tuple(found.get(name.removeprefix(OPTIONAL), (0, 0)) for name in names)
