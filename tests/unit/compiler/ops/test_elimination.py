"""Blocks give what rows one after another give."""

import numpy as np
import pytest

from tilewright.compiler.ops.elimination import eliminated, substituted


def matrices(*shape: int, dtype: type = np.float64) -> np.ndarray:
    random = np.random.default_rng(5)
    x = random.standard_normal(shape).astype(dtype)
    return x + 1j * random.standard_normal(shape) if np.iscomplexobj(x) else x


def size(column: np.ndarray) -> np.ndarray:
    return abs(np.real(column)) + abs(np.imag(column))


def one_by_one(x: np.ndarray) -> tuple[np.ndarray, list[int], int]:
    """Elimination of one column after another."""
    a, pivots, lost = x.copy(), [], 0
    for k in range(min(a.shape)):
        chosen = k + int(np.argmax(size(a[k:, k])))
        pivots.append(chosen + 1)
        a[[k, chosen]] = a[[chosen, k]]
        if a[k, k] == 0:
            lost = lost or k + 1
            continue
        a[k + 1 :, k] /= a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a, pivots, lost


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize(
    "shape",
    [(0, 3), (3, 0), (1, 1), (1, 80), (80, 1), (33, 33), (70, 65), (65, 70), (130, 130)],
)
def test_halves_are_eliminated_as_columns_are(shape: tuple[int, int], dtype: type) -> None:
    x = matrices(*shape, dtype=dtype)
    factors = x.copy()
    pivots, lost = eliminated(factors, size)
    expected, chosen, _ = one_by_one(x)
    assert (pivots.tolist(), lost) == (chosen, 0)
    np.testing.assert_allclose(factors, expected, atol=1e-10)


def test_a_pivot_of_zero_eliminates_nothing_and_is_named() -> None:
    # Whole numbers, so that what vanishes is 0 in any order of sums.
    x = np.round(4 * matrices(70, 70)) * 0
    x[np.arange(70), np.arange(70)] = 2
    x[:, 45] = x[:, 3]
    factors = x.copy()
    pivots, lost = eliminated(factors, np.abs)
    expected, chosen, first = one_by_one(x)
    assert (pivots.tolist(), lost, lost) == (chosen, first, 46)
    assert np.array_equal(factors, expected)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_spreads_as_column_by_column(value: float) -> None:
    x = matrices(70, 70)
    x[40, 69] = value
    factors = x.copy()
    with np.errstate(invalid="ignore"):
        eliminated(factors, np.abs)
        expected, _, _ = one_by_one(x)
    assert np.array_equal(np.isfinite(factors), np.isfinite(expected))
    assert np.isfinite(factors[:, :69]).all()


@pytest.mark.thinned(5)
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize(
    ("rows", "columns"), [(0, 2), (1, 1), (5, 0), (64, 3), (65, 1), (150, 7)]
)
def test_blocks_are_substituted_one_after_another(
    rows: int, columns: int, dtype: type, *, lower: bool, unit: bool
) -> None:
    # What is not in the triangle is not read.
    a = matrices(2, rows, rows, dtype=dtype) / max(rows, 1)
    diagonal = np.einsum("...ii->...i", a)
    diagonal[:] = np.nan if unit else 2
    b = matrices(2, rows, columns, dtype=dtype)
    triangle = np.tril(a) if lower else np.triu(a)
    if unit:
        np.einsum("...ii->...i", triangle)[:] = 1
    a[~np.broadcast_to((np.tri(rows) if lower else np.tri(rows).T) > 0, a.shape)] = np.inf
    found = substituted(a, b, lower=lower, unit=unit)
    np.testing.assert_allclose(triangle @ found, b, atol=1e-12)


@pytest.mark.parametrize("lower", [True, False])
def test_a_diagonal_without_a_reciprocal_divides_its_row(lower: bool) -> None:
    last = 69 if lower else 0
    a, b = 2 * np.eye(70), np.ones((70, 1))
    a[last, last], a[30, 30], b[30] = 0.0, 5e-324, 1e-323
    with np.errstate(divide="ignore"):
        found = substituted(a, b, lower=lower, unit=False)
    expected = np.full((70, 1), 0.5)
    expected[[last, 30], 0] = np.inf, 2.0
    assert np.array_equal(found, expected)
