"""Makes the executable of a device from an executable library in memory.

Apart from `executable_library`, because replaying a plan needs the library and no device.  Called by
the loaders that devices have.
"""

from __future__ import annotations

from tilewright.base.errors import ArchiveError
from tilewright.runtime.hal.executable import ExecutableParams
from tilewright.runtime.hal.local.executable import LocalExecutable
from tilewright.runtime.loaders.executable_library import LoadedExecutable


def local_executable(loaded: LoadedExecutable, params: ExecutableParams) -> LocalExecutable:
    """The executable of a device.

    Raises: ArchiveError when the number of specialisation constants is another one.
    """
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
        has_counts=loaded.library.has_counts,
    )
