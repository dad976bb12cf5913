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
_FORMAT: Final = re.compile(r'#hal\.executable\.target<"[^"]*", "([^"]*)"')


def tell_wanted_device(error: DeviceError, device: str, drivers: Collection[str]) -> None:
    """Say in `error`, where it is one of these, which device is wanted and how to ask for it.

    Args:
        error: what a module's `__init` raised; its message and hint are replaced.
        device: the identity of the device that it found.
        drivers: names of those that there are.
    """
    wanted = list(dict.fromkeys(_DEVICE.findall(error.message)))
    if error.code != StatusCode.INCOMPATIBLE or _MARK not in error.message or not wanted:
        return
    formats = ", ".join(
        f"'{name}'" for name in dict.fromkeys(_FORMAT.findall(error.message))
    )
    names = " or ".join(f"'{name}'" for name in wanted)
    error.message = (
        f"the module needs a device {names}"
        + (f" for executables of the format {formats}" if formats else "")
        + f", which '{device}' is not ({code_name(error.code)})"
    )
    known = next((name for name in wanted if name in drivers), None)
    if known is not None:
        error.hint = f'device="{known}" (of commands: --device={known})'
