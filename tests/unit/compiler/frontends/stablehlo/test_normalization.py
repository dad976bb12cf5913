"""Batch normalization against numpy, and the older broadcast."""

import numpy as np

from fakes.stablehlo_text import run

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
