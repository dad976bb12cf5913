"""Special functions, against the standard library and identities between them."""

import math

import numpy as np
import pytest

from fakes.stablehlo_text import apply

X = np.random.default_rng(3).uniform(0.01, 30, 200)


def test_the_logarithm_of_gamma_is_that_of_the_library() -> None:
    x = np.concatenate([X, -X])
    expected = [math.lgamma(v) for v in x]
    np.testing.assert_allclose(apply("chlo.lgamma", x), expected, rtol=1e-11, atol=1e-13)
    edges = np.array([0.0, -3.0, np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(
        apply("chlo.lgamma", edges), [np.inf, np.inf, np.inf, np.inf, np.nan]
    )


def test_digamma_steps_by_one_over_x() -> None:
    x = np.concatenate([X, -X])
    step = apply("chlo.digamma", x + 1) - apply("chlo.digamma", x)
    np.testing.assert_allclose(step, 1 / x, rtol=1e-7, atol=1e-11)
    assert apply("chlo.digamma", np.array([1.0]))[0] == pytest.approx(-np.euler_gamma)
    assert np.isnan(apply("chlo.digamma", np.array([0.0, -4.0]))).all()


def test_zeta_of_two_is_the_sum_of_inverse_squares() -> None:
    found = apply(
        "chlo.zeta", np.array([2.0, 4.0, 1.0, 0.5]), np.array([1.0, 1.0, 3.0, 2.0])
    )
    np.testing.assert_allclose(found[:2], [math.pi**2 / 6, math.pi**4 / 90], rtol=1e-15)
    assert found[2] == np.inf
    assert np.isnan(found[3])


def test_polygamma_of_one_is_the_slope_of_digamma() -> None:
    ones, step = np.ones_like(X), 1e-4 * X
    slope = (apply("chlo.digamma", X + step) - apply("chlo.digamma", X - step)) / (2 * step)
    np.testing.assert_allclose(apply("chlo.polygamma", ones, X), slope, rtol=1e-5)
    np.testing.assert_array_equal(
        apply("chlo.polygamma", 0 * ones, X), apply("chlo.digamma", X)
    )
    assert np.isnan(
        apply("chlo.polygamma", np.array([0.5, -1.0]), np.array([2.0, 2.0]))
    ).all()


def test_the_complementary_error_keeps_its_digits_far_out() -> None:
    x = np.linspace(-6, 26, 300)
    expected = [math.erfc(v) for v in x]
    np.testing.assert_allclose(apply("chlo.erfc", x), expected, rtol=1e-13)
    edges = np.array([np.inf, -np.inf, np.nan])
    np.testing.assert_array_equal(apply("chlo.erfc", edges), [0, 2, np.nan])


def test_the_inverse_error_undoes_the_error() -> None:
    y = np.linspace(-4.5, 4.5, 201)
    x = np.array([math.erf(v) for v in y])
    np.testing.assert_allclose(apply("chlo.erf_inv", x), y, rtol=1e-6, atol=1e-15)
    edges = np.array([1.0, -1.0, 1.5])
    np.testing.assert_array_equal(apply("chlo.erf_inv", edges), [np.inf, -np.inf, np.nan])


def test_the_bessel_function_is_its_integral() -> None:
    x = np.concatenate([[0.0, 7.9, 8.1, -3.0], X])
    turn = (np.arange(4000) + 0.5) * (math.pi / 4000)
    wave = np.exp(np.abs(x)[:, None] * (np.cos(turn) - 1)) * np.cos(turn)
    expected = np.sign(x) * wave.mean(1)
    np.testing.assert_allclose(
        apply("chlo.bessel_i1e", x), expected, rtol=1e-12, atol=1e-15
    )


def test_halves_are_rounded_once() -> None:
    x = X.astype(np.float16)
    expected = np.array([math.lgamma(v) for v in x.astype(np.float64)])
    np.testing.assert_array_equal(apply("chlo.lgamma", x), expected.astype(np.float16))
