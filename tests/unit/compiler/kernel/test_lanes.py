"""Comparisons of places that differ per lane: small numbers in machine code, right however far the bound lies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fakes.c_kernel import CKernel, needs_cc
from fakes.lowered import lower
from fakes.native_kernel import assert_same, needs_x86, targets_here
from tilewright.base import dtypes
from tilewright.base.symbolic import Symbol, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Buffer,
    Compare,
    Const,
    Expression,
    For,
    Index,
    Kernel,
    LoopKind,
    Parameter,
    Select,
    Store,
)
from tilewright.compiler.kernel.lanes import room_of_first_lanes, room_of_lanes
from tilewright.compiler.printers.llvm_text.function import emit_kernel

LANES = 8
OPS = ("lt", "le", "gt", "ge", "eq", "ne")
BOUNDS = tuple(range(-23, 24)) + tuple(
    sign * (1 << bits) + step
    for sign in (1, -1)
    for bits in (31, 32, 40)
    for step in (-1, 0, 1)
)
FARTHEST = (-(1 << 63), 1 - (1 << 63), (1 << 63) - 2, (1 << 63) - 1)
V3 = Target.level("v3")


def compared(
    stride: int, bounds: Sequence[int] = BOUNDS + FARTHEST
) -> tuple[Kernel, np.ndarray]:
    """A row for every comparison with every bound, which a call counts from one far below."""
    out = Buffer("out", dtypes.i32, (len(OPS) * len(bounds) * LANES,))
    size, v = symbol("N", 0), symbol("v")
    one, zero = (Const(n, dtypes.i32) for n in (1, 0))
    rows: list[Store] = []
    for row, (op, bound) in enumerate((op, b) for op in OPS for b in bounds):
        is_near = bound not in FARTHEST  # what is added to it stays in 64 bits
        holds = Compare(
            op,
            Index(v * stride + size),
            Index(size + bound if is_near and row % 2 else bound),
        )
        rows.append(Store(out, (row * LANES + v,), Select(holds, one, zero, dtypes.i32)))
    body = tuple(For(Symbol("v"), LANES, (row,), LoopKind.VECTOR) for row in rows)
    kernel = Kernel("k", (Parameter(out, AccessMode.WRITE),), (Symbol("N", 0),), (), body)
    return kernel, np.zeros(out.shape, np.int32)


@needs_x86
@pytest.mark.sampled(5)
@pytest.mark.thinned(11)
@pytest.mark.parametrize("target", targets_here(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("stride", [-2, -1, 1, 2, 3, 1 << 30])
@pytest.mark.parametrize("size", [0, 5])
def test_places_of_lanes_are_compared_with_bounds_of_64_bits(
    size: int, stride: int, target: Target
) -> None:
    kernel, out = compared(stride)
    assert_same(kernel, [out], {"N": size}, target=target)


@needs_cc
@pytest.mark.slow
@pytest.mark.parametrize("stride", [-1, 2, 1 << 30])
def test_c_compares_places_of_lanes_with_bounds_of_64_bits(stride: int) -> None:
    kernel, out = compared(stride)
    got, expected = out.copy(), out.copy()
    CKernel(kernel, V3)([got], {"N": 5})
    evaluate(kernel, [expected], {"N": 5})
    np.testing.assert_array_equal(got, expected)


@needs_x86
def test_no_vector_of_wide_numbers_is_compared() -> None:
    text = emit_kernel(lower(compared(2, BOUNDS)[0], V3), V3).text
    assert f"<{LANES} x i32>" in text
    assert "x i64>" not in text


def place(stride: int, dtype: dtypes.DType = dtypes.i64) -> Expression:
    return Index(symbol("N", 0) - 1, dtype, LANES, stride)


def test_the_room_of_lanes_is_what_the_bound_lies_behind_the_first() -> None:
    bound = Index(symbol("N", 0) + 3, dtypes.i64, LANES)
    assert room_of_lanes(Compare("ge", place(2), bound)) == (4, 2)
    assert room_of_lanes(Compare("ge", place(0), bound)) is None
    assert room_of_lanes(Compare("le", place(1), Const((1 << 63) - 1, dtypes.i64))) is None
    assert room_of_lanes(Compare("le", place(1 << 29), bound)) is None
    # Numbers of other types wrap, or are rounded.
    assert room_of_lanes(Compare("lt", place(1, dtypes.i32), bound)) is None


@pytest.mark.parametrize(
    ("op", "stride", "lanes"),
    [("lt", 1, 4), ("le", 1, None), ("ge", 1, None), ("lt", 2, None)],
)
def test_only_a_step_of_one_below_a_bound_counts_first_lanes(
    op: str, stride: int, lanes: int | None
) -> None:
    bound = Index(symbol("N", 0) + 3, dtypes.i64, LANES)
    assert room_of_first_lanes(Compare(op, place(stride), bound, LANES)) == lanes
