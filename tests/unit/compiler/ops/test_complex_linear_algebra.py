"""Factors of complex matrices, put together again, give the matrix."""

import numpy as np
import pytest

from tilewright.compiler.graph.schema import Array
from tilewright.compiler.ops import catalogue, reflections

RANDOM = np.random.default_rng(5)


def run(name: str, *arrays: Array, **attributes: object) -> list[Array]:
    """Complex operands become two each; results are as the op gives them."""
    declared = catalogue.lookup(name)
    given: list[Array] = []
    for x in arrays:
        given += [x] if x.dtype.kind in "iu" else [x.real.copy(), x.imag.copy()]
    with np.errstate(all="ignore"):
        return list(declared.schema.evaluate(given, declared.complete(attributes)))


def joined(real: Array, imaginary: Array) -> Array:
    return real + 1j * imaginary


def matrices(*shape: int) -> Array:
    return RANDOM.standard_normal(shape) + 1j * RANDOM.standard_normal(shape)


def adjoint(x: Array) -> Array:
    return x.swapaxes(-1, -2).conj()


def test_cholesky_gives_a_root_and_says_which_minor_has_none() -> None:
    x = matrices(2, 5, 5)
    x = x @ adjoint(x)
    *parts, info = run("complex_cholesky", x)
    factor = joined(*parts)
    np.testing.assert_allclose(factor @ adjoint(factor), x, atol=1e-12)
    assert np.array_equal(factor, np.tril(factor))
    assert info.tolist() == [0, 0]
    assert run("complex_cholesky", np.diag([1.0 + 0j, -1.0, 2.0]))[-1] == 2
    assert run("complex_cholesky", np.full((2, 2), np.nan + 0j))[-1] == 1


SHAPES = [(3, 3), (2, 5, 3), (3, 5), (1, 1), (0, 3), (2, 0, 0), (0, 2, 2)]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_factors_of_elimination_are_the_matrix_with_its_rows_exchanged(
    shape: tuple[int, ...],
) -> None:
    x = matrices(*shape)
    *parts, pivots, info = run("complex_lu", x)
    packed = joined(*parts)
    declared = catalogue.lookup("exchanged_rows")
    order = declared.schema.evaluate([pivots], {"rows": (shape[-2],)})[0]
    count = min(shape[-2:])
    lower = np.tril(packed[..., :count], -1) + np.eye(shape[-2], count)
    exchanged = np.take_along_axis(x, order[..., None], -2)
    product = lower @ np.triu(packed[..., :count, :])
    np.testing.assert_allclose(product, exchanged, atol=1e-10)
    assert not info.any()
    assert run("complex_lu", np.zeros((2, 2), complex))[-1] == 1


@pytest.mark.parametrize("shape", SHAPES)
def test_reflections_make_a_unitary_factor(shape: tuple[int, ...]) -> None:
    x = matrices(*shape)
    parts = run("complex_reflectors", x)
    factors, scales = joined(*parts[:2]), joined(*parts[2:])
    eye = np.broadcast_to(np.eye(shape[-2]), (*shape[:-2], shape[-2], shape[-2])) + 0j
    q = joined(*run("complex_reflected", factors, scales, eye))
    np.testing.assert_allclose(q @ np.triu(factors), x, atol=1e-12)
    np.testing.assert_allclose(adjoint(q) @ q, eye, atol=1e-12)
    for left in (True, False):
        for turned in (True, False):
            y = adjoint(x) if not left else x
            found = run("complex_reflected", factors, scales, y, left=left, adjoint=turned)
            matrix = adjoint(q) if turned else q
            expected = matrix @ y if left else y @ matrix
            np.testing.assert_allclose(joined(*found), expected, atol=1e-12)


@pytest.mark.parametrize("real", [True, False])
@pytest.mark.parametrize("places", [[0, 0, 0, 0], [0, 0, 1, 0], [0, 7, 0, 1]])
def test_long_columns_come_first_behind_those_that_are_fixed(
    real: bool, places: list[int]
) -> None:
    x = matrices(2, 5, 4)
    x = x.real + 0j if real else x
    fixed = np.broadcast_to(np.array(places, np.int32), (2, 4)).copy()
    parts = run("pivoted_reflectors", x, fixed)
    factors, order, scales = joined(*parts[:2]), parts[2], joined(*parts[3:])
    r = np.triu(factors)
    found = joined(*run("complex_reflected", factors, scales, r))
    expected = np.take_along_axis(x, order[:, None, :] - 1, -1)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    first = np.flatnonzero(places) + 1
    assert set(order[0, : len(first)].tolist()) == set(first.tolist())
    size = abs(np.diagonal(r, axis1=-2, axis2=-1))[:, len(first) :]
    assert np.all(np.diff(size) <= 0)
    assert not real or not (factors.imag.any() or scales.imag.any())


@pytest.mark.parametrize("count", [1, 2, 6])
def test_a_matrix_is_similar_to_its_hessenberg_form(count: int) -> None:
    x = matrices(count, count)
    parts = run("hessenberg", x, low=1, high=count)
    factors, scales = joined(*parts[:2]), joined(*parts[2:])
    h = np.triu(factors, -1)
    q = np.eye(count) + 0j
    inner = run("complex_reflected", factors[1:, :-1], scales, q[1:, 1:])
    q[1:, 1:] = joined(*inner)
    np.testing.assert_allclose(q @ h @ adjoint(q), x, atol=1e-12)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("count", [1, 2, 6])
def test_a_hermitian_matrix_has_the_eigenvalues_of_three_diagonals(
    lower: bool, count: int
) -> None:
    x = matrices(count, count)
    whole = np.tril(x, -1) if lower else np.triu(x, 1)
    whole = whole + adjoint(whole) + np.diag(np.diag(x).real)
    given = np.tril(x) if lower else np.triu(x)
    factors_real, factors_imaginary, diagonal, beside, *_ = run(
        "tridiagonal", given, lower=lower
    )
    t = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    np.testing.assert_allclose(np.linalg.eigvalsh(t), np.linalg.eigvalsh(whole), atol=1e-11)
    np.testing.assert_array_equal(np.diag(factors_real), diagonal)
    assert not np.diag(factors_imaginary).any()


@pytest.mark.parametrize(
    "x",
    [
        matrices(1, 1), matrices(2, 2), matrices(2, 9, 9), np.zeros((3, 3)) + 0j,
        np.eye(4, k=1) + 0j, np.eye(5, k=-1) + 0j, np.roll(np.eye(6), 1, 0) + 0j,
        RANDOM.standard_normal((30, 30)) + 0j, np.zeros((0, 0), complex),
    ],
)  # fmt: skip
def test_a_matrix_is_similar_to_a_triangular_one(x: Array) -> None:
    *parts, info = run("schur", x)
    t, q = joined(*parts[:2]), joined(*parts[2:])
    assert not info.any()
    assert np.array_equal(t, np.triu(t))
    np.testing.assert_allclose(q @ t @ adjoint(q), x, atol=1e-12)
    eye = np.broadcast_to(np.eye(x.shape[-1]), x.shape)
    np.testing.assert_allclose(q @ adjoint(q), eye, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_a_schur_form_has_any_scale(scale: float) -> None:
    x = scale * np.array([[0, 1], [-1, 0j]])
    *parts, info = run("schur", x)
    assert not info.any()
    t = joined(*parts[:2])
    found = np.sort(np.diag(t).imag / scale)
    np.testing.assert_allclose(found, [-1, 1], atol=1e-12)


def test_what_is_no_number_has_no_schur_form() -> None:
    assert run("schur", np.full((3, 3), np.nan + 0j))[-1] == 3


@pytest.mark.parametrize("lower", [True, False])
def test_hermitian_matrices_have_eigenvalues_in_order(lower: bool) -> None:
    x = matrices(2, 6, 6)
    whole = np.tril(x, -1) if lower else np.triu(x, 1)
    eye = np.eye(6)
    whole = whole + adjoint(whole) + x.real * eye
    values, *parts = run("complex_eigh", x, lower=lower)
    vectors = joined(*parts)
    np.testing.assert_allclose(whole @ vectors, vectors * values[..., None, :], atol=1e-12)
    assert np.all(np.diff(values) >= 0)
    assert [a.shape for a in run("complex_eigh", matrices(0, 0))] == [(0,), (0, 0), (0, 0)]


def test_eigenvectors_stand_on_both_sides() -> None:
    x = matrices(2, 5, 5)
    parts = run("complex_eig", x)
    values, right = joined(*parts[:2]), joined(*parts[2:])
    np.testing.assert_allclose(x @ right, right * values[..., None, :], atol=1e-12)
    left = joined(*run("left_eigenvectors", x, values))
    np.testing.assert_allclose(
        adjoint(left) @ x, values[..., None] * adjoint(left), atol=1e-12
    )


def test_values_that_repeat_have_eigenvectors_from_the_left() -> None:
    x = np.array([[2.0, 1, 0], [0, 2, 0], [0, 0, 2]]) + 0j
    left = joined(*run("left_eigenvectors", x, np.full(3, 2 + 0j)))
    np.testing.assert_allclose(adjoint(left) @ x, 2 * adjoint(left), atol=1e-7)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("full", [True, False])
def test_singular_values_stand_between_unitary_matrices(
    shape: tuple[int, ...], full: bool
) -> None:
    x = matrices(*shape)
    found = run("complex_svd", x, full=full)
    u, s, v = joined(*found[:2]), found[2], joined(*found[3:])
    count = s.shape[-1]
    product = (u[..., :count] * s[..., None, :]) @ v[..., :count, :]
    np.testing.assert_allclose(product, x, atol=1e-12)
    assert np.all(np.diff(s) <= 0)
    assert u.shape[-1] == (shape[-2] if full else count)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit", [True, False])
def test_triangular_equations_are_solved(lower: bool, unit: bool) -> None:
    a, b = matrices(2, 5, 5) + 4 * np.eye(5), matrices(2, 5, 3)
    found = run("complex_triangular_solve", a, b, lower=lower, unit=unit)
    matrix = np.tril(a, -1) if lower else np.triu(a, 1)
    matrix = matrix + (np.eye(5) if unit else a * np.eye(5))
    np.testing.assert_allclose(matrix @ joined(*found), b, atol=1e-10)


@pytest.mark.parametrize("size", [1e-170, 1e-160, 1e160])
def test_reflections_hold_at_the_ends_of_the_range_of_numbers(size: float) -> None:
    line = np.array([3 + 1j, 4 - 2j, 1j]) * size
    vector = line.copy()
    beta, tau = reflections.reflection(vector)
    image = line - np.conj(tau) * vector * (vector.conj() @ line)
    np.testing.assert_allclose(image / size, [beta / size, 0, 0], atol=1e-14)
    assert reflections.reflection(np.array([1e-170j]))[0] == pytest.approx(
        -1e-170, rel=1e-12
    )


@pytest.mark.parametrize("lost", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["complex_eig", "complex_eigh", "complex_svd"])
def test_a_matrix_that_is_not_finite_spoils_no_other(name: str, lost: float) -> None:
    x = matrices(2, 3, 3)
    x = x + adjoint(x)
    clean = run(name, x)
    x[1, 2, 2] = lost
    for found, wanted in zip(run(name, x), clean, strict=True):
        np.testing.assert_array_equal(found[0], wanted[0])
        assert np.isnan(found[1]).all()
