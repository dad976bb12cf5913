"""Dot products of aarch64: SDOT and UDOT (dotprod), USDOT (i8mm) and what does the same without it.

SMMLA, USMMLA and UMMLA, which multiply two rows by two columns, are no instruction of lanes that stand alone.

Source: Arm Architecture Reference Manual for A-profile, C7.2 (SDOT, UDOT and USDOT, vector); Arm C Language
Extensions, Advanced SIMD intrinsics.
"""

from __future__ import annotations

from typing import Final

from tilewright.base.dtypes import DType, i8, i32, u8
from tilewright.compiler.kernel.instructions.dot_products import dot
from tilewright.compiler.kernel.ir import Form, Instruction


def _row(name: str, left: DType, right: DType, feature: str) -> Instruction:
    parameters, body = dot(i32, left, right, 4)
    word = "usdot" if name == "usdot" else "dot"
    result = "uint32" if name == "udot" else "int32"
    suffix = "u32" if name == "udot" else "s32"
    forms: list[Form] = []
    for lanes, q in ((4, "q"), (2, "")):
        sides = [f"{dtype.c.removesuffix('_t')}x{4 * lanes}_t" for dtype in (left, right)]
        forms.append(
            Form(lanes=lanes, features=frozenset({feature}), unit="i8",
                 llvm=f"llvm.aarch64.neon.{name}.v{lanes}i32.v{4 * lanes}i8",
                 c=f"v{word}{q}_{suffix}(({result}x{lanes}_t)a, ({sides[0]})b, ({sides[1]})c)")
        )  # fmt: skip
    if name == "usdot":
        forms += _signed_dots()
    return Instruction(name=name, parameters=parameters, body=body, forms=tuple(forms))


_SPLIT: Final = (
    ((("and", 0x7F),), ()),
    *2
    * (
        ((("lshr", 1), ("and", 0x40)), ()),
    ),  # 64 twice for the highest bit, for 128 is no signed byte
)
"""How unsigned bytes are sums of signed ones."""


def _signed_dots() -> list[Form]:
    """Three SDOT for unsigned by signed bytes."""
    forms: list[Form] = []
    for lanes, q in ((4, "q"), (2, "")):
        byte, word = f"int8x{4 * lanes}_t", f"int32x{lanes}_t"
        rest = f"vand{q}_s8(({byte})b, vdup{q}_n_s8(0x7f))"
        high = f"({byte})vand{q}_u8(vshr{q}_n_u8((u{byte})b, 1), vdup{q}_n_u8(0x40))"
        total = f"({word})a"
        for left in (rest, high, high):
            total = f"vdot{q}_s32({total}, {left}, ({byte})c)"
        forms.append(
            Form(lanes=lanes, features=frozenset({"dotprod"}), unit="i8",
                 llvm=f"llvm.aarch64.neon.sdot.v{lanes}i32.v{4 * lanes}i8", c=total, rounds=_SPLIT)
        )  # fmt: skip
    return forms


INSTRUCTIONS: Final = (
    _row("sdot", i8, i8, "dotprod"),
    _row("udot", u8, u8, "dotprod"),
    _row("usdot", u8, i8, "i8mm"),
)
