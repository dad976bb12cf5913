"""Routers that choose groups of experts first, beside onnxruntime's CPU kernel."""

import numpy as np
import pytest

from fakes.contributed import agrees, ours
from fakes.onnx_models import parse
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

RNG = np.random.default_rng(43)


def _given(*shape: int) -> list[np.ndarray]:
    return [RNG.standard_normal(s).astype(np.float32) for s in (shape, shape[-1:])]


@pytest.mark.parametrize(
    ("groups", "active", "wanted", "count"),
    [(1, 1, 1, 1), (4, 2, 2, 3), (4, 4, 2, 5), (2, 1, 9, 8), (16, 3, 1, 3)],
)
def test_experts_are_chosen_in_the_best_groups(
    groups: int, active: int, wanted: int, count: int
) -> None:
    options = {
        "n_group": groups,
        "topk_group": active,
        "group_topk": wanted,
        "top_k": count,
    }
    agrees("MoEGroupRouter", _given(7, 16), **options)
    agrees("MoEGroupRouter", _given(2, 3, 16), **options, router_sentinel=-7.5)


def test_scores_far_below_zero_have_a_logarithm() -> None:
    logits, bias = np.full((1, 4), -200, np.float32), np.zeros(4, np.float32)
    (found,) = ours("MoEGroupRouter", [logits, bias], top_k=2)
    np.testing.assert_allclose(found, [[np.log(1e-20)] * 2 + [-1e4] * 2], rtol=1e-6)


def test_whole_scores_are_two_results() -> None:
    logits, bias = _given(5, 6)
    model = parse(
        "agraph (float[5,6] x, float[6] b) => (float[5,6] s, float[5,6] w)"
        "{ , s, w = com.microsoft.MoEGroupRouter <top_k = 2> (x, b) }"
    )
    scores, weights = evaluate(load(model), [logits, bias])
    expected = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(weights, expected, rtol=1e-5)
    np.testing.assert_allclose(scores, expected + bias, rtol=1e-5, atol=1e-6)


def test_groups_that_do_not_fit_are_errors() -> None:
    with pytest.raises(ModelError, match="groups of 16 experts"):
        ours("MoEGroupRouter", _given(2, 16), top_k=1, n_group=3, topk_group=1)
    with pytest.raises(ModelError, match="9 experts of 1 groups of 8"):
        ours("MoEGroupRouter", _given(2, 16), top_k=9, n_group=2, topk_group=1)
