"""Slot numbers of IREE's `bytecode_module_def.fbs`: what reader and writer both count on.

Source: IREE `schemas/bytecode_module_def.fbs`; a slot is a field's position in its table (a
union takes two).
"""

from __future__ import annotations

import struct
from typing import Final, final

IDENTIFIER: Final = b"IREE"
RODATA_ALIGNMENT: Final = 64
DESCRIPTOR: Final = struct.Struct("<iiIhhhh")
"""Offset, length, requirements, reserved, blocks, word registers, reference registers."""


@final
class Root:
    """The module itself."""

    NAME: Final = 0
    VERSION: Final = 1
    REQUIREMENTS: Final = 2
    ATTRIBUTES: Final = 3
    TYPES: Final = 4
    DEPENDENCIES: Final = 5
    IMPORTS: Final = 6
    EXPORTS: Final = 7
    SIGNATURES: Final = 8
    RODATA: Final = 9
    RWDATA: Final = 10
    STATE: Final = 11
    DESCRIPTORS: Final = 12
    BYTECODE_VERSION: Final = 13
    BYTECODE: Final = 14
    DEBUG: Final = 15


@final
class Segment:
    """A read-only data segment."""

    COMPRESSION: Final = 0
    EMBEDDED: Final = 2
    OFFSET: Final = 3
    LENGTH: Final = 4


@final
class LocationKind:
    """The members of the location union."""

    NONE: Final = 0
    CALL_SITE: Final = 1
    FILE_LINE: Final = 2
    FUSED: Final = 3
    NAMED: Final = 4
