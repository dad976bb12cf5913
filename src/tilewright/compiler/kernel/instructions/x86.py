"""Dot products of x86-64: VNNI, BF16, and the multiply-add of AVX2; numbers of 4 bits looked up in a register, and bytes of words moved.

None of them saturates: `vpmaddubsw`, which may, is here for unsigned bytes of 7 bits alone, and no product of `vpdpbusd` leaves 32 bits.

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, the pages of VPDPBUSD, VPDPWSSD,
PMADDUBSW, PMADDWD, PSHUFB, VDPBF16PS and VPERMPS; AMD64 Architecture Programmer's Manual, volume 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from tilewright.base.dtypes import bf16, f32, i8, i16, i32, u8
from tilewright.compiler.kernel.instructions.dot_products import (
    SMALL,
    dot,
    dot_flushed,
    instruction,
)
from tilewright.compiler.kernel.instructions.small_numbers import low_number, top_byte
from tilewright.compiler.kernel.ir import Form, Instruction

_BITS: Final = (512, 256, 128)
_PREFIX: Final = {512: "_mm512", 256: "_mm256", 128: "_mm"}


def _vnni(name: str, unit: str) -> tuple[Form, ...]:
    """The forms with AVX-512 VNNI, and those of its short vectors with AVX-VNNI."""
    forms: list[Form] = []
    word = name.removeprefix("vp")
    for bits in _BITS:
        features = frozenset({"avx512vnni"} if bits == 512 else {"avx512vnni", "avx512vl"})
        llvm, vector = f"llvm.x86.avx512.{name}.{bits}", f"__m{bits}i"
        operands = f"(({vector})a, ({vector})b, ({vector})c)"
        stem = f"{_PREFIX[bits]}_{word}"
        forms.append(
            Form(lanes=bits // 32, features=features, unit=unit, llvm=llvm,
                 c=f"{stem}_epi32{operands}")
        )  # fmt: skip
        if bits < 512:
            forms.append(
                Form(lanes=bits // 32, features=frozenset({"avxvnni"}), unit=unit, llvm=llvm,
                     c=f"{stem}_avx_epi32{operands}")
            )  # fmt: skip
    return tuple(forms)


_MULTIPLY_ADD: Final = {
    512: ("avx512bw", "llvm.x86.avx512.pmaddw.d.512"),
    256: ("avx2", "llvm.x86.avx2.pmadd.wd"),
    128: ("sse2", "llvm.x86.sse2.pmadd.wd"),
}
"""By the bits of a vector, the feature that has `pmaddwd` for it and LLVM's name."""
_WIDENED: Final = (
    ((("and", 0xFF),), (("shl", 8), ("ashr", 8))),  # the even bytes
    ((("lshr", 8),), (("ashr", 8),)),  # the odd ones
)
"""How bytes become 16-bit numbers, half of them at a time: unsigned ones, signed ones."""


def _adding(
    row: Mapping[int, tuple[str, str]], unit: str, total: Callable[[int], str], **more: Any
) -> tuple[Form, ...]:
    """Forms whose results an addition adds to the total, in C as `total` of the bits of a vector writes it."""
    return tuple(
        Form(lanes=bits // 32, features=frozenset({feature}), unit=unit, llvm=llvm,
             c=total(bits), adds=True, **more)
        for bits, (feature, llvm) in row.items()
    )  # fmt: skip


def _sum(bits: int, *products: str) -> str:
    """The total `a` and the products added to it, in C."""
    total = f"(__m{bits}i)a"
    for product in products:
        total = f"{_PREFIX[bits]}_add_epi32({total}, {product})"
    return total


def _multiply_add() -> tuple[Form, ...]:
    """`pmaddwd` and an addition."""

    def total(bits: int) -> str:
        return _sum(bits, f"{_PREFIX[bits]}_madd_epi16((__m{bits}i)b, (__m{bits}i)c)")

    return _adding(_MULTIPLY_ADD, "i16", total)


def _multiply_add_extended() -> tuple[Form, ...]:
    """`pmaddwd` of 16-bit numbers by bytes, whose signs a load extends, and an addition."""
    extended = {
        512: "_mm512_cvtepi8_epi16((__m256i)c)",
        256: "_mm256_cvtepi8_epi16((__m128i)c)",
        128: "_mm_srai_epi16(_mm_unpacklo_epi8(_mm_setzero_si128(), _mm_cvtsi64_si128((long long)c)), 8)",
    }

    def total(bits: int) -> str:
        return _sum(bits, f"{_PREFIX[bits]}_madd_epi16((__m{bits}i)b, {extended[bits]})")

    return _adding(_MULTIPLY_ADD, "i16", total)


def _multiply_add_bytes() -> tuple[Form, ...]:
    """Two `pmaddwd` for four products of bytes, which are widened first: exact, as `pmaddubsw` is not."""

    def total(bits: int) -> str:
        prefix, x, y = _PREFIX[bits], f"(__m{bits}i)b", f"(__m{bits}i)c"
        low = f"{prefix}_and_{_whole(bits)}({x}, {prefix}_set1_epi32(0xff00ff))"
        even = f"{prefix}_srai_epi16({prefix}_slli_epi16({y}, 8), 8)"
        high, odd = f"{prefix}_srli_epi16({x}, 8)", f"{prefix}_srai_epi16({y}, 8)"
        pairs = ((low, even), (high, odd))
        return _sum(
            bits, *(f"{prefix}_madd_epi16({left}, {right})" for left, right in pairs)
        )

    return _adding(_MULTIPLY_ADD, "i16", total, rounds=_WIDENED)


def _whole(bits: int) -> str:
    """How operations on all bits of a vector end."""
    return f"si{bits}" if bits < 512 else "epi32"


_SMALL_BYTES: Final = {
    512: ("avx512bw", "llvm.x86.avx512.pmaddubs.w.512"),
    256: ("avx2", "llvm.x86.avx2.pmadd.ub.sw"),
    128: ("ssse3", "llvm.x86.ssse3.pmadd.ub.sw.128"),
}
"""By the bits of a vector, the feature that has `pmaddubsw` for it and LLVM's name."""
_CUT: Final = (((("and", SMALL),), ()),)
"""What says that unsigned bytes are small ones: no instruction is left of it where they are known to be."""


def _small_byte(bits: int) -> str:
    mask = f"{_PREFIX[bits]}_set1_epi32({SMALL * 0x01010101:#x})"
    return f"{_PREFIX[bits]}_and_{_whole(bits)}((__m{bits}i)b, {mask})"


def _small_bytes() -> tuple[Form, ...]:
    """Two sums of two products of bytes, which 16 bits hold, and `pmaddwd` by ones; with VNNI one instruction."""
    found = [
        replace(form, rounds=_CUT, c=form.c.replace(f"(__m{bits}i)b", _small_byte(bits)))
        for form in _vnni("vpdpbusd", "i8")
        for bits in (form.lanes * 32,)
    ]

    def total(bits: int) -> str:
        prefix = _PREFIX[bits]
        pairs = f"{prefix}_maddubs_epi16({_small_byte(bits)}, (__m{bits}i)c)"
        return _sum(bits, f"{prefix}_madd_epi16({pairs}, {prefix}_set1_epi16(1))")

    for bits, row in _SMALL_BYTES.items():
        joins = _MULTIPLY_ADD[bits][1]
        found += _adding({bits: row}, "i8", total, rounds=_CUT, joins=joins)
    return tuple(found)


def _brain_floats() -> tuple[Form, ...]:
    forms: list[Form] = []
    for bits in _BITS:
        features = {"avx512bf16"} if bits == 512 else {"avx512bf16", "avx512vl"}
        vector = f"__m{bits}"
        forms.append(
            Form(lanes=bits // 32, features=frozenset(features), unit="bfloat",
                 llvm=f"llvm.x86.avx512bf16.dpbf16ps.{bits}",
                 c=f"{_PREFIX[bits]}_dpbf16_ps(({vector})a, ({vector}bh)b, ({vector}bh)c)")
        )  # fmt: skip
    return tuple(forms)


def _lookup() -> tuple[Form, ...]:
    """A permutation of sixteen constants, which goes by the lowest 4 bits of each word."""
    table = tuple(float(number - 8) for number in range(16))
    written = ", ".join(f"{number:.1f}f" for number in table)
    return (
        Form(lanes=16, features=frozenset({"avx512f"}), unit="i32", adds=True, table=table,
             llvm="llvm.x86.avx512.permvar.sf.512",
             c=f"(__m512)a + _mm512_permutexvar_ps((__m512i)b, (__m512){{{written}}})"),
    )  # fmt: skip


_BYTE_SHUFFLES: Final = {
    256: ("avx2", "llvm.x86.avx2.pshuf.b"),
    128: ("ssse3", "llvm.x86.ssse3.pshuf.b.128"),
}
"""By the bits of a vector, the feature that has `pshufb` for it and LLVM's name."""


_NO_BYTE: Final = 0x80
"""In the order of `pshufb`: nothing of the operand."""


def _byte_order(bits: int, place: int) -> tuple[int, ...]:
    """One byte of each word as its highest; each half of 128 bits counts its own bytes."""
    taken = (word % 4 * 4 + place for word in range(bits // 32))
    return tuple(n for byte in taken for n in (_NO_BYTE, _NO_BYTE, _NO_BYTE, byte))


def _byte_shuffles(place: int) -> tuple[Form, ...]:
    """`pshufb`, which moves one byte of each word and clears the others."""

    def total(bits: int) -> str:
        prefix = _PREFIX[bits]
        order = ", ".join(f"(char){n}" for n in _byte_order(bits, place))
        return _sum(
            bits, f"{prefix}_shuffle_epi8((__m{bits}i)b, {prefix}_setr_epi8({order}))"
        )

    return tuple(
        form
        for bits, row in _BYTE_SHUFFLES.items()
        for form in _adding({bits: row}, "i8", total, order=_byte_order(bits, place))
    )


def _instructions() -> tuple[Instruction, ...]:
    bytes_ = (*_vnni("vpdpbusd", "i8"), *_multiply_add_bytes())
    halves, half_body = dot(f32, bf16, bf16, 2)
    return (
        instruction("vpdpbusd", dot(i32, u8, i8, 4), bytes_),
        instruction("vpdpwssd", dot(i32, i16, i16, 2), _vnni("vpdpwssd", "i16")),
        instruction("vpmaddwd", dot(i32, i16, i16, 2), _multiply_add()),
        instruction("vpmaddubsw", dot(i32, u8, i8, 4, small=True), _small_bytes()),
        instruction("vpmaddwd_i8", dot(i32, i16, i8, 2), _multiply_add_extended()),
        Instruction(
            name="vdpbf16ps", parameters=halves, body=dot_flushed(halves, 2), forms=_brain_floats(),
            replaces=half_body,
            caution="adds the second product first, each rounded once, and denormal numbers are zeros",
        ),
        instruction("vpermps", low_number(), _lookup()),
        *(
            instruction(f"pshufb_{place}", top_byte(place), _byte_shuffles(place))
            for place in range(4)
        ),
    )  # fmt: skip


INSTRUCTIONS: Final = _instructions()
