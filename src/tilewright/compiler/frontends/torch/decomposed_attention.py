"""Layers of transformers that torch runs by one operator when nobody asks for gradients, taken apart.

Written in operators that have rows; they run under torch's tracing.  Called by `decompositions`.

Source: `aten/src/ATen/native/transformers` of torch, the operators of ATen by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border

# Torch's tensors have no types that we see.
Held = Any
_OF_PLACES, _OF_KEYS = 0, 1
"""Kinds of masks: `[queries, keys]`, `[batch, keys]`; others are of the shape of the scores."""


def _torch() -> Any:
    return border.load()


def _hidden(mask: Held, kind: int | None) -> Held:
    """What is not looked at, so that it fits scores of `[batch, heads, queries, keys]`; a mask of numbers hides where it is not 0."""
    mask = mask.to(_torch().bool)
    if kind == _OF_PLACES:
        return mask.reshape(1, 1, *mask.shape)
    if kind == _OF_KEYS:
        return mask.reshape(mask.shape[0], 1, 1, mask.shape[1])
    return mask


def _heads(x: Held, count: int) -> Held:
    batch, length, width = x.shape
    return x.reshape(batch, length, count, width // count).transpose(1, 2)


def _native_attention(  # noqa: PLR0913 - the schema has that many
    query: Held, key: Held, value: Held, embed_dim: int, num_head: int, qkv_weight: Held, qkv_bias: Held,
    proj_weight: Held, proj_bias: Held, mask: Held = None, need_weights: bool = True,
    average_attn_weights: bool = True, mask_type: int | None = None,
) -> tuple[Held, Held]:  # fmt: skip
    """Attention of many heads, projections included."""
    torch = _torch()
    linear = torch.nn.functional.linear
    parts = zip(
        (query, key, value),
        qkv_weight.split(embed_dim),
        qkv_bias.split(embed_dim),
        strict=True,
    )
    q, k, v = (_heads(linear(x, weight, bias), num_head) for x, weight, bias in parts)
    if mask is None and not need_weights:
        found, weights = torch.nn.functional.scaled_dot_product_attention(q, k, v), None
    else:
        # Rows that see nothing are not a number, which attention as one operator does not give.
        scores = q / math.sqrt(embed_dim // num_head) @ k.transpose(-2, -1)
        if mask is not None:
            scores = scores.masked_fill(_hidden(mask, mask_type), -math.inf)
        weights = scores.softmax(-1)
        found = weights @ v
        weights = weights.mean(1) if average_attn_weights else weights
    found = found.transpose(1, 2).reshape(query.shape[0], query.shape[1], embed_dim)
    return linear(found, proj_weight, proj_bias), weights if need_weights else None


def _encoder_layer(  # noqa: PLR0913 - the schema has that many
    src: Held, embed_dim: int, num_heads: int, qkv_weight: Held, qkv_bias: Held, proj_weight: Held, proj_bias: Held,
    use_gelu: bool, norm_first: bool, eps: float, norm_weight_1: Held, norm_bias_1: Held, norm_weight_2: Held,
    norm_bias_2: Held, ffn_weight_1: Held, ffn_bias_1: Held, ffn_weight_2: Held, ffn_bias_2: Held,
    mask: Held = None, mask_type: int | None = None,
) -> Held:  # fmt: skip
    """A layer of an encoder: attention and two products, each with a residual and a normalization."""
    functional = _torch().nn.functional

    def first(x: Held) -> Held:
        return functional.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: Held) -> Held:
        return functional.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attended(x: Held) -> Held:
        return _native_attention(
            x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True, mask_type
        )[0]  # fmt: skip

    def fed_forward(x: Held) -> Held:
        hidden = functional.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = functional.gelu(hidden) if use_gelu else hidden.relu()
        return functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = src + attended(first(src))
        return x + fed_forward(second(x))
    x = first(src + attended(src))
    return second(x + fed_forward(x))


OWN: Final[dict[str, Callable[..., Any]]] = {
    "_native_multi_head_attention": _native_attention,
    "_transformer_encoder_layer_fwd": _encoder_layer,
}
"""By the names of overloads."""
