"""Small types against ml_dtypes, every value of them; by the evaluator and as machine code."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.native_kernel import NativeKernel, needs_x86, targets_apart
from tilewright.base import dtypes
from tilewright.base.dtypes import DType, f32, f64, i8, i32, i64
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import Cast, Kernel
from tilewright.compiler.kernel.rewrite import expressions
from tilewright.compiler.lowering.expand_casts import expand_casts
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule

FLOATS = dtypes.SMALL_FLOATS
PARTS = dtypes.SMALL_INTEGERS


def conversion(source: DType, target: DType, size: int) -> Kernel:
    b = KernelBuilder("cast")
    x, y = b.parameter("x", source, (size,)), b.result("y", target, (size,))
    with b.nest((size,)) as (i,):
        b.store(y, (i,), b.cast(b.load(x, (i,)), target))
    return b.build()


def every_value(dtype: DType) -> np.ndarray:
    """All bit patterns; of integers of less than a byte with everything in the bits above them."""
    count = 1 << dtype.bits if dtype.is_float else 256
    return np.arange(count, dtype=np.uint8).view(dtype.numpy)


def around(dtype: DType) -> np.ndarray:
    """All values, all that lie between two neighbours, and the next f32 on both sides of each."""
    values = np.unique(every_value(dtype).astype(np.float32))
    values = values[np.isfinite(values) & (np.abs(values) < 2.0**126)]
    gap = values[-1] - values[-2]
    values = np.concatenate([[values[0] - gap], values, [values[-1] + gap]])
    points = np.concatenate([values, (values[1:] + values[:-1]) / 2]).astype(np.float32)
    sides = [np.nextafter(points, np.float32(s)) for s in (-np.inf, np.inf)]
    special = np.array([0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-45, 3e38], np.float32)
    return np.concatenate([points, *sides, special])


def bits(values: np.ndarray) -> np.ndarray:
    """Bit patterns, all NaN the same."""
    if values.dtype.itemsize != 1:
        return values
    wide = values.astype(np.float32)
    return np.where(np.isnan(wide), 255, values.view(np.uint8))


def check(x: np.ndarray, source: DType, target: DType, want: np.ndarray) -> None:
    kernel = conversion(source, target, x.size)
    naive, expanded = (np.zeros(x.size, target.numpy) for _ in range(2))
    evaluate(kernel, [x, naive], {})
    np.testing.assert_array_equal(bits(naive), bits(want))
    plain = expand_casts(kernel)
    evaluate(plain, [x, expanded], {})
    np.testing.assert_array_equal(bits(expanded), bits(want))
    small = {*FLOATS, *PARTS}
    left = [e for e in expressions(plain.body) if isinstance(e, Cast)]
    assert not any(small & {e.dtype, e.operand.dtype} for e in left)


@pytest.mark.thinned(7)
@pytest.mark.parametrize("small", [*FLOATS, *PARTS], ids=str)
@pytest.mark.parametrize("wide", [f32, f64, i8, i32, dtypes.bool_, dtypes.f16], ids=str)
def test_every_value_of_a_small_type_is_widened_exactly(small: DType, wide: DType) -> None:
    x = every_value(small)
    if wide.is_integer:
        x = x[np.isfinite(x.astype(np.float32))]
        x = x[np.abs(x.astype(np.float32)) <= 127]
    with np.errstate(over="ignore"):
        check(x, small, wide, x.astype(np.float32).astype(wide.numpy))


@pytest.mark.parametrize("small", FLOATS, ids=str)
def test_floats_are_rounded_to_the_nearest_small_one_even_on_ties(small: DType) -> None:
    x = around(small)
    check(x, f32, small, x.astype(small.numpy))


@pytest.mark.parametrize("small", PARTS, ids=str)
def test_integers_keep_their_low_bits_and_floats_saturate(small: DType) -> None:
    whole = np.array([-300, -9, -8, -1, 0, 1, 7, 8, 15, 16, 1 << 40, (1 << 40) + 5])
    mask = (1 << small.bits) - 1
    check(whole, i64, small, (whole & mask).astype(np.int8).astype(small.numpy))
    low = -(1 << (small.bits - 1)) if small.is_signed else 0
    high = low + mask
    x = np.array([-1e30, -8.9, -1.5, -0.5, 0.9, 6.99, 7.5, 15.2, 1e30, np.nan], np.float32)
    want = np.clip(np.trunc(np.nan_to_num(x, nan=0)), low, high)
    check(x, f32, small, want.astype(small.numpy))


@pytest.mark.thinned(5)
@needs_x86
@pytest.mark.parametrize("target", targets_apart(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("small", [*FLOATS, *PARTS], ids=str)
def test_machine_code_agrees_for_every_value(small: DType, target) -> None:
    for x, source, result in (
        (every_value(small), small, f32),
        (around(dtypes.f8e4m3fn), f32, small),
        (around(dtypes.f8e5m2), f32, small),
    ):
        kernel = conversion(source, result, x.size)
        want, got = np.zeros(x.size, result.numpy), np.zeros(x.size, result.numpy)
        evaluate(kernel, [x, want], {})
        NativeKernel(schedule(kernel, MachineModel.of(target)), target)([x, got])
        np.testing.assert_array_equal(bits(got), bits(want))
