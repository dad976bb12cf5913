"""How values of each data type look in C: type names, literals and identifiers.

A vector is a vector of GCC's and Clang's language extension, as wide as its elements; halves travel as
their 16 bits.  A bool is an `int`; in lanes it is a vector of signed integers, 0 or -1, as wide as what was
compared.  Called by every file of this room.
"""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

import ml_dtypes
import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import HALVES, DType

KEYWORDS: Final = frozenset(
    [
        "auto",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "typedef",
        "union",
        "unsigned",
        "void",
        "volatile",
        "while",
        "asm",
        "typeof",
    ]
)


class Value(NamedTuple):
    """An operand.

    Attributes:
        text: a C expression that needs no parentheses around it.
        width: of a bool in several lanes: the bits of each.
        first: of a mask of the first lanes: how many of them, in C.
    """

    text: str
    dtype: DType
    lanes: int = 1
    width: int = 0
    first: str = ""


def element_type(dtype: DType) -> str:
    """The C type of an element in memory."""
    return "uint16_t" if dtype in HALVES else dtype.c


def value_type(dtype: DType, lanes: int = 1, width: int = 0) -> str:
    """The C type of a value."""
    if lanes == 1:
        return "int" if dtype.is_bool else element_type(dtype)
    return f"tw_{word(dtype, lanes, width)}"


def word(dtype: DType, lanes: int = 1, width: int = 0) -> str:
    """What the type is called in the names of definitions: `f32x8`, `mask32x8`."""
    stem = f"mask{width}" if dtype.is_bool and lanes > 1 else dtype.name
    return stem if lanes == 1 else f"{stem}x{lanes}"


def type_of(value: Value) -> str:
    """The C type of an operand."""
    return value_type(value.dtype, value.lanes, value.width)


def unsigned(dtype: DType) -> str:
    """The unsigned C type in which integers wrap: no narrower than `int`."""
    return "uint64_t" if dtype.bits == 64 else "uint32_t"


def literal(value: float, dtype: DType) -> str:
    """A number."""
    if dtype.is_bool:
        return str(int(bool(value)))
    if dtype in HALVES:
        kind = np.dtype(np.float16) if dtype is dtypes.f16 else np.dtype(ml_dtypes.bfloat16)
        return f"0x{int(np.asarray(value, kind).view(np.uint16)):04x}"
    if dtype.is_float and dtype.bits < 32:
        return f"0x{int(np.asarray(value, dtype.numpy).view(np.uint8)):02x}"
    if dtype.is_float:
        return _float_literal(float(value), "f" if dtype.bits == 32 else "")
    return _integer_literal(int(value) & ((1 << dtype.bits) - 1), dtype)


def _float_literal(value: float, suffix: str) -> str:
    if math.isnan(value):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(value):
        return f"{'-' if value < 0 else ''}__builtin_inf{suffix}()"
    short = repr(float(np.float32(value))) if suffix else repr(value)
    plain = str(np.float32(value)) if suffix else short
    text = plain if "." in plain or "e" in plain else f"{plain}.0"
    return (
        f"{text}{suffix}"
        if value >= 0 and not text.startswith("-")
        else f"({text}{suffix})"
    )


def _integer_literal(bits: int, dtype: DType) -> str:
    if not dtype.is_signed:
        return f"UINT64_C({bits})" if dtype.bits == 64 else f"{bits}u"
    value = bits - (1 << dtype.bits) if bits >> (dtype.bits - 1) else bits
    if dtype.bits < 64:
        return (
            str(value)
            if value >= 0
            else f"({value})"
            if value > -(1 << 31)
            else "INT32_MIN"
        )
    if value == -(1 << 63):
        return "INT64_MIN"
    return f"INT64_C({value})" if value >= 0 else f"(-INT64_C({-value}))"


VARIABLE: Final = "t{}"
"""What the printer calls the variables that it makes; nothing of a kernel is called so."""
_RESERVED: Final = re.compile(r"\d|tw_|__|t\d+$|$")


def identifier(name: str, taken: set[str]) -> str:
    """A C identifier like `name` that is not in `taken`, which it joins."""
    stem = re.sub(r"\W", "_", name, flags=re.ASCII)
    if stem in KEYWORDS or _RESERVED.match(stem):
        stem = f"v_{stem}"
    found, number = stem, 1
    while found in taken:
        number += 1
        found = f"{stem}_{number}"
    taken.add(found)
    return found


def comment(text: str) -> str:
    """The first line of a text, which no compiler reads, whatever it says: it does not end as if it went on."""
    line = next(iter(text.splitlines()), "")
    end = " (backslash)" if re.search(r"(\\|\?\?/)\s*$", line) else ""
    return f"// {line}{end}"


def bare(text: str) -> str:
    """`text` without parentheses that enclose all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1]
