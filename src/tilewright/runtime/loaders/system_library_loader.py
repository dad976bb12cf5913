"""Executables of the formats `system-elf-<arch>`: shared libraries that the system loads.

Debuggers and profilers see such code, and it may use the C library.  Brought to devices by their
drivers.

Source: IREE `hal/local/loaders/system_library_loader.h`.
"""

from __future__ import annotations

import functools
import sys
from typing import Final, final

from tilewright.base.errors import ArchiveError
from tilewright.base.host import architecture
from tilewright.formats import executable as abi
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.elf.dynamic import DYNAMIC
from tilewright.formats.elf.shared_library import read_shared_library
from tilewright.runtime import native
from tilewright.runtime.hal.executable import Executable, ExecutableParams
from tilewright.runtime.hal.executable_loaders import ExecutableLoader
from tilewright.runtime.loaders.device_executable import local_executable
from tilewright.runtime.loaders.executable_library import (
    LoadedExecutable,
    open_library,
)
from tilewright.runtime.native.foreign_functions import call_query
from tilewright.runtime.native.library import check_code
from tilewright.runtime.native.shared_library import SharedLibrary

# Platform: how formats call its libraries, and what these begin with.
_KINDS: Final = {"linux": ("elf", b"\x7fELF"), "darwin": ("dylib", b"\xcf\xfa\xed\xfe")}


@final
class SystemLibraryLoader(ExecutableLoader):
    """Loads shared libraries of this system."""

    __slots__ = ("_format", "_magic")

    def __init__(self) -> None:
        kind, magic = _KINDS.get(sys.platform, _KINDS["linux"])
        self._format: str = f"system-{kind}-{architecture()}"
        self._magic: bytes = magic

    def query_support(self, format_name: str) -> bool:
        return format_name == self._format

    def infer_format(self, data: HostBytes) -> str | None:
        # Asked after the loader of embedded images, which look alike but for what they need.
        head = bytes(view_bytes(data)[: len(self._magic)])
        return self._format if head == self._magic else None

    def load(self, params: ExecutableParams) -> Executable:
        """Load.  Raises: ArchiveError with the system's reason."""
        loaded = load_system_library(params.data, constants=params.packed_constants)
        return local_executable(loaded, params)


def load_system_library(
    data: HostBytes, location: str = "executable", *, constants: bytes = b""
) -> LoadedExecutable:
    """Open a shared library whose bytes are in memory.

    Raises: ArchiveError for bytes that the system does not load or that are no executable library.
    """
    arch = architecture()
    if sys.platform == "linux" and arch in DYNAMIC:
        machine = read_shared_library(data, location).machine
        if machine != arch:
            raise ArchiveError(
                f"is a library for {machine}, this machine is {arch}", location=location
            )
    try:
        library = SharedLibrary(view_bytes(data))
    except OSError as error:
        raise ArchiveError(
            f"the system does not load it: {error}", location=location
        ) from error
    query = library.address(abi.QUERY_FUNCTION)
    if query == 0:
        raise ArchiveError(f"no symbol '{abi.QUERY_FUNCTION}'", location=location)
    memory = native.ProcessMemory()
    check_code(memory, query, f"symbol '{abi.QUERY_FUNCTION}'", location)
    return open_library(
        library,
        functools.partial(call_query, query),
        memory,
        constants=constants,
        location=location,
    )
