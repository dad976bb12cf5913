"""Executables of the format `static`: libraries that are in this process already, by name.

What an application links in, or what another library of the process offers, is registered once;
the executable in an archive then is nothing but the name.  Brought to devices by their drivers.

Source: IREE `hal/local/loaders/static_library_loader.h`.
"""

from __future__ import annotations

import functools
from typing import Final, final

from tilewright.base.errors import ArchiveError, UserError
from tilewright.base.text import did_you_mean
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.formats.byte_view import view_bytes
from tilewright.runtime import native
from tilewright.runtime.hal.executable import Executable, ExecutableParams
from tilewright.runtime.hal.executable_loaders import ExecutableLoader
from tilewright.runtime.loaders.device_executable import local_executable
from tilewright.runtime.loaders.executable_library import (
    LoadedExecutable,
    open_library,
)
from tilewright.runtime.native.foreign_functions import address_of, call_query
from tilewright.runtime.native.library import check_code

FORMAT: Final = "static"
_NAME_LIMIT_BYTES: Final = 256
_LIBRARIES: Final[dict[str, tuple[int, object]]] = {}  # name: (query function, its owner)


def register_static_library(query: object, owner: object = None) -> str:
    """Offer a library to the executables that name it.

    Args:
        query: its query function: an address, or a function of `ctypes`.
        owner: kept as long as the library is registered.
    Returns: its name.
    Raises: UserError for a name that is taken; ArchiveError for a library of another version.
    """
    address = address_of(query)
    name = _open(address, (query, owner), "static library").library.name
    if name in _LIBRARIES:
        raise UserError(f"a static library '{name}' is registered already")
    _LIBRARIES[name] = address, (query, owner)
    return name


def unregister_static_library(name: str) -> None:
    """Offer it no longer; executables that were made keep it.  Raises: UserError."""
    if _LIBRARIES.pop(name, None) is None:
        raise UserError(
            f"no static library '{name}'", hint=did_you_mean(name, list(_LIBRARIES))
        )


@final
class StaticLibraryLoader(ExecutableLoader):
    """Finds libraries that were registered."""

    __slots__ = ()

    def query_support(self, format_name: str) -> bool:
        return format_name == FORMAT

    def infer_format(self, data: HostBytes) -> str | None:
        return FORMAT if _name(data) in _LIBRARIES else None

    def load(self, params: ExecutableParams) -> Executable:
        name = _name(params.data)
        found = _LIBRARIES.get(name)
        if found is None:
            raise ArchiveError(
                f"no static library '{name}' is registered",
                location="executable",
                hint=did_you_mean(name, list(_LIBRARIES))
                or "call register_static_library first",
            )
        address, owner = found
        where = f"static library '{name}'"
        loaded = _open(address, owner, where, params.packed_constants)
        return local_executable(loaded, params)


def _open(
    address: int, owner: object, location: str, constants: bytes = b""
) -> LoadedExecutable:
    memory = native.ProcessMemory()
    check_code(memory, address, "the query function", location)
    return open_library(
        owner,
        functools.partial(call_query, address),
        memory,
        constants=constants,
        location=location,
    )


def _name(data: HostBytes) -> str:
    text = bytes(view_bytes(data)[:_NAME_LIMIT_BYTES])
    return text.decode("utf-8", errors="replace").rstrip("\0")
