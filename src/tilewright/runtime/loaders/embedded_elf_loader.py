"""Executables of the formats `embedded-elf-<arch>` for local devices.

Not here: how an image gets into memory (`embedded_elf`).  Brought to devices by their drivers.
"""

from __future__ import annotations

import struct
from typing import Final, final

from tilewright.base.errors import ArchiveError
from tilewright.base.host import architecture
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.elf import is_fat, machines_of
from tilewright.formats.elf.dynamic import DYNAMIC
from tilewright.runtime.hal.executable import Executable, ExecutableParams
from tilewright.runtime.hal.executable_loaders import ExecutableLoader
from tilewright.runtime.loaders.device_executable import local_executable
from tilewright.runtime.loaders.embedded_elf import load_embedded_elf

_PREFIX: Final = "embedded-elf-"
_NAMES: Final = {row.number: row.name for row in DYNAMIC.values()}


@final
class EmbeddedElfLoader(ExecutableLoader):
    """Loads freestanding ELF images for this machine."""

    __slots__ = ("_arch",)

    def __init__(self) -> None:
        self._arch: str = architecture()

    def query_support(self, format_name: str) -> bool:
        return format_name == _PREFIX + self._arch

    def infer_format(self, data: HostBytes) -> str | None:
        view = view_bytes(data)
        if is_fat(view):
            return self._format_of_fat(view)
        if len(view) < 20 or bytes(view[:4]) != b"\x7fELF":
            return None
        (machine,) = struct.unpack_from("<H", view, 18)
        arch = _NAMES.get(machine)
        return None if arch is None else _PREFIX + arch

    def _format_of_fat(self, view: memoryview) -> str | None:
        try:
            machines = machines_of(view)
        except ArchiveError:
            return None
        best = self._arch if self._arch in machines else next(iter(machines), None)
        return None if best is None else _PREFIX + best

    def load(self, params: ExecutableParams) -> Executable:
        loaded = load_embedded_elf(
            view_bytes(params.data), "executable", constants=params.packed_constants
        )
        return local_executable(loaded, params)
