"""Versions, features and widths: what a module says of its code before any of it is decoded.

Apart from `isa`, whose table only those need who look at instructions.  Called by `isa`, by whoever
reads or writes modules, and by verifiers.

Source: IREE `vm/bytecode/isa/isa.h`.
"""

from __future__ import annotations

from typing import Final

BYTECODE_MAJOR: Final = 17
BYTECODE_MINOR: Final = 0
BYTECODE_VERSION: Final = BYTECODE_MAJOR << 16 | BYTECODE_MINOR
OLDEST_BYTECODE_MAJOR: Final = 15

FEATURE_F32: Final = 1
FEATURE_F64: Final = 2
FEATURE_YIELD: Final = 4
FEATURE_UNWIND: Final = 8
KNOWN_FEATURES: Final = FEATURE_F32 | FEATURE_F64 | FEATURE_YIELD | FEATURE_UNWIND

MAX_WORD_REGISTERS: Final = 0x7FFF
MAX_REF_REGISTERS: Final = 0x3FFF
