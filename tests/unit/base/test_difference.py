"""What counts as a difference: scale does not, places of NaN and infinities do."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.difference import measure


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_errors_are_relative_to_the_largest_magnitude() -> None:
    found = measure("t", f32(1000, 0.002), f32(1000, 0.001))
    assert found.error == pytest.approx(1e-6)
    assert not found.is_beyond
    found = measure("t", f32(1, 2, 3.1), f32(1, 2, 3))
    assert found.is_beyond
    assert (found.index, found.count, found.size) == ((2,), 1, 3)
    assert found.values == ("3.1", "3.0")


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values_must_stand_at_the_same_places(special: float) -> None:
    same = measure("t", f32(1, special), f32(1, special))
    assert (same.error, same.is_beyond) == (0.0, False)
    for a, b in ((f32(1, special), f32(1, 2)), (f32(1, 2), f32(1, special))):
        apart = measure("t", a, b, tolerance=1.0)
        assert apart.is_beyond
        assert apart.index == (1,)


def test_integers_must_be_equal_however_large() -> None:
    a = np.array([2**62, 5], np.int64)
    assert not measure("t", a, a).is_beyond
    assert measure("t", a, a + np.array([1, 0])).index == (0,)
    assert measure("t", np.array([True]), np.array([False])).is_beyond


def test_other_types_and_shapes_are_differences() -> None:
    for a, b in ((f32(1), f32(1, 1)), (f32(1), np.array([1.0]))):
        found = measure("t", a, b)
        assert found.is_beyond
        assert found.index is None
        assert "float32[1]" in str(found)


def test_empty_and_zero_tensors_are_equal() -> None:
    assert str(measure("t", f32(), f32())) == "'t': no elements"
    assert not measure("t", f32(), f32()).is_beyond
    assert not measure(
        "t", np.zeros((2, 2), np.float32), np.zeros((2, 2), np.float32)
    ).is_beyond
    assert measure("t", f32(1e-3), f32(0)).is_beyond
