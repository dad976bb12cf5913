"""Whole networks as onnxruntime's quantizer writes them compute what their nodes say.

The oracle is onnxruntime without rewriting, node by node.  A sum that lies between two bytes falls to either, and
bytes far behind differ then; what rounding to bytes costs the model is the measure of what that may cost.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.quantized_networks import FORMS, NETWORKS, Feeds, quantized

pytestmark = pytest.mark.slow
SHARE = 0.2
"""Of the error of the quantized model: each byte is off by up to half a step already, few by one more."""


def by_node(path: Path, feeds: Feeds) -> np.ndarray:
    """The one result of a model, of which no node is rewritten."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(path, options, ["CPUExecutionProvider"])
    (result,) = session.run(None, feeds)
    return result


def error(actual: np.ndarray, expected: np.ndarray) -> float:
    """Relative to the norm of what is expected."""
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_quantized_network_is_as_its_nodes_say(
    name: str, form: str, tmp_path: Path
) -> None:
    pytest.importorskip("onnxruntime")
    network, feeds = NETWORKS[name]()
    path = quantized(network, feeds, form, tmp_path)
    expected = by_node(path, feeds[0])
    rounding = error(expected, by_node(tmp_path / "f32.onnx", feeds[0]))
    assert 0 < rounding < 0.3, "the model is still the model"
    result = np.asarray(tw.compile(path)(**feeds[0]))
    assert result.shape == expected.shape
    assert error(result, expected) <= SHARE * rounding
