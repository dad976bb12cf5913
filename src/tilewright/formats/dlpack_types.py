"""DLPack's data types as TVM writes and names them: a code, bits, lanes.

Not here: the types that Tilewright computes with (`base.dtypes`); a file may name many others.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, final

from tilewright.base.record import record

# In the order of their codes; a type of the first six goes on with its number of bits.
_NAMES: Final[Mapping[int, str]] = {
    0: "int", 1: "uint", 2: "float", 3: "handle", 4: "bfloat", 5: "complex", 6: "bool",
    7: "float8_e3m4", 8: "float8_e4m3", 9: "float8_e4m3b11fnuz", 10: "float8_e4m3fn",
    11: "float8_e4m3fnuz", 12: "float8_e5m2", 13: "float8_e5m2fnuz", 14: "float8_e8m0fnu",
    15: "float6_e2m3fn", 16: "float6_e3m2fn", 17: "float4_e2m1fn",
}  # fmt: skip
_CODES_OF_ANY_WIDTH: Final = 6
LAYOUT: Final = struct.Struct("<BBH")
"""A type in a file: code, bits, lanes."""


@final
@record
class DataType:
    """A type: `code` says what the bits of a lane mean."""

    code: int
    bits: int
    lanes: int = 1

    @property
    def is_known(self) -> bool:
        """Whether the code has a meaning and an element has bits."""
        return self.code in _NAMES and self.bits > 0 and self.lanes > 0

    @property
    def width(self) -> int:
        """Bits of an element, all lanes together."""
        return self.bits * self.lanes

    def __str__(self) -> str:
        """`float32`, `bfloat16`, `int8x4`: what TVM calls the type."""
        name = _NAMES.get(self.code, f"type{self.code}_")
        if self.code == 3 and self.bits == 0:  # no type
            return ""
        text = name + (str(self.bits) if self.code < _CODES_OF_ANY_WIDTH else "")
        return text if self.lanes == 1 else f"{text}x{self.lanes}"

    def fits(self, elements: int, length: int) -> bool:
        """Whether that many elements take that many bytes.

        Elements of less than a byte have one each, or share it: that depends on TVM's release.
        """
        return length in (elements * -(-self.width // 8), -(-elements * self.width // 8))
