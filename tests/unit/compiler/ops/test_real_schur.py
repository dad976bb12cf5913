"""Forms of real matrices put together again give the matrix."""

import numpy as np
import pytest

from tilewright.compiler.graph.schema import Array
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.real_schur import eigenvalues, real_schur

RANDOM = np.random.default_rng(11)
EPS = np.finfo(np.float64).eps


def inside(block: Array) -> Array:
    """The same two rows among others."""
    found = np.triu(np.full((5, 5), 0.5)) + np.diag([2.0, 0, 0, -1, 3])
    found[1:3, 1:3] = block
    return found


# Two eigenvalues near one another: below one number on the diagonal stands a share of the one above it.
SHARES = [
    sign * share
    for share in (0.5e-9, 2 * EPS, 3 * EPS, 4e-16, EPS, EPS / 2)
    for sign in (1, -1)
]
NEAR = [
    scale * block
    for share in SHARES
    for block in (
        np.float64([[0, 1], [share, 0]]), np.float64([[0, share], [1, 0]]), np.float64([[3, 1], [share, 3]]),
        np.float64([[1e-9, 1], [share, -1e-9]]), np.float64([[-1, -1], [share, -1 - 3e-8]]),
    )
    for scale in (1, 1e8)
]  # fmt: skip
GRADED = [
    np.float64([[0, 1e8], [-4e-8, 0]]), np.float64([[0, 1e8], [4e-8, 0]]), np.float64([[3, 1e8], [-4e-8, 3]]),
    np.float64([[1e-320, 1], [-1, 0]]), np.float64([[3, 1], [1e-309, 3]]), np.float64([[1e-9, 1], [-1e-309, 3]]),
    RANDOM.standard_normal((6, 6)) * 10.0 ** RANDOM.integers(-20, 20, (6, 6)),
    np.diag(10.0 ** np.arange(0, -24, -4)) @ RANDOM.standard_normal((6, 6)),
]  # fmt: skip

CASES = [
    np.zeros((0, 0)), np.float64([[3]]), np.zeros((4, 4)), np.ones((4, 4)),
    np.eye(5, k=1), np.eye(5, k=-1), 2 * np.eye(3) + np.eye(3, k=-1),
    *(np.roll(np.eye(n), 1, 0) for n in (2, 3, 4, 8)),
    np.float64([[1, 1], [-1e-20, 1]]), np.float64([[0, 1], [-1, 0]]),
    np.float64([[1, 2], [0, 3]]), np.float64([[3, 0], [2, 1]]),
    *(RANDOM.standard_normal((n, n)) for n in (2, 3, 7, 30)),
    *(RANDOM.integers(-1, 2, (n, n)).astype(np.float64) for n in (4, 5, 6, 9)),
    *NEAR, *map(inside, NEAR), *GRADED, *(inside(block) for block in GRADED if len(block) == 2),
]  # fmt: skip


@pytest.mark.thinned(4)
@pytest.mark.parametrize("x", CASES)
def test_a_real_matrix_is_similar_to_one_of_small_blocks(x: Array) -> None:
    t, q, lost = real_schur(x)
    assert not lost
    norm = float(np.linalg.norm(x)) or 1.0
    np.testing.assert_allclose(q @ t @ q.T / norm, x / norm, atol=1e-14)
    np.testing.assert_allclose(q @ q.T, np.eye(len(x)), atol=1e-13)
    assert not np.tril(t, -2).any()
    below, above = (np.diagonal(t, k) if len(x) else np.zeros(0) for k in (-1, 1))
    assert not ((below[1:] != 0) & (below[:-1] != 0)).any()
    for k in np.nonzero(below)[0]:
        assert t[k, k] == t[k + 1, k + 1]
        assert np.sign(above[k]) == -np.sign(below[k])


@pytest.mark.thinned(4)
@pytest.mark.parametrize("block", [*NEAR, *GRADED[:6]])
def test_eigenvalues_near_one_another_are_told_apart(block: Array) -> None:
    norm = float(np.linalg.norm(block))
    # Rounding moves a double eigenvalue by the root of what it moves the matrix by.
    moved = 3e-8 * norm
    for x in (block, inside(block)):
        real, imaginary = eigenvalues(real_schur(x)[0])
        found = real + 1j * imaginary
        apart = abs(found[:, None] - np.linalg.eigvals(x)[None, :])
        assert apart.min(0).max() <= moved
        assert apart.min(1).max() <= moved


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        ([[0, 1e8], [-4e-8, 0]], [-2j, 2j]), ([[0, 1e8], [4e-8, 0]], [-2, 2]),
        ([[3, 1e8], [-4e-8, 3]], [3 - 2j, 3 + 2j]), ([[0, 4e-8], [-1e8, 0]], [-2j, 2j]),
        ([[0, 4e-8], [1e8, 0]], [-2, 2]), ([[1, 1e-10], [1e-10, 1]], [1 - 1e-10, 1 + 1e-10]),
    ],
)  # fmt: skip
def test_equal_numbers_on_the_diagonal_lose_nothing(
    x: list[list[float]], expected: list[complex]
) -> None:
    real, imaginary = eigenvalues(real_schur(np.float64(x))[0])
    found = np.sort_complex(real + 1j * imaginary)
    np.testing.assert_allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1, 1e160, 1e300])
def test_eigenvalues_are_read_from_the_form_at_any_scale(scale: float) -> None:
    x = np.float64([[0, 4, 1], [-1, 0, 2], [0, 0, 3]])
    real, imaginary = eigenvalues(real_schur(x * scale)[0])
    found = sorted(zip(real / scale, imaginary / scale, strict=True))
    np.testing.assert_allclose(found, [[0, -2], [0, 2], [3, 0]], atol=1e-12)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_no_number_has_no_form(wrong: float) -> None:
    x = np.stack([np.eye(3), np.full((3, 3), wrong)]).astype(np.float32)
    form, vectors, *_, lost = catalogue.lookup("real_schur").schema.evaluate((x,), {})
    assert lost.tolist() == [0, 3]
    assert np.isnan(form[1]).all()
    assert np.isnan(vectors[1]).all()
    np.testing.assert_array_equal(form[0], np.eye(3))


def test_empty_batches_have_empty_forms() -> None:
    x = np.zeros((0, 3, 3), np.float32)
    found = catalogue.lookup("real_schur").schema.evaluate((x,), {})
    shapes = [(0, 3, 3), (0, 3, 3), (0, 3), (0, 3), (0,)]
    assert [each.shape for each in found] == shapes
