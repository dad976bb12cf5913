"""Routines of LAPACK by their names, against numpy's."""

import numpy as np
import pytest

from fakes.stablehlo_text import graph_of, joined, run, type_of
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


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (17, 5, 5), (2, 40, 40)])
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


@pytest.mark.parametrize(("batch", "is_whole"), [("", True), ("16x", True), ("17x", False)])
def test_few_triangles_are_one_operation_and_of_many_each_has_a_lane(
    batch: str, is_whole: bool
) -> None:
    a, b = f"tensor<{batch}5x5xf32>", f"tensor<{batch}5x2xf32>"
    body = f"""
    %x = "stablehlo.triangular_solve"(%a, %b) <{{left_side = true, lower = true, transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}}> : ({a}, {b}) -> {b}
    return %x : {b}"""
    ops = [node.op for node in graph_of(body, f"%a: {a}, %b: {b}")]
    assert ("triangular_solve" in ops) == is_whole


@pytest.mark.parametrize("place", [0, 3, 29])
def test_what_is_not_positive_definite_is_said(place: int) -> None:
    x = np.stack([np.eye(30), np.eye(30)])[
        :, : max(place + 1, 5), : max(place + 1, 5)
    ].copy()
    x[1, place, place] = -1
    _, lost = lapack("dpotrf", letters(uplo="L"), [type_of(x), "tensor<2xi32>"], x)
    np.testing.assert_array_equal(lost, [0, place + 1])


@pytest.mark.thinned(5)
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
@pytest.mark.parametrize("kind", ["d", "z"])
def test_systems_of_three_diagonals_are_solved(count: int, kind: str) -> None:
    lines, b = complex_matrices(3, count), complex_matrices(count, 2)
    lines, b = (lines, b) if kind == "z" else (lines.real.copy(), b.real.copy())
    below, on, above = lines
    on += 3
    line = type_of(on)
    results = [line, line, line, type_of(b), "tensor<i32>"]
    found = lapack(f"{kind}gtsv", "", results, below, on, above, b)
    x = found[3] if kind == "d" else joined(*found[6:8])
    matrix = np.diag(on) + np.diag(below[1:], -1) + np.diag(above[:-1], 1)
    np.testing.assert_allclose(matrix @ x, b, atol=1e-12)


def complex_matrices(*shape: int) -> np.ndarray:
    return CHOOSE.normal(size=shape) + 1j * CHOOSE.normal(size=shape)


def adjoint(x: np.ndarray) -> np.ndarray:
    return x.swapaxes(-1, -2).conj()


@pytest.mark.parametrize("shape", [(5, 3), (2, 4, 4), (3, 4)])
def test_complex_reflections_make_a_unitary_factor(shape: tuple[int, ...]) -> None:
    x = complex_matrices(*shape)
    count = min(shape[-2:])
    scales = np.zeros((*shape[:-2], count), complex)
    parts = lapack("zgeqrf", "", [type_of(x), type_of(scales)], x)
    packed, taus = joined(*parts[:2]), joined(*parts[2:])
    narrow = packed[..., :count].copy()
    q = joined(*lapack("zungqr", "", [type_of(narrow)], narrow, taus))
    np.testing.assert_allclose(q @ np.triu(packed)[..., :count, :], x, atol=1e-12)
    c = complex_matrices(*shape)
    config = "left = true, transpose = true"
    found = joined(*lapack("zunmqr", config, [type_of(c)], narrow, taus, c))
    np.testing.assert_allclose(found[..., :count, :], adjoint(q) @ c, atol=1e-12)
    c = adjoint(c).copy()
    config = "left = false, transpose = false"
    found = joined(*lapack("zunmqr", config, [type_of(c)], narrow, taus, c))
    np.testing.assert_allclose(found[..., :count], c @ q, atol=1e-12)


@pytest.mark.parametrize("kind", ["d", "z"])
def test_the_longest_columns_come_first(kind: str) -> None:
    x = complex_matrices(4, 5)
    x = x.real.copy() if kind == "d" else x
    places, scales = np.zeros(5, np.int32), np.zeros(4, x.dtype)
    results = [type_of(x), type_of(places), type_of(scales)]
    found = lapack(f"{kind}geqp3", "", results, x, places)
    packed = found[0] if kind == "d" else joined(*found[:2])
    order = found[1] if kind == "d" else found[2]
    taus = found[2] if kind == "d" else joined(*found[3:])
    r = np.triu(packed)
    config = "left = true, transpose = false"
    name = "dormqr" if kind == "d" else "zunmqr"
    parts = lapack(name, config, [type_of(x)], packed[:, :4].copy(), taus, r)
    product = parts[0] if kind == "d" else joined(*parts)
    np.testing.assert_allclose(product, x[:, order - 1], atol=1e-12)
    assert np.all(np.diff(abs(np.diag(r))) <= 0)


@pytest.mark.parametrize("kind", ["d", "z"])
def test_forms_with_few_diagonals_keep_the_eigenvalues(kind: str) -> None:
    x = complex_matrices(5, 5)
    x = x + adjoint(x)
    x = x.real.copy() if kind == "d" else x
    scales = type_of(np.zeros(4, x.dtype))
    config = "low = 1 : i32, high = 5 : i32"
    found = lapack(f"{kind}gehrd", config, [type_of(x), scales, "tensor<i32>"], x)
    h = np.triu(found[0] if kind == "d" else joined(*found[:2]), -1)
    expected = np.linalg.eigvalsh(x)
    np.testing.assert_allclose(np.sort(np.linalg.eigvals(h).real), expected, atol=1e-11)
    real = [type_of(np.zeros(n)) for n in (5, 4)]
    name = "dsytrd" if kind == "d" else "zhetrd"
    results = [type_of(x), *real, scales, "tensor<i32>"]
    found = lapack(name, letters(uplo="U"), results, x)
    diagonal, beside = found[1:3] if kind == "d" else found[2:4]
    t = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    np.testing.assert_allclose(np.linalg.eigvalsh(t), expected, atol=1e-11)


def test_a_complex_matrix_is_similar_to_a_triangular_one() -> None:
    x = complex_matrices(6, 6)
    results = [type_of(x), type_of(x), type_of(x[0]), "tensor<i32>", "tensor<i32>"]
    found = lapack("zgees", letters(mode="V", sort="N"), results, x)
    t, q, values = (joined(*found[k : k + 2]) for k in (0, 2, 4))
    np.testing.assert_allclose(q @ t @ adjoint(q), x, atol=1e-12)
    np.testing.assert_array_equal(values, np.diag(t))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("lower", ["L", "U"])
@pytest.mark.parametrize("count", [5, 40])
def test_complex_positive_definite_matrices_have_a_factor(lower: str, count: int) -> None:
    root = complex_matrices(2, count, count)
    x = root @ adjoint(root) + count * np.eye(count)
    found = lapack("zpotrf", letters(uplo=lower), [type_of(x), "tensor<2xi32>"], x)
    factor = joined(*found[:2])
    product = factor @ adjoint(factor) if lower == "L" else adjoint(factor) @ factor
    np.testing.assert_allclose(product, x, rtol=1e-9, atol=1e-9)
    assert not found[2].any()


@pytest.mark.parametrize("turned", ["N", "T", "C"])
def test_large_complex_systems_are_solved(turned: str) -> None:
    a = complex_matrices(150, 150) / 50 + 3 * np.eye(150)
    b = complex_matrices(150, 2)
    config = letters(side="L", uplo="L", trans_x=turned, diag="N")
    x = joined(*lapack("ztrsm", config, [type_of(b)], a, b))
    matrix = {"N": np.tril(a), "T": np.tril(a).T, "C": adjoint(np.tril(a))}[turned]
    np.testing.assert_allclose(matrix @ x, b, atol=1e-10)


def test_complex_matrices_have_factors_eigenvalues_and_singular_values() -> None:
    x = complex_matrices(2, 4, 4)
    line, info_ = type_of(x[..., 0]), info(x)
    real_line = type_of(x[..., 0].real)
    *parts, pivots, _ = lapack("zgetrf", "", [type_of(x), "tensor<2x4xi32>", info_], x)
    packed = joined(*parts)
    sign = np.where(pivots != np.arange(1, 5), -1, 1).prod(-1)
    found = np.diagonal(packed, axis1=-2, axis2=-1).prod(-1) * sign
    np.testing.assert_allclose(found, np.linalg.det(x), rtol=1e-12)
    config = letters(compute_left="V", compute_right="V")
    results = [line, type_of(x), type_of(x), info_]
    parts = lapack("zgeev", config, results, x)
    values, left, right = (joined(*parts[k : k + 2]) for k in (0, 2, 4))
    np.testing.assert_allclose(x @ right, right * values[..., None, :], atol=1e-12)
    np.testing.assert_allclose(
        adjoint(left) @ x, values[..., None] * adjoint(left), atol=1e-12
    )
    whole = x + adjoint(x)
    results = [type_of(x), real_line, info_]
    *parts, values, _ = lapack("zheevd", letters(mode="V", uplo="L"), results, whole)
    vectors = joined(*parts)
    np.testing.assert_allclose(whole @ vectors, vectors * values[..., None, :], atol=1e-12)
    results = [type_of(x), real_line, type_of(x), type_of(x), info_]
    parts = lapack("zgesdd", letters(mode="A"), results, x)
    u, s, v = joined(*parts[3:5]), parts[2], joined(*parts[5:7])
    np.testing.assert_allclose((u * s[..., None, :]) @ v, x, atol=1e-12)


def test_another_routine_is_refused_by_name() -> None:
    x = np.zeros((3, 3))
    with pytest.raises(ModelError, match="custom call 'lapack_dgges_ffi' is not supported"):
        lapack("dgges", "", [type_of(x)], x)


def test_a_real_matrix_is_similar_to_one_of_small_blocks() -> None:
    x = CHOOSE.normal(size=(2, 6, 6))
    line = type_of(x[..., 0])
    results = [type_of(x), type_of(x), line, line, info(x), info(x)]
    t, q, real, imaginary, sorted_, lost = lapack(
        "dgees", letters(mode="V", sort="N"), results, x
    )
    np.testing.assert_allclose(q @ t @ q.swapaxes(-1, -2), x, atol=1e-12)
    assert not np.tril(t, -2).any()
    for found, matrix in zip(real + 1j * imaginary, x, strict=True):
        np.testing.assert_allclose(
            np.poly(found), np.poly(np.linalg.eigvals(matrix)), atol=1e-9
        )
    assert not sorted_.any()
    assert not lost.any()


def test_eigenvalues_in_another_order_are_refused() -> None:
    x = np.eye(3)
    with pytest.raises(ModelError, match="eigenvalues in another order"):
        lapack("dgees", letters(mode="V", sort="S"), [type_of(x)], x)


def test_rows_that_are_not_there_are_refused() -> None:
    config = "low = 1 : i32, high = 4 : i32"
    with pytest.raises(ModelError, match="3 rows have no rows 1 to 4"):
        lapack("dgehrd", config, ["tensor<3x3xf64>"], np.eye(3))


def test_real_matrices_have_eigenvectors_from_the_left() -> None:
    x = CHOOSE.normal(size=(5, 5))
    config = letters(compute_left="V", compute_right="N")
    complex_ = "tensor<5x5xcomplex<f64>>"
    results = ["tensor<5xf64>", "tensor<5xf64>", complex_, complex_, "tensor<i32>"]
    re, im, left_re, left_im, *_ = lapack("dgeev", config, results, x)
    left, values = joined(left_re, left_im), joined(re, im)
    np.testing.assert_allclose(
        adjoint(left) @ x, values[:, None] * adjoint(left), atol=1e-12
    )
