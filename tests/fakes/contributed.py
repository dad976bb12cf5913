"""One node of onnxruntime's own domain, by our oracles and by onnxruntime's CPU kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fakes import onnx_models
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate


def ours(
    op: str, arrays: Sequence[np.ndarray | None], **options: object
) -> list[np.ndarray]:
    """What the graph of one node computes."""
    return onnx_models.run_node(op, arrays, domain="com.microsoft", **options)


def agrees(
    op: str,
    arrays: Sequence[np.ndarray | None],
    *,
    atol: float = 2e-5,
    rtol: float = 2e-5,
    constants: Sequence[int] = (),
    **options: object,
) -> list[np.ndarray]:
    """Check a node against onnxruntime; returns what both compute."""
    runtime = pytest.importorskip("onnxruntime")
    model = onnx_models.one_node(
        op, arrays, domain="com.microsoft", constants=constants, **options
    )
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = {
        f"x{i}": a for i, a in enumerate(arrays) if a is not None and i not in constants
    }
    expected = session.run(None, feeds)
    actual = evaluate(load(model), [*feeds.values()])
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        np.testing.assert_allclose(
            one.astype(np.float64), other.astype(np.float64), atol=atol, rtol=rtol
        )
    return actual
