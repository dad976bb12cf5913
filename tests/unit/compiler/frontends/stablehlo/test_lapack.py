"""Routines of LAPACK by their names, against numpy's."""

import numpy as np
import pytest

from fakes.stablehlo_text import run, type_of
from tilewright.base.errors import ModelError

CHOOSE = np.random.default_rng(7)


def lapack(
    name: str, config: str, results: list[str], *values: np.ndarray
) -> list[np.ndarray]:
    names = [f"%x{i}" for i in range(len(values))]
    types = [type_of(v) for v in values]
    several = len(results) > 1
    given = [f"%r#{i}" for i in range(len(results))] if several else ["%r"]
    count = f":{len(results)}" if several else ""
    body = f"""
    %r{count} = "stablehlo.custom_call"({", ".join(names)}) {{call_target_name = "lapack_{name}_ffi", mhlo.backend_config = {{{config}}}, api_version = 4 : i32}} : ({", ".join(types)}) -> ({", ".join(results)})
    return {", ".join(given)} : {", ".join(results)}"""
    arguments = ", ".join(f"{n}: {t}" for n, t in zip(names, types, strict=True))
    return run(body, arguments, *values)


def letters(**named: str) -> str:
    return ", ".join(f"{name} = {ord(letter)} : ui8" for name, letter in named.items())


def info(x: np.ndarray) -> str:
    return type_of(np.zeros(x.shape[:-2], np.int32))


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (2, 40, 40)])
@pytest.mark.parametrize("lower", [True, False])
def test_positive_definite_matrices_have_a_factor(
    shape: tuple[int, ...], lower: bool
) -> None:
    root = CHOOSE.normal(size=shape)
    x = root @ root.swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])
    results = [type_of(x), info(x)]
    factor, lost = lapack("dpotrf", letters(uplo="L" if lower else "U"), results, x)
    expected = np.linalg.cholesky(x)
    np.testing.assert_allclose(
        factor, expected if lower else expected.swapaxes(-1, -2), rtol=1e-9, atol=1e-9
    )
    assert not lost.any()


@pytest.mark.parametrize("place", [0, 3, 29])
def test_what_is_not_positive_definite_is_said(place: int) -> None:
    x = np.stack([np.eye(30), np.eye(30)])[
        :, : max(place + 1, 5), : max(place + 1, 5)
    ].copy()
    x[1, place, place] = -1
    _, lost = lapack("dpotrf", letters(uplo="L"), [type_of(x), "tensor<2xi32>"], x)
    np.testing.assert_array_equal(lost, [0, place + 1])


@pytest.mark.parametrize("kind", ["s", "z"])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("turned", ["N", "T", "C"])
def test_triangular_systems_are_solved(kind: str, left: bool, turned: str) -> None:
    dtype = np.float32 if kind == "s" else np.complex128
    a = (CHOOSE.normal(size=(4, 4)) + 3 * np.eye(4)).astype(dtype)
    b = CHOOSE.normal(size=(4, 2) if left else (2, 4)).astype(dtype)
    if kind == "z":
        a, b = a + 1j * CHOOSE.normal(size=a.shape), b * (1 - 2j)
    config = letters(side="L" if left else "R", uplo="U", trans_x=turned, diag="N")
    found = lapack(f"{kind}trsm", config, [type_of(b)], a, b)
    x = found[0] if kind == "s" else found[0] + 1j * found[1]
    matrix = {"N": np.triu(a), "T": np.triu(a).T, "C": np.triu(a).conj().T}[turned]
    np.testing.assert_allclose(matrix @ x if left else x @ matrix, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (2, 3, 5), (6, 2)])
def test_rows_are_exchanged_and_eliminated(shape: tuple[int, ...]) -> None:
    x = CHOOSE.normal(size=shape)
    count = min(shape[-2:])
    pivots = type_of(np.zeros((*shape[:-2], count), np.int32))
    packed, exchanged, _ = lapack("dgetrf", "", [type_of(x), pivots, info(x)], x)
    lower = np.tril(packed, -1)[..., :count] + np.eye(shape[-2], count)
    product = lower @ np.triu(packed)[..., :count, :]
    flat = zip(
        product.reshape(-1, *shape[-2:]),
        exchanged.reshape(-1, count),
        x.reshape(-1, *shape[-2:]),
        strict=True,
    )
    for found, order, expected in flat:
        for k in reversed(range(count)):
            found[[k, order[k] - 1]] = found[[order[k] - 1, k]]
        np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("shape", [(5, 3), (3, 3), (2, 4, 2)])
def test_reflections_make_an_orthogonal_factor(shape: tuple[int, ...]) -> None:
    x = CHOOSE.normal(size=shape)
    scales = type_of(np.zeros((*shape[:-2], min(shape[-2:]))))
    packed, taus = lapack("dgeqrf", "", [type_of(x), scales], x)
    (q,) = lapack("dorgqr", "", [type_of(x)], packed, taus)
    r = np.triu(packed)[..., : shape[-1], :]
    np.testing.assert_allclose(q @ r, x, atol=1e-12)
    np.testing.assert_allclose(
        q.swapaxes(-1, -2) @ q, np.broadcast_to(np.eye(shape[-1]), r.shape), atol=1e-12
    )


@pytest.mark.parametrize("lower", ["L", "U"])
def test_symmetric_matrices_have_eigenvalues_in_order(lower: str) -> None:
    x = CHOOSE.normal(size=(2, 6, 6))
    whole = (
        np.tril(x) + np.tril(x, -1).swapaxes(-1, -2)
        if lower == "L"
        else np.triu(x) + np.triu(x, 1).swapaxes(-1, -2)
    )
    results = [type_of(x), type_of(x[..., 0]), info(x)]
    vectors, values, _ = lapack("dsyevd", letters(mode="V", uplo=lower), results, x)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(whole), atol=1e-12)
    np.testing.assert_allclose(whole @ vectors, vectors * values[..., None, :], atol=1e-12)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (4, 4)])
@pytest.mark.parametrize("mode", ["A", "S", "N"])
def test_any_matrix_has_singular_values(shape: tuple[int, int], mode: str) -> None:
    x = CHOOSE.normal(size=shape)
    rows, columns = shape if mode == "A" else (min(shape), min(shape))
    left, right = np.zeros((shape[0], rows)), np.zeros((columns, shape[1]))
    results = [
        type_of(x),
        type_of(np.zeros(min(shape))),
        type_of(left),
        type_of(right),
        info(x),
    ]
    _, values, u, v, _ = lapack("dgesdd", letters(mode=mode), results, x)
    np.testing.assert_allclose(values, np.linalg.svd(x, compute_uv=False), atol=1e-12)
    if mode != "N":
        count = min(shape)
        np.testing.assert_allclose(u[:, :count] * values @ v[:count], x, atol=1e-12)


def test_any_square_matrix_has_eigenvalues() -> None:
    x = CHOOSE.normal(size=(4, 4))
    config = letters(compute_left="N", compute_right="V")
    complex_ = "tensor<4x4xcomplex<f64>>"
    results = ["tensor<4xf64>", "tensor<4xf64>", complex_, complex_, "tensor<i32>"]
    re, im, _, _, vector_re, vector_im, _ = lapack("dgeev", config, results, x)
    values, vectors = re + 1j * im, vector_re + 1j * vector_im
    np.testing.assert_allclose(x @ vectors, vectors * values, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 6])
def test_systems_of_three_diagonals_are_solved(count: int) -> None:
    below, on, above = CHOOSE.normal(size=(3, count))
    on += 3
    b = CHOOSE.normal(size=(count, 2))
    line = type_of(on)
    results = [line, line, line, type_of(b), "tensor<i32>"]
    *_, x, _ = lapack("dgtsv", "", results, below, on, above, b)
    matrix = np.diag(on) + np.diag(below[1:], -1) + np.diag(above[:-1], 1)
    np.testing.assert_allclose(matrix @ x, b, atol=1e-12)


def test_another_routine_is_refused_by_name() -> None:
    x = np.zeros((3, 3))
    with pytest.raises(ModelError, match="custom call 'lapack_dgees_ffi' is not supported"):
        lapack("dgees", "", [type_of(x)], x)


def test_eigenvectors_from_the_left_are_refused() -> None:
    config = letters(compute_left="V", compute_right="N")
    with pytest.raises(ModelError, match="eigenvectors from the left"):
        lapack("dgeev", config, ["tensor<2xf64>"], np.eye(2))
