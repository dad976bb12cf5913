"""RoiAlign, beside onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from fakes import onnx_models
from tilewright.base.errors import InputError, ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

RNG = np.random.default_rng(11)
X = RNG.standard_normal((2, 3, 8, 9)).astype(np.float32)
REGIONS = np.array(
    [
        [0, 0, 7, 9],
        [2, 3, 40, 5],
        [1, 1, 1, 1],
        [5, 6, 2, 1],
        [-9, -9, 30, 35],
        [3, 0, 4, 17],
    ],
    np.float32,
)
TEXT = """graph (float[N,C,H,W] x, float[K,4] r, int64[K] b) => (float[K,C,A,B] y) {
    y = RoiAlign<output_height = 3, output_width = 2, spatial_scale = 0.5, MORE>(x, r, b)
}"""


def expected(text: str, *inputs: np.ndarray) -> np.ndarray:
    runtime = pytest.importorskip("onnxruntime")
    model = onnx_models.parse(text)
    session = runtime.InferenceSession(model.SerializeToString())
    return session.run(None, dict(zip("xrb", inputs, strict=True)))[0]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("kind", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 1, 3])
def test_samples_are_averaged(kind: str, ratio: int) -> None:
    more = f'sampling_ratio = {ratio}, coordinate_transformation_mode = "{kind}"'
    text = TEXT.replace("MORE", more)
    graph = load(onnx_models.parse(text))
    for rows in ([0, 1, 2, 3, 4, 5], [2]):
        given = X, REGIONS[rows], np.array(rows) % 2
        (found,) = evaluate(graph, list(given))
        np.testing.assert_allclose(found, expected(text, *given), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_data_may_leave_no_region() -> None:
    text = """graph (float[1,2,5,6] x, float[4,4] r, bool[4] c) => (float[K,2,2,2] y) <int64[4] b = {0, 0, 0, 0}> {
        s = Compress<axis = 0>(r, c)
        d = Compress<axis = 0>(b, c)
        y = RoiAlign<output_height = 2, output_width = 2>(x, s, d)
    }"""
    model = tilewright.compile(onnx_models.parse(text), threads=1, jobs=1)
    for kept in (np.zeros(4, np.bool_), np.array([True, False, True, False])):
        found = model(X[:1, :2, :5, :6], REGIONS[:4], kept)
        assert np.asarray(found).shape == (kept.sum(), 2, 2, 2)


def test_as_many_samples_as_a_region_asks_for_have_a_largest() -> None:
    """Whose neighbours are weighted first; onnxruntime weights the largest neighbour."""
    text = TEXT.replace("MORE", 'mode = "max", sampling_ratio = RATIO')
    own = load(onnx_models.parse(text.replace("RATIO", "0")))
    # Two samples along each axis is what a region of six by four asks for.
    two = load(onnx_models.parse(text.replace("RATIO", "2")))
    given = [X, np.array([[2, 1, 10, 13]], np.float32), np.array([1])]
    larger = [X, np.array([[2, 1, 10, 13], [0, 0, 16, 17]], np.float32), np.array([1, 0])]
    wanted = evaluate(two, given)[0]
    np.testing.assert_allclose(evaluate(own, given)[0], wanted, rtol=1e-6)
    np.testing.assert_allclose(evaluate(own, larger)[0][:1], wanted, rtol=1e-6)


@pytest.mark.slow
def test_what_is_compiled_does_the_same() -> None:
    text = TEXT.replace("MORE", "sampling_ratio = 0")
    model = tilewright.compile(onnx_models.parse(text), threads=1, jobs=1)
    for rows in ([0, 1, 2, 3, 4, 5], [3]):
        given = X, REGIONS[rows], np.array(rows) % 2
        np.testing.assert_allclose(
            model(*given), expected(text, *given), rtol=1e-4, atol=1e-5
        )
    for bad in (np.nan, 1e30):
        with pytest.raises(
            InputError, match="the data gives size 131072, expected at most"
        ):
            model(X, np.array([[0, 0, bad, 1]], np.float32), np.array([0]))


def test_more_samples_than_a_program_has_numbers_for_are_refused() -> None:
    """A graph of a few bytes asked for 32 GiB of numbers while it was read."""
    text = TEXT.replace("MORE", "sampling_ratio = 2147483647")
    with pytest.raises(ModelError, match="2147483647 samples in each of 3 parts"):
        load(onnx_models.parse(text))
