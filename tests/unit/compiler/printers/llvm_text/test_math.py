"""Accuracy of the mathematical functions in units in the last place, over all bit patterns.

The reference is numpy in extended precision (`math.erf` for erf); samples are random bit patterns,
dense ranges where the function is not flat, and every special value.
"""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from fakes.loop_nests import op_kernel
from fakes.native_kernel import NativeKernel, needs_x86, targets_apart, targets_here
from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Symbol, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Binary,
    Buffer,
    For,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Store,
    Unary,
)
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule

pytestmark = [
    needs_x86,
    pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="needs 80-bit floats"),
]

COUNT = 1 << 15
Wide = np.longdouble
MANTISSA = {dtypes.f32: (23, -126), dtypes.f64: (52, -1022)}


def function(
    op: str, dtype: DType, lanes: int, operands: int, target: Target
) -> NativeKernel:
    buffers = [Buffer(f"x{n}", dtype, (COUNT,)) for n in range(operands)]
    out = Buffer("out", dtype, (COUNT,))
    place = (symbol("i") * lanes + symbol("v"),)
    values = [Load(b, place) for b in buffers]
    value = Unary(op, values[0], dtype) if operands == 1 else Binary(op, *values, dtype)
    vector = For(Symbol("v"), lanes, (Store(out, place, value),), LoopKind.VECTOR)
    parameters = [Parameter(b, AccessMode.READ) for b in buffers]
    kernel = Kernel(
        op, (*parameters, Parameter(out, AccessMode.WRITE)), (), (),
        (For(Symbol("i"), COUNT // lanes, (vector,)),),
    )  # fmt: skip
    return NativeKernel(kernel, target)


def edges(dtype: DType) -> np.ndarray:
    info = np.finfo(dtype.numpy)
    plain = [
        0.0,
        1.0,
        0.5,
        2.0,
        3.0,
        2.5,
        math.pi,
        math.pi / 2,
        88.72284,
        709.78,
        103.97,
        745.1,
    ]
    plain += [
        float(info.max),
        float(info.tiny),
        float(info.smallest_subnormal),
        1e8,
        1.0000001e8,
    ]
    plain += [math.inf, math.nan, 0.92, 0.9999999, 1.0000001, 4.0, 6.0, 9.1]
    both = np.array([*plain, *(-x for x in plain)])
    with np.errstate(over="ignore"):
        return both.astype(dtype.numpy)


def samples(dtype: DType, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    unsigned = np.uint32 if dtype is dtypes.f32 else np.uint64
    bits = rng.integers(0, np.iinfo(unsigned).max, COUNT, dtype=unsigned, endpoint=True)
    values = bits.view(dtype.numpy).copy()
    quarter = COUNT // 4
    values[:quarter] = rng.normal(0, 2, quarter)
    limit = 110 if dtype is dtypes.f32 else 750
    values[quarter : 2 * quarter] = rng.uniform(-limit, limit, quarter)
    special = edges(dtype)
    values[-len(special) :] = special
    return values


def ulps(got: np.ndarray, want: np.ndarray, dtype: DType) -> np.ndarray:
    """Distance in units of the last place of the exact result; special values must be equal."""
    mantissa, least = MANTISSA[dtype]
    with np.errstate(all="ignore"):
        rounded = want.astype(dtype.numpy)
        _, exponent = np.frexp(np.abs(want))
        unit = np.ldexp(Wide(1), np.maximum(exponent - 1, least) - mantissa)
        distance = np.abs(got.astype(Wide) - want) / unit
    special = ~np.isfinite(rounded) | (rounded == 0)
    equal = ((got == rounded) & (np.signbit(got) == np.signbit(rounded))) | (
        np.isnan(got) & np.isnan(rounded)
    )
    near = np.isfinite(distance) & (distance < 4) & ~np.isnan(rounded)
    distance = np.where(special & equal, 0, distance)
    return np.where(np.isnan(distance) | (special & ~equal & ~near), np.inf, distance)


def check(
    got: np.ndarray, want: np.ndarray, dtype: DType, limit: float, *args: np.ndarray
) -> None:
    error = ulps(got, want, dtype)
    worst = int(np.argmax(error))
    inputs = [float(a[worst]) for a in args]
    assert error[worst] <= limit, (
        f"{error[worst]} ulp at {inputs}: got {got[worst]!r}, expected {want[worst]!r}"
    )


def _sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


_erf = np.frompyfunc(math.erf, 1, 1)
UNARY = {
    "exp": (np.exp, 1.0),
    "exp_nonpositive": (np.exp, 1.0),
    "log": (np.log, 2.0),
    "tanh": (np.tanh, 4.0),
    "sigmoid": (_sigmoid, 4.0),
    "erf": (lambda x: _erf(x.astype(np.float64)).astype(Wide), 4.0),
    "sin": (np.sin, 2.0),
    "cos": (np.cos, 2.0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2.0),
    "sqrt": (np.sqrt, 0.5001),
}
OF_F32 = {"tanh": 2.0, "erf": 7.0, "sigmoid": 2.5}
"""Limits of f32 where they are others than those of f64; erf is a quotient of polynomials, up to 4e-7 off near 1."""
UP_TO_1 = ("tanh", "erf")
"""Functions that reach 1 and are never beyond it."""


def limit_of(op: str, dtype: DType) -> float:
    """How many ulp a function may be off."""
    single = OF_F32.get(op) if dtype is dtypes.f32 else None
    return UNARY[op][1] if single is None else single


def arguments(op: str, x: np.ndarray) -> np.ndarray:
    """Of any numbers, those that a function is for."""
    return -np.abs(x) if op == "exp_nonpositive" else x


@pytest.mark.sampled(3)
@pytest.mark.thinned(11)
@pytest.mark.parametrize("target", targets_here(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("op", UNARY)
def test_a_function_is_accurate_everywhere(op, dtype, target):
    reference, limit = UNARY[op][0], limit_of(op, dtype)
    x = arguments(op, samples(dtype, 7))
    with np.errstate(all="ignore"):
        want = reference(x.astype(Wide))
    for lanes in (1, target.vector_lanes(dtype), 2 * target.vector_lanes(dtype)):
        got = np.zeros_like(x)
        function(op, dtype, lanes, 1, target)([x, got])
        check(got, want, dtype, limit, x)
        assert op not in UP_TO_1 or np.nanmax(np.abs(got)) == 1
        assert op not in UP_TO_1 or (got[np.isinf(x)] == np.sign(x[np.isinf(x)])).all()


@pytest.mark.thinned(3)
@pytest.mark.parametrize("op", UNARY)
def test_f32_functions_hold_at_every_exponent(op):
    """One value per sign, exponent and leading bits: 2**15 of all 2**32 patterns, evenly."""
    reference, limit = UNARY[op][0], limit_of(op, dtypes.f32)
    bits = (np.arange(COUNT, dtype=np.uint64) << np.uint64(17)) + np.uint64(0x1234)
    x = arguments(op, bits.astype(np.uint32).view(np.float32))
    with np.errstate(all="ignore"):
        want = reference(x.astype(Wide))
    got = np.zeros_like(x)
    function(op, dtypes.f32, 16, 1, targets_here()[0])([x, got])
    check(got, want, dtypes.f32, limit, x)


@pytest.mark.nightly
@pytest.mark.parametrize("op", UNARY)
def test_f32_functions_hold_at_every_number(op):
    """All 2**32 patterns of bits against f64; of erf, whose reference is a call per number, every 61st."""
    step = 61 if op == "erf" else 1
    reference, limit = UNARY[op][0], limit_of(op, dtypes.f32)
    native = function(op, dtypes.f32, 16, 1, targets_here()[0])
    got = np.zeros(COUNT, np.float32)
    for begin in range(0, 1 << 32, COUNT * step):
        bits = begin + step * np.arange(COUNT, dtype=np.uint64)
        x = arguments(op, bits.astype(np.uint32).view(np.float32))
        native([x, got])
        with np.errstate(all="ignore"):
            want = np.asarray(reference(x.astype(np.float64)), np.float64)
            unit = np.spacing(np.abs(want.astype(np.float32))).astype(np.float64)
            far = ~(np.abs(got - want) <= limit * unit)
        if far.any():
            check(got[far], want[far].astype(Wide), dtypes.f32, limit, x[far])


@pytest.mark.thinned(5)
@pytest.mark.parametrize("target", targets_here(), ids=lambda t: t.cpu)
@pytest.mark.parametrize(
    ("dtype", "limit"), [(dtypes.f32, 2.2e-7), (dtypes.f64, 4e-16)], ids=str
)
def test_the_normal_distribution_is_accurate_and_has_ends(dtype, limit, target):
    """Absolutely; exactly 0 and 1 far outside, so that GELU of large numbers is 0 or the number."""
    x = np.concatenate([samples(dtype, 9), np.linspace(-7, 7, COUNT, dtype=dtype.numpy)])
    with np.errstate(all="ignore"):
        want = (1 + _erf(x.astype(np.float64) * math.sqrt(0.5)).astype(np.float64)) / 2
    got = np.zeros_like(x)
    for begin in (0, COUNT):
        part = np.zeros(COUNT, dtype.numpy)
        function("normal_cdf", dtype, target.vector_lanes(dtype), 1, target)(
            [np.ascontiguousarray(x[begin : begin + COUNT]), part]
        )
        got[begin : begin + COUNT] = part
    missing = np.isnan(x)
    assert np.isnan(got[missing]).all()
    assert np.abs(got - want)[~missing].max() <= limit
    end = 5.5 if dtype is dtypes.f32 else 9
    with np.errstate(invalid="ignore"):
        assert (got[x < -end] == 0).all()
        assert (got[x > end] == 1).all()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("op", ["sin", "cos"])
def test_huge_angles_are_reduced_exactly(op):
    """Multiples of pi/2 to the last bit: the hard cases of the reduction."""
    rng = np.random.default_rng(3)
    quadrants = np.floor(10.0 ** rng.uniform(0, 300, COUNT))
    x = (quadrants.astype(Wide) * (Wide(math.pi) / 2)).astype(np.float64)
    hard = struct.unpack("<d", struct.pack("<Q", 0x7506AC5B262CA1FF))[0]
    x[:2] = (hard, 5.319372648326541e255)
    got = np.zeros_like(x)
    function(op, dtypes.f64, 8, 1, targets_here()[0])([x, got])
    want = np.array([_exact(op, float(value)) for value in x[:512]])
    check(got[:512], want.astype(Wide), dtypes.f64, 2.0, x)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("target", targets_apart(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_rare_way_stands_beside_a_number_that_is_read(is_first, target):
    """Each has a mark of its own in the text: angles that are reduced exactly, and reads that nothing changes."""
    dtype, v = dtypes.f32, symbol("v")
    x, number, out = (Buffer(n, dtype, (s,)) for n, s in (("x", 16), ("n", 1), ("out", 16)))
    value, factor = Load(x, (v,)), Load(number, (0,))
    if is_first:
        result = Unary("sin", Binary("mul", value, factor, dtype), dtype)
    else:
        result = Binary("mul", Unary("sin", value, dtype), factor, dtype)
    modes = zip((x, number), (AccessMode.READ, AccessMode.FIXED), strict=True)
    parameters = [*(Parameter(b, m) for b, m in modes), Parameter(out, AccessMode.WRITE)]
    body = For(Symbol("v"), 16, (Store(out, (v,), result),), LoopKind.VECTOR)
    kernel = Kernel("sine", tuple(parameters), (), (), (body,))
    given = np.linspace(-1e6, 1e6, 16).astype(np.float32)
    got = np.zeros_like(given)
    NativeKernel(kernel, target)([given, np.array([3], np.float32), got])
    three = np.float32(3)
    want = (
        np.sin((given * three).astype(Wide)) if is_first else np.sin(given.astype(Wide)) * 3
    )
    np.testing.assert_allclose(got, want.astype(np.float32), rtol=1e-6, atol=1e-5)


def _exact(op: str, x: float) -> float:
    """sin or cos by integer arithmetic with 1300 bits of pi (Machin's formula)."""
    bits = 1300
    numerator, denominator = x.as_integer_ratio()
    scaled = (numerator << bits) // denominator
    half = _pi(bits) // 2
    quadrant, rest = divmod(scaled + half // 2, half)
    rest -= half // 2
    if op == "cos":
        quadrant += 1
    series = _series(rest, bits, start=quadrant % 2)
    value = series if quadrant % 4 < 2 else -series
    return _to_float(value, bits)


def _pi(bits: int) -> int:
    work = bits + 20
    return (4 * (4 * _arctan(5, work) - _arctan(239, work))) >> 20


def _arctan(inverse: int, bits: int) -> int:
    term = (1 << bits) // inverse
    total, divisor, sign = 0, 1, 1
    while term:
        total += sign * (term // divisor)
        term //= inverse * inverse
        divisor, sign = divisor + 2, -sign
    return total


def _series(x: int, bits: int, *, start: int) -> int:
    """The Taylor series of sine (start 0) or cosine (start 1)."""
    term = (1 << bits) if start else x
    total, power = 0, 0 if start else 1
    while term:
        total += term
        term = -(term * x >> bits) * x >> bits
        term //= (power + 1) * (power + 2)
        power += 2
    return total


def _to_float(value: int, bits: int) -> float:
    shift = max(0, abs(value).bit_length() - 120)
    return math.ldexp(float(value >> shift), shift - bits)


def pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(11)
    few = edges(dtype)[::2]
    x, y = (a.ravel() for a in np.meshgrid(few, few))
    count = COUNT - len(x)
    third = count // 3
    limit = 80 if dtype is dtypes.f32 else 700
    base = np.exp(rng.uniform(-limit, limit, third))
    exponent = rng.uniform(-1, 1, third) * limit / np.abs(np.log(base))
    whole = [rng.integers(-20, 20, third), rng.integers(-10, 10, third)]
    rest = count - 2 * third
    spread = 10.0 ** rng.uniform(-30, 30, (2, rest)) * rng.normal(0, 1, (2, rest))
    with np.errstate(over="ignore"):
        x = np.concatenate([x, base, whole[0], spread[0]]).astype(dtype.numpy)
        y = np.concatenate([y, exponent, whole[1], spread[1]]).astype(dtype.numpy)
    return x, y


@pytest.mark.thinned(5)
@pytest.mark.parametrize("target", targets_here(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
def test_powers_are_accurate(dtype, target):
    x, y = pairs(dtype)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(Wide), y.astype(Wide))
    for lanes in (1, 16):
        got = np.zeros_like(x)
        function("pow", dtype, lanes, 2, target)([x, y, got])
        check(got, want, dtype, 2.0, x, y)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("target", targets_here(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("op", ["mod", "floormod"])
def test_remainders_are_exact(op, dtype, target):
    x, y = pairs(dtype)
    with np.errstate(all="ignore"):
        want = np.fmod(x, y) if op == "mod" else np.mod(x, y)
    got = np.zeros_like(x)
    function(op, dtype, 16, 2, target)([x, y, got])
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    assert np.all(same), (x[~same][0], y[~same][0], got[~same][0], want[~same][0])
    zeros = (want == 0) & same
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]))


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("op", ["min", "max"])
def test_extremes_keep_nan_from_either_side(op, dtype):
    x, y = pairs(dtype)
    got = np.zeros_like(x)
    function(op, dtype, 16, 2, targets_here()[0])([x, y, got])
    want = np.minimum(x, y) if op == "min" else np.maximum(x, y)
    np.testing.assert_array_equal(got, want)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("target", targets_apart(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64, dtypes.f16], ids=str)
@pytest.mark.parametrize("op", ["min", "max"])
def test_an_extreme_of_lanes_is_nan_wherever_one_is(op, dtype, target):
    length = 37
    kernel = op_kernel(
        f"reduce_{op}", [(2 * length, length)], (2 * length,),
        {"axes": (1,), "keepdims": False}, dtype,
    )  # fmt: skip
    x = np.random.default_rng(0).standard_normal((2 * length, length)).astype(dtype.numpy)
    for row in range(length):
        x[row, row] = np.nan
        x[length + row, row] = np.inf if op == "max" else -np.inf
    got = np.zeros(2 * length, dtype.numpy)
    NativeKernel(schedule(kernel, MachineModel.of(target)), target)([x, got])
    np.testing.assert_array_equal(got, x.min(1) if op == "min" else x.max(1))
