"""Executables of the format `vmvx-bytecode-fb`: kernels in bytecode, for any machine.

An executable is an archive with a module of its own, which may call nothing but the `vmvx` module;
so it needs no trust.  Not here: how its functions run (`vmvx_executable`).  Brought to devices by
their drivers.

Source: IREE `hal/local/loaders/vmvx_module_loader.h`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.vmfb.schema import IDENTIFIER
from tilewright.runtime.hal.executable import Executable, ExecutableParams
from tilewright.runtime.hal.executable_loaders import ExecutableLoader

if TYPE_CHECKING:
    from tilewright.runtime.vm.module import Module

FORMAT: Final = "vmvx-bytecode-fb"
_ZIP: Final = b"PK\x03\x04"


@final
class VmvxLoader(ExecutableLoader):
    """Loads kernels in bytecode.

    Args:
        modules: more modules that kernels may call, beside `vmvx`.
    """

    __slots__ = ("_modules",)

    def __init__(self, modules: Sequence[Module] = ()) -> None:
        self._modules: tuple[Module, ...] = tuple(modules)

    def query_support(self, format_name: str) -> bool:
        return format_name == FORMAT

    def infer_format(self, data: HostBytes) -> str | None:
        head = bytes(view_bytes(data)[:12])
        is_archive = head.startswith(_ZIP) or IDENTIFIER in head
        return FORMAT if is_archive else None

    def load(self, params: ExecutableParams) -> Executable:
        """Verify the module and set its constants.

        Raises: ArchiveError for a corrupt module or one with functions that are no kernels;
        DeviceError for one that imports what no module has, or wants other constants.
        """
        # Imported here: most devices never meet the format, and start without the machine.
        with LATE_IMPORTS:
            from tilewright.runtime.loaders.vmvx_executable import (  # noqa: PLC0415
                load_module,
            )

        return load_module(params, self._modules)
