"""The cheapest path through costs, beside onnxruntime's CPU kernel."""

import numpy as np
import pytest

from fakes.contributed import agrees, ours
from tilewright.base.errors import ModelError

RNG = np.random.default_rng(41)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "shape", [(4, 6), (1, 1), (1, 5), (5, 1), (1, 7, 3), (0, 3), (9, 9)]
)
def test_the_path_is_that_of_the_least_costs(shape: tuple[int, ...]) -> None:
    agrees("DynamicTimeWarping", [RNG.standard_normal(shape).astype(np.float32)])


@pytest.mark.slow
def test_of_equal_steps_the_same_is_taken() -> None:
    for at in range(6):
        costs = RNG.integers(0, 2, (3 + at, 7 - at)).astype(np.float32)
        agrees("DynamicTimeWarping", [costs])


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_costs_that_are_no_numbers_end_at_a_border(number: float) -> None:
    costs = RNG.standard_normal((3, 4)).astype(np.float32)
    costs[1, 2] = number
    agrees("DynamicTimeWarping", [costs])
    agrees("DynamicTimeWarping", [np.full((3, 4), number, np.float32)])


def test_several_matrices_are_an_error() -> None:
    with pytest.raises(ModelError, match="expected a matrix"):
        ours("DynamicTimeWarping", [np.zeros((2, 3, 4), np.float32)])
