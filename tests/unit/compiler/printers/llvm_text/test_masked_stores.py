"""Stores under masks: what is read under the same one is right and not loaded again, and known lanes need none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fakes.lowered import lower
from fakes.native_kernel import assert_same, needs_x86, targets_here
from tilewright.base import dtypes
from tilewright.base.dtypes import DType, f32
from tilewright.base.symbolic import Symbol, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Binary,
    Buffer,
    Compare,
    For,
    If,
    Index,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Store,
)
from tilewright.compiler.printers.llvm_text.first_lanes import MOST_STORES
from tilewright.compiler.printers.llvm_text.function import emit_kernel

pytestmark = needs_x86

COUNT = 13
TYPES = [dtypes.bool_, dtypes.i8, dtypes.f16, dtypes.bf16, f32, dtypes.i64]
place = symbol("i") * 8 + symbol("v")


def kernel_of(x: Buffer, written: Sequence[Buffer], body: Sequence[Store]) -> Kernel:
    """`body` in eight lanes, of which the last ones lie behind `COUNT`."""
    guarded = If(Compare("lt", Index(place), Index(COUNT)), tuple(body))
    lanes = For(Symbol("v"), 8, (guarded,), LoopKind.VECTOR)
    parameters = (
        Parameter(x, AccessMode.READ),
        *(Parameter(b, AccessMode.READ_WRITE) for b in written),
    )
    return Kernel("k", parameters, (), (), (For(Symbol("i"), 2, (lanes,)),))


@pytest.mark.thinned(5)
@pytest.mark.parametrize("target", targets_here(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("between", [False, True], ids=["alone", "store between"])
def test_what_was_stored_under_a_mask_is_read_under_it(
    between: bool, dtype: DType, target: Target
) -> None:
    x, out = Buffer("x", dtype, (COUNT,)), Buffer("out", dtype, (2 * COUNT,))
    first, second = (Store(out, (place,), Load(x, (at,))) for at in (place, 0))
    read = Store(out, (place + COUNT,), Load(out, (place,)))
    kernel = kernel_of(x, [out], (first, second, read) if between else (first, read))
    draw = np.random.default_rng(1)
    arrays = [draw.integers(-99, 99, n).astype(dtype.numpy) for n in (COUNT, 2 * COUNT)]
    assert_same(kernel, arrays, target=target)


def test_what_was_stored_under_a_mask_is_not_loaded_again() -> None:
    target = Target.level("v3")
    x, y, out = (Buffer(name, f32, (COUNT,)) for name in ("x", "y", "out"))
    body = [Store(y, (place,), Load(x, (place,))), Store(out, (place,), Load(y, (place,)))]
    text = emit_kernel(lower(kernel_of(x, [y, out], body), target), target).text
    assert text.count("call <8 x float> @llvm.masked.load") == 1


@pytest.mark.thinned(5)
@pytest.mark.parametrize("target", targets_here(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_known_number_of_first_lanes_is_stored_and_nothing_behind_them(
    dtype: DType, target: Target
) -> None:
    x, out = Buffer("x", dtype, (8,)), Buffer("out", dtype, (8, 8))
    draw = np.random.default_rng(1)
    arrays = [draw.integers(-99, 99, b.shape).astype(dtype.numpy) for b in (x, out)]
    assert_same(rows_of_first_lanes(x, out), arrays, target=target)


@pytest.mark.parametrize(("level", "masked"), [("v3", 0), ("v4", 7)])
def test_known_first_lanes_have_a_mask_where_it_takes_no_longer(
    level: str, masked: int
) -> None:
    x, out = Buffer("x", f32, (8,)), Buffer("out", f32, (8, 8))
    target = Target.level(level)
    text = emit_kernel(lower(rows_of_first_lanes(x, out), target), target).text
    assert text.count("call void @llvm.masked.store") == masked


def rows_of_first_lanes(x: Buffer, out: Buffer) -> Kernel:
    """Row n has the first n lanes of `x`."""
    lane = symbol("v")
    rows = [
        If(Compare("lt", Index(lane), Index(n)), (Store(out, (n, lane), Load(x, (lane,))),))
        for n in range(8)
    ]
    parameters = (Parameter(x, AccessMode.READ), Parameter(out, AccessMode.READ_WRITE))
    body = tuple(For(Symbol("v"), 8, (row,), LoopKind.VECTOR) for row in rows)
    return Kernel("k", parameters, (), (), body)


@pytest.mark.parametrize(("level", "narrow"), [("v3", False), ("v4", True)])
def test_what_holds_for_all_lanes_is_as_wide_as_a_mask_of_lanes(
    level: str, narrow: bool
) -> None:
    """AVX2 has masks of whole elements: one of bits would be widened for each load."""
    x, out = Buffer("x", f32, (8, 8)), Buffer("out", f32, (8, 8))
    row, lane, limit = symbol("i"), symbol("v"), symbol("N", 1)
    below, left = (Compare("lt", Index(at), Index(limit)) for at in (row, lane))
    value = Load(x, (row, lane), mask=Binary("and", below, left, dtypes.bool_))
    vector = For(Symbol("v"), 8, (Store(out, (row, lane), value),), LoopKind.VECTOR)
    parameters = (Parameter(x, AccessMode.READ), Parameter(out, AccessMode.READ_WRITE))
    body = (For(Symbol("i"), 8, (vector,)),)
    kernel = Kernel("k", parameters, (Symbol("N", 1),), (), body)
    target = Target.level(level)
    text = emit_kernel(lower(kernel, target), target).text
    assert ("insertelement <8 x i1>" in text) == narrow
    arrays = [np.arange(64, dtype=np.float32).reshape(8, 8) for _ in range(2)]
    if target in targets_here():
        assert_same(kernel, arrays, {"N": 5}, target=target)


@pytest.mark.parametrize(
    ("level", "stores", "masked"),
    [("v3", MOST_STORES, 0), ("v3", MOST_STORES + 1, MOST_STORES + 1), ("v4", 2, 2)],
)
def test_few_stores_of_first_lanes_are_in_pieces_where_masks_take_long(
    level: str, stores: int, masked: int
) -> None:
    x, out = Buffer("x", f32, (COUNT,)), Buffer("out", f32, (stores * COUNT,))
    body = [Store(out, (place + n * COUNT,), Load(x, (place,))) for n in range(stores)]
    kernel, target = kernel_of(x, [out], body), Target.level(level)
    text = emit_kernel(lower(kernel, target), target).text
    assert text.count("call void @llvm.masked.store") == masked
    if target in targets_here():
        arrays = [np.arange(b.shape[0], dtype=np.float32) for b in (x, out)]
        assert_same(kernel, arrays, target=target)
