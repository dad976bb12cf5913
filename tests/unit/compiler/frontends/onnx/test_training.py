"""Steps of optimizers, against the reference that ONNX carries for each, with odd numbers of parameters."""

import numpy as np
import pytest

from fakes import onnx_models
from fakes.onnx_models import run_node
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

TRAINING = "ai.onnx.preview.training"
RNG = np.random.default_rng(43)
RATE = np.array(0.1, np.float32)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def steps(
    op: str, count: int, kinds: int, trip: int, **attributes: object
) -> tuple[list[np.ndarray], list[list[np.ndarray]]]:
    """What the node gives, sorted by kind, and its parameters' own tensors."""
    shapes = [(3, 2), (), (5,)][:count]
    groups = [
        [floats(*s), floats(*s), *(np.abs(floats(*s)) for _ in range(kinds - 2))]
        for s in shapes
    ]
    sorted_ = [group[kind] for kind in range(kinds) for group in groups]
    arrays = [RATE, np.array(trip), *sorted_]
    model_outputs = count * (kinds - 1)
    model = onnx_models.one_node(
        op, arrays, outputs=model_outputs, domain=TRAINING, **attributes
    )
    entry = model.opset_import.add()
    entry.domain, entry.version = TRAINING, 1
    return evaluate(load(model), arrays), groups


def split(results: list[np.ndarray], count: int) -> list[list[np.ndarray]]:
    return [results[place::count] for place in range(count)]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("trip", [0, 4])
def test_adagrad(count: int, trip: int) -> None:
    results, groups = steps(
        "Adagrad", count, 3, trip, decay_factor=0.1, epsilon=1e-3, norm_coefficient=0.01
    )
    for found, (x, g, h) in zip(split(results, count), groups, strict=True):
        g = g + 0.01 * x
        square = h + g * g
        moved = x - RATE / (1 + trip * 0.1) * g / (np.sqrt(square) + 1e-3)
        np.testing.assert_allclose(found[0], moved, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[1], square, rtol=1e-5)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("trip", [0, 4])
def test_adam(count: int, trip: int) -> None:
    results, groups = steps(
        "Adam", count, 4, trip, alpha=0.8, beta=0.95, epsilon=1e-3,
        norm_coefficient=0.01, norm_coefficient_post=0.02,
    )  # fmt: skip
    for found, (x, g, v, h) in zip(split(results, count), groups, strict=True):
        g = g + 0.01 * x
        mean, square = 0.8 * v + 0.2 * g, 0.95 * h + 0.05 * g * g
        rate = RATE * np.sqrt(1 - 0.95**trip) / (1 - 0.8**trip) if trip else RATE
        moved = (1 - 0.02) * (x - rate * mean / (np.sqrt(square) + 1e-3))
        for one, other in zip(found, (moved, mean, square), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["standard", "nesterov"])
@pytest.mark.parametrize("trip", [0, 4])
def test_momentum(mode: str, trip: int) -> None:
    results, groups = steps(
        "Momentum", 2, 3, trip, alpha=0.9, beta=0.7, norm_coefficient=0.01, mode=mode
    )
    for found, (x, g, v) in zip(split(results, 2), groups, strict=True):
        g = g + 0.01 * x
        speed = 0.9 * v + (0.7 if trip else 1) * g
        way = g + 0.9 * speed if mode == "nesterov" else speed
        np.testing.assert_allclose(found[0], x - RATE * way, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[1], speed, rtol=1e-5, atol=1e-6)


def test_tensors_that_do_not_come_in_groups_are_refused() -> None:
    arrays = [RATE, np.array(0), floats(2), floats(2)]
    with pytest.raises(ModelError, match="has 2 tensors, expected a multiple of 3"):
        run_node("Adagrad", arrays, outputs=2, domain=TRAINING)
