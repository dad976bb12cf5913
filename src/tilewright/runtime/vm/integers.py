"""What the integer opcodes compute, as functions on Python numbers.

Registers hold signed numbers of the opcode's width; every result is brought back into it.  The
interpreter wires the functions to registers by the form of their row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tilewright.base.status import StatusCode, failure

Operation = Callable[..., int]

_M32: Final = 0xFFFF_FFFF
_S32: Final = 0x8000_0000
_M64: Final = 0xFFFF_FFFF_FFFF_FFFF
_S64: Final = 0x8000_0000_0000_0000


def wrap_i32(value: int) -> int:
    """The low 32 bits, signed."""
    return (value + _S32 & _M32) - _S32


def wrap_i64(value: int) -> int:
    """The low 64 bits, signed."""
    return (value + _S64 & _M64) - _S64


def _quotient(left: int, right: int) -> int:
    if right == 0:
        raise failure(StatusCode.INVALID_ARGUMENT, "integer division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    return left - _quotient(left, right) * right


def _family(bits: int) -> dict[str, Operation]:
    """The opcodes that exist for both widths."""
    mask = (1 << bits) - 1
    sign = 1 << (bits - 1)

    def wrap(value: int) -> int:
        return (value + sign & mask) - sign

    table: dict[str, Operation] = {
        "add": lambda a, b: (a + b + sign & mask) - sign,
        "sub": lambda a, b: (a - b + sign & mask) - sign,
        "mul": lambda a, b: (a * b + sign & mask) - sign,
        "div.s": lambda a, b: wrap(_quotient(a, b)),
        "div.u": lambda a, b: wrap(_quotient(a & mask, b & mask)),
        "rem.s": _remainder,
        "rem.u": lambda a, b: wrap(_remainder(a & mask, b & mask)),
        "fma": lambda a, b, c: wrap(a * b + c),
        "not": lambda a: ~a,
        "and": lambda a, b: a & b,
        "or": lambda a, b: a | b,
        "xor": lambda a, b: a ^ b,
        "shl": lambda a, n: wrap(a << (n & bits - 1)),
        "shr.s": lambda a, n: a >> (n & bits - 1),
        "shr.u": lambda a, n: wrap((a & mask) >> (n & bits - 1)),
        "ctlz": lambda a: bits - (a & mask).bit_length(),
        "abs": lambda a: wrap(abs(a)),
        "min.s": min,
        "max.s": max,
        "min.u": lambda a, b: a if a & mask < b & mask else b,
        "max.u": lambda a, b: a if a & mask > b & mask else b,
        "cmp.eq": lambda a, b: int(a == b),
        "cmp.ne": lambda a, b: int(a != b),
        "cmp.lt.s": lambda a, b: int(a < b),
        "cmp.lt.u": lambda a, b: int(a & mask < b & mask),
        "cmp.nz": lambda a: int(a != 0),
    }
    return {_name(name, bits): operation for name, operation in table.items()}


def _name(name: str, bits: int) -> str:
    """`div.s` of 32 bits is `div.i32.s`."""
    base, dot, sign = name.rpartition(".")
    if dot and sign in ("s", "u"):
        return f"{base}.i{bits}.{sign}"
    return f"{name}.i{bits}"


OPERATIONS: Final[Mapping[str, Operation]] = {
    **_family(32),
    **_family(64),
    "trunc.i32.i8": lambda a: a & 0xFF,
    "trunc.i32.i16": lambda a: a & 0xFFFF,
    "trunc.i64.i32": wrap_i32,
    "ext.i8.i32.s": lambda a: (a + 0x80 & 0xFF) - 0x80,
    "ext.i8.i32.u": lambda a: a & 0xFF,
    "ext.i16.i32.s": lambda a: (a + 0x8000 & 0xFFFF) - 0x8000,
    "ext.i16.i32.u": lambda a: a & 0xFFFF,
    "ext.i32.i64.s": lambda a: a,
    "ext.i32.i64.u": lambda a: a & _M32,
}
"""Every integer opcode whose result depends on its operands alone, but for select and switch."""
