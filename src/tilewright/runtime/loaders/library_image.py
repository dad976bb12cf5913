"""The kernels of a variant, loaded by what its format says.

Called by whatever replays plans, which mostly meets images of ours: what the system's libraries need is imported
when one comes.
"""

from __future__ import annotations

from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.runtime.loaders.embedded_elf import load_embedded_elf
from tilewright.runtime.loaders.executable_library import LoadedExecutable


def load_library(format_name: str, data: Buffer, location: str) -> LoadedExecutable:
    """The kernels, ready to be called.

    Args:
        format_name: `system-…` for a shared library, which the system loads; the rest are images of ours.
        data: its bytes.
        location: how errors call it.

    Raises: as `load_embedded_elf` and `load_system_library`.
    """
    if not format_name.startswith("system-"):
        return load_embedded_elf(view_bytes(data), location)
    with LATE_IMPORTS:
        from tilewright.runtime.loaders.system_library_loader import (  # noqa: PLC0415
            load_system_library,
        )

    return load_system_library(view_bytes(data), location)
