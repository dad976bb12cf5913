"""The packed form of command lists and of the executable interface, as `struct` formats and numbers.

Not here: what the numbers mean in use (`recorder`, `library`, `fallback`).  The C side of the same
layouts stands in `native/include/tw_command_list.h` and `native/include/tw_executable.h`.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final

# MIRROR COMMAND RECORDS
SLOT: Final = Struct("<QII")  # size_bytes, flags, alignment
BINDING: Final = Struct("<IIQQ")  # slot, flags, offset, length
COMMAND: Final = Struct("<14I2Q")
# kind, flags, binding_first, binding_count, constant_first, constant_count, workgroup_count xyz,
# workgroup_size xyz, local_memory_bytes, reserved, function, environment


class Kind(IntEnum):
    """What a command does."""

    DISPATCH = 0
    COPY = 1
    FILL = 2
    HOST_CALL = 3
    GOTO = 4
    ROW = 5


COMMAND_BARRIER: Final = 1
COMMAND_FLUSH_DENORMALS: Final = 2
COMMAND_ON_FINDING: Final = 4
# MIRROR FINDINGS
FINDING_BYTES: Final = 64  # of one record, an i64 at its start
NO_FINDING: Final = -(1 << 63)
BINDING_WRITABLE: Final = 1
SLOT_WRITABLE: Final = 1
SLOT_ROW: Final = 2

PROTECT_READ: Final = 1
PROTECT_WRITE: Final = 2
PROTECT_EXECUTE: Final = 4

ENVIRONMENT: Final = Struct(
    "<4Q8Q"
)  # constants, import thunk, functions, contexts, processor data
DISPATCH_STATE: Final = Struct("<IIHHIIHBBQQQ")
# workgroup_size xyz, constant_count, workgroup_count xyz, max_concurrency, binding_count, constants,
# binding pointers, binding lengths
WORKGROUP_STATE: Final = Struct("<IIHHIQI4x")
# workgroup_id xyz, reserved, processor_id, local memory, local memory size
