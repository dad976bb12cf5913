"""Rows that normalize: what their definitions say at their edges."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fakes.onnx_models import one_node
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
def test_channels_around_one_are_those_of_the_definition(size: int) -> None:
    """Of an even size one more lies behind; onnxruntime refuses those sizes."""
    x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    model = one_node("LRN", [x], size=size, alpha=0.5, bias=2.0)
    wanted = np.empty_like(x)
    for c in range(5):
        low, high = c - math.floor((size - 1) / 2), c + math.ceil((size - 1) / 2)
        total = np.square(x[:, max(low, 0) : high + 1]).sum(1)
        wanted[:, c] = x[:, c] / (2 + 0.5 / size * total) ** 0.75
    (found,) = evaluate(load(model), [x])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("size", [0, -1, -(2**63)])
def test_channels_around_one_are_at_least_one(size: int) -> None:
    with pytest.raises(ModelError, match=r"\(LRN\).*expected at least 1"):
        load(one_node("LRN", [np.ones((2, 5, 3), np.float32)], size=size))
