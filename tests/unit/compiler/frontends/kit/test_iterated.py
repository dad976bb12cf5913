"""Functions that take as many steps as their arguments say."""

import math

import numpy as np

from fakes.formulas import on_numbers, on_tensors
from tilewright.compiler.frontends.kit import iterated
from tilewright.compiler.frontends.kit.wide import Wide


def lower(a: Wide, x: Wide) -> Wide:
    return iterated.incomplete_gamma(a, x, upper=False)


def upper(a: Wide, x: Wide) -> Wide:
    return iterated.incomplete_gamma(a, x, upper=True)


def test_incomplete_gamma_is_what_it_is_called_elsewhere() -> None:
    x = np.array([1e-3, 0.5, 1.0, 1.5, 4.0, 30.0])
    one, half = np.ones_like(x), np.full_like(x, 0.5)
    np.testing.assert_allclose(on_numbers(lower, one, x), -np.expm1(-x), rtol=1e-13)
    np.testing.assert_allclose(on_numbers(upper, one, x), np.exp(-x), rtol=1e-13)
    error = [math.erf(math.sqrt(v)) for v in x]
    np.testing.assert_allclose(on_numbers(lower, half, x), error, rtol=1e-13)


def test_the_ends_of_incomplete_gamma() -> None:
    inf, nan = math.inf, math.nan
    a = np.array([0.0, 0.0, 2.0, 2.0, inf, inf, -1.0, nan])
    x = np.array([0.0, 3.0, 0.0, inf, 1.0, inf, 1.0, 1.0])
    expected = [nan, 1, 0, 1, 0, nan, nan, nan]
    np.testing.assert_array_equal(on_numbers(lower, a, x), expected)
    np.testing.assert_array_equal(on_numbers(upper, a, x), 1 - np.array(expected))


def test_zeta_of_a_negative_place_counts_the_terms_before() -> None:
    two = np.array([2.0, 2.0, 3.0, 2.0, 1.0])
    found = on_numbers(iterated.zeta_of_any, two, np.array([0.5, -0.5, -1.5, -3.0, 2.0]))
    assert found[1] == np.float64(found[0] + 4)
    third = on_numbers(iterated.zeta_of_any, np.array([3.0]), np.array([0.5]))[0]
    np.testing.assert_allclose(found[2], third - 8 - 1 / 1.5**3, rtol=1e-12)
    assert found[3] == found[4] == np.inf


def test_polynomials_of_a_degree_that_is_data() -> None:
    x = np.linspace(-1.5, 1.5, 7)

    def chebyshev(e, x, degree):
        wide = Wide(e, x)
        return iterated.polynomial_of_degree(
            wide, degree, wide, lambda x, _, last, before: x * 2.0 * last - before
        ).tensor

    degrees = np.array([-1, 0, 1, 2, 3, 7, 20])
    expected = [
        0.0 if n < 0 else np.polynomial.Chebyshev.basis(n)(v)
        for n, v in zip(degrees, x, strict=True)
    ]
    np.testing.assert_allclose(on_tensors(chebyshev, x, degrees), expected, rtol=1e-12)


def test_common_divisors_are_those_of_euclid() -> None:
    x = np.array([12, -18, 0, 0, 7, 2**40])
    y = np.array([18, 12, 5, 0, 13, 6**10])
    found = on_tensors(iterated.greatest_common_divisor, x, y)
    assert found.tolist() == [math.gcd(int(a), int(b)) for a, b in zip(x, y, strict=True)]
