"""Attention with sinks: a score of each head that takes part in the softmax and has no value.

What queries give to a sink is missing from their results.  Called by `transformer`.

Source: Xiao et al., Efficient Streaming Language Models with Attention Sinks, 2024; OpenAI, gpt-oss model card, 2025.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.gguf.hyperparameters import Hyperparameters
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor


def with_sinks(
    e: NodeMaker,
    q: Tensor,
    seen: Sequence[Tensor],
    mask: Tensor,
    sinks: Tensor,
    form: Hyperparameters,
) -> Tensor:
    """The values that queries ask for, `[1, heads, n, size]`.

    Args:
        e: writes the nodes.
        q: f32[1, heads, n, size].
        seen: keys and values, `[1, shared heads, span, size]`.
        mask: which keys each query sees, bool[1, 1, n, span].
        sinks: f32[heads].
        form: of the model.

    Raises: ModelError for scores with other terms.
    """
    if form.attention_cap or form.linear_bias:
        raise ModelError("sinks beside caps or biases of scores")
    count, span = q.shape[2], seen[0].shape[2]
    shared, group = form.shared_heads, form.heads // form.shared_heads
    # Queries that share keys are rows of one product.
    rows = e.reshape(q, (1, shared, group * count, form.key_size))
    scores = e.op("matmul", rows, e.transpose(seen[0], (0, 1, 3, 2)))
    scores = e.op("mul", scores, e.scalar(form.attention_scale, dtypes.f32))
    scores = e.reshape(scores, (1, form.heads, count, span))
    scores = e.op("where", mask, scores, e.scalar(-math.inf, dtypes.f32))
    sink = e.reshape(sinks, (1, form.heads, 1, 1))
    top = e.op("max", e.op("reduce_max", scores, axes=(3,), keepdims=True), sink)
    powers = e.op("exp", e.op("sub", scores, top))
    total = e.op("reduce_sum", powers, axes=(3,), keepdims=True)
    total = e.op("add", total, e.op("exp", e.op("sub", sink, top)))
    powers = e.reshape(powers, (1, shared, group * count, span))
    mixed = e.op("matmul", powers, seen[1])
    mixed = e.reshape(mixed, (1, form.heads, count, form.value_size))
    return e.op("div", mixed, total)
