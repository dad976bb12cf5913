"""The row for attention that sees blocks of keys alone: which ones says a matrix of blocks in rows, of several heads each.

Source: onnxruntime ContribOperators.md (SparseAttention), after https://arxiv.org/pdf/2404.14219 (Phi-3-small).
"""

from __future__ import annotations

from typing import Final

from tilewright.base import dtypes, symbolic
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.attention import merged, scale_of, turned
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.grouped_attention import is_first, projected
from tilewright.compiler.frontends.onnx.key_value_caches import Lengths, full_cache
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row
from tilewright.formats.plan.size_relations import at_most


def _sparse_attention(call: Call) -> list[Tensor]:
    e = call.maker
    q, k, v = projected(call)
    lengths = _lengths(call, q)
    if call.flag("do_rotary"):
        tables, pairs = [call.tensor(9), call.tensor(10)], call.flag("rotary_interleaved")
        places = e.op("min", lengths.places(e), e.dim(tables[0].shape[0] - 1))
        q, k = (turned(e, x, places, tables, interleaved=pairs) for x in (q, k))
    else:
        call.flag("rotary_interleaved")
    caches = [
        full_cache(e, call.tensor(place), new, lengths) for place, new in ((3, k), (4, v))
    ]
    key = e.iota((1, 1, 1, lengths.total), 3)
    shown = e.op("less_equal", key, e.unsqueeze(lengths.places(e), (1, 3)))
    mask = e.op("logical_and", shown, _seen(call, lengths))
    keys, values = (cache.seen for cache in caches)
    scale = scale_of(call, q.shape[3])
    found = e.op("attention", q, keys, values, None, mask, scale=scale)
    return [merged(e, found), *(cache.present for cache in caches)]


def _lengths(call: Call, q: Tensor) -> Lengths:
    """At a first call nothing stands before, whatever is padding."""
    e, rows = call.maker, q.shape[2]
    total, room = call.one_size(7, "the number of keys", 1), call.tensor(3).shape[2]
    e.assume(*at_most(total, room))
    after = e.cast(e.reshape(call.tensor(8), (q.shape[0], 1)), dtypes.i64)
    before = e.op("sub", after, e.dim(rows))
    zero = e.scalar(0, dtypes.i64)
    before = e.op("where", is_first(e, total, rows), zero, before)
    return Lengths(rows, total, room, before, after)


def _seen(call: Call, lengths: Lengths) -> Tensor:
    """`[batch, heads, rows, keys]` whether the block of a key is one that the block of a row sees."""
    e = call.maker
    size = e.scalar(call.integer("sparse_block_size"), dtypes.i64)
    blocks = _blocks(call)
    layouts, count = blocks.shape[:2]
    last = e.dim(count - 1)
    own = e.op("min", e.op("div", lengths.places(e), size), last)
    column = e.op("min", e.op("div", e.iota((lengths.total,), 0), size), last)
    wide = e.op("gather", e.transpose(blocks, (1, 0, 2)), column, axis=2)
    found = e.transpose(e.op("gather", wide, own, axis=0), (0, 2, 1, 3))
    batch, _, rows, keys = found.shape
    turns = symbolic.floordiv(call.integer("num_heads"), layouts)
    shape = (batch, turns, layouts, rows, keys)
    found = e.broadcast_to(e.unsqueeze(found, (1,)), shape)
    return e.reshape(found, (batch, turns * layouts, rows, keys))


def _blocks(call: Call) -> Tensor:
    """The matrix of blocks of each layout, `[layouts, rows, columns]`."""
    e = call.maker
    begins, columns = (e.cast(call.tensor(i), dtypes.i64) for i in (5, 6))
    layouts, count = begins.shape[0], begins.shape[1] - 1
    places: Dim = columns.shape[1]
    # The row of an entry is how many rows end at it or before it; what fills up belongs to a row behind the last.
    ends = e.unsqueeze(e.slice(begins, 1, 1, count), (1,))
    behind = e.op("less_equal", ends, e.iota((1, places, 1), 1))
    rows = e.op("reduce_sum", e.cast(behind, dtypes.i64), axes=(2,), keepdims=False)
    columns = e.op("max", columns, e.scalar(0, dtypes.i64))
    layout = e.broadcast_to(e.iota((layouts, 1), 0), columns.shape)
    indices = e.concat([e.unsqueeze(t, (2,)) for t in (layout, rows, columns)], 2)
    room = e.full(0, dtypes.i32, (layouts, count + 1, count))
    ones = e.full(1, dtypes.i32, columns.shape)
    filled = e.op("scatter_nd", room, indices, ones)
    return e.op("not_equal", e.slice(filled, 1, 0, count), e.scalar(0, dtypes.i32))


ROWS: Final[tuple[Row, ...]] = (
    row("SparseAttention", _sparse_attention, domain=MICROSOFT),
)
