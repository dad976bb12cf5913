"""How files of models begin, for the door, which opens none, and the front end that reads them.

Called by `door` and the reader of artifacts.
"""

from __future__ import annotations

from typing import Final

MLIR_BYTECODE: Final = b"ML\xefR"
"""Bytecode of MLIR, a portable artifact among it: as plain bytes, which match themselves."""
SAVED_EXPORT: Final = rb"[\x08-\xff]\0\0\0(?:\0\0)*[\x20-\x7f]\0[\x10-\xff]\0"
"""A regular expression for a flatbuffer of JAX: the offset of the table, and in front of it the length of its row of fields and its own.

Such a flatbuffer has no identifier, and neither text, a portable artifact nor a protobuf begins so.
"""
