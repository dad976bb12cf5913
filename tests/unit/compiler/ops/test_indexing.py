"""Places are counted as the attribute `from_end` says."""

import numpy as np
import pytest

from tilewright.base.errors import InputError
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.ops import catalogue

X = np.float32([[1, 2], [3, 4], [5, 6]])
OPS = ["gather", "gather_elements", "scatter_elements", "scatter_nd"]


def run(name: str, place: int, *, from_end: bool, **attributes: object) -> Array:
    """Of row 1 and row `place`, what the op reads there or what X is after it wrote."""
    declared = catalogue.lookup(name)
    rows = np.array([1, place])
    indices = {"gather": rows, "scatter_nd": rows[:, None]}.get(
        name, np.repeat(rows[:, None], 2, 1)
    )
    updates = (np.zeros((2, 2), np.float32),) if name.startswith("scatter") else ()
    given = declared.complete({"from_end": from_end, **attributes})
    (found,) = declared.schema.evaluate((X, indices, *updates), given)
    return found


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("place", [-1, -3, 3])
def test_a_place_below_0_is_out_of_range_where_none_counts_from_the_end(
    name: str, place: int
) -> None:
    with pytest.raises(
        InputError, match=rf"index {place} is out of range.*expected 0 \.\. 2"
    ):
        run(name, place, from_end=False)


@pytest.mark.parametrize("name", OPS)
def test_a_place_below_0_counts_from_the_end_else(name: str) -> None:
    np.testing.assert_array_equal(
        run(name, -1, from_end=True), run(name, 2, from_end=False)
    )
    with pytest.raises(InputError, match=r"index -4 is out of range.*expected -3 \.\. 2"):
        run(name, -4, from_end=True)


@pytest.mark.parametrize("name", ["scatter_elements", "scatter_nd"])
@pytest.mark.parametrize("from_end", [True, False])
def test_updates_that_may_be_dropped_never_count_from_the_end(
    name: str, from_end: bool
) -> None:
    found = run(name, -1, from_end=from_end, drops=True)
    np.testing.assert_array_equal(found, [[1, 2], [0, 0], [5, 6]])
