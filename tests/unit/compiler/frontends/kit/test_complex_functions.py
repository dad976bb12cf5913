"""Functions of complex numbers, against numpy's in twice the precision."""

from fractions import Fraction

import numpy as np
import pytest

from fakes.stablehlo_text import apply, run
from tilewright.compiler.frontends.kit.complex_functions import FUNCTIONS

NAMES = {
    "stablehlo.exponential": np.exp, "stablehlo.exponential_minus_one": np.expm1,
    "stablehlo.log": np.log, "stablehlo.log_plus_one": np.log1p, "stablehlo.sqrt": np.sqrt,
    "stablehlo.rsqrt": lambda z: 1 / np.sqrt(z), "stablehlo.cbrt": lambda z: z ** (1 / 3),
    "stablehlo.cosine": np.cos, "stablehlo.sine": np.sin, "stablehlo.tan": np.tan,
    "stablehlo.tanh": np.tanh, "stablehlo.logistic": lambda z: 1 / (1 + np.exp(-z)),
    "stablehlo.sign": lambda z: z / abs(z), "chlo.acos": np.arccos, "chlo.acosh": np.arccosh,
    "chlo.asin": np.arcsin, "chlo.asinh": np.arcsinh, "chlo.atan": np.arctan,
    "chlo.atanh": np.arctanh, "chlo.cosh": np.cosh, "chlo.sinh": np.sinh,
    "chlo.square": np.square, "chlo.conj": np.conj,
}  # fmt: skip


def numbers(count: int = 300) -> np.ndarray:
    choose = np.random.default_rng(7)
    size = 10.0 ** choose.uniform(-4, 1, count)
    return size * np.exp(1j * choose.uniform(-np.pi, np.pi, count))


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.max(abs(found - expected) / abs(expected)))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", NAMES)
def test_a_function_keeps_its_digits(name: str) -> None:
    z = numbers()
    expected = NAMES[name](z.astype(np.clongdouble))
    assert distance(apply(name, z), expected) < 4e-15
    half = z.astype(np.complex64)
    expected = NAMES[name](half.astype(np.complex128))
    assert distance(apply(name, half), expected) < 2e-7


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("stablehlo.divide", np.divide),
        ("stablehlo.multiply", np.multiply),
        ("stablehlo.power", np.power),
    ],
)
def test_a_function_of_two_keeps_its_digits(name: str, function: np.ufunc) -> None:
    z = numbers()
    w = z[::-1].copy()
    expected = function(z.astype(np.clongdouble), w.astype(np.clongdouble))
    assert distance(apply(name, z, w), expected) < 1e-14


CANCELLING = {
    "chlo.atanh": np.array([-1.34 + 0.215j, -1.494 + 0.036j, 1.494 - 0.036j]),
    "chlo.atan": np.array([-0.23 + 0.9187j, 0.036 + 1.494j, 0.036 - 1.494j]),
    "stablehlo.log": np.array([0.8 + 0.6000001j, -0.6 + 0.8000001j, 0.99999 + 0.0044721j]),
}


def units(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest error of a part, in units in the last place of that part."""
    return float(np.max(abs(found - expected) / np.spacing(abs(expected).astype(float))))


@pytest.mark.parametrize("name", CANCELLING)
def test_each_part_keeps_its_digits_where_terms_cancel(name: str) -> None:
    z = CANCELLING[name]
    expected = NAMES[name](z.astype(np.clongdouble))
    found = apply(name, z)
    assert units(found.real, expected.real) < 3
    assert units(found.imag, expected.imag) < 3


def test_the_logarithm_beside_one_keeps_its_digits_where_terms_cancel() -> None:
    z = np.array([-0.0003626 + 0.0266j, -0.2 + 0.6000001j, -1.6 + 0.8000001j])
    exact = [(Fraction(part.real), Fraction(part.imag)) for part in z]
    squares = np.array([float(x * (x + 2) + y * y) for x, y in exact])
    found = apply("stablehlo.log_plus_one", z)
    assert units(found.real, np.log1p(squares) / 2) < 3


def test_far_out_the_area_tangent_is_what_its_series_says() -> None:
    z = np.array([1e200 + 1e200j, -1e200 + 1j, 1 - 1e200j, 3e160 + 1e150j])
    found = apply("chlo.atanh", z)
    np.testing.assert_allclose(found.real, (1 / z).real, rtol=1e-14)
    np.testing.assert_allclose(found.imag, np.where(z.imag < 0, -1, 1) * np.pi / 2)


def test_a_power_vanishes_where_one_of_its_factors_overflows() -> None:
    z, w = np.array([-5.25 - 1.6j]), np.array([-14082 + 3486j])
    np.testing.assert_array_equal(apply("stablehlo.power", z, w), [0])


def test_the_angle_of_two_complex_numbers_keeps_its_digits() -> None:
    y = np.array([254.7 - 3638.1j, 0.122 + 0.1466j, 1e-9 + 1e-12j, 3 - 2j])
    x = np.array([0.0031 + 0.00606j, 5301.4 + 650.3j, 2 + 1j, 4 + 5j])
    found = apply("stablehlo.atan2", y, x)
    expected = np.arctan(y.astype(np.clongdouble) / x.astype(np.clongdouble))
    turns = np.round((found.real - expected.real) / np.pi)
    assert units(found.real, expected.real + turns * np.pi) < 4
    assert units(found.imag, expected.imag) < 4


def test_the_angle_of_two_complex_numbers_is_that_of_their_quotient() -> None:
    y, x = numbers(), numbers()[::-1].copy() + 3
    quotient = apply("stablehlo.atan2", y, x)
    np.testing.assert_allclose(np.tan(quotient), y / x, rtol=1e-10)


def test_complex_numbers_are_ordered_by_their_real_parts_first() -> None:
    z = np.array([1 + 2j, 1 - 2j, 3 + 0j])
    w = np.array([1 + 1j, 1 + 1j, 2 + 9j])
    np.testing.assert_array_equal(apply("stablehlo.maximum", z, w), [1 + 2j, 1 + 1j, 3])
    np.testing.assert_array_equal(
        apply("stablehlo.minimum", z, w), [1 + 1j, 1 - 2j, 2 + 9j]
    )


@pytest.mark.parametrize(
    ("name", "z", "expected"),
    [
        ("stablehlo.exponential", complex(np.inf, 0), complex(np.inf, 0)),
        ("stablehlo.exponential", complex(-np.inf, 1), 0j),
        ("stablehlo.sqrt", complex(0, 0), 0j),
        ("stablehlo.sqrt", complex(-4, -0.0), complex(0, -2)),
        ("stablehlo.sqrt", complex(1, np.inf), complex(np.inf, np.inf)),
        ("stablehlo.tanh", complex(1000, 1), 1 + 0j),
        ("stablehlo.log", complex(0, 0), complex(-np.inf, 0)),
        ("stablehlo.rsqrt", complex(np.inf, 0), 0j),
        ("stablehlo.sign", complex(0, 0), 0j),
    ],
)
def test_edges_are_those_of_c(name: str, z: complex, expected: complex) -> None:
    found = apply(name, np.array([z]))[0]
    assert (found.real, found.imag) == (expected.real, expected.imag)


def test_every_function_of_a_row_is_tested() -> None:
    assert len(FUNCTIONS) == len(NAMES) - 2


def test_powers_of_infinities_that_turn_without_end_have_a_magnitude() -> None:
    inf, nan = np.inf, np.nan
    turns = (inf, -inf, nan, 0.0, 1.0)
    z = np.array([complex(x, y) for x in (-inf, inf, 1000.0) for y in turns])
    with np.errstate(all="ignore"):
        expected = np.exp(z)
    found = apply("stablehlo.exponential", z)
    np.testing.assert_array_equal(found.real, expected.real)
    np.testing.assert_array_equal(found.imag, expected.imag)


def test_what_was_real_has_no_imaginary_part_whatever_it_is() -> None:
    x = np.float32([np.inf, -np.inf, np.nan, -1, -0.0])
    body = """
    %r = stablehlo.convert %x : (tensor<5xf32>) -> tensor<5xcomplex<f32>>
    return %r : tensor<5xcomplex<f32>>"""
    kept, beside = run(body, "%x: tensor<5xf32>", x)
    np.testing.assert_array_equal(kept, x)
    assert beside.tobytes() == np.zeros(5, np.float32).tobytes()


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ["acos", "acosh", "asin", "asinh", "atan", "atanh"])
def test_inverse_functions_have_their_limits_where_a_part_is_infinite(name: str) -> None:
    parts = [-np.inf, -2.5, -0.0, 0.0, 1.0, np.inf]
    z = np.array([complex(x, y) for x in parts for y in parts if np.isinf([x, y]).any()])
    found, expected = apply(f"chlo.{name}", z), NAMES[f"chlo.{name}"](z)
    for ours, theirs in ((found.real, expected.real), (found.imag, expected.imag)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-15)
        np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))


@pytest.mark.parametrize("name", ["acos", "acosh", "asin", "asinh"])
def test_an_infinite_part_beside_no_number_is_an_infinity(name: str) -> None:
    z = np.array([complex(np.nan, np.inf), complex(-np.inf, np.nan)])
    found = apply(f"chlo.{name}", z)
    assert (np.isinf(found.real) | np.isinf(found.imag)).all()
    assert (np.isnan(found.real) | np.isnan(found.imag)).all()


def test_the_area_tangent_of_an_infinity_has_no_angle_where_one_part_is_no_number() -> None:
    found = apply(
        "chlo.atanh", np.array([complex(np.inf, np.nan), complex(np.nan, -np.inf)])
    )
    assert found.real.tolist() == [0, 0]
    np.testing.assert_array_equal(found.imag, [np.nan, -np.pi / 2])
