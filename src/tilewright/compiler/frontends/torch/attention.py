"""Rows for attention as one operator.

Source: `torch.nn.functional.scaled_dot_product_attention`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tilewright.base import dtypes
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.row import Row, row


def _attention(call: Call) -> Tensor:
    return _attended(call, shares=call.flag("enable_gqa"))


def _attended(call: Call, *, shares: bool) -> Tensor:
    """Attention; with `shares` several heads of queries may have one head of keys and values."""
    e, dtype = call.maker, call.dtype()
    q, k, v = (call.operand(name, dtype) for name in ("query", "key", "value"))
    if call.number("dropout_p", 0.0):
        raise UnsupportedError("dropout draws random numbers")
    size = q.shape[-1]
    scale = call.number("scale") if call.has("scale") else _scale(size)
    mask = call.optional("attn_mask")
    causal = (0,) if call.flag("is_causal") else ()
    if any(extent == 0 for x in (q, k, v) for extent in x.shape):
        return e.full(0, dtype, call.shape())
    q, k, v = (_with_four_axes(e, x) for x in (q, k, v))
    k, v = _spread(e, q, k, v, shares=shares)
    bias, allowed = _split_mask(e, mask, (*q.shape[:3], k.shape[2]))
    found = e.op(
        "attention", q, k, v, bias, allowed, scale=float(scale), causal=causal,
        zero_rows=mask is not None,
    )  # fmt: skip
    return e.reshape(found, call.shape())


def _scale(size: Dim) -> float:
    if not isinstance(size, int):
        raise UnsupportedError("heads of a size that a call decides are not supported")
    return 1 / math.sqrt(size)


def _with_four_axes(e: NodeMaker, x: Tensor) -> Tensor:
    if x.rank > 4:
        outer: Dim = 1
        for size in x.shape[:-3]:
            outer = outer * size
        return e.reshape(x, (outer, *x.shape[-3:]))
    return e.reshape(x, (*[1] * (4 - x.rank), *x.shape))


def _spread(
    e: NodeMaker, q: Tensor, k: Tensor, v: Tensor, *, shares: bool
) -> tuple[Tensor, Tensor]:
    """Keys and values for as many batches (and, unless they share, heads) as there are queries."""

    def fit(x: Tensor) -> Tensor:
        heads = x.shape[1] if shares else q.shape[1]
        return e.broadcast_to(x, (q.shape[0], heads, *x.shape[2:]))

    return fit(k), fit(v)


def _split_mask(
    e: NodeMaker, mask: Tensor | None, scores: Sequence[Dim]
) -> tuple[Tensor | None, Tensor | None]:
    """What is added to scores, and which scores count."""
    if mask is None:
        return None, None
    mask = _with_four_axes(e, mask)
    fits = zip(mask.shape, scores, strict=True)
    if any(size not in (1, wanted) for size, wanted in fits):
        mask = e.broadcast_to(mask, tuple(scores))
    if mask.dtype == dtypes.bool_:
        return None, mask
    return mask, None


def _attention_for_cpu(call: Call) -> Sequence[Tensor | None]:
    """The kernel that torch picks here shares heads without being asked; what only gradients need is nobody's."""
    return _attended(call, shares=True), None


ROWS: Final[tuple[Row, ...]] = (
    row("scaled_dot_product_attention", _attention),
    row("_scaled_dot_product_flash_attention_for_cpu", _attention_for_cpu),
)
