"""Draws against their distributions: moments, distances of distribution functions, independence."""

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.compiler.frontends.kit.draws import Draws
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.graph.ir import Graph

stats = pytest.importorskip("scipy.stats")
pytestmark = pytest.mark.slow  # with scikit-learn comes scipy
COUNT = 20_000
SEED = 2011


@pytest.fixture
def e() -> NodeMaker:
    return NodeMaker(Graph("draws"))


def array(x: Tensor) -> np.ndarray:
    assert x.array is not None, "small constants are folded"
    return x.array.ravel()


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64])
def test_uniform_numbers_have_the_uniform_distribution(e: NodeMaker, dtype: object) -> None:
    x = array(Draws().uniform(e, (COUNT,), dtype, SEED))
    assert 0 <= x.min() < 1e-3
    assert 1 - 1e-3 < x.max() < 1
    assert stats.kstest(x, "uniform").pvalue > 1e-3
    assert abs(x.mean() - 1 / 2) < 4 * np.sqrt(1 / 12 / COUNT)
    assert abs(x.var() - 1 / 12) < 4 * np.sqrt(1 / 180 / COUNT)


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64])
def test_normal_numbers_have_the_normal_distribution(e: NodeMaker, dtype: object) -> None:
    x = array(Draws().normal(e, (COUNT,), dtype, SEED))
    assert np.isfinite(x).all()
    assert stats.kstest(x, "norm").pvalue > 1e-3
    assert abs(x.mean()) < 4 / np.sqrt(COUNT)
    assert abs(x.var() - 1) < 4 * np.sqrt(2 / COUNT)
    assert abs(stats.skew(x)) < 4 * np.sqrt(6 / COUNT)
    assert abs(stats.kurtosis(x)) < 4 * np.sqrt(24 / COUNT)


def test_neighbours_do_not_depend_on_each_other(e: NodeMaker) -> None:
    x = array(Draws().normal(e, (COUNT,), dtypes.f64, SEED))
    for lag in (1, 2, 3, 4, 7, 64, 1000):
        assert abs(np.corrcoef(x[:-lag], x[lag:])[0, 1]) < 4 / np.sqrt(COUNT - lag)
    cells, _, _ = np.histogram2d(x[:-1:2], x[1::2], bins=6, range=[[-2, 2], [-2, 2]])
    assert stats.chi2_contingency(cells).pvalue > 1e-3


def test_draws_seeds_and_trips_do_not_depend_on_each_other(e: NodeMaker) -> None:
    draws = Draws(SEED)
    drawn = [draws.normal(e, (COUNT,), dtypes.f64) for _ in range(3)]
    drawn += [draws.normal(e, (COUNT,), dtypes.f64, seed) for seed in (0, 1, 1 << 32)]
    for outer, inner in ((0, 1), (1, 0), (1, 1)):
        with (
            draws.trip(e.scalar(outer, dtypes.i64)),
            draws.trip(e.scalar(inner, dtypes.i64)),
        ):
            drawn.append(draws.normal(e, (COUNT,), dtypes.f64, 0))
    related = np.corrcoef([array(x) for x in drawn]) - np.eye(len(drawn))
    assert np.abs(related).max() < 4.5 / np.sqrt(COUNT)


def test_a_seed_gives_the_same_numbers_and_none_gives_fresh_ones(e: NodeMaker) -> None:
    def drawn(draws: Draws, seed: int | None) -> list[float]:
        return array(draws.uniform(e, (5,), dtypes.f32, seed)).tolist()

    later = Draws()
    drawn(later, None)
    assert drawn(Draws(), 7) == drawn(later, 7)
    assert drawn(Draws(), 7) != drawn(Draws(), 8)
    assert drawn(Draws(), None) != drawn(Draws(), None)
    assert drawn(Draws(7), None) == drawn(Draws(7), None)


def test_the_first_numbers_of_a_longer_draw_are_those_of_a_shorter_one(
    e: NodeMaker,
) -> None:
    short, long = (array(Draws().uniform(e, (n, 2), dtypes.f32, 3)) for n in (3, 9))
    np.testing.assert_array_equal(short, long[:6])


def test_there_may_be_no_numbers(e: NodeMaker) -> None:
    assert Draws().normal(e, (0, 3), dtypes.f32, 1).shape == (0, 3)
