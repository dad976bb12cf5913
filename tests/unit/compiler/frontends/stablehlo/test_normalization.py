"""Batch normalization against numpy, and the older broadcast."""

import numpy as np
import pytest

from fakes.stablehlo_text import run, type_of

CHOOSE = np.random.default_rng(0)
X = CHOOSE.normal(size=(3, 4, 2)).astype(np.float32)
SCALE, OFFSET, MEAN = CHOOSE.normal(size=(3, 4)).astype(np.float32)
VARIANCE = np.abs(CHOOSE.normal(size=4)).astype(np.float32)
TYPE = "tensor<3x4x2xf32>"
VECTOR = "tensor<4xf32>"


def normalized(mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    scale, offset, mean, root = (
        v[:, None] for v in (SCALE, OFFSET, mean, np.sqrt(variance + 1e-3))
    )
    return (X - mean) / root * scale + offset


def test_inference_normalizes_by_given_moments() -> None:
    body = f"""
    %r = "stablehlo.batch_norm_inference"(%x, %s, %o, %m, %v) {{epsilon = 1.0e-03 : f32, feature_index = 1 : i64}} : ({TYPE}, {VECTOR}, {VECTOR}, {VECTOR}, {VECTOR}) -> {TYPE}
    return %r : {TYPE}"""
    arguments = f"%x: {TYPE}, " + ", ".join(f"%{n}: {VECTOR}" for n in "somv")
    (found,) = run(body, arguments, X, SCALE, OFFSET, MEAN, VARIANCE)
    np.testing.assert_allclose(found, normalized(MEAN, VARIANCE), rtol=1e-5, atol=1e-6)


def test_training_normalizes_by_the_moments_of_the_batch() -> None:
    body = f"""
    %r:3 = "stablehlo.batch_norm_training"(%x, %s, %o) {{epsilon = 1.0e-03 : f32, feature_index = 1 : i64}} : ({TYPE}, {VECTOR}, {VECTOR}) -> ({TYPE}, {VECTOR}, {VECTOR})
    return %r#0, %r#1, %r#2 : {TYPE}, {VECTOR}, {VECTOR}"""
    arguments = f"%x: {TYPE}, %s: {VECTOR}, %o: {VECTOR}"
    found = run(body, arguments, X, SCALE, OFFSET)
    mean, variance = X.mean((0, 2)), X.var((0, 2))
    np.testing.assert_allclose(found[0], normalized(mean, variance), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[1], mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[2], variance, rtol=1e-5)


def test_a_broadcast_adds_axes_before() -> None:
    body = """
    %r = "stablehlo.broadcast"(%x) {broadcast_sizes = array<i64: 2, 3>} : (tensor<4xf32>) -> tensor<2x3x4xf32>
    return %r : tensor<2x3x4xf32>"""
    (found,) = run(body, "%x: tensor<4xf32>", MEAN)
    np.testing.assert_array_equal(found, np.broadcast_to(MEAN, (2, 3, 4)))


@pytest.mark.parametrize(
    ("shape", "axis"), [((4, 3), 1), ((2, 3, 5), 0), ((1, 2), 1), ((3, 1), 1)]
)
def test_a_gradient_is_the_slope_of_the_normalization(
    shape: tuple[int, ...], axis: int
) -> None:
    choose = np.random.default_rng(8)
    x, g = (choose.normal(size=shape) for _ in range(2))
    scale = choose.normal(size=shape[axis])
    others = tuple(i for i in range(len(shape)) if i != axis)
    mean, variance = x.mean(others), x.var(others)
    wide = [n if i == axis else 1 for i, n in enumerate(shape)]

    def loss(value: np.ndarray) -> float:
        deviation = np.sqrt(value.var(others, keepdims=True) + 0.1)
        normal = (value - value.mean(others, keepdims=True)) / deviation
        return float((g * normal * scale.reshape(wide)).sum())

    vector, type_ = type_of(scale), type_of(x)
    body = f"""
    %r:3 = "stablehlo.batch_norm_grad"(%x, %s, %m, %v, %g) {{epsilon = 1.000000e-01 : f32, feature_index = {axis} : i64}} : ({type_}, {vector}, {vector}, {vector}, {type_}) -> ({type_}, {vector}, {vector})
    return %r#0, %r#1, %r#2 : {type_}, {vector}, {vector}"""
    arguments = f"%x: {type_}, %s: {vector}, %m: {vector}, %v: {vector}, %g: {type_}"
    found = run(body, arguments, x, scale, mean, variance, g)
    slopes = np.zeros(shape)
    for place in np.ndindex(shape):
        step = np.zeros(shape)
        step[place] = 1e-5
        slopes[place] = (loss(x + step) - loss(x - step)) / 2e-5
    np.testing.assert_allclose(found[0], slopes, atol=1e-7)
    normal = (x - mean.reshape(wide)) / np.sqrt(variance.reshape(wide) + 0.1)
    np.testing.assert_allclose(found[1], (g * normal).sum(others), atol=1e-6)
    np.testing.assert_allclose(found[2], g.sum(others), atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "indices", "axis", "batch"),
    [((4, 3), (2,), 0, 0), ((4, 3), (2, 2), 1, 0), ((2, 3, 4), (2, 5), 2, 1), ((2, 3, 4), (2, 5), 1, 1), ((2, 3), (), 1, 0), ((2, 3, 4), (2, 3), 2, 2)],
)  # fmt: skip
def test_slices_are_selected_by_indices(
    shape: tuple[int, ...], indices: tuple[int, ...], axis: int, batch: int
) -> None:
    choose = np.random.default_rng(9)
    x = choose.normal(size=shape).astype(np.float32)
    places = choose.integers(0, shape[axis], indices).astype(np.int32)
    if batch:
        lines = [
            np.take(x[at], places[at], axis=axis - batch)
            for at in np.ndindex(shape[:batch])
        ]
        expected = np.stack(lines).reshape((*shape[:batch], *lines[0].shape))
    else:
        expected = np.take(x, places, axis=axis)
    result = type_of(expected)
    body = f"""
    %r = "stablehlo.torch_index_select"(%x, %i) {{dim = {axis} : i64, batch_dims = {batch} : i64}} : ({type_of(x)}, {type_of(places)}) -> {result}
    return %r : {result}"""
    (found,) = run(body, f"%x: {type_of(x)}, %i: {type_of(places)}", x, places)
    np.testing.assert_array_equal(found, expected)
