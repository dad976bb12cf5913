"""What C leaves open in arithmetic is settled here: no exception, the same answer everywhere."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.runtime.vm import floats, integers
from tilewright.runtime.vm.floats import round_f32
from tilewright.runtime.vm.integers import wrap_i32, wrap_i64

F, I = floats.OPERATIONS, integers.OPERATIONS  # noqa: E741 - integers
DOUBLES = st.floats(allow_nan=True, allow_infinity=True)


@given(st.integers())
def test_wrapping_keeps_the_low_bits(value: int) -> None:
    assert wrap_i32(value) % 2**32 == value % 2**32
    assert -(2**31) <= wrap_i32(value) < 2**31
    assert wrap_i64(value) % 2**64 == value % 2**64


@pytest.mark.parametrize("name", ["si32", "ui32", "si64", "ui64"])
def test_casts_of_what_does_not_fit_give_the_smallest_number(name: str) -> None:
    width = int(name[-2:])
    cast = F[f"cast.f64.{name}"]
    for value in (math.nan, math.inf, -math.inf, 1e30, -1e30):
        assert cast(value) == -(2 ** (width - 1))


def test_shift_amounts_count_modulo_the_width() -> None:
    assert I["shl.i32"](1, 33) == 2
    assert I["shr.i64.u"](-1, 127) == 1


def test_the_magnitude_of_the_smallest_number_is_itself() -> None:
    assert I["abs.i32"](-(2**31)) == -(2**31)


@given(DOUBLES)
def test_no_function_of_one_float_raises(value: float) -> None:
    for name, operation in F.items():
        if name.endswith((".f32", ".f64")) and name.split(".")[0] in floats._UNARY:
            result = operation(round_f32(value) if name.endswith("f32") else value)
            assert isinstance(result, int | float)


@given(DOUBLES, DOUBLES)
def test_no_function_of_two_floats_raises(left: float, right: float) -> None:
    for name in floats._BINARY:
        assert isinstance(F[f"{name}.f64"](left, right), float)


def test_overflow_in_f32_is_infinite() -> None:
    assert F["mul.f32"](1e38, 1e38) == math.inf
    assert round_f32(-1e300) == -math.inf
    assert F["pow.f64"](-10.0, 1001.0) == -math.inf
    assert F["pow.f64"](0.0, -1.0) == math.inf


def test_division_by_zero_is_signed() -> None:
    assert F["div.f64"](1.0, -0.0) == -math.inf
    assert math.isnan(F["div.f64"](0.0, 0.0))
    assert math.isnan(F["rem.f64"](1.0, 0.0))


@given(st.integers(-(2**63), 2**64 - 1))
def test_wide_integers_are_rounded_once_to_f32(value: int) -> None:
    import numpy as np

    source = np.int64(value) if value < 2**63 else np.uint64(value)
    name = "cast.si64.f32" if value < 2**63 else "cast.ui64.f32"
    assert F[name](value) == float(source.astype(np.float32))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_invalid_operations_give_the_nan_of_this_processor(name: str) -> None:
    special = [0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, -math.nan]
    compute = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[
        name
    ]
    for left, right in itertools.product(special, special):
        ours = floats.OPERATIONS[f"{name}.f32"](left, right)
        with np.errstate(all="ignore"):
            wanted = compute(np.float32(left), np.float32(right))
        assert np.float32(ours).tobytes() == wanted.tobytes(), (left, right)


def test_the_reciprocal_root_of_f32_is_rounded_twice() -> None:
    for value in np.random.default_rng(0).uniform(0.1, 9, 500).astype(np.float32):
        wanted = np.float32(1) / np.sqrt(value)
        assert floats.OPERATIONS["rsqrt.f32"](float(value)) == wanted


@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma", "fpowi"])
def test_float_operations_on_integers_give_floats(name: str) -> None:
    """Registers have no type, and integers that nobody wraps would grow with every operation."""
    operands = (2**63 - 1,) * (3 if name == "fma" else 2)
    assert type(floats.OPERATIONS[f"{name}.f64"](*operands)) is float
    assert type(floats.OPERATIONS[f"{name}.f32"](*operands)) is float
