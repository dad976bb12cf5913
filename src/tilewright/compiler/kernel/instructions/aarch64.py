"""Dot products of aarch64: SDOT and UDOT (dotprod), USDOT (i8mm).

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
    return Instruction(name=name, parameters=parameters, body=body, forms=tuple(forms))


INSTRUCTIONS: Final = (
    _row("sdot", i8, i8, "dotprod"),
    _row("udot", u8, u8, "dotprod"),
    _row("usdot", u8, i8, "i8mm"),
)
