"""What becomes of scores: transforms, labels as numbers or strings, the second of two classes."""

from types import SimpleNamespace

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.host import HostProgram
from tilewright.compiler.frontends.onnx.scores import (
    binary_scores,
    labelled,
    labels_at,
    transformed,
)
from tilewright.compiler.frontends.onnx.values import HostValue
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph

SCORES = np.array([[1.0, -2.0, 0.0], [0.0, 0.5, 3.0]], np.float32)


@pytest.fixture
def call() -> SimpleNamespace:
    """As much of a call as the functions here look at."""
    return SimpleNamespace(maker=NodeMaker(Graph("scores")), host=HostProgram())


def constant(call: SimpleNamespace, array: np.ndarray) -> Tensor:
    return call.maker.constant(array)


def computed(call: SimpleNamespace, x: Tensor) -> np.ndarray:
    graph = call.maker.graph
    graph.outputs, graph.output_names = [call.maker.value(x)], ["y"]
    return evaluate(graph, [])[0]


def softmax(x: np.ndarray) -> np.ndarray:
    p = np.exp(x - x.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        ("NONE", SCORES),
        ("SOFTMAX", softmax(SCORES)),
        ("LOGISTIC", 1 / (1 + np.exp(-SCORES))),
        # Zeros stay zeros; the others share what there is.
        ("SOFTMAX_ZERO", np.where(SCORES == 0, 0, softmax(np.where(SCORES == 0, -np.inf, SCORES)))),
    ],
)  # fmt: skip
def test_scores_are_transformed(
    call: SimpleNamespace, transform: str, expected: np.ndarray
) -> None:
    found = transformed(call, constant(call, SCORES), transform)
    np.testing.assert_allclose(computed(call, found), expected, rtol=1e-6)


def test_a_transform_that_is_not_known_is_refused(call: SimpleNamespace) -> None:
    for function in (
        transformed,
        lambda *a: binary_scores(*a[:2], [0, 1], a[2], probability=True),
    ):
        with pytest.raises(UnsupportedError, match="'PROBIT' is not supported"):
            function(call, constant(call, SCORES[:, :1]), "PROBIT")


def test_labels_are_numbers_or_strings_of_the_host(call: SimpleNamespace) -> None:
    places = constant(call, np.array([2, 0]))
    assert computed(call, labels_at(call, places, [7, 8, 9])).tolist() == [9, 7]
    found = labels_at(call, places, ["a", "b", "c"])
    assert isinstance(found, HostValue)
    assert found.constant.tolist() == ["c", "a"]


def test_the_first_of_equal_scores_gives_the_label(call: SimpleNamespace) -> None:
    ties = np.array([[1, 1, 0], [0, 2, 2]], np.float64)
    labels, scores = labelled(call, constant(call, ties), [5, 6, 7], "NONE")
    assert computed(call, labels).tolist() == [5, 6]
    assert scores.dtype is dtypes.f32
    with pytest.raises(ModelError, match="there are 2 labels"):
        labelled(call, constant(call, ties), [5, 6], "NONE")


@pytest.mark.parametrize(
    ("transform", "probability", "expected", "chosen"),
    [
        ("NONE", True, [[0.5, 0.5], [0.25, 0.75]], [4, 9]),
        ("NONE", False, [[-0.5, 0.5], [-0.75, 0.75]], [9, 9]),
        ("LOGISTIC", False, None, [9, 9]),
        ("LOGISTIC", True, [[0.5, 0.5], [0.25, 0.75]], [4, 9]),
    ],
)
def test_one_score_becomes_two(
    call: SimpleNamespace,
    transform: str,
    probability: bool,
    expected: list[list[float]] | None,
    chosen: list[int],
) -> None:
    score = np.array([[0.5], [0.75]], np.float32)
    labels, both = binary_scores(
        call, constant(call, score), [4, 9], transform, probability=probability
    )
    if expected is None:
        pairs = np.concatenate([-score, score], 1)
        expected = (1 / (1 + np.exp(-pairs))).tolist()
    np.testing.assert_allclose(computed(call, both), expected, rtol=1e-6)
    assert computed(call, labels).tolist() == chosen
