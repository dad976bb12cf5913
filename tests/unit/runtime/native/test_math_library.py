"""Functions of the C library for Python floats."""

from __future__ import annotations

import math

import pytest

from tilewright.runtime.native.math_library import f32_function


@pytest.mark.parametrize("name", ["expf", "tanhf", "log1pf", "atanf"])
def test_results_are_single_precision_and_close(name: str) -> None:
    function = f32_function(name, 1)
    if function is None:
        pytest.skip("the C library has no such function")
    expected = getattr(math, name[:-1])(0.7)
    assert function(0.7) == pytest.approx(expected, rel=3e-7)
    assert function(0.7) != expected, "a double has more bits"
    assert math.isnan(function(math.nan))


def test_two_operands_and_overflow() -> None:
    power = f32_function("powf", 2)
    if power is None:
        pytest.skip("the C library has no such function")
    assert power(3.0, 4.0) == 81.0
    assert power(10.0, 40.0) == math.inf


def test_a_function_that_is_not_there_is_none() -> None:
    assert f32_function("no_such_function_f", 1) is None
