"""Makes the environment block that executables are queried and called with.

Not here: who provides imports (`loaders.imports`).  Called by the loaders.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from tilewright.runtime.native.core import Memory, import_thunk, processor_data
from tilewright.runtime.native.records import ENVIRONMENT


def create_environment(
    constants: bytes = b"", imports: Sequence[tuple[int, int]] = ()
) -> Memory:
    """An environment with this processor's feature words, specialisation constants and imports.

    Args:
        constants: the values as little-endian u32, one per constant of the library.
        imports: (function, context) addresses in the order of the library's table; 0 for an
            optional one that is not there.

    Returns:
        Memory that begins with the environment; it must outlive every use of the executable.
    """
    tables = [
        struct.pack(f"<{len(imports)}Q", *(pair[side] for pair in imports))
        for side in (0, 1)
    ]
    memory = Memory(ENVIRONMENT.size + sum(map(len, tables)) + len(constants))
    view = memoryview(memory)
    view[ENVIRONMENT.size :] = tables[0] + tables[1] + constants
    functions = memory.address + ENVIRONMENT.size if imports else 0
    contexts = functions + len(tables[0])
    address = memory.address + memory.size_bytes - len(constants) if constants else 0
    thunk = import_thunk() if imports else 0
    ENVIRONMENT.pack_into(view, 0, address, thunk, functions, contexts, *processor_data())
    return memory
