"""Bessel's functions and Airy's, against the identities that tie them together and values of tables."""

import math

import numpy as np
import pytest

from fakes.formulas import on_numbers
from tilewright.compiler.frontends.kit import bessel

# On both sides of every place where one series ends and another begins.
X = np.concatenate([[1e-3, 2.0, 2.0 + 1e-9, 8.0, 8.0 + 1e-9], np.linspace(0.1, 60, 401)])


def test_the_first_and_second_kind_have_their_wronskian() -> None:
    j0, j1, y0, y1 = (
        on_numbers(function, X)
        for function in (bessel.bessel_j0, bessel.bessel_j1, bessel.bessel_y0, bessel.bessel_y1)
    )  # fmt: skip
    np.testing.assert_allclose(j1 * y0 - j0 * y1, 2 / (math.pi * X), rtol=1e-11)
    assert on_numbers(bessel.bessel_j0, [-3.0, 0.0]) == pytest.approx([j0_of_3(), 1.0])
    assert on_numbers(bessel.bessel_j1, [-2.0])[0] == pytest.approx(-0.5767248077568734)


def j0_of_3() -> float:
    """By its series."""
    return sum((-1) ** k * 1.5 ** (2 * k) / math.factorial(k) ** 2 for k in range(40))


def test_the_modified_ones_have_theirs() -> None:
    i0, i1, k0, k1 = (
        on_numbers(function, X)
        for function in (bessel.bessel_i0, bessel.bessel_i1, bessel.bessel_k0, bessel.bessel_k1)
    )  # fmt: skip
    np.testing.assert_allclose(i0 * k1 + i1 * k0, 1 / X, rtol=1e-12)
    scaled = on_numbers(lambda x: bessel.bessel_k1(x, scaled=True), X)
    np.testing.assert_allclose(scaled, k1 * np.exp(X), rtol=1e-12)
    np.testing.assert_allclose(
        on_numbers(bessel.bessel_i0e, -X), i0 * np.exp(-X), rtol=1e-12
    )


def test_edges_are_what_the_limits_are() -> None:
    edges = [0.0, -1.0, math.nan]
    np.testing.assert_array_equal(
        on_numbers(bessel.bessel_y0, edges), [-math.inf, math.nan, math.nan]
    )
    np.testing.assert_array_equal(
        on_numbers(bessel.bessel_k1, edges), [math.inf, math.nan, math.nan]
    )
    far = [math.inf, -math.inf, 800.0]
    np.testing.assert_array_equal(
        on_numbers(bessel.bessel_i1, far), [math.inf, -math.inf, math.inf]
    )
    np.testing.assert_array_equal(
        on_numbers(bessel.spherical_bessel_j0, [0.0, math.inf]), [1, 0]
    )


def test_airys_function_solves_its_equation() -> None:
    x = np.concatenate([np.linspace(-30, 8, 77), [-5.0 - 1e-4, -5.0, 2.0, 2.0 + 1e-4]])
    step = 1e-3
    left, centre, right = (on_numbers(bessel.airy, x + d) for d in (-step, 0, step))
    bend = (left - 2 * centre + right) / step**2
    np.testing.assert_allclose(bend, x * centre, atol=3e-4)
    zero = 3 ** (-2 / 3) / math.gamma(2 / 3)
    assert on_numbers(bessel.airy, [0.0, 200.0]) == pytest.approx([zero, 0.0])
