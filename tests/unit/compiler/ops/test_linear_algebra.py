"""Factors put together again give the matrix."""

import numpy as np
import pytest

from tilewright.compiler.graph.schema import Array
from tilewright.compiler.ops import catalogue

RANDOM = np.random.default_rng(5)


def run(name: str, *arrays: Array, **attributes: object) -> list[Array]:
    declared = catalogue.lookup(name)
    with np.errstate(all="ignore"):
        return list(declared.schema.evaluate(arrays, declared.complete(attributes)))


def matrices(*shape: int) -> Array:
    return RANDOM.standard_normal(shape)


def test_cholesky_gives_a_root_and_says_which_minor_has_none() -> None:
    x = matrices(2, 5, 5)
    x = x @ x.swapaxes(-1, -2)
    factor, info = run("cholesky", x)
    np.testing.assert_allclose(factor @ factor.swapaxes(-1, -2), x, atol=1e-12)
    assert np.array_equal(factor, np.tril(factor))
    assert info.tolist() == [0, 0]
    assert run("cholesky", np.diag([1.0, -1.0, 2.0]))[1] == 2
    assert run("cholesky", np.full((2, 2), np.nan))[1] == 1


@pytest.mark.parametrize(
    "shape",
    [(3, 3), (2, 5, 3), (3, 5), (1, 1), (0, 3), (2, 0, 0), (2, 40, 35), (0, 40, 40)],
)
@pytest.mark.parametrize("pivot", [True, False])
def test_the_factors_of_elimination_are_the_matrix_with_its_rows_exchanged(
    shape: tuple[int, ...], pivot: bool
) -> None:
    x = matrices(*shape)
    packed, pivots, info = run("lu", x, pivot=pivot)
    (order,) = run("exchanged_rows", pivots, rows=(shape[-2],))
    count = min(shape[-2:])
    lower = np.tril(packed[..., :count], -1) + np.eye(shape[-2], count)
    product = lower @ np.triu(packed[..., :count, :])
    exchanged = np.take_along_axis(x, order[..., None], -2)
    np.testing.assert_allclose(product, exchanged, atol=1e-10)
    assert not info.any()
    assert run("lu", np.zeros((2, 2)))[2] == 1


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 3), (3, 1), (3, 0), (90, 70), (0, 4, 3)])
def test_reflections_give_orthogonal_columns(shape: tuple[int, ...]) -> None:
    x = matrices(*shape)
    factors, scales = run("reflectors", x)
    (q,) = run("reflected", factors, scales)
    np.testing.assert_allclose(q @ np.triu(factors[..., : shape[-1], :]), x, atol=1e-12)
    eye = np.broadcast_to(np.eye(shape[-1]), (*shape[:-2], shape[-1], shape[-1]))
    np.testing.assert_allclose(q.swapaxes(-1, -2) @ q, eye, atol=1e-12)


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (1, 1), (0, 3), (2, 3, 0)])
@pytest.mark.parametrize("full", [True, False])
def test_singular_values_stand_between_orthogonal_matrices(
    shape: tuple[int, ...], full: bool
) -> None:
    x = matrices(*shape)
    u, s, v = run("svd", x, full=full)
    count = s.shape[-1]
    np.testing.assert_allclose(
        (u[..., :count] * s[..., None, :]) @ v[..., :count, :], x, atol=1e-12
    )
    assert np.all(np.diff(s) <= 0)


def test_eigenvectors_are_only_scaled() -> None:
    x = matrices(2, 4, 4)
    values, vectors = run("eigh", np.triu(x), lower=False)
    whole = np.triu(x) + np.triu(x, 1).swapaxes(-1, -2)
    np.testing.assert_allclose(whole @ vectors, vectors * values[..., None, :], atol=1e-12)
    parts = run("eig", x)
    values, vectors = parts[0] + 1j * parts[1], parts[2] + 1j * parts[3]
    np.testing.assert_allclose(x @ vectors, vectors * values[..., None, :], atol=1e-12)
    assert [part.shape for part in run("eig", matrices(2, 0, 0))] == [(2, 0)] * 2 + [
        (2, 0, 0)
    ] * 2


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_equations_read_one_triangle(lower: bool, unit: bool) -> None:
    a, b = matrices(2, 3, 3), matrices(2, 3, 2)
    (x,) = run("triangular_solve", a, b, lower=lower, unit=unit)
    kept = np.tril(a) if lower else np.triu(a)
    if unit:
        kept = kept - kept * np.eye(3) + np.eye(3)
    np.testing.assert_allclose(kept @ x, b, atol=1e-9)


@pytest.mark.parametrize("pivot", [True, False])
def test_a_matrix_without_a_pivot_changes_no_other_of_its_batch(pivot: bool) -> None:
    x = np.stack([np.ones((4, 4)), matrices(4, 4) + 9 * np.eye(4), np.full((4, 4), np.nan)])
    packed, pivots, info = run("lu", x, pivot=pivot)
    assert info.tolist() == [2, 0, 0]
    for place in range(3):
        alone = run("lu", x[place], pivot=pivot)
        for one, other in zip(
            (packed[place], pivots[place], info[place]), alone, strict=True
        ):
            np.testing.assert_array_equal(one, other)


def symmetric(count: int, size: int) -> Array:
    root = matrices(count, size, size)
    return root @ root.swapaxes(-1, -2) + np.eye(size)


def assert_each_is_as_alone(name: str, x: Array, **attributes: object) -> None:
    whole = run(name, x, **attributes)
    for place, matrix in enumerate(x):
        for one, other in zip(whole, run(name, matrix, **attributes), strict=True):
            np.testing.assert_array_equal(one[place], other)


@pytest.mark.parametrize("size", [1, 4, 40])
@pytest.mark.parametrize("without", [(), (1,), (0, 3, 4), (0, 1, 2, 3, 4)])
def test_a_matrix_without_a_root_changes_no_other_of_its_batch(
    size: int, without: tuple[int, ...]
) -> None:
    x = symmetric(5, size)
    x[without, size // 2, size // 2] = -1
    factors, info = run("cholesky", x)
    assert np.flatnonzero(info).tolist() == list(without)
    assert set(info.tolist()) <= {0, size // 2 + 1}
    for place in set(range(5)) - set(without):
        np.testing.assert_array_equal(factors[place], np.linalg.cholesky(x[place]))
    assert_each_is_as_alone("cholesky", x)


def test_where_numbers_end_no_root_is_found() -> None:
    x = symmetric(5, 3)
    x[0], x[1, 1, 0], x[3, 2, 2], x[4] = np.nan, np.inf, np.inf, 0
    _, info = run("cholesky", x)
    assert info.tolist() == [1, 2, 0, 0, 1]
    assert_each_is_as_alone("cholesky", x)


@pytest.mark.parametrize("name", ["cholesky", "lu", "reflectors", "eigh", "eig", "svd"])
def test_no_factor_depends_on_its_batch(name: str) -> None:
    x = symmetric(6, 7)
    x[1], x[2], x[3, 0, 0], x[4] = 0, np.nan, np.inf, -x[4]
    assert_each_is_as_alone(name, x)
    x[5] = np.eye(7, k=1) - np.eye(7, k=-1)
    assert_each_is_as_alone(name, x)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_numbers_above_the_diagonal_are_not_read_by_cholesky(wrong: float) -> None:
    x = np.float64([[4, wrong], [2, 5]])
    factor, info = run("cholesky", x)
    np.testing.assert_allclose(factor, [[2, 0], [1, 2]])
    assert info == 0
