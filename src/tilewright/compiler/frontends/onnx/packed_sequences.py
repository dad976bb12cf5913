"""Rows for batches without padding: tokens of all sequences one after another, with where each one was.

What onnxruntime's packing mode writes for BERT-like models.  `token_offset` lists the places of tokens in the padded
batch, then those of the padding.

Source: onnxruntime ContribOperators.md (RemovePadding, RestorePadding, PackedAttention, PackedMultiHeadAttention).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base import dtypes, symbolic
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import computed
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.attention import heads_of, merged, scale_of, up_to
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.movement import split
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row
from tilewright.compiler.ops.shapes import element_count


def _remove_padding(call: Call) -> list[Tensor]:
    """Tokens of a batch padded on the right, the places of tokens and padding, and where sequences begin."""
    e, x = call.maker, call.tensor(0)
    lengths = e.cast(call.tensor(1), dtypes.i64)
    batch, length, hidden = x.shape
    kept = up_to(e, lengths, length)
    mask = e.reshape(
        e.broadcast_to(kept, (batch, length)), (element_count((batch, length)),)
    )
    tokens = computed.true_places(e, mask, "tokens")
    rest = computed.places_of(e, e.op("logical_not", mask), mask.shape[0] - tokens.shape[0])
    packed = e.op("gather", e.reshape(x, (*mask.shape, hidden)), tokens, axis=0)
    places = e.reshape(e.concat([tokens, rest], 0), (batch, length))
    begins = e.concat([e.full(0, dtypes.i64, (1,)), e.op("cumsum", lengths, axis=0)], 0)
    longest = e.op("reduce_max", lengths, axes=(0,), keepdims=True)
    return [packed, *(e.cast(t, dtypes.i32) for t in (places, begins, longest))]


def _places(e: NodeMaker, call: Call, offsets: int, count: Dim) -> tuple[Tensor, Dim]:
    """Where the tokens were, i64[count], and how many places there are."""
    all_places = call.tensor(offsets)
    size = element_count(all_places.shape)
    flat = e.cast(e.reshape(all_places, (size,)), dtypes.i64)
    return e.slice(flat, 0, 0, count), size


def _restored(e: NodeMaker, x: Tensor, places: Tensor, shape: Sequence[Dim]) -> Tensor:
    """Tokens at their places of `[batch, sequence]`, zeros elsewhere."""
    room = e.full(0, x.dtype, (element_count(shape), x.shape[1]))
    filled = e.op("scatter_nd", room, e.unsqueeze(places, (1,)), x)
    return e.reshape(filled, (*shape, x.shape[1]))


def _restore_padding(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    places, _ = _places(e, call, 1, x.shape[0])
    return _restored(e, x, places, call.tensor(1).shape)


def _attend(
    call: Call, parts: Sequence[Tensor], offsets: int, bias: Tensor | None
) -> Tensor:
    """Attention of each sequence alone; `parts` are queries, keys and values of tokens."""
    e, heads = call.maker, call.integer("num_heads")
    shape = call.tensor(offsets).shape
    places, size = _places(e, call, offsets, parts[0].shape[0])
    q, k, v = (heads_of(e, _restored(e, x, places, shape), heads) for x in parts)
    begins = e.cast(call.tensor(offsets + 1), dtypes.i64)
    batch, length = shape
    lengths = e.op("sub", e.slice(begins, 0, 1, batch), e.slice(begins, 0, 0, batch))
    shown = up_to(e, lengths, length)
    call.float(
        "mask_filter_value", 0.0
    )  # padding is left out, whatever it would be filled with
    scale = scale_of(call, q.shape[3])
    mask = e.unsqueeze(shown, (1, 2))
    found = merged(e, e.op("attention", q, k, v, bias, mask, scale=scale))
    rows = e.reshape(found, (size, found.shape[2]))
    return e.op("gather", rows, places, axis=0)


def _packed_attention(call: Call) -> Tensor:
    e = call.maker
    packed = e.op("add", e.op("matmul", call.tensor(0), call.tensor(1)), call.tensor(2))
    sizes: Sequence[Dim] = call.integers("qkv_hidden_sizes", ())
    sizes = sizes or [symbolic.floordiv(packed.shape[1], 3)] * 3
    return _attend(call, split(e, packed, 1, sizes), 3, call.optional(5))


def _packed_multi_head_attention(call: Call) -> Tensor:
    e, q, bias = call.maker, call.tensor(0), call.optional(3)
    if call.optional(1) is None:
        count, heads, _, size = q.shape
        third = [
            e.reshape(part, (count, heads * size)) for part in split(e, q, 2, [1, 1, 1])
        ]
    else:
        third = [q, call.tensor(1), call.tensor(2)]
    if bias is not None:
        own = split(e, bias, 0, [x.shape[1] for x in third])
        third = [e.op("add", x, b) for x, b in zip(third, own, strict=True)]
    return _attend(call, third, 4, call.optional(6))


ROWS: Final[tuple[Row, ...]] = (
    row("PackedAttention", _packed_attention, domain=MICROSOFT),
    row("PackedMultiHeadAttention", _packed_multi_head_attention, domain=MICROSOFT),
    row("RemovePadding", _remove_padding, domain=MICROSOFT),
    row("RestorePadding", _restore_padding, domain=MICROSOFT),
)
