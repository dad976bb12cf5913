"""What a call of attention keeps: keys and values of tokens so far, of full length or of a window, as floats or quantized.

New rows stand behind what each sequence has, which data says.  A window holds the newest tokens from its first row on,
and lets go of several at once.  Called by `grouped_attention`.

Source: onnxruntime ContribOperators.md (GroupQueryAttention: Windowed KV Cache, Quantization).
"""

from __future__ import annotations

from typing import Final, final

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.movement import split

_NOWHERE: Final = 1 << 40
"""The place of a row that holds no token: behind that of every query."""
_LARGEST_F8: Final = 448.0


@final
@record
class Lengths:
    """How long the sequences are.

    Attributes:
        rows: queries of each sequence.
        total: keys of the longest, those of this call among them; perhaps more than that.
        room: rows of the cache behind the call.
        before: `[batch, 1]` tokens that each sequence had.
        after: `[batch, 1]` tokens that it has now.
    """

    rows: Dim
    total: Dim
    room: Dim
    before: Tensor
    after: Tensor

    def places(self, e: NodeMaker) -> Tensor:
        """`[batch, rows]` where the rows stand in their sequences."""
        return e.op("add", self.before, e.iota((1, self.rows), 1))


@final
@record
class TokenWindow:
    """A cache that holds the newest tokens.

    Attributes:
        capacity: rows of the cache.
        seen: tokens that have to be there.
    """

    capacity: Dim
    seen: int

    def resident(self, e: NodeMaker, tokens: Tensor) -> Tensor:
        """How many of so many tokens the cache holds: room for some is made at once, when there is none."""
        capacity = e.dim(self.capacity)
        step = e.dim(self.capacity - self.seen + 1)
        one, zero = (e.scalar(n, dtypes.i64) for n in (1, 0))
        over = e.op("max", e.op("sub", tokens, capacity), zero)
        times = e.op("div", e.op("add", over, e.op("sub", step, one)), step)
        return e.op("sub", tokens, e.op("mul", times, step))


@final
@record
class RowForm:
    """How rows are kept.

    Attributes:
        dtype: of the cache.
        bits: of an integer; 4 are two in a byte, the first one in its low half.
        scale: what a number of the cache is multiplied by; None: rows are kept as they are.
    """

    dtype: DType
    bits: int = 8
    scale: Tensor | None = None

    def store(self, e: NodeMaker, x: Tensor) -> Tensor:
        """Rows `[batch, heads, rows, size]` as the cache has them."""
        if self.scale is None:
            return e.cast(x, self.dtype)
        scaled = e.op("div", e.cast(x, dtypes.f32), self.scale)
        if self.dtype.is_float:
            high = e.scalar(_LARGEST_F8, dtypes.f32)
            return e.cast(e.op("clip", scaled, e.op("neg", high), high), self.dtype)
        most = 1 << (self.bits - 1)
        low, high = (e.scalar(n, dtypes.f32) for n in (-most, most - 1))
        whole = e.op("clip", e.op("round", scaled), low, high)
        if self.bits == 8:
            return e.cast(whole, self.dtype)
        shifted = e.cast(e.op("add", whole, e.scalar(most, dtypes.f32)), dtypes.i32)
        *front, size = x.shape
        pairs = e.reshape(shifted, (*front, symbolic.floordiv(size, 2), 2))
        first, second = (
            e.squeeze(t, (-1,)) for t in split(e, pairs, pairs.rank - 1, [1, 1])
        )
        both = e.op("add", first, e.op("mul", second, e.scalar(16, dtypes.i32)))
        return e.cast(both, self.dtype)

    def load(self, e: NodeMaker, x: Tensor, dtype: DType) -> Tensor:
        """What the cache has as rows of numbers."""
        if self.scale is None:
            return e.cast(x, dtype)
        if self.bits == 4:
            whole = e.cast(x, dtypes.i32)
            sixteen, middle = (e.scalar(n, dtypes.i32) for n in (16, 8))
            halves = [e.op("mod", whole, sixteen), e.op("div", whole, sixteen)]
            pairs = e.concat([e.unsqueeze(t, (x.rank,)) for t in halves], x.rank)
            x = e.op("sub", e.reshape(pairs, (*x.shape[:-1], x.shape[-1] * 2)), middle)
        return e.cast(e.op("mul", e.cast(x, dtypes.f32), self.scale), dtype)


def row_form_of(past: Tensor | None, kind: str, bits: int, scale: Tensor | None) -> RowForm:
    """How a cache is kept, as the operands and attributes of a node say.

    Raises: ModelError where they do not fit, UnsupportedError for another form.
    """
    if kind == "NONE" or past is None or scale is None:
        if kind != "NONE":
            raise ModelError(f"a cache quantized '{kind}' needs a past and a scale")
        return RowForm(dtypes.f32 if past is None else past.dtype)
    if past.dtype is dtypes.f8e4m3fn:
        return RowForm(past.dtype, 8, scale)
    wanted = {8: dtypes.i8, 4: dtypes.u8}.get(bits or 8)
    if past.dtype is not wanted:
        raise UnsupportedError(f"a cache of {bits} bits in {past.dtype}")
    return RowForm(past.dtype, bits or 8, scale)


@final
@record
class Cache:
    """A cache behind a call.

    Attributes:
        present: what is kept.
        seen: the rows that queries may look at, `[batch, heads, keys, size]`, as they are kept.
    """

    present: Tensor
    seen: Tensor


def full_cache(e: NodeMaker, past: Tensor | None, new: Tensor, lengths: Lengths) -> Cache:
    """New rows behind what the cache holds of each sequence; keys stand at their places."""
    present = _joined(e, past, new, lengths)
    return Cache(present, e.slice(present, 2, 0, lengths.total))


def _joined(e: NodeMaker, past: Tensor | None, new: Tensor, lengths: Lengths) -> Tensor:
    """`[batch, heads, room, size]`."""
    room = lengths.room
    if past is not None and room == past.shape[2]:
        rows = e.unsqueeze(e.iota((1, lengths.rows), 1), (1, 3))
        places = e.op("add", rows, e.unsqueeze(lengths.before, (1, 3)))
        places = e.broadcast_to(places, new.shape)
        return e.op("scatter_elements", past, places, new, axis=2)
    both = new if past is None else e.concat([past, new], 2)
    old = both.shape[2] - lengths.rows
    if past is None and room == lengths.rows:
        return new
    place = e.iota((1, room), 1)
    behind = e.op("sub", place, lengths.before)
    is_new = e.op(
        "logical_and",
        e.op("greater_equal", behind, e.scalar(0, dtypes.i64)),
        e.op("less", behind, e.dim(lengths.rows)),
    )
    kept = e.op("min", place, e.dim(both.shape[2] - 1))
    source = e.op("where", is_new, e.op("add", behind, e.dim(old)), kept)
    return _rows_at(e, both, source)


def _rows_at(e: NodeMaker, x: Tensor, places: Tensor) -> Tensor:
    """Rows of `x: [batch, heads, rows, size]` at `places: [batch, n]`."""
    rows = e.transpose(x, (0, 2, 1, 3))
    found = e.op("gather_nd", rows, e.unsqueeze(places, (2,)), batch_dims=1)
    return e.transpose(found, (0, 2, 1, 3))


def window_cache(
    e: NodeMaker, past: Tensor, new: Tensor, lengths: Lengths, window: TokenWindow
) -> Cache:
    """What the window had and the new rows; of both, the newest are kept."""
    both = e.concat([past, new], 2)
    tokens = lengths.after
    first = e.op("sub", tokens, window.resident(e, tokens))
    place = e.op("add", first, e.iota((1, window.capacity), 1))
    begins = e.op("sub", lengths.before, window.resident(e, lengths.before))
    ahead = e.op("sub", e.dim(window.capacity), lengths.before)
    is_new = e.op("greater_equal", place, lengths.before)
    source = e.op("where", is_new, e.op("add", place, ahead), e.op("sub", place, begins))
    zero, last = e.scalar(0, dtypes.i64), e.dim(both.shape[2] - 1)
    source = e.op("max", e.op("min", source, last), zero)
    return Cache(_rows_at(e, both, source), both)


def window_places(e: NodeMaker, lengths: Lengths, window: TokenWindow) -> Tensor:
    """`[batch, capacity + rows]` where in its sequence each row of `window_cache` stands."""
    held = window.resident(e, lengths.before)
    row = e.iota((1, window.capacity), 1)
    old = e.op("add", e.op("sub", lengths.before, held), row)
    is_there = e.op("less", row, held)
    old = e.op("where", is_there, old, e.scalar(_NOWHERE, dtypes.i64))
    return e.concat([old, lengths.places(e)], 1)
