"""Small functions that kernels in C are written with: each is defined where a file first needs it.

A helper of lanes is written with the operators that vectors have; where there is none, it applies the helper
of scalars to every lane, and compilers make vector instructions of short loops.  Integers wrap, divisions never trap, `min` and `max` keep NaN: the semantics at the top of `kernel.ir`.
Called by the printer of expressions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template
from typing import Final, final

from tilewright.base import dtypes
from tilewright.base.dtypes import HALVES, DType
from tilewright.base.errors import InternalError
from tilewright.compiler.printers.c_text.types import (
    Value,
    element_type,
    unsigned,
    value_type,
    word,
)

# Of scalars `a` and `b` of the type $T, which wraps in $U; $f is the suffix of functions of the type.
_INTEGER: Final[Mapping[str, str]] = {
    "add": "return ($T)(($U)a + ($U)b);",
    "sub": "return ($T)(($U)a - ($U)b);",
    "mul": "return ($T)(($U)a * ($U)b);",
    "shl": "return ($T)(($U)a << b);",
    "shr": "return ($T)(a >> b);",
    "and": "return ($T)(a & b);",
    "or": "return ($T)(a | b);",
    "xor": "return ($T)(a ^ b);",
    "min": "return a < b ? a : b;",
    "max": "return a > b ? a : b;",
    "neg": "return ($T)(($U)0 - ($U)a);",
    "not": "return ($T)~a;",
}
_SIGNED: Final[Mapping[str, str]] = {
    "div": "return b == 0 ? 0 : b == -1 ? ($T)(($U)0 - ($U)a) : ($T)(a / b);",
    "mod": "return b == 0 || b == -1 ? 0 : ($T)(a % b);",
    "floormod": (
        "const $T rest = b == 0 || b == -1 ? 0 : ($T)(a % b);\n"
        "  return rest != 0 && (rest ^ b) < 0 ? ($T)(rest + b) : rest;"
    ),
    "abs": "return a < 0 ? ($T)(($U)0 - ($U)a) : a;",
}
_UNSIGNED: Final[Mapping[str, str]] = {
    "div": "return b == 0 ? 0 : ($T)(a / b);",
    "mod": "return b == 0 ? 0 : ($T)(a % b);",
    "floormod": "return b == 0 ? 0 : ($T)(a % b);",
    "abs": "return a;",
}
_FLOAT: Final[Mapping[str, str]] = {
    "add": "return a + b;",
    "sub": "return a - b;",
    "mul": "return a * b;",
    "div": "return a / b;",
    "min": "const $T least = b < a ? b : a;\n  return b != b ? b : least;",
    "max": "const $T most = b > a ? b : a;\n  return b != b ? b : most;",
    "copysign": "return __builtin_copysign$f(a, b);",
    "neg": "return -a;",
    "abs": "return __builtin_fabs$f(a);",
    "sqrt": "return __builtin_sqrt$f(a);",
    "floor": "return __builtin_floor$f(a);",
    "ceil": "return __builtin_ceil$f(a);",
    "trunc": "return __builtin_trunc$f(a);",
    "round": "return __builtin_rint$f(a);",
}
_UNSIGNED_OF: Final = {8: dtypes.u8, 16: dtypes.u16, 32: dtypes.u32, 64: dtypes.u64}
_UNARY: Final = frozenset(
    ["neg", "not", "abs", "sqrt", "floor", "ceil", "trunc", "round"],
)
# Of vectors $T, whose masks are $M and whose unsigned numbers are $U.
_INTEGER_LANES: Final[Mapping[str, str]] = {
    "add": "return ($T)(($U)a + ($U)b);",
    "sub": "return ($T)(($U)a - ($U)b);",
    "mul": "return ($T)(($U)a * ($U)b);",
    "shl": "return ($T)(($U)a << ($U)b);",
    "shr": "return a >> b;",
    "and": "return a & b;",
    "or": "return a | b;",
    "xor": "return a ^ b;",
    "min": "const $M less = a < b;\n  return ($T)((less & ($M)a) | (~less & ($M)b));",
    "max": "const $M less = a < b;\n  return ($T)((less & ($M)b) | (~less & ($M)a));",
    "neg": "return ($T)(-($U)a);",
    "not": "return ~a;",
}
_FLOAT_LANES: Final[Mapping[str, str]] = {
    "min": (
        "const $M less = b < a, lost = b != b, right = less | lost;\n"
        "  return ($T)((right & ($M)b) | (~right & ($M)a));"
    ),
    "max": (
        "const $M more = b > a, lost = b != b, right = more | lost;\n"
        "  return ($T)((right & ($M)b) | (~right & ($M)a));"
    ),
    "neg": "return -a;",
    "abs": "return ($T)(($M)a & $most);",
    "copysign": "return ($T)((($M)a & $most) | (($M)b & ~$most));",
}
_FUSED: Final = {
    (dtypes.f32, 4): ("__FMA__", "_mm_fmadd_ps", "vfmaddps(a, b, c)"),
    (dtypes.f32, 8): ("__FMA__", "_mm256_fmadd_ps", "vfmaddps256(a, b, c)"),
    (dtypes.f32, 16): ("__AVX512F__", "_mm512_fmadd_ps", "vfmaddps512_mask(a, b, c, -1, 4)"),
    (dtypes.f64, 2): ("__FMA__", "_mm_fmadd_pd", "vfmaddpd(a, b, c)"),
    (dtypes.f64, 4): ("__FMA__", "_mm256_fmadd_pd", "vfmaddpd256(a, b, c)"),
    (dtypes.f64, 8): ("__AVX512F__", "_mm512_fmadd_pd", "vfmaddpd512_mask(a, b, c, -1, 4)"),
}  # fmt: skip
"""Instructions that multiply and add: the macro that says they are there, the intrinsic, GCC's function behind it.

GCC takes eight times as long for a kernel where it reads the header of intrinsics.
"""
_INTRINSICS: Final = """\
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif"""
_CLANG_INTRINSICS: Final = """\
#if defined(__x86_64__) && defined(__clang__)
#include <immintrin.h>
#endif"""
_TO_F16: Final = """\
  uint32_t bits;
  memcpy(&bits, &a, sizeof bits);
  const uint32_t sign = bits >> 16 & 0x8000u, size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (size >> 13 & 0x3ffu));
  if (size >= 0x47800000u) return (uint16_t)(sign | 0x7c00u);
  if (size < 0x38800000u) {  // adding 0.5 leaves the rounded mantissa in the low bits
    float small;
    memcpy(&small, &size, sizeof small);
    small += 0.5f;
    memcpy(&bits, &small, sizeof bits);
    return (uint16_t)(sign | (bits - 0x3f000000u));
  }
  return (uint16_t)(sign | (size + 0xfffu - (112u << 23) + (size >> 13 & 1u)) >> 13);"""
_FROM_F16: Final = """\
  const uint32_t sign = (uint32_t)(a & 0x8000) << 16, size = (uint32_t)(a & 0x7fff) << 13;
  float scaled;
  memcpy(&scaled, &size, sizeof scaled);
  scaled *= 0x1p112f;
  uint32_t bits;
  memcpy(&bits, &scaled, sizeof bits);
  bits = sign | (size >= 0x0f800000u ? size | 0x7f800000u : bits);
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;"""
_TO_BF16: Final = """\
  uint32_t bits;
  memcpy(&bits, &a, sizeof bits);
  if (a != a) return (uint16_t)((bits | 0x400000u) >> 16);
  return (uint16_t)((bits + (bits >> 16 & 1u) + 0x7fffu) >> 16);"""
_FROM_BF16: Final = """\
  const uint32_t bits = (uint32_t)a << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;"""
# Rounded to odd: rounding once more is as if this had been exact.
_NARROW: Final = """\
  const float nearest = (float)a;
  const double back = nearest;
  if (back == a || a != a || nearest - nearest != 0) return nearest;
  uint32_t bits;
  memcpy(&bits, &nearest, sizeof bits);
  if (__builtin_fabs(back) > __builtin_fabs(a)) bits -= 1;
  bits |= 1;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;"""
_HALF_CASTS: Final = {
    (dtypes.f32, dtypes.f16): _TO_F16,
    (dtypes.f16, dtypes.f32): _FROM_F16,
    (dtypes.f32, dtypes.bf16): _TO_BF16,
    (dtypes.bf16, dtypes.f32): _FROM_BF16,
}


def chosen(machine: Sequence[tuple[str, str]], type_: str, body: str) -> str:
    """A function's body by the first instruction that the preprocessor finds; `body` where it finds none."""
    if not machine:
        return body
    branches = [f"if {test}\n  return ({type_}){text};" for test, text in machine]
    choices = "\n#el".join(branches)
    return f"#{choices}\n#else\n{body}\n#endif"


@final
class Definitions:
    """The definitions that a file needs so far, in order."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}

    def define(self, name: str, text: str) -> str:
        """Add a definition of NAME if there is none of that name; gives the name back."""
        self.texts.setdefault(name, text.replace("NAME", name))
        return name

    # --- types -----------------------------------------------------------------------------

    def vector(self, dtype: DType, lanes: int, width: int = 0) -> str:
        """The name of a type, defined if it is one of lanes."""
        name = value_type(dtype, lanes, width)
        if lanes == 1:
            return name
        bits = width if dtype.is_bool else dtype.itemsize * 8
        element = f"int{width}_t" if dtype.is_bool else element_type(dtype)
        size = whole_lanes(lanes) * bits // 8
        return self.define(
            name, f"typedef {element} {name} __attribute__((vector_size({size})));"
        )

    # --- operators -------------------------------------------------------------------------

    def operator(self, op: str, dtype: DType, lanes: int) -> str:
        """The function of one or two operands that `op` is."""
        name = f"tw_{op}_{word(dtype)}"
        count = 1 if op in _UNARY else 2
        table = _FLOAT_LANES if dtype.is_float else _INTEGER_LANES
        if lanes > 1 and op in table:
            return self._of_vectors(f"{name}x{lanes}", table[op], dtype, lanes, count)
        if name not in self.texts:
            type_ = value_type(dtype)
            suffix = "f" if dtype is dtypes.f32 else ""
            body = self._operator_body(op, dtype).substitute(
                T=type_, U=unsigned(dtype), f=suffix
            )
            self.function(name, type_, [type_] * count, body)
        return self.in_lanes(name, dtype, [dtype] * count, lanes)

    def _of_vectors(
        self, name: str, body: str, dtype: DType, lanes: int, count: int
    ) -> str:
        if name in self.texts:
            return name
        type_, bits = self.vector(dtype, lanes), dtype.itemsize * 8
        text = Template(body).substitute(
            T=type_,
            M=self.vector(dtypes.bool_, lanes, bits),
            U=self.vector(_UNSIGNED_OF[bits], lanes),
            most=f"INT{bits}_MAX",
        )
        self.function(name, type_, [type_] * count, text)
        return name

    def _operator_body(self, op: str, dtype: DType) -> Template:
        if dtype.is_float:
            table = _FLOAT
        else:
            table = {**_INTEGER, **(_SIGNED if dtype.is_signed else _UNSIGNED)}
        if op not in table:
            raise InternalError(f"no C for '{op}' on {dtype}")
        return Template(table[op])

    def fused(self, dtype: DType, lanes: int, *, one_rounding: bool) -> str:
        """`a * b + c`."""
        suffix = "f" if dtype is dtypes.f32 else ""
        name, type_ = f"tw_fma_{word(dtype)}", value_type(dtype)
        body = (
            f"return __builtin_fma{suffix}(a, b, c);"
            if one_rounding
            else "return a * b + c;"
        )
        self.function(name, type_, [type_] * 3, body)
        if one_rounding and (dtype, lanes) in _FUSED:
            return self._fused_lanes(name, dtype, lanes)
        return self.in_lanes(name, dtype, [dtype] * 3, lanes)

    def _fused_lanes(self, scalar: str, dtype: DType, lanes: int) -> str:
        macro, intrinsic, builtin = _FUSED[dtype, lanes]
        self.define("tw_clang_intrinsics", _CLANG_INTRINSICS)
        machine = [
            (f"defined({macro}) && defined(__clang__)", f"{intrinsic}(a, b, c)"),
            (f"defined({macro})", f"__builtin_ia32_{builtin}"),
        ]
        return self.in_lanes(scalar, dtype, [dtype] * 3, lanes, machine)

    def function(self, name: str, result: str, types: list[str], body: str) -> None:
        """Define a function of `a`, `b` and `c`."""
        parameters = ", ".join(f"{t} {v}" for t, v in zip(types, "abc", strict=False))
        head = f"TW_INLINE {result} {name}({parameters}) {{"
        body = body if body.startswith((" ", "#")) else f"  {body}"
        self.define(name, f"{head}\n{body}\n}}")

    def include_intrinsics(self) -> None:
        """Include the header of the machine's intrinsics, which takes GCC longer than most kernels do."""
        self.define("tw_intrinsics", _INTRINSICS)

    def in_lanes(
        self,
        scalar: str,
        result: DType,
        operands: list[DType],
        lanes: int,
        machine: Sequence[tuple[str, str]] = (),
    ) -> str:
        """The function that applies another one to every lane.

        Args:
            scalar: the other one.
            result: the type of one lane of what it returns.
            operands: those of what it takes.
            lanes: how many of each.
            machine: instructions that do it: what the preprocessor asks first, and the expression.
        """
        if lanes == 1:
            return scalar
        name = f"{scalar}x{lanes}"
        if name in self.texts:
            return name
        types = [self.vector(dtype, lanes) for dtype in operands]
        type_ = self.vector(result, lanes)
        items = ", ".join(f"{v}[lane]" for v in "abc"[: len(types)])
        body = (
            f"  {type_} all = {{0}};\n"
            f"  for (int lane = 0; lane < {lanes}; ++lane) all[lane] = {scalar}({items});\n"
            "  return all;"
        )
        self.function(name, type_, types, chosen(machine, type_, body))
        return name

    # --- choices and lanes -----------------------------------------------------------------

    def select(self, like: Value, width: int) -> str:
        """A choice in every lane by a mask as wide as the elements."""
        type_ = self.vector(like.dtype, like.lanes, like.width)
        mask = self.vector(dtypes.bool_, like.lanes, width)
        name = f"tw_select_{word(like.dtype, like.lanes, like.width)}"
        return self.define(
            name,
            f"TW_INLINE {type_} {name}({mask} choose, {type_} a, {type_} b) {{\n"
            f"  return ({type_})((choose & ({mask})a) | (~choose & ({mask})b));\n}}",
        )

    def mask_of(self, width: int, lanes: int, to_width: int) -> str:
        """The function that makes a mask wider or narrower."""
        old = self.vector(dtypes.bool_, lanes, width)
        new = self.vector(dtypes.bool_, lanes, to_width)
        name = f"tw_mask{to_width}_of_mask{width}x{lanes}"
        return self.define(
            name,
            f"TW_INLINE {new} {name}({old} mask) {{\n"
            f"  return __builtin_convertvector(mask, {new});\n}}",
        )

    def any_lane(self, mask: Value) -> str:
        """Whether a lane of a mask is set."""
        type_ = self.vector(mask.dtype, mask.lanes, mask.width)
        name = f"tw_any_{word(mask.dtype, mask.lanes, mask.width)}"
        return self.define(
            name,
            f"TW_INLINE int {name}({type_} mask) {{\n"
            "  int any = 0;\n"
            f"  for (int lane = 0; lane < {mask.lanes}; ++lane) any |= mask[lane] != 0;\n"
            "  return any;\n}",
        )

    def splat(self, dtype: DType, lanes: int, width: int = 0) -> str:
        """A scalar in every lane."""
        type_ = self.vector(dtype, lanes, width)
        name = f"tw_splat_{word(dtype, lanes, width)}"
        item = "-a" if dtype.is_bool else "a"
        items = ", ".join([item] * lanes)
        return self.define(
            name,
            f"TW_INLINE {type_} {name}({value_type(dtype)} a) {{\n"
            f"  return ({type_}){{{items}}};\n}}",
        )

    def horizontal(self, op: str, dtype: DType, lanes: int) -> str:
        """All lanes combined: halves are, until one is left, then the odd ones."""
        type_, one = self.vector(dtype, lanes), value_type(dtype)
        scalar = self.operator(op, dtype, 1)
        lines: list[str] = []
        odd: list[str] = []
        count = lanes
        while count > 1:
            half = count // 2
            if count % 2:
                odd.append(f"odd{count}")
                lines.append(f"const {one} odd{count} = all[{count - 1}];")
            lines.append(f"for (int lane = 0; lane < {half}; ++lane)")
            lines.append(f"  all[lane] = {scalar}(all[lane], all[lane + {half}]);")
            count = half
        result = "all[0]"
        for item in odd:
            result = f"{scalar}({result}, {item})"
        body = "\n  ".join([*lines, f"return {result};"])
        name = f"tw_{op}_lanes_{word(dtype, lanes)}"
        return self.define(name, f"TW_INLINE {one} {name}({type_} all) {{\n  {body}\n}}")

    # --- conversions -----------------------------------------------------------------------

    def convert(self, source: DType, target: DType, lanes: int) -> str:
        """The function that converts a number; neither type is bool."""
        name = f"tw_{target.name}_of_{source.name}"
        if name not in self.texts:
            type_ = value_type(target)
            self.function(
                name, type_, [value_type(source)], self._conversion(source, target)
            )
        if lanes > 1 and _is_plain(source, target):
            old, new = self.vector(source, lanes), self.vector(target, lanes)
            wide = f"{name}x{lanes}"
            self.function(wide, new, [old], f"return __builtin_convertvector(a, {new});")
            return wide
        return self.in_lanes(name, target, [source], lanes)

    def _conversion(self, source: DType, target: DType) -> str:
        text = _HALF_CASTS.get((source, target))
        if text is not None:
            return text
        if source in HALVES:
            wide = self.convert(source, dtypes.f32, 1)
            return f"return {self.convert(dtypes.f32, target, 1)}({wide}(a));"
        if target in HALVES:
            return self._to_half(source, target)
        if source.is_float and target.is_integer:
            return _saturating(source, target)
        return f"return ({value_type(target)})a;"

    def _to_half(self, source: DType, target: DType) -> str:
        final_step = self.convert(dtypes.f32, target, 1)
        exact = source.is_integer and source.bits <= 16
        if exact:
            return f"return {final_step}((float)a);"
        self.function("tw_f32_odd_of_f64", "float", ["double"], _NARROW)
        return f"return {final_step}(tw_f32_odd_of_f64((double)a));"

    def bits(self, source: Value, target: DType, lanes: int) -> str:
        """The function that reads the bits of a scalar, or as a scalar, as another type."""
        name = f"tw_bits_{word(target, lanes)}_of_{word(source.dtype, source.lanes)}"
        old = self.vector(source.dtype, source.lanes)
        new = self.vector(target, lanes)
        self.function(
            name,
            new,
            [old],
            f"  {new} result;\n  memcpy(&result, &a, sizeof result);\n  return result;",
        )
        return name


def whole_lanes(lanes: int) -> int:
    """The lanes of the vector type for `lanes`: C has powers of two, the last ones stay unused."""
    return 1 << (lanes - 1).bit_length()


def _is_plain(source: DType, target: DType) -> bool:
    """Whether C converts as the kernel IR does."""
    halves = source in HALVES or target in HALVES
    return not halves and not (source.is_float and target.is_integer)


def _saturating(source: DType, target: DType) -> str:
    """Truncated; what is too large becomes the greatest integer, NaN becomes 0."""
    bits = target.bits - 1 if target.is_signed else target.bits
    suffix = "f" if source is dtypes.f32 else ""
    type_ = value_type(target)
    high = f"0x1p{bits}{suffix}"
    low = f"-{high}" if target.is_signed else f"0.0{suffix}"
    most, least = (1 << bits) - 1, -(1 << bits) if target.is_signed else 0
    top = f"UINT64_C({most})" if most > 1 << 62 else str(most) if bits < 31 else f"{most}LL"
    bottom = "INT64_MIN" if least == -(1 << 63) else f"({least}LL)" if least else "0"
    return (
        f"  if (!(a > {low})) return a != a ? 0 : ({type_}){bottom};\n"
        f"  return a >= {high} ? ({type_}){top} : ({type_})a;"
    )
