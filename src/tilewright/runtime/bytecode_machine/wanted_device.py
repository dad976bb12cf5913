"""What a module wanted that found no device for itself, in words.

The `__init` that IREE's compilers write fails with the attribute of the device that it asked for: MLIR
with every instruction of a GPU.  Not here: who answers such questions (`modules.hal`).  Called by
`bytecode_machine.machine`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode, code_name

_MARK: Final = "not found or unavailable: #hal.device"
_DEVICE: Final = re.compile(r'#hal\.device\.target<"([^"]*)"')
_OURS: Final = {"local": "local-task"}  # names of IREE's compilers to names of drivers
_FORMAT: Final = re.compile(r'#hal\.executable\.target<"[^"]*", "([^"]*)"')


def tell_wanted_device(error: DeviceError, device: str, drivers: Collection[str]) -> None:
    """Say in `error`, where it is one of these, which device is wanted and how to ask for it.

    Args:
        error: what a module's `__init` raised; its message and hint are replaced.
        device: the identity of the device that it found.
        drivers: names of those that there are.
    """
    wanted = tuple(dict.fromkeys(_DEVICE.findall(error.message)))
    formats = ", ".join(f"'{n}'" for n in dict.fromkeys(_FORMAT.findall(error.message)))
    is_asked = error.code == StatusCode.INCOMPATIBLE and _MARK in error.message
    if not (is_asked and wanted and formats):
        return
    names = " or ".join(f"'{name}'" for name in wanted)
    if device in wanted:
        lead = f"the module has executables of the format {formats}, which '{device}' does not run"
        error.hint = (
            "compile it for this machine, or run it on one that it was compiled for"
        )
    else:
        lead = f"the module needs a device {names} for executables of the format {formats}, which '{device}' is not"
        known = next((n for n in (_OURS.get(n, n) for n in wanted) if n in drivers), None)
        error.hint = known and f'device="{known}" (of commands: --device={known})'
    error.message = f"{lead} ({code_name(error.code)})"
