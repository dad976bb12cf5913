"""Products of bytes of aarch64: SDOT and UDOT (dotprod), USDOT (i8mm) and what does the same without it.

SMMLA, UMMLA and USMMLA (i8mm) multiply two rows by two columns of eight bytes: four lanes are one tile.

Source: Arm Architecture Reference Manual for A-profile, C7.2 (SDOT, UDOT and USDOT, vector; SMMLA, UMMLA and
USMMLA, vector); Arm C Language Extensions, Advanced SIMD intrinsics.
"""

from __future__ import annotations

from typing import Final

from tilewright.base.dtypes import DType, i8, i32, u8
from tilewright.compiler.kernel.instructions.dot_products import (
    SMALL,
    dot,
    instruction,
    product_of_rows,
)
from tilewright.compiler.kernel.ir import Form, Instruction


def _row(name: str, left: DType, right: DType, feature: str) -> Instruction:
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
    return instruction(name, dot(i32, left, right, 4), forms)


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


def _small_bytes() -> Instruction:
    """SDOT of unsigned bytes of 7 bits, which are signed bytes."""
    forms: list[Form] = []
    for lanes, q in ((4, "q"), (2, "")):
        byte, word = f"int8x{4 * lanes}_t", f"int32x{lanes}_t"
        small = f"vand{q}_s8(({byte})b, vdup{q}_n_s8({SMALL:#x}))"
        forms.append(
            Form(lanes=lanes, features=frozenset({"dotprod"}), unit="i8",
                 llvm=f"llvm.aarch64.neon.sdot.v{lanes}i32.v{4 * lanes}i8",
                 c=f"vdot{q}_s32(({word})a, {small}, ({byte})c)", rounds=(((("and", SMALL),), ()),))
        )  # fmt: skip
    return instruction("sdot_u7", dot(i32, u8, i8, 4, small=True), forms)


def _tile(name: str, left: DType, right: DType) -> Instruction:
    """Two rows by two columns: 32 products, which are added to four sums."""
    word = "usmmla" if name == "usmmla" else "mmla"
    result, suffix = ("uint32", "u32") if name == "ummla" else ("int32", "s32")
    sides = [f"{dtype.c.removesuffix('_t')}x16_t" for dtype in (left, right)]
    form = Form(
        lanes=4, features=frozenset({"i8mm"}), unit="i8", llvm=f"llvm.aarch64.neon.{name}.v4i32.v16i8",
        c=f"v{word}q_{suffix}(({result}x4_t)a, ({sides[0]})b, ({sides[1]})c)",
    )  # fmt: skip
    return instruction(name, product_of_rows(i32, left, right, 8), (form,))


INSTRUCTIONS: Final = (
    _row("sdot", i8, i8, "dotprod"),
    _row("udot", u8, u8, "dotprod"),
    _row("usdot", u8, i8, "i8mm"),
    _small_bytes(),
    _tile("smmla", i8, i8),
    _tile("ummla", u8, u8),
    _tile("usmmla", u8, i8),
)
