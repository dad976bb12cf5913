"""Divisions that end in short integers become products, to the bit."""

import numpy as np
import pytest

from fakes.lowered import lower
from tilewright.base import dtypes
from tilewright.base.target import Target
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import Binary, Cast, Fma
from tilewright.compiler.kernel.rewrite import expressions
from tilewright.compiler.lowering.multiply_quotients import multiply_quotients

ALL_ONES = float(np.nextafter(np.float32(2), np.float32(0)))


def quantize(scale, count, dtype=dtypes.u8, zero=3.0):
    """`cast(round(x / scale) + zero)`."""
    b = KernelBuilder("quantize")
    x, y = b.parameter("x", dtypes.f32, (count,)), b.result("y", dtype, (count,))
    with b.nest((count,)) as place:
        value = b.round(b.div(b.load(x, place), scale))
        b.store(y, place, b.cast(b.add(value, zero), dtype))
    return b.build()


def divisions(kernel):
    return sum(isinstance(v, Binary) and v.op == "div" for v in expressions(kernel.body))


def edges(scale):
    """Numbers around all halves, and those that no byte holds."""
    halves = (np.arange(-300, 300) + np.float32(0.5)) * np.float32(scale)
    near = [np.nextafter(halves, np.float32(to)) for to in (-np.inf, np.inf)]
    odd = [np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-40, -1e-40, 0.0, -0.0]
    return np.concatenate([halves, *near, np.array(odd)]).astype(np.float32)


@pytest.mark.parametrize("scale", [0.037, 3.1e-5, 117.3, -0.25, 1e-18, 0.0039215689])
@pytest.mark.parametrize("dtype", [dtypes.u8, dtypes.i8, dtypes.i16], ids=str)
def test_products_give_the_bits_of_divisions(scale, dtype):
    x = edges(scale)
    before = quantize(float(np.float32(scale)), x.size, dtype)
    after = multiply_quotients(before)
    assert (divisions(before), divisions(after)) == (1, 0)
    results = [np.zeros(x.size, dtype.numpy) for _ in range(2)]
    for kernel, result in zip((before, after), results, strict=True):
        with np.errstate(all="ignore"):
            evaluate(kernel, [x, result])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("scale", [ALL_ONES, 1e-30, 1e30])
def test_scales_whose_reciprocal_is_not_good_enough_divide(scale):
    assert divisions(multiply_quotients(quantize(scale, 5))) == 1


def test_long_integers_divide():
    assert divisions(multiply_quotients(quantize(0.5, 5, dtypes.i32))) == 1


def test_targets_that_round_twice_divide():
    for level, count in (("v2", 0), ("v3", 2)):
        kernel = lower(quantize(0.037, 5), Target.level(level))
        fused = sum(isinstance(v, Fma) for v in expressions(kernel.body))
        assert fused == count


def float_of_byte(scale, count, zero, taken):
    """`f32(byte) - taken`, of which the byte is `x / scale` around `zero`."""
    b = KernelBuilder("fake_quantize")
    x, y = b.parameter("x", dtypes.f32, (count,)), b.result("y", dtypes.f32, (count,))
    with b.nest((count,)) as place:
        value = b.round(b.div(b.load(x, place), scale))
        byte = b.cast(b.add(value, zero), dtypes.u8)
        b.store(y, place, b.sub(b.cast(byte, dtypes.f32), taken))
    return b.build()


@pytest.mark.parametrize("scale", [0.037, -0.25, 1.0])
@pytest.mark.parametrize(("zero", "taken"), [(3.0, 3.0), (0.0, 0.0), (255.0, 128.0)])
def test_bytes_read_as_floats_are_never_bytes(scale, zero, taken):
    x = edges(scale)
    before = float_of_byte(float(np.float32(scale)), x.size, zero, taken)
    after = multiply_quotients(before)
    casts = [v.dtype for v in expressions(after.body) if isinstance(v, Cast)]
    assert casts == []
    results = [np.zeros(x.size, np.float32) for _ in range(2)]
    for kernel, result in zip((before, after), results, strict=True):
        with np.errstate(all="ignore"):
            evaluate(kernel, [x, result])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("taken", [0.5, -1.0, 1e30])
def test_a_difference_that_is_no_byte_is_taken_as_it_stands(taken):
    x = edges(0.037)
    before = float_of_byte(float(np.float32(0.037)), x.size, 3.0, taken)
    results = [np.zeros(x.size, np.float32) for _ in range(2)]
    for kernel, result in zip((before, multiply_quotients(before)), results, strict=True):
        with np.errstate(all="ignore"):
            evaluate(kernel, [x, result])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("dtype", [dtypes.u8, dtypes.i8, dtypes.i16], ids=str)
def test_what_is_rounded_without_a_division_needs_no_products(dtype):
    b = KernelBuilder("round")
    x = edges(1.0)
    a, y = b.parameter("x", dtypes.f32, (x.size,)), b.result("y", dtype, (x.size,))
    with b.nest((x.size,)) as place:
        b.store(y, place, b.cast(b.add(b.round(b.load(a, place)), 7.0), dtype))
    before = b.build()
    after = multiply_quotients(before)
    products = ("mul", "div")
    assert not any(
        isinstance(v, Fma) or (isinstance(v, Binary) and v.op in products)
        for v in expressions(after.body)
    )
    results = [np.zeros(x.size, dtype.numpy) for _ in range(2)]
    for kernel, result in zip((before, after), results, strict=True):
        with np.errstate(all="ignore"):
            evaluate(kernel, [x, result])
    np.testing.assert_array_equal(*results)
