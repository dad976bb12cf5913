"""Slot numbers of IREE's `bytecode_module_def.fbs`: what reader and writer both count on.

Source: IREE `schemas/bytecode_module_def.fbs`; a slot is a field's position in its table (a
union takes two).
"""

from __future__ import annotations

import enum
import struct
from typing import Final

IDENTIFIER: Final = b"IREE"
RODATA_ALIGNMENT: Final = 64
DESCRIPTOR: Final = struct.Struct("<iiIhhhh")
"""Offset, length, requirements, reserved, blocks, word registers, reference registers."""


class Root(enum.IntEnum):
    """The module itself."""

    NAME = 0
    VERSION = 1
    REQUIREMENTS = 2
    ATTRIBUTES = 3
    TYPES = 4
    DEPENDENCIES = 5
    IMPORTS = 6
    EXPORTS = 7
    SIGNATURES = 8
    RODATA = 9
    RWDATA = 10
    STATE = 11
    DESCRIPTORS = 12
    BYTECODE_VERSION = 13
    BYTECODE = 14
    DEBUG = 15


class Segment(enum.IntEnum):
    """A read-only data segment."""

    COMPRESSION = 0
    EMBEDDED = 2
    OFFSET = 3
    LENGTH = 4


class LocationKind(enum.IntEnum):
    """The members of the location union."""

    NONE = 0
    CALL_SITE = 1
    FILE_LINE = 2
    FUSED = 3
    NAMED = 4
