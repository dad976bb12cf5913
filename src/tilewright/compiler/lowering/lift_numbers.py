"""Kernels that differ in numbers alone become one kernel, which reads them from bindings.

    u8(round(x / 0.037) + 131.0)   ->   u8(round(x / numbers[0]) + f32(numbers_u8[0]))

A network that was quantized has a scale and a zero point per tensor: as literals, they make a kernel for each layer.
A number is lifted where kernels of one structure have different ones.  What is the same in all of them stays a
literal, and so does every number that a rule could look at and do better with: 0, 1, powers of two, and what is no
operand of a sum, a difference, a product or a quotient of f32.

What rules need to know of a number is its type, or what `AccessMode.FIXED` promises, so it is what they make of
literals, too: results have the same bits.  Not here: who brings the numbers (`program`).  Called by `kernel_uses`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.record import record
from tilewright.base.text import unique
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel import ir, numerics
from tilewright.compiler.kernel.rewrite import map_body, with_body
from tilewright.compiler.kernel.text import kernel_text

_BYTES: Final = (dtypes.u8, dtypes.i8)
_FACTORS: Final = ("mul", "div")
_TERMS: Final = ("add", "sub")
_LEAST_ZERO_POINT: Final = -128
_GREATEST_ZERO_POINT: Final = 255
_HALF: Final = 0.5
"""The mantissa of powers of two."""

Place = Callable[[DType, float], ir.Expression | None]
"""What a number of a type becomes where it stands; None for what it was."""


@final
@record(eq=False)
class Candidates:
    """The numbers of a kernel that may be lifted, in the order of the text.

    `structure` is equal for kernels that differ in these alone, and empty where there are none.
    """

    structure: str
    numbers: tuple[tuple[DType, float], ...]


NO_CANDIDATES: Final = Candidates("", ())


def candidates(kernel: ir.Kernel) -> Candidates:
    """What may be lifted from a naive kernel."""
    found: list[tuple[DType, float]] = []
    marks = {dtype: ir.Buffer(f"?{dtype}", dtype, (1,)) for dtype in (dtypes.f32, dtypes.i16, *_BYTES)}  # fmt: skip

    def mark(dtype: DType, value: float) -> ir.Expression:
        found.append((dtype, value))
        return ir.Load(marks[dtype], (len(found),))

    masked = _placed(kernel, mark)
    return Candidates(kernel_text(masked), tuple(found)) if found else NO_CANDIDATES


def lift(
    kernel: ir.Kernel, operand_count: int, members: Sequence[Candidates]
) -> tuple[ir.Kernel, tuple[tuple[Array, ...], ...]]:
    """One kernel for `members`, which have one structure and differ, and the arrays that each brings along.

    Args:
        kernel: the first member's.
        operand_count: parameters before the results.
        members: what each has in the same places.
    """
    columns = [
        tuple(member.numbers[i] for member in members)
        for i in range(len(members[0].numbers))
    ]
    lifted = dict.fromkeys(c for c in columns if len(set(c)) > 1)
    kinds = sorted({column[0][0] for column in lifted}, key=lambda dtype: dtype.name)
    of_kind = {kind: [c for c in lifted if c[0][0] is kind] for kind in kinds}
    taken = {buffer.name for buffer in kernel.buffers}
    buffers: dict[DType, ir.Buffer] = {}
    for kind in kinds:
        name = unique("numbers" if kind is dtypes.f32 else f"numbers_{kind}", taken)
        buffers[kind] = ir.Buffer(name, kind, (len(of_kind[kind]),))
    following = iter(columns)

    def place(dtype: DType, _: float) -> ir.Expression | None:
        column = next(following)
        if column not in lifted:
            return None
        return ir.Load(buffers[dtype], (of_kind[dtype].index(column),))

    body = _placed(kernel, place)
    given = tuple(ir.Parameter(buffers[kind], ir.AccessMode.FIXED) for kind in kinds)
    before, after = kernel.parameters[:operand_count], kernel.parameters[operand_count:]
    arrays = tuple(
        tuple(
            np.array([column[i][1] for column in of_kind[kind]], kind.numpy)
            for kind in kinds
        )
        for i in range(len(members))
    )
    return replace(body, parameters=(*before, *given, *after)), arrays


def _placed(kernel: ir.Kernel, place: Place) -> ir.Kernel:
    """The kernel with another expression wherever a number may be lifted."""

    def visit(value: ir.Expression) -> ir.Expression:
        if isinstance(value, ir.Cast) and value.dtype in _BYTES:
            return _visit_rounded(value, place)
        if isinstance(value, ir.Binary) and value.dtype is dtypes.f32 and value.lanes == 1:
            return _visit_binary(value, place)
        return value

    return with_body(kernel, map_body(kernel.body, expression=visit))


def _visit_rounded(value: ir.Cast, place: Place) -> ir.Expression:
    """`byte(round(x) + zero)`: the zero point is a byte of the same type."""
    total = value.operand
    if not isinstance(total, ir.Binary) or not _is_shifted(total):
        return value
    if not isinstance(total.right, ir.Const):
        return value
    zero, kind = total.right.value, value.dtype
    least, greatest = (numerics.identity(op, kind) for op in ("max", "min"))
    if zero == 0 or not _is_whole(zero, least, greatest):
        return value
    image = place(kind, zero)
    if image is None:
        return value
    return e.cast(e.binary("add", total.left, e.cast(image, total.dtype)), kind)


def _is_shifted(value: ir.Binary) -> bool:
    rounded = value.left
    return value.op == "add" and isinstance(rounded, ir.Unary) and rounded.op == "round"


def _visit_binary(value: ir.Binary, place: Place) -> ir.Expression:
    """A number on the right of a sum, a difference, a product or a quotient."""
    number = value.right
    if not isinstance(number, ir.Const) or isinstance(value.left, ir.Const):
        return value
    if value.op not in (*_FACTORS, *_TERMS) or _is_shifted(value):
        return value
    kind = _kind(value.op, number.value)
    image = None if kind is None else place(kind, number.value)
    if image is None:
        return value
    return ir.Binary(value.op, value.left, e.cast(image, value.dtype), value.dtype)


def _kind(op: str, number: float) -> DType | None:
    """As what a number is kept; None for a literal."""
    if number in (0, 1):
        return None
    if op in _TERMS and _is_whole(number, _LEAST_ZERO_POINT, _GREATEST_ZERO_POINT):
        return dtypes.i16
    is_power = np.frexp(number)[0] == _HALF
    return dtypes.f32 if numerics.is_plain_number(number) and not is_power else None


def _is_whole(number: float, least: float, greatest: float) -> bool:
    return least <= number <= greatest and number == int(number)
