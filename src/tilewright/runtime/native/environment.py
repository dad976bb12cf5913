"""Makes the environment block that executables are queried and called with.

Not here: imports, which we never provide.  Called by the loaders.
"""

from __future__ import annotations

from tilewright.runtime.native.core import Memory, processor_data
from tilewright.runtime.native.records import ENVIRONMENT


def create_environment(constants: bytes = b"") -> Memory:
    """An environment with this processor's feature words and specialisation constants.

    Args:
        constants: the values as little-endian u32, one per constant of the library.

    Returns:
        Memory that begins with the environment; it must outlive every use of the executable.
    """
    memory = Memory(ENVIRONMENT.size + len(constants))
    address = memory.address + ENVIRONMENT.size if constants else 0
    view = memoryview(memory)
    ENVIRONMENT.pack_into(view, 0, address, 0, 0, 0, *processor_data())
    view[ENVIRONMENT.size : ENVIRONMENT.size + len(constants)] = constants
    return memory
