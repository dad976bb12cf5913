"""Random operators: their distributions, types and seeds, by the oracles and compiled, inside of loops, too."""

import numpy as np
import pytest

import tilewright.onnx_backend as backend
from fakes import onnx_models, onnx_suite
from fakes.onnx_models import run_node
from tilewright.base.errors import ModelError

stats = pytest.importorskip("scipy.stats")
pytestmark = pytest.mark.slow  # with scikit-learn comes scipy
RNG = np.random.default_rng(8)
FLOAT16, DOUBLE, INT64 = 10, 11, 7


def fits(x: np.ndarray, name: str, *parameters: float) -> None:
    assert stats.kstest(x.ravel().astype(np.float64), name, parameters).pvalue > 1e-3


def test_normal_numbers_have_the_mean_and_deviation_that_are_asked_for() -> None:
    (x,) = run_node("RandomNormal", [], shape=[90, 101], mean=3.0, scale=0.5, seed=1.0)
    assert x.dtype == np.float32
    assert x.shape == (90, 101)
    fits(x, "norm", 3, 0.5)


def test_uniform_numbers_lie_in_the_range_that_is_asked_for() -> None:
    (x,) = run_node(
        "RandomUniform", [], shape=[7919], low=-2.0, high=5.0, seed=2.5, dtype=DOUBLE
    )
    assert x.dtype == np.float64
    assert -2 <= x.min() < x.max() < 5
    fits(x, "uniform", -2, 7)


@pytest.mark.parametrize("op", ["RandomNormalLike", "RandomUniformLike"])
def test_draws_like_an_operand_have_its_shape_and_its_type_unless_another_is_said(
    op: str,
) -> None:
    like = np.zeros((3, 1, 5), np.float64)
    assert run_node(op, [like])[0].dtype == np.float64
    (half,) = run_node(op, [like.astype(np.int8)], dtype=FLOAT16)
    assert half.dtype == np.float16
    assert half.shape == like.shape
    (none,) = run_node(op, [np.zeros((0, 2), np.float32)])
    assert none.shape == (0, 2)
    with pytest.raises(ModelError, match="expected a float"):
        run_node(op, [like.astype(np.int8)])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_each_element_is_hit_with_its_own_probability(dtype: type) -> None:
    p = np.linspace(0, 1, 11, dtype=dtype).repeat(2000)
    (x,) = run_node("Bernoulli", [p], seed=4.0, dtype=INT64, opset=15)
    assert x.dtype == np.int64
    hits = x.reshape(11, -1).sum(1)
    assert (hits[0], hits[-1]) == (0, 2000)
    for number, share in enumerate(np.linspace(0, 1, 11)[1:-1], 1):
        assert stats.binomtest(int(hits[number]), 2000, share).pvalue > 1e-4


def test_classes_come_as_often_as_their_logits_say() -> None:
    logits = np.array([[0, 1, -np.inf, 2, -1], [700, 700, 690, -700, -np.inf]], np.float32)
    (x,) = run_node("Multinomial", [logits], sample_size=5000, seed=6.0)
    assert (x.dtype, x.shape) == (np.int32, (2, 5000))
    for line, given in zip(x, logits, strict=True):
        p = np.exp(given.astype(np.float64) - given.max())
        p /= p.sum()
        counts = np.bincount(line, minlength=5)
        assert not counts[p == 0].any()
        likely = p > 1e-3
        expected = p[likely] / p[likely].sum() * counts[likely].sum()
        assert stats.chisquare(counts[likely], expected).pvalue > 1e-3
    assert run_node("Multinomial", [logits], dtype=INT64)[0].shape == (2, 1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_dropout_drops_by_its_ratio_and_scales_what_stays(dtype: type) -> None:
    x = np.full((80, 101), 3, dtype)
    arrays = [x, np.array(0.25, np.float32), np.array(True)]
    y, mask = run_node("Dropout", arrays, outputs=2, seed=5)
    assert (y.dtype, mask.dtype) == (dtype, np.bool_)
    np.testing.assert_array_equal(y, np.where(mask, dtype(4), dtype(0)))
    assert stats.binomtest(int(mask.sum()), mask.size, 0.75).pvalue > 1e-3
    again, _ = run_node("Dropout", arrays, outputs=2, seed=5)
    np.testing.assert_array_equal(again, y)


def test_dropout_that_does_not_train_or_drop_keeps_everything() -> None:
    x = np.array([[np.nan, np.inf, -1]], np.float32)
    for ratio, training in ((0.5, False), (0.0, True)):
        arrays = [x, np.array(ratio, np.float32), np.array(training)]
        for constants in ((), (1, 2)):
            y, mask = run_node("Dropout", arrays, outputs=2, constants=constants)
            np.testing.assert_array_equal(y, x)
            assert mask.all()
    (y,) = run_node("Dropout", [x, np.array(1, np.float32), np.array(True)])
    np.testing.assert_array_equal(y, np.zeros_like(x))


def test_nodes_without_a_seed_draw_different_numbers_and_another_import_others() -> None:
    model = onnx_models.parse(
        """graph (float[3,5] x) => (float[3,5] a, float[3,5] b) {
             a = RandomNormalLike (x)
             b = RandomNormalLike (x)
           }"""
    )
    x = np.zeros((3, 5), np.float32)
    drawn = [y for _ in range(2) for y in backend.prepare(model).run([x])]
    assert len({y.tobytes() for y in drawn}) == 4


IN_LOOPS = """graph (int64 n, float[N] x) => (float[N] last, float[T,N] rows) {
      go = Constant<value = bool {1}> ()
      last, rows = Loop (n, go, x) <body = b (int64 i, bool c, float[N] s)
        => (bool c2, float[N] s2, float[N] r) {
        r = RandomUniformLike<seed = 3.0> (s)
        s2 = Add (s, r)
        c2 = Identity (c)
      }>
    }"""


def test_trips_of_a_compiled_loop_draw_different_numbers_the_same_in_every_call() -> None:
    prepared = backend.prepare(onnx_models.parse(IN_LOOPS))
    x = np.zeros(700, np.float32)
    last, rows = prepared.run([np.array(6), x])
    np.testing.assert_allclose(last, rows.sum(0), rtol=1e-6)
    assert len({row.tobytes() for row in rows}) == 6
    fits(rows, "uniform")
    np.testing.assert_array_equal(prepared.run([np.array(3), x])[1], rows[:3])


def test_numbers_too_many_to_be_kept_are_drawn_by_a_kernel() -> None:
    model = onnx_models.parse(
        """graph (float[M,N] x) => (float[M,N] y, float[M,N] z) {
             z = RandomNormalLike<seed = 9.0> (x)
             y = Add (x, z)
           }"""
    )
    prepared = backend.prepare(model)
    x = RNG.standard_normal((300, 257)).astype(np.float32)
    y, z = prepared.run([x])
    fits(z, "norm")
    np.testing.assert_array_equal(y, x + z)
    (small,) = run_node("RandomNormalLike", [x[:3]], seed=9.0)
    np.testing.assert_allclose(z[:3], small, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    "name", ["test_bernoulli", "test_bernoulli_double", "test_bernoulli_seed_expanded"]
)
def test_cases_of_the_specification_give_other_numbers_of_the_same_kind(name: str) -> None:
    (case,) = onnx_suite.cases("node", name)
    (found,) = backend.prepare(case.model).run(list(case.inputs.values()))
    assert found.dtype == case.outputs[0].dtype
    assert found.shape == case.outputs[0].shape
    assert set(np.unique(found)) <= {0, 1}
