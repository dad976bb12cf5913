"""Which experts of a mixture a token goes through, and what share of the result each of them has.

Called by `networks`.

Source: DeepSeek-AI, DeepSeek-V2, 2024, section 2.2.2, and DeepSeek-V3 Technical Report, 2024, equations 13 to 16; `llm_graph_context::build_moe_ffn` of
llama.cpp for the order of the steps; transformers, `Glm4MoeTopkRouter`, for the least sum of shares.
"""

from __future__ import annotations

import math

from tilewright.base import dtypes
from tilewright.compiler.frontends.gguf.hyperparameters import Hyperparameters
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor

_BEST: int = 2
"""Experts by which a group is chosen; where shares are parts of a whole it is the best one."""
_LEAST_TOTAL: float = 1e-20
"""Of shares that are divided by their sum, which is 0 where sigmoids of all chosen experts are."""


def routed(
    e: NodeMaker, form: Hyperparameters, scores: Tensor, preference: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The shares of the chosen experts and their numbers, `[rows, chosen]` each.

    Args:
        e: writes the nodes.
        form: of the model.
        scores: what the router gives, f32[rows, experts].
        preference: what is added where experts are chosen, and not to their shares, f32[experts].
    """
    count = (form.chosen_experts,)
    shares = scores
    if form.router == "softmax":
        shares = e.op("softmax", scores, axis=1)
    elif form.router == "sigmoid":
        shares = e.op("sigmoid", scores)
    preferred = shares if preference is None else e.op("add", shares, preference)
    if form.chosen_groups < form.expert_groups:
        preferred = _of_best_groups(e, form, preferred)
    weights, chosen = e.ops("top_k", preferred, k=count, axis=1)
    if preferred is not shares:
        weights = e.op("gather_elements", shares, chosen, axis=1)
    if form.router == "softmax_of_chosen":
        weights = e.op("softmax", weights, axis=1)
    if form.shares_add_up:
        total = e.op("reduce_sum", weights, axes=(1,), keepdims=True)
        total = e.op("max", total, e.scalar(_LEAST_TOTAL, dtypes.f32))
        weights = e.op("div", weights, total)
    if form.expert_scale != 1.0:
        weights = e.op("mul", weights, e.scalar(form.expert_scale, dtypes.f32))
    return weights, chosen


def _of_best_groups(e: NodeMaker, form: Hyperparameters, preferred: Tensor) -> Tensor:
    """`preferred`, and minus infinity for experts of groups whose best have less than those of others."""
    rows, groups = preferred.shape[0], form.expert_groups
    apart = e.reshape(preferred, (rows, groups, form.experts // groups))
    count = 1 if form.router == "softmax" else _BEST
    best, _ = e.ops("top_k", apart, k=(count,), axis=2)
    totals = e.op("reduce_sum", best, axes=(2,), keepdims=False)
    _, chosen = e.ops("top_k", totals, k=(form.chosen_groups,), axis=1)
    hits = e.op("equal", e.unsqueeze(chosen, (2,)), e.iota((1, 1, groups), 2))
    taken = e.op("reduce_max", e.cast(hits, dtypes.i64), axes=(1,), keepdims=False)
    is_taken = e.op("not_equal", taken, e.scalar(0, dtypes.i64))
    least = e.scalar(-math.inf, dtypes.f32)
    kept = e.op("where", e.unsqueeze(is_taken, (2,)), apart, least)
    return e.reshape(kept, preferred.shape)
