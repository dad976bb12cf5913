"""Opens an executable library that is in memory: version, sanitizer, imports, constants.

The part that all loaders of native code share.  Not here: how code gets into memory.

Source: IREE `hal/local/executable_library.h`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, final

from tilewright.base.errors import ArchiveError
from tilewright.base.record import record
from tilewright.formats import executable as abi
from tilewright.runtime import native
from tilewright.runtime.loaders.imports import resolve_imports
from tilewright.runtime.native.foreign_functions import process_has_symbol
from tilewright.runtime.native.library import ImageMemory

Query = Callable[[int, int], int]
"""(version, address of the environment) -> address of the library, 0 where it refuses."""

# Versions that a library which refuses ours is asked for, to say which it has.
_PROBED: Final = range(32)

# What code that was built for a sanitizer needs in the process: a symbol of its runtime.
_SANITIZER_SYMBOLS: Final[Mapping[str, str]] = {
    "address": "__asan_init",
    "memory": "__msan_init",
    "thread": "__tsan_init",
}


@final
@record
class LoadedExecutable:
    """An executable library in memory.

    Ownership: `owner` keeps the code mapped; hold this object while kernels may run.
    Thread-safety: immutable.
    """

    owner: object
    environment: native.Memory
    library: native.Library
    exports: Mapping[str, native.Export]


def open_library(
    owner: object,
    query: Query,
    memory: ImageMemory,
    *,
    constants: bytes = b"",
    location: str = "executable",
) -> LoadedExecutable:
    """Query a library and make it ready to be called.

    Args:
        owner: what keeps its code.
        query: its query function.
        memory: reads its tables.
        constants: specialisation constants, little-endian u32 each.
        location: how errors call it.

    Raises: ArchiveError for another version, a sanitizer that is not in this process, or imports
    that nobody provides.
    """
    environment = native.create_environment(constants)
    address = 0
    for version in range(abi.VERSION, abi.OLDEST_VERSION - 1, -1):
        address = address or query(version, environment.address)
    if address == 0:
        own = next((v for v in _PROBED if query(v, environment.address)), None)
        problem = "none of the first versions" if own is None else f"version {own}"
        raise ArchiveError(
            f"the library has {problem} of the interface, this runtime knows "
            f"{abi.OLDEST_VERSION} to {abi.VERSION}",
            location=location,
            hint="it was made by an older or a newer compiler than this runtime knows",
        )
    library = native.read_library(memory, address)
    _check_sanitizer(library.sanitizer, location)
    if library.imports:
        imports = resolve_imports(library.imports, location)
        environment = native.create_environment(constants, imports)
    exports = {export.name: export for export in library.exports}
    return LoadedExecutable(owner, environment, library, exports)


def _check_sanitizer(kind: int, location: str) -> None:
    if kind == 0:
        return
    name = abi.SANITIZERS[kind] if kind < len(abi.SANITIZERS) else str(kind)
    symbol = _SANITIZER_SYMBOLS.get(name)
    if symbol is not None and not process_has_symbol(symbol):
        raise ArchiveError(
            f"the code was built for the {name} sanitizer, which is not in this process",
            location=location,
            hint="compile without it, or preload the sanitizer's runtime into Python",
        )
