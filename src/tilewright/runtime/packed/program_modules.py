"""The modules that come with a program: packed functions for its calls, by symbol.

Modules are at hand where the program was just compiled; from a file they come as bytes with the name of
their kind, and are made again at the first look, by the loader that this process has for the kind.
Called by sessions.  Importing this file imports no tvm-ffi; looking a function up does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from tilewright.base.errors import ArchiveError
from tilewright.base.fork_locks import LATE_IMPORTS, Rank, fork_lock
from tilewright.formats.artifact import CarriedModule
from tilewright.formats.byte_view import view_bytes

if TYPE_CHECKING:
    from tilewright.runtime.packed.module import Module

FindLoader = Callable[[str], "Callable[[bytes], Module] | None"]
"""kind -> what makes a module of its bytes, or None."""


@final
class ProgramModules:
    """Finds functions by symbol, in the modules and what they import.

    Args:
        modules: at hand.
        carried: as bytes; used where none are at hand.
        location: how errors call the file.
        find_loader: gives the loader of a kind, or None; by default of those that were registered.

    Thread-safety: may be called from any thread.
    """

    def __init__(
        self,
        modules: Sequence[Module],
        carried: Sequence[CarriedModule],
        location: str,
        find_loader: FindLoader | None = None,
    ) -> None:
        self._modules: tuple[Module, ...] | None = tuple(modules) or None
        self._carried: tuple[CarriedModule, ...] = tuple(carried)
        self._location: str = location
        self._find_loader: FindLoader | None = find_loader
        self._lock: threading.RLock = fork_lock(Rank.IMPORT)

    def __call__(self, symbol: str) -> Callable[..., Any] | None:
        """The function called `symbol`, or None.

        Raises: ArchiveError for a module of a kind that this process has no loader for.
        """
        with self._lock:
            if self._modules is None:
                self._modules = tuple(map(self._load, self._carried))
        for module in self._modules:
            found = module.get_function(symbol, query_imports=True)
            if found is not None:
                return found
        return None

    def _load(self, carried: CarriedModule) -> Module:
        # Imported here: most programs call no such function, and tvm-ffi takes long to import.
        with LATE_IMPORTS:
            from tilewright.runtime.packed.module_kinds import (  # noqa: PLC0415
                how_to_register,
                made_module,
                registered_loader,
            )

        loader = (self._find_loader or registered_loader)(carried.kind)
        if loader is None:
            raise ArchiveError(
                f"no loader for modules of kind '{carried.kind}'",
                location=self._location,
                hint=how_to_register(carried.kind),
            )
        return made_module(
            carried.kind, loader, bytes(view_bytes(carried.data)), self._location
        )
