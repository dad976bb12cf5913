"""Executables of the formats `embedded-elf-<arch>` for local devices.

Not here: how an image gets into memory (`embedded_elf`).  Brought to devices by their drivers.
"""

from __future__ import annotations

import struct
from typing import Final, final

from tilewright.base.errors import ArchiveError
from tilewright.base.host import describe
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.formats.byte_view import view_bytes
from tilewright.runtime.hal.executable import Executable, ExecutableParams
from tilewright.runtime.hal.executable_cache import ExecutableLoader
from tilewright.runtime.hal.local.executable import LocalExecutable
from tilewright.runtime.loaders.embedded_elf import load_embedded_elf

_PREFIX: Final = "embedded-elf-"
_MACHINES: Final = {62: "x86_64", 183: "aarch64", 243: "riscv64"}


@final
class EmbeddedElfLoader(ExecutableLoader):
    """Loads freestanding ELF images for this machine."""

    __slots__ = ("_format",)

    def __init__(self) -> None:
        self._format: str = _PREFIX + describe().arch

    def query_support(self, format_name: str) -> bool:
        return format_name == self._format

    def infer_format(self, data: HostBytes) -> str | None:
        view = view_bytes(data)
        if len(view) < 20 or bytes(view[:4]) != b"\x7fELF":
            return None
        (machine,) = struct.unpack_from("<H", view, 18)
        arch = _MACHINES.get(machine)
        return None if arch is None else _PREFIX + arch

    def load(self, params: ExecutableParams) -> Executable:
        constants = struct.pack(
            f"<{len(params.constants)}I", *(c & 0xFFFFFFFF for c in params.constants)
        )
        loaded = load_embedded_elf(
            view_bytes(params.data), "executable", constants=constants
        )
        wanted = loaded.library.constant_count
        if wanted != len(params.constants):
            raise ArchiveError(
                f"got {len(params.constants)} specialisation constants, expected {wanted}",
                location="executable",
            )
        return LocalExecutable(
            loaded.library.exports,
            loaded.environment,
            loaded,
            has_counts=loaded.library.has_attributes,
        )
