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
from tilewright.compiler.frontends.torch.random_numbers import dropped
from tilewright.compiler.frontends.torch.row import Row, row
from tilewright.compiler.ops.shapes import broadcast_shapes


def _attention(call: Call) -> Tensor:
    return _attended(call, shares=call.flag("enable_gqa"))


def _attended(call: Call, *, shares: bool) -> Tensor:
    """Attention; with `shares` several heads of queries may have one head of keys and values."""
    e, dtype = call.maker, call.dtype()
    q, k, v = (call.operand(name, dtype) for name in ("query", "key", "value"))
    lost = float(call.number("dropout_p", 0.0))
    size = q.shape[-1]
    scale = call.number("scale") if call.has("scale") else _scale(size)
    mask = call.optional("attn_mask")
    causal = (0,) if call.flag("is_causal") else ()
    if any(extent == 0 for x in (q, k, v) for extent in x.shape):
        return e.full(0, dtype, call.shape())
    q, k, v, mask = _in_batches(e, q, k, v, mask, shares=shares)
    bias, allowed = _split_mask(e, mask, (*q.shape[:3], k.shape[2]))

    def attend(values: Tensor) -> Tensor:
        return e.op(
            "attention", q, k, values, bias, allowed, scale=float(scale), causal=causal,
            zero_rows=mask is not None,
        )  # fmt: skip

    if not lost:
        return e.reshape(attend(v), call.shape())
    # What is dropped are shares of the values, which the values of an identity show.
    identity = e.op("eye", shape=(k.shape[2], k.shape[2]), dtype=dtype)
    shares_of_keys = attend(e.broadcast_to(identity, (*k.shape[:3], k.shape[2])))
    v = e.broadcast_to(v, (*q.shape[:2], *v.shape[2:]))
    return e.reshape(e.op("matmul", dropped(call, shares_of_keys, lost), v), call.shape())


def _scale(size: Dim) -> float:
    if not isinstance(size, int):
        raise UnsupportedError("heads of a size that a call decides are not supported")
    return 1 / math.sqrt(size)


def _in_batches(
    e: NodeMaker, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, shares: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Operands of four axes and of as many batches (and, unless they share, heads)."""
    given = (q, k, v) if mask is None else (q, k, v, mask)
    rank = max(4, *(x.rank for x in given))
    wide = [e.reshape(x, (*[1] * (rank - x.rank), *x.shape)) for x in given]
    inner = 3 if shares else 2
    outer = broadcast_shapes(*(x.shape[:-inner] for x in wide[:3]))
    batches = outer[: rank - 3]
    fitting = [e.broadcast_to(x, (*outer, *x.shape[-inner:])) for x in wide[:3]]
    q, k, v = (_with_four_axes(e, x, batches) for x in fitting)
    if mask is None:
        return q, k, v, None
    mask = wide[3]
    if rank > 4:
        mask = e.broadcast_to(mask, (*batches, *mask.shape[-3:]))
        mask = _with_four_axes(e, mask, batches)
    return q, k, v, mask


def _with_four_axes(e: NodeMaker, x: Tensor, batches: Sequence[Dim]) -> Tensor:
    """The axes of batches as one."""
    count: Dim = 1
    for size in batches:
        count = count * size
    return e.reshape(x, (count, *x.shape[-3:]))


def _split_mask(
    e: NodeMaker, mask: Tensor | None, scores: Sequence[Dim]
) -> tuple[Tensor | None, Tensor | None]:
    """What is added to scores, and which scores count."""
    if mask is None:
        return None, None
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
