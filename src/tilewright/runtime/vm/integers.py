"""What the integer opcodes compute, as functions on Python numbers.

Registers hold signed numbers of the opcode's width; every result is brought back into it.  The
interpreter wires the functions to registers by the form of their row; the translator writes the
expressions that they are made of into its source.
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


def _family(bits: int) -> dict[str, str]:
    """The opcodes that exist for both widths, `S` being the sign bit and `M` all bits."""
    signed = "({} + S & M) - S".format
    table = {
        "add": signed("{0} + {1}"),
        "sub": signed("{0} - {1}"),
        "mul": signed("{0} * {1}"),
        "div.s": signed("quotient({0}, {1})"),
        "div.u": signed("quotient({0} & M, {1} & M)"),
        "rem.s": "remainder({0}, {1})",
        "rem.u": signed("remainder({0} & M, {1} & M)"),
        "fma": signed("{0} * {1} + {2}"),
        "not": "~{0}",
        "and": "{0} & {1}",
        "or": "{0} | {1}",
        "xor": "{0} ^ {1}",
        "shl": signed(f"({{0}} << ({{1}} & {bits - 1}))"),
        "shr.s": f"{{0}} >> ({{1}} & {bits - 1})",
        "shr.u": signed(f"(({{0}} & M) >> ({{1}} & {bits - 1}))"),
        "ctlz": f"{bits} - ({{0}} & M).bit_length()",
        "abs": signed("abs({0})"),
        "min.s": "{0} if {0} <= {1} else {1}",
        "max.s": "{0} if {0} >= {1} else {1}",
        "min.u": "{0} if {0} & M < {1} & M else {1}",
        "max.u": "{0} if {0} & M > {1} & M else {1}",
        "cmp.eq": "1 if {0} == {1} else 0",
        "cmp.ne": "1 if {0} != {1} else 0",
        "cmp.lt.s": "1 if {0} < {1} else 0",
        "cmp.lt.u": "1 if {0} & M < {1} & M else 0",
        "cmp.nz": "1 if {0} else 0",
    }
    sign, mask = f"{1 << bits - 1:#x}", f"{(1 << bits) - 1:#x}"
    return {
        _name(name, bits): text.replace("S", sign).replace("M", mask)
        for name, text in table.items()
    }


def _name(name: str, bits: int) -> str:
    """`div.s` of 32 bits is `div.i32.s`."""
    base, dot, sign = name.rpartition(".")
    if dot and sign in ("s", "u"):
        return f"{base}.i{bits}.{sign}"
    return f"{name}.i{bits}"


EXPRESSIONS: Final[Mapping[str, str]] = {
    **_family(32),
    **_family(64),
    "trunc.i32.i8": "{0} & 0xFF",
    "trunc.i32.i16": "{0} & 0xFFFF",
    "trunc.i64.i32": f"({{0}} + {_S32} & {_M32}) - {_S32}",
    "ext.i8.i32.s": "({0} + 0x80 & 0xFF) - 0x80",
    "ext.i8.i32.u": "{0} & 0xFF",
    "ext.i16.i32.s": "({0} + 0x8000 & 0xFFFF) - 0x8000",
    "ext.i16.i32.u": "{0} & 0xFFFF",
    "ext.i32.i64.s": "{0}",
    "ext.i32.i64.u": f"{{0}} & {_M32}",
}
"""Every integer opcode whose result depends on its operands alone, but for select and switch, as a
Python expression of its operands `{0}`, `{1}`, `{2}`; what else it names is in `NAMES`."""

NAMES: Final[Mapping[str, Operation]] = {"quotient": _quotient, "remainder": _remainder}


def _operation(text: str) -> Operation:
    arguments = ", ".join(f"x{i}" for i in range(3) if f"{{{i}}}" in text)
    source = f"lambda {arguments}: {text.format('x0', 'x1', 'x2')}"
    return eval(source, dict(NAMES))  # noqa: S307 - our own expressions, from above


OPERATIONS: Final[Mapping[str, Operation]] = {
    name: _operation(text) for name, text in EXPRESSIONS.items()
}
"""The same as functions."""
