"""Products of sparse matrices, as JAX calls them, against dense ones."""

import numpy as np
import pytest

from fakes.stablehlo_text import joined, run, type_of
from tilewright.base.errors import ModelError

CHOOSE = np.random.default_rng(3)


def product(
    values: np.ndarray, ends: np.ndarray, columns: np.ndarray, dense: np.ndarray, rows: int
) -> list[np.ndarray]:
    given = (values, ends, columns, dense)
    types = [type_of(x) for x in given]
    result = type_of(np.zeros((rows, *dense.shape[1:]), dense.dtype))
    body = f"""
    %r = "stablehlo.custom_call"(%a, %b, %c, %d) {{call_target_name = "cpu_csr_sparse_dense_ffi", mhlo.backend_config = {{}}, api_version = 4 : i32}} : ({", ".join(types)}) -> {result}
    return %r : {result}"""
    arguments = ", ".join(f"%{n}: {t}" for n, t in zip("abcd", types, strict=True))
    return run(body, arguments, *given)


def elements(count: int, dtype: str) -> np.ndarray:
    x = 9 * CHOOSE.normal(size=count)
    whole = x + 1j * CHOOSE.normal(size=count) if dtype[0] == "c" else x
    return np.asarray(whole).astype(dtype)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "complex64"])
@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize("width", [(), (1,), (3,)])
def test_rows_of_elements_times_a_matrix(
    dtype: str, index: str, width: tuple[int, ...]
) -> None:
    # The second and the last row are empty, an element is there twice, and the last two are padding.
    ends = np.array([0, 3, 3, 4, 6, 6], index)
    columns = np.array([0, 3, 3, 1, 0, 2, 4, -7], index)
    values = elements(8, dtype)
    values[6:] = np.nan if dtype != "int32" else 9
    dense = elements(int(4 * np.prod(width)), dtype).reshape(4, *width)
    whole = np.zeros((5, 4), dtype)
    for row in range(5):
        for place in range(ends[row], ends[row + 1]):
            whole[row, columns[place]] += values[place]
    found = product(values, ends, columns, dense, 5)
    whole_found = joined(*found) if dtype[0] == "c" else found[0]
    np.testing.assert_allclose(whole_found, whole @ dense, rtol=1e-5)


@pytest.mark.parametrize(
    ("rows", "count", "held"), [(0, 3, 0), (2, 0, 0), (2, 3, 0), (2, 0, 1)]
)
def test_matrices_without_elements_give_zeros(rows: int, count: int, held: int) -> None:
    ends, columns = np.zeros(rows + 1, np.int32), np.zeros(held, np.int32)
    (found,) = product(
        elements(held, "float32"), ends, columns, np.ones((count, 2), np.float32), rows
    )
    assert np.array_equal(found, np.zeros((rows, 2)))


def test_as_many_ends_as_rows_are_refused() -> None:
    index = np.zeros(3, np.int32)
    with pytest.raises(ModelError, match="3 ends are not those of 3 rows"):
        product(elements(3, "float32"), index, index, np.ones(4, np.float32), 3)
