"""The row for attention over a cache whose heads are shared: what generators of text are exported with.

A row of queries stands at a place of its own sequence: behind what the cache holds of it, which data says.  Its keys
are joined with those of the cache there (`key_value_caches`), and it sees what stands up to it.

Source: onnxruntime ContribOperators.md (GroupQueryAttention).
"""

from __future__ import annotations

import math
from typing import Final, final

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.attention import (
    heads_of,
    merged,
    scale_of,
    turned,
)
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.contraction import swap_last
from tilewright.compiler.frontends.onnx.key_value_caches import (
    Cache,
    Lengths,
    RowForm,
    TokenWindow,
    full_cache,
    row_form_of,
    window_cache,
    window_places,
)
from tilewright.compiler.frontends.onnx.movement import split
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row
from tilewright.formats.plan.size_relations import at_most

_KINDS: Final = ("NONE", "PER_TENSOR", "PER_CHANNEL")


@final
@record
class _Scores:
    """What queries and keys are compared with.

    Attributes:
        bias: added to scores, `[batch or 1, heads or 1, rows, keys]`.
        mask: which keys a row sees, `[batch, 1, rows, keys]`.
    """

    bias: Tensor | None
    mask: Tensor


def _grouped_attention(call: Call) -> list[Tensor | None]:
    e = call.maker
    q, k, v = projected(call)
    past = [call.optional(i) for i in (3, 4)]
    lengths = _lengths(call, q, past[0])
    q, k = _normalized(call, q, k)
    q, k = _turned(call, q, k, lengths)
    window = _window(call, past[0])
    kept = [_row_form(call, i, old) for i, old in enumerate(past)]
    caches = [
        _cache(e, kind, old, new, lengths, window)
        for kind, old, new in zip(kept, past, (k, v), strict=True)
    ]
    keys, values = (
        kind.load(e, cache.seen, q.dtype) for kind, cache in zip(kept, caches, strict=True)
    )
    scores = _scores(call, lengths, window)
    outputs: list[Tensor | None] = [c.present for c in caches]
    sink = _sink(call)
    compared = _compared(call, q, keys, scores, sink)
    cap, scale = call.float("softcap", 0.0), scale_of(call, q.shape[3])
    result = e.op(
        "attention",
        q,
        keys,
        values,
        scores.bias,
        scores.mask,
        sink,
        scale=scale,
        softcap=cap,
    )
    return [merged(e, result), *outputs, compared]


def projected(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values as `[batch, heads, sequence, size]`, packed or not."""
    e, q = call.maker, call.tensor(0)
    heads, shared = call.integer("num_heads"), call.integer("kv_num_heads")
    if heads % shared:
        raise ModelError(f"{heads} heads of queries do not share {shared} heads of keys")
    if call.optional(1) is not None:
        k, v = call.tensor(1), call.tensor(2)
    else:
        size = symbolic.floordiv(q.shape[2], heads + 2 * shared)
        q, k, v = split(e, q, 2, [heads * size, shared * size, shared * size])
    return heads_of(e, q, heads), heads_of(e, k, shared), heads_of(e, v, shared)


def _normalized(call: Call, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Every head by the root of its mean square, where weights for that are given."""
    e, common = call.maker, call.float("qk_norm_epsilon", 1e-6)
    epsilons = [call.float(f"{name}_norm_epsilon", common) for name in "qk"]
    weights = [call.optional(i) for i in (14, 15)]
    found: list[Tensor] = []
    for x, weight, epsilon in zip((q, k), weights, epsilons, strict=True):
        if (weight is None) != (weights[0] is None):
            raise ModelError("'q_norm_weight' and 'k_norm_weight' are given together")
        if weight is None:
            found.append(x)
            continue
        wide = [e.cast(t, dtypes.f32) for t in (x, weight)]
        normal = e.op("rms_norm", *wide, axis=-1, epsilon=epsilon)
        found.append(e.cast(normal, x.dtype))
    return found[0], found[1]


def _lengths(call: Call, q: Tensor, past: Tensor | None) -> Lengths:
    """Without a cache nothing stands before; at a first call, whose rows are all there is, neither."""
    e, rows = call.maker, q.shape[2]
    total = _total(call)
    room = _room(call, past, total)
    ends = e.cast(e.reshape(call.tensor(5), (q.shape[0], 1)), dtypes.i64)
    after = e.op("add", ends, e.scalar(1, dtypes.i64))
    given = call.optional(16)
    if given is not None:
        valid = e.cast(e.reshape(given, (q.shape[0], 1)), dtypes.i64)
        return Lengths(rows, total, room, e.op("sub", after, valid), after)
    before = e.op("sub", ends, e.dim(rows - 1))
    if past is None or total == rows:
        before = e.op("mul", before, e.scalar(0, dtypes.i64))
    elif not _surely_more(total, rows):
        zero = e.scalar(0, dtypes.i64)
        before = e.op("where", is_first(e, total, rows), zero, before)
    return Lengths(rows, total, room, before, after)


def _total(call: Call) -> Dim:
    """Keys of the longest sequence: as many as a bias has columns."""
    total, bias = call.one_size(6, "the number of keys", 1), call.optional(10)
    if bias is None or bias.shape[3] == total:
        return total
    control.agree(call.maker, total, bias.shape[3], "keys")
    return bias.shape[3]


def _room(call: Call, past: Tensor | None, total: Dim) -> Dim:
    """Rows of the caches behind the call: of a model that states as many as before, all keys fit in those."""
    if past is None:
        return total
    rows = past.shape[2]
    is_kept = call.stated_size(1, 2) == rows and not call.flag("sliding_window_cache")
    if not is_kept or _surely_more(total, rows):
        return symbolic.maximum(rows, total)
    call.maker.assume(*at_most(total, rows))
    return rows


def _surely_more(total: Dim, rows: Dim) -> bool:
    least = symbolic.bounds(total - rows)[0]
    return least is not None and least > 0


def is_first(e: NodeMaker, total: Dim, rows: Dim) -> Tensor:
    """Whether rows are all that there is."""
    return e.op("equal", e.dim(total), e.dim(rows))


def _turned(call: Call, q: Tensor, k: Tensor, lengths: Lengths) -> tuple[Tensor, Tensor]:
    """With the angles of their places, where the node does that."""
    e, interleaved = call.maker, call.flag("rotary_interleaved")
    if not call.flag("do_rotary"):
        return q, k
    tables = [call.tensor(7), call.tensor(8)]
    places = _places(call, lengths)
    first, second = (turned(e, x, places, tables, interleaved=interleaved) for x in (q, k))
    return first, second


def _places(call: Call, lengths: Lengths) -> Tensor:
    """`[batch, rows]` of angles: those of the rows, or what is said; of a first call that is the place of its first row alone."""
    e, given = call.maker, call.optional(9)
    if given is None:
        own = lengths.places(e)
        if call.optional(16) is None:
            return own
        # Rows that are no tokens may stand behind the tables.
        return e.op("min", own, e.dim(call.tensor(7).shape[0] - 1))
    given = e.cast(given, dtypes.i64)
    total, rows = lengths.total, lengths.rows
    if call.optional(16) is not None or _surely_more(total, rows):
        return given
    begin = e.slice(e.slice(given, 0, 0, 1), 1, 0, 1)
    following = e.op("add", begin, e.iota((1, rows), 1))
    following = e.broadcast_to(following, given.shape)
    if total == rows:
        return following
    return e.op("where", is_first(e, total, rows), following, given)


# --- what is kept


def _window(call: Call, past: Tensor | None) -> TokenWindow | None:
    seen = call.integer("local_window_size", -1)
    if not call.flag("sliding_window_cache"):
        return None
    if past is None or seen <= 0:
        raise ModelError(
            "a cache of a window needs a past and attribute 'local_window_size'"
        )
    if isinstance(past.shape[2], int) and past.shape[2] < seen:
        raise ModelError(f"a window of {seen} tokens in a cache of {past.shape[2]} rows")
    return TokenWindow(past.shape[2], seen)


def _row_form(call: Call, place: int, past: Tensor | None) -> RowForm:
    kind = call.choice(f"{'kv'[place]}_quant_type", "NONE", _KINDS)
    bits = call.integer("kv_cache_bit_width", 0)
    if kind == "NONE" and past is None:
        return RowForm(call.tensor(0).dtype)
    return row_form_of(past, kind, bits, call.optional(12 + place))


def _cache(
    e: NodeMaker,
    kind: RowForm,
    past: Tensor | None,
    new: Tensor,
    lengths: Lengths,
    window: TokenWindow | None,
) -> Cache:
    stored = kind.store(e, new)
    if window is None or past is None:
        return full_cache(e, past, stored, lengths)
    return window_cache(e, past, stored, lengths, window)


# --- what a row sees


def _scores(call: Call, lengths: Lengths, window: TokenWindow | None) -> _Scores:
    e, bias = call.maker, call.optional(10)
    places = e.iota((1, lengths.total), 1)
    if window is not None:
        places = window_places(e, lengths, window)
        bias = None if bias is None else _bias_at(e, bias, places)
    return _Scores(bias, _mask(call, lengths, places))


def _mask(call: Call, lengths: Lengths, places: Tensor) -> Tensor:
    """`[batch, 1, rows, keys]`: keys up to the row's own place, or all, and not too far before it."""
    e, far = call.maker, call.integer("local_window_size", -1)
    key = e.unsqueeze(places, (1, 2))
    if not call.flag("causal", default=True):
        ends = e.unsqueeze(lengths.after, (1, 3))
        shape = (ends.shape[0], 1, lengths.rows, places.shape[1])
        return e.broadcast_to(e.op("less", key, ends), shape)
    own = e.unsqueeze(lengths.places(e), (1, 3))
    shown = e.op("less_equal", key, own)
    if far <= 0:
        return shown
    first = e.op("sub", own, e.scalar(far - 1, dtypes.i64))
    return e.op("logical_and", shown, e.op("greater_equal", key, first))


def _bias_at(e: NodeMaker, bias: Tensor, places: Tensor) -> Tensor:
    """Columns of `bias: [batch or 1, heads, rows, total]` at `places: [batch, keys]`."""
    batch = places.shape[0]
    last = e.op("sub", e.dim(bias.shape[3]), e.scalar(1, dtypes.i64))
    wide = e.broadcast_to(bias, (batch, *bias.shape[1:]))
    columns = e.transpose(wide, (0, 3, 1, 2))
    inside = e.unsqueeze(e.op("min", places, last), (2,))
    found = e.op("gather_nd", columns, inside, batch_dims=1)
    return e.transpose(found, (0, 2, 3, 1))


def _sink(call: Call) -> Tensor | None:
    """`[1, heads, 1, 1]`: a score beside those of keys, whose weight belongs to no value."""
    e, given, heads = call.maker, call.optional(11), call.integer("num_heads")
    if given is not None:
        return e.reshape(given, (1, heads, 1, 1))
    is_smooth = call.integer("smooth_softmax", -1) > 0
    return e.full(0, call.tensor(0).dtype, (1, 1, 1, 1)) if is_smooth else None


def _compared(
    call: Call, q: Tensor, keys: Tensor, scores: _Scores, sink: Tensor | None
) -> Tensor | None:
    """The scores themselves, where the model asks for them: before the softmax (1), or behind it (2).

    A key that a row does not see is 0 in both.
    """
    e, kind = call.maker, call.integer("qk_output", 0)
    if kind not in (1, 2) or not call.wants(3):
        return None
    if call.flag("sliding_window_cache"):
        raise UnsupportedError(
            "scores ('qk_output') over a cache of a window are not supported"
        )
    batch, heads, rows, size = q.shape
    shared, count = keys.shape[1], keys.shape[2]
    group = symbolic.floordiv(heads, shared)
    wide = [e.cast(x, dtypes.f32) for x in (q, keys)]
    left = e.reshape(wide[0], (batch, shared, group * rows, size))
    left = e.op("mul", left, e.scalar(scale_of(call, size), dtypes.f32))
    found = e.op("matmul", left, swap_last(e, wide[1]))
    found = e.reshape(found, (batch, heads, rows, count))
    cap = call.float("softcap", 0.0)
    if cap:
        limit = e.scalar(cap, dtypes.f32)
        found = e.op("mul", e.op("tanh", e.op("div", found, limit)), limit)
    if scores.bias is not None:
        found = e.op("add", found, e.cast(scores.bias, dtypes.f32))
    if kind == 2:
        lowest = e.scalar(-math.inf, dtypes.f32)
        found = e.op("where", scores.mask, found, lowest)
        if sink is not None:
            column = e.broadcast_to(e.cast(sink, dtypes.f32), (batch, heads, rows, 1))
            found = e.concat([found, column], 3)
        found = e.slice(e.op("softmax", found, axis=-1), 3, 0, count)
    found = e.op("where", scores.mask, found, e.scalar(0, dtypes.f32))
    return e.cast(found, q.dtype)


ROWS: Final[tuple[Row, ...]] = (
    row("GroupQueryAttention", _grouped_attention, domain=MICROSOFT),
)
