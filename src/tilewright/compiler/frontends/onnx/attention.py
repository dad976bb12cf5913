"""Rows for attention as onnxruntime writes it, and rotary embedding.

ONNX's own Attention comes apart through the function body of its schema; these contrib ops have
none.  Masks of first and last keys are reported as unsupported; caches with lengths: `grouped_attention`.

Source: onnxruntime ContribOperators.md (Attention, MultiHeadAttention, RotaryEmbedding).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.contraction import swap_last
from tilewright.compiler.frontends.onnx.movement import split
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row

_LOWEST: Final = -10000.0
_MASK_AXES: Final = {2: (1, 2), 3: (1,), 4: ()}
"""By the rank of a mask of keys, the axes that it lacks of the scores."""


def heads_of(e: NodeMaker, x: Tensor, heads: int) -> Tensor:
    """`[batch, sequence, heads * size]` as `[batch, heads, sequence, size]`."""
    batch, length, hidden = x.shape
    if isinstance(hidden, int) and hidden % heads:
        raise ModelError(f"{hidden} columns do not divide into {heads} heads")
    size = symbolic.floordiv(hidden, heads)
    return e.transpose(e.reshape(x, (batch, length, heads, size)), (0, 2, 1, 3))


def merged(e: NodeMaker, x: Tensor) -> Tensor:
    """The inverse of `heads_of`."""
    batch, heads, length, size = x.shape
    return e.reshape(e.transpose(x, (0, 2, 1, 3)), (batch, length, heads * size))


def scaled_attention(
    e: NodeMaker, q: Tensor, k: Tensor, v: Tensor, masks: Sequence[Tensor], scale: float
) -> Tensor:
    """`softmax(q k' scale + masks) v` over `[batch, heads, sequence, size]`."""
    scores = e.op("matmul", e.op("mul", q, e.scalar(scale, q.dtype)), swap_last(e, k))
    for mask in masks:
        scores = e.op("add", scores, mask)
    return e.op("matmul", e.op("softmax", scores, axis=-1), v)


def scale_of(call: Call, size: Dim) -> float:
    """The factor of the scores: what is said, or one over the root of a head's size."""
    given = call.float("scale", 0.0)
    if given:
        return given
    if not isinstance(size, int):
        raise UnsupportedError("heads of a dynamic size are not supported")
    return 1 / math.sqrt(size)


def _key_mask(
    call: Call, index: int, scores: tuple[Dim, Dim], dtype: DType
) -> Tensor | None:
    """A 0/1 mask of keys, or how many keys sequences have, as numbers to add to the scores.

    Args:
        call: whose operand it is.
        index: of the operand.
        scores: batch and keys of the scores.
        dtype: of the scores.
    """
    e, mask = call.maker, call.optional(index)
    if mask is None:
        return None
    lowest = call.float("mask_filter_value", _LOWEST)
    batch, keys = scores
    if mask.shape == (batch,):
        lengths = e.cast(e.unsqueeze(mask, (1,)), dtypes.i64)
        kept = e.op("less", e.iota((1, keys), 1), lengths)
    elif mask.rank in _MASK_AXES:
        kept = e.op("not_equal", mask, e.scalar(0, mask.dtype))
    else:
        raise UnsupportedError("a mask of first and last keys is not supported")
    added = e.op("where", kept, e.scalar(0, dtype), e.scalar(lowest, dtype))
    return e.unsqueeze(added, _MASK_AXES[kept.rank])


def _causal_mask(e: NodeMaker, rows: Dim, columns: Dim, dtype: DType) -> Tensor:
    """Zero up to the diagonal that ends in the last corner, very negative behind."""
    row_ = e.op("add", e.iota((rows, 1), 0), e.dim(columns - rows))
    later = e.op("greater", e.iota((1, columns), 1), row_)
    return e.op("where", later, e.scalar(_LOWEST, dtype), e.scalar(0, dtype))


def _attention(call: Call) -> list[Tensor | None]:
    """The product with packed q, k and v weights, then attention; with a cache on request."""
    e, x, weights, bias = call.maker, call.tensor(0), call.tensor(1), call.optional(2)
    heads = call.integer("num_heads")
    total = weights.shape[1]
    sizes: Sequence[Dim] = call.integers("qkv_hidden_sizes", ())
    sizes = sizes or [symbolic.floordiv(total, 3)] * 3
    if call.flag("do_rotary"):
        raise UnsupportedError("attribute 'do_rotary' is not supported")
    packed = e.op("matmul", x, weights)
    packed = packed if bias is None else e.op("add", packed, bias)
    q, k, v = (heads_of(e, part, heads) for part in split(e, packed, 2, sizes))
    present = None
    past = call.optional(4)
    if past is not None:
        old_k, old_v = (e.squeeze(t, (0,)) for t in split(e, past, 0, [1, 1]))
        k, v = e.concat([old_k, k], 2), e.concat([old_v, v], 2)
    if call.wants(1):
        present = e.concat([e.unsqueeze(k, (0,)), e.unsqueeze(v, (0,))], 0)
    masks = [_key_mask(call, 3, (k.shape[0], k.shape[2]), q.dtype), call.optional(5)]
    if call.flag("unidirectional"):
        masks.append(_causal_mask(e, q.shape[2], k.shape[2], q.dtype))
    held = [m for m in masks if m is not None]
    result = scaled_attention(e, q, k, v, held, scale_of(call, q.shape[3]))
    return [merged(e, result), present]


def _unpacked(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as `[batch, sequence, columns]`; keys and values perhaps with heads in front."""
    e, q, key, value = call.maker, call.tensor(0), call.optional(1), call.optional(2)
    if key is not None and value is not None:
        return q, key, value
    packed, count = (q, 3) if key is None else (key, 2)
    if packed.rank != 5:
        raise UnsupportedError("keys without values are not supported")
    batch, length, heads, _, size = packed.shape
    parts = split(e, packed, 3, [1] * count)
    *first, k, v = (e.reshape(x, (batch, length, heads * size)) for x in parts)
    return (first[0] if first else q), k, v


def _multi_head_attention(call: Call) -> list[Tensor | None]:
    e, heads, bias = call.maker, call.integer("num_heads"), call.optional(3)
    q, k, v = _unpacked(call)
    if bias is not None:
        sizes = [q.shape[2], q.shape[2], bias.shape[0] - q.shape[2] * 2]
        parts = split(e, bias, 0, sizes)
        q = e.op("add", q, parts[0])
        k = e.op("add", k, parts[1]) if k.rank == 3 else k
        v = e.op("add", v, parts[2]) if v.rank == 3 else v
    q = heads_of(e, q, heads)
    k, v = (t if t.rank == 4 else heads_of(e, t, heads) for t in (k, v))
    old = [call.optional(i) for i in (6, 7)]
    if old[0] is not None and old[1] is not None:
        k, v = e.concat([old[0], k], 2), e.concat([old[1], v], 2)
    masks = [_key_mask(call, 4, (k.shape[0], k.shape[2]), q.dtype), call.optional(5)]
    if call.flag("unidirectional"):
        masks.append(_causal_mask(e, q.shape[2], k.shape[2], q.dtype))
    held = [m for m in masks if m is not None]
    result = scaled_attention(e, q, k, v, held, scale_of(call, q.shape[3]))
    return [merged(e, result), k, v]


def _rotary_embedding(call: Call) -> Tensor:
    """Pairs of columns turned by the angle of their position."""
    e, x, places = call.maker, call.tensor(0), call.tensor(1)
    heads, interleaved = call.integer("num_heads", 0), call.flag("interleaved")
    if call.integer("rotary_embedding_dim", 0) and not heads:
        raise ModelError("attribute 'num_heads' is missing")
    call.float("scale", 1.0)
    call.flag("is_packed_batching")
    flat = x.rank == 3
    tables = [call.tensor(2), call.tensor(3)]
    half = tables[0].shape[1]
    if flat:
        if not heads:
            heads_dim = symbolic.floordiv(x.shape[2], half * 2)
            if not isinstance(heads_dim, int):
                raise UnsupportedError("a dynamic number of heads is not supported")
            heads = heads_dim
        x = heads_of(e, x, heads)
    if places.rank == 1:
        length = e.iota((1, x.shape[2]), 1)
        places = e.op("add", e.cast(e.unsqueeze(places, (1,)), dtypes.i64), length)
    result = turned(e, x, places, tables, interleaved=interleaved)
    return merged(e, result) if flat else result


def turned(
    e: NodeMaker, x: Tensor, places: Tensor, tables: Sequence[Tensor], *, interleaved: bool
) -> Tensor:
    """Columns of `x: [batch, heads, sequence, size]` turned by the angles of `places: [batch, sequence]`.

    `tables` are cosines and sines, `[positions, half of what is turned]`.
    """
    half = tables[0].shape[1]
    cos, sin = (e.unsqueeze(e.op("gather", t, places, axis=0), (1,)) for t in tables)
    size = half * 2
    body, rest = e.slice(x, 3, 0, size), x.shape[3] - size
    if interleaved:
        pairs = e.reshape(body, (*body.shape[:3], half, 2))
        a, b = (e.squeeze(t, (4,)) for t in split(e, pairs, 4, [1, 1]))
    else:
        a, b = split(e, body, 3, [half, half])
    first = e.op("sub", e.op("mul", a, cos), e.op("mul", b, sin))
    second = e.op("add", e.op("mul", a, sin), e.op("mul", b, cos))
    if interleaved:
        joined = e.concat([e.unsqueeze(first, (4,)), e.unsqueeze(second, (4,))], 4)
        result = e.reshape(joined, body.shape)
    else:
        result = e.concat([first, second], 3)
    return result if rest == 0 else e.concat([result, e.slice(x, 3, size, rest)], 3)


ROWS: Final[tuple[Row, ...]] = (
    row("Attention", _attention, domain=MICROSOFT, ignores=("past_present_share_buffer",)),
    row("MultiHeadAttention", _multi_head_attention, domain=MICROSOFT),
    row("RotaryEmbedding", _rotary_embedding, domain=MICROSOFT),
)
