"""Forms of real matrices put together again give the matrix."""

import numpy as np
import pytest

from tilewright.compiler.graph.schema import Array
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.real_schur import eigenvalues, real_schur

RANDOM = np.random.default_rng(11)

CASES = [
    np.zeros((0, 0)), np.float64([[3]]), np.zeros((4, 4)), np.ones((4, 4)),
    np.eye(5, k=1), np.eye(5, k=-1), 2 * np.eye(3) + np.eye(3, k=-1),
    *(np.roll(np.eye(n), 1, 0) for n in (2, 3, 4, 8)),
    np.float64([[1, 1], [-1e-20, 1]]), np.float64([[0, 1], [-1, 0]]),
    np.float64([[1, 2], [0, 3]]), np.float64([[3, 0], [2, 1]]),
    *(RANDOM.standard_normal((n, n)) for n in (2, 3, 7, 30)),
    *(RANDOM.integers(-1, 2, (n, n)).astype(np.float64) for n in (4, 5, 6, 9)),
]  # fmt: skip


@pytest.mark.parametrize("x", CASES)
def test_a_real_matrix_is_similar_to_one_of_small_blocks(x: Array) -> None:
    t, q, lost = real_schur(x)
    assert not lost
    np.testing.assert_allclose(q @ t @ q.T, x, atol=1e-12)
    np.testing.assert_allclose(q @ q.T, np.eye(len(x)), atol=1e-12)
    assert not np.tril(t, -2).any()
    below = np.diagonal(t, -1) if len(x) else np.zeros(0)
    assert not (below[1:] * below[:-1]).any()
    for k in np.nonzero(below)[0]:
        assert t[k, k] == t[k + 1, k + 1]
        assert t[k, k + 1] * t[k + 1, k] < 0


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
