"""Kernels of factors and of triangular systems give what the oracles do, for known and for open sizes."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.dtypes import DType, f32, f64, i32
from tilewright.base.errors import InputError
from tilewright.base.symbolic import Dim, symbol
from tilewright.compiler.graph.schema import Array, TensorType
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.builder import GraphBuilder

RANDOM = np.random.default_rng(7)
ROWS, COLUMNS, BATCH = (symbol(name, 0) for name in ("rows", "columns", "batch"))
Run = Callable[..., list[Array]]


def compiled(
    name: str, *shapes: Sequence[Dim], dtype: DType = f64, **attributes: object
) -> Run:
    b = GraphBuilder()
    operands = [
        b.input(f"x{place}", TensorType(dtype, tuple(shape)))
        for place, shape in enumerate(shapes)
    ]
    for place, result in enumerate(b.node(name, operands, attributes).results):
        b.output(f"y{place}", result)
    model = tw.compile(b.graph)
    assert all(kernel.outcome != "host" for kernel in model.kernels)

    def run(*arrays: Array) -> list[Array]:
        found = model(*arrays)
        return [found] if isinstance(found, np.ndarray) else list(found)

    return run


def assert_agrees(run: Run, name: str, *arrays: Array, **attributes: object) -> None:
    declared = catalogue.lookup(name)
    with np.errstate(all="ignore"):
        wanted = declared.schema.evaluate(arrays, declared.complete(attributes))
    for one, other in zip(run(*arrays), wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def matrices(*shape: int) -> Array:
    return RANDOM.standard_normal(shape)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("pivot", [True, False])
def test_factors_of_open_sizes_are_those_of_the_oracle(pivot: bool) -> None:
    run = compiled("lu", (ROWS, COLUMNS), pivot=pivot)
    for shape in [(0, 3), (3, 0), (1, 1), (16, 16), (17, 40), (40, 17), (50, 50)]:
        x = matrices(*shape) + 9 * np.eye(*shape)
        assert_agrees(run, "lu", x, pivot=pivot)
    # A column without a pivot, then rows that repeat themselves, then what is no number.
    lost = matrices(20, 20)
    lost[:, 3] = 0
    assert_agrees(run, "lu", lost, pivot=pivot)
    assert_agrees(run, "lu", np.ones((20, 20)), pivot=pivot)
    if pivot:
        lost[7, 9] = np.nan
        assert_agrees(run, "lu", lost)


@pytest.mark.slow
def test_every_matrix_of_a_batch_has_factors_of_its_own() -> None:
    run = compiled("lu", (BATCH, 18, 18), dtype=f32)
    x = matrices(3, 18, 18).astype(np.float32)
    x[1] = 0
    found = run(x)
    for place, matrix in enumerate(x):
        for one, other in zip(found, run(matrix[None]), strict=True):
            np.testing.assert_array_equal(one[place], other[0])
    assert [part.shape for part in run(x[:0])] == [(0, 18, 18), (0, 18), (0,)]


@pytest.mark.slow
def test_roots_of_open_sizes_are_those_of_the_oracle() -> None:
    run = compiled("cholesky", (ROWS, ROWS))
    for size in (0, 1, 16, 17, 33, 50):
        x = matrices(size, size)
        assert_agrees(run, "cholesky", x @ x.T + np.eye(size))
    lost = np.eye(20)
    lost[5, 5], lost[9, 2] = -1, 0.5
    assert_agrees(run, "cholesky", lost)
    assert_agrees(run, "cholesky", np.full((3, 3), np.nan))


@pytest.mark.thinned(5)
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("sides", [1, 3, COLUMNS])
def test_triangular_systems_of_open_sizes_are_solved_as_the_oracle_does(
    lower: bool, sides: Dim
) -> None:
    run = compiled("triangular_solve", (ROWS, ROWS), (ROWS, sides), lower=lower)
    count = sides if isinstance(sides, int) else 19
    for size in (0, 1, 16, 17, 40):
        a = matrices(size, size) + 9 * np.eye(size)
        assert_agrees(run, "triangular_solve", a, matrices(size, count), lower=lower)
    singular = np.triu(np.ones((4, 4))) * (0 if lower else 1) + np.eye(4) * 2
    singular[2, 2] = 0
    assert_agrees(run, "triangular_solve", singular, matrices(4, count), lower=lower)


def test_the_other_triangle_is_not_looked_at() -> None:
    run = compiled("triangular_solve", (5, 5), (5, 2), unit=True)
    a = np.tril(matrices(5, 5), -1)
    noise = a + np.triu(np.full((5, 5), np.nan))
    b = matrices(5, 2)
    np.testing.assert_array_equal(run(noise, b)[0], run(a, b)[0])


def test_an_exchange_with_a_row_that_is_not_there_is_refused() -> None:
    run = compiled("exchanged_rows", (3,), dtype=i32, rows=(4,))
    assert run(np.array([3, 2, 4], np.int32))[0].tolist() == [2, 1, 3, 0]
    for wrong in (0, 5):
        with pytest.raises(InputError):
            run(np.array([3, wrong, 3], np.int32))
