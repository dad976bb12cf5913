"""Rows for sequences of several lengths, their tokens one after another: a convolution that looks back, and a state.

`cumulative lengths` say where each sequence begins, and where the last one ends.  The convolution gathers what every
tap reads, from the tokens or from what a sequence carries; the state walks over all sequences side by side, as far as
the longest goes.

Source: onnxruntime's contrib operators (VarlenCausalConvWithState, GatedDeltaNet).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import f32
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.recurrence import Rows, walked
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.attention import scale_of
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.movement import split
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.shapes import element_count

_RULES: Final = ("linear", "gated", "delta", "gated_delta")
_GATES: Final = ("none", "softplus", "qwen", "sigmoid", "kda")


@final
@record
class _Ragged:
    """Where sequences stand among tokens; all i64.

    Attributes:
        begins: `[batch]` the first token of each.
        lengths: `[batch]` how many tokens each has.
        owner: `[tokens]` the sequence of each token.
    """

    begins: Tensor
    lengths: Tensor
    owner: Tensor

    @property
    def batch(self) -> Dim:
        return self.begins.shape[0]

    def ends(self, e: NodeMaker) -> Tensor:
        """`[batch]` the token behind the last one of each."""
        return e.op("add", self.begins, self.lengths)


def _ragged(e: NodeMaker, cumulative: Tensor, tokens: Dim) -> _Ragged:
    bounds = e.cast(cumulative, dtypes.i64)
    batch = bounds.shape[0] - 1
    begins, ends = e.slice(bounds, 0, 0, batch), e.slice(bounds, 0, 1, batch)
    token = e.unsqueeze(e.iota((tokens,), 0), (1,))
    behind = e.cast(e.op("less_equal", e.unsqueeze(ends, (0,)), token), dtypes.i64)
    owner = e.op("reduce_sum", behind, axes=(1,), keepdims=False)
    last = e.dim(batch - 1)
    return _Ragged(begins, e.op("sub", ends, begins), e.op("min", owner, last))


def _even(e: NodeMaker, batch: Dim, length: Dim) -> _Ragged:
    """Sequences of one length."""
    step = e.dim(length)
    begins = e.op("mul", e.iota((batch,), 0), step)
    lengths = e.broadcast_to(e.reshape(step, (1,)), (batch,))
    owner = e.op("div", e.iota((batch * length,), 0), step)
    return _Ragged(begins, lengths, owner)


def _at(e: NodeMaker, rows: Tensor, places: Tensor) -> Tensor:
    """Rows at places, which are in range or else of no account."""
    zero, last = e.scalar(0, dtypes.i64), e.dim(rows.shape[0] - 1)
    return e.op("gather", rows, e.op("max", e.op("min", places, last), zero), axis=0)


def _never_none(e: NodeMaker, rows: Tensor) -> Tensor:
    """Rows, and one of zeros behind them where a call may have none: what is of no account is read all the same."""
    least = symbolic.bounds(rows.shape[0])[0]
    if least is not None and least > 0:
        return rows
    return e.concat([rows, e.full(0, rows.dtype, (1, *rows.shape[1:]))], 0)


# --- the convolution


@final
@record
class _Samples:
    """What a convolution reads.

    Attributes:
        table: `[tokens + batch * carried, channels]` tokens, then what the sequences carry.
        tokens: how many of them.
        carried: what each sequence carries.
    """

    table: Tensor
    tokens: Dim
    carried: Dim

    def at(self, e: NodeMaker, owner: Tensor, begins: Tensor, places: Tensor) -> Tensor:
        """The sample of a sequence at a place, which may be before its first token."""
        if self.carried == 0:
            return _at(e, self.table, places)
        before = e.op("sub", places, begins)
        own = e.op("mul", owner, e.dim(self.carried))
        first = e.op("add", own, e.dim(self.tokens + self.carried))
        is_token = e.op("greater_equal", before, e.scalar(0, dtypes.i64))
        source = e.op("where", is_token, places, e.op("add", first, before))
        return _at(e, self.table, source)


def _samples(call: Call, carried: int) -> _Samples:
    e, x, past = call.maker, call.tensor(0), call.tensor(4)
    if carried == 0:
        return _Samples(x, x.shape[0], 0)
    rows = e.transpose(past, (0, 2, 1))
    flat = e.reshape(rows, (past.shape[0] * carried, x.shape[1]))
    return _Samples(e.concat([x, flat], 0), x.shape[0], carried)


def _ragged_conv(call: Call) -> list[Tensor | None]:
    """A tap after the other: what it reads, of every token."""
    e, x, weight = call.maker, call.tensor(0), call.tensor(1)
    activation = call.choice("activation", "none", ("none", "silu", "swish"))
    dilation, taps = call.integer("dilation", 1), weight.shape[2]
    if not isinstance(taps, int):
        raise UnsupportedError(f"a convolution by {weight.type}")
    carried = (taps - 1) * dilation
    where = _ragged(e, call.tensor(2), x.shape[0])
    samples = _samples(call, carried)
    begins = e.op("gather", where.begins, where.owner, axis=0)
    token = e.iota((x.shape[0],), 0)
    seen: list[Tensor] = []
    for tap in range(taps):
        back = e.scalar((taps - 1 - tap) * dilation, dtypes.i64)
        seen.append(samples.at(e, where.owner, begins, e.op("sub", token, back)))
    result = _taps(call, seen)
    if activation != "none":
        result = e.op("silu", result)
    final_state = _last_samples(e, samples, where)
    updates = _captured(call, x, where)
    return [e.cast(result, x.dtype), e.cast(final_state, x.dtype), updates]


def _taps(call: Call, seen: Sequence[Tensor]) -> Tensor:
    """The sum over taps, `[tokens, channels]`: in f32, unless tokens change the weights."""
    e, x, weight, bias = call.maker, call.tensor(0), call.tensor(1), call.optional(3)
    columns = [e.squeeze(e.slice(weight, 2, tap, 1), (1, 2)) for tap in range(len(seen))]
    if call.optional(6) is not None:
        return _changed_taps(call, seen, columns)
    call.integer("delta_offset", 0)
    call.integer("group_size", 1)
    total: Tensor | None = None if bias is None else e.cast(bias, f32)
    for sample, column in zip(seen, columns, strict=True):
        product = e.op("mul", e.cast(sample, f32), e.cast(column, f32))
        total = product if total is None else e.op("add", total, product)
    if total is None:
        raise ModelError("a convolution without taps")
    return e.broadcast_to(total, x.shape)


def _changed_taps(call: Call, seen: Sequence[Tensor], columns: Sequence[Tensor]) -> Tensor:
    """Two taps whose weights each token changes, in groups of channels; rounded at every step."""
    e, x, deltas, mask = call.maker, call.tensor(0), call.tensor(6), call.tensor(7)
    first, size = call.integer("delta_offset", 0), call.integer("group_size", 1)
    if len(seen) != 2 or call.integer("dilation", 1) != 1 or call.optional(3) is not None:
        raise ModelError(
            "weights that tokens change are two, next to each other, without a bias"
        )
    changed: list[Tensor] = []
    # The current token's change comes first, its weight last.
    for place, column in zip((first + 1, first), columns, strict=True):
        delta = e.slice(deltas, 1, place, 1)
        tokens, _, groups = delta.shape
        wide = e.broadcast_to(e.reshape(delta, (tokens, groups, 1)), (tokens, groups, size))
        changed.append(e.op("add", e.reshape(wide, x.shape), column))
    before, now = (e.op("mul", s, w) for s, w in zip(seen, changed, strict=True))
    return e.op("add", now, e.op("mul", before, mask))


def _last_samples(e: NodeMaker, samples: _Samples, where: _Ragged) -> Tensor:
    """What every sequence carries on: `[batch, channels, carried]`."""
    carried, channels = samples.carried, samples.table.shape[1]
    if carried == 0:
        return e.full(0, samples.table.dtype, (where.batch, channels, 0))
    shape = (where.batch, carried)
    ends = e.op("sub", e.unsqueeze(where.ends(e), (1,)), e.dim(carried))
    places = e.op("add", ends, e.iota((1, carried), 1))
    owner = e.broadcast_to(e.iota((where.batch, 1), 0), shape)
    begins = e.broadcast_to(e.unsqueeze(where.begins, (1,)), shape)
    flat = [e.reshape(t, (element_count(shape),)) for t in (owner, begins, places)]
    found = e.reshape(samples.at(e, *flat), (*shape, channels))
    return e.transpose(found, (0, 2, 1))


def _captured(call: Call, x: Tensor, where: _Ragged) -> Tensor | None:
    """The first tokens of each sequence, as many as are asked for: `[batch, capacity, channels]`."""
    e, capacity = call.maker, call.integer("state_update_capacity", 0)
    if not capacity:
        return None
    number = e.iota((1, capacity), 1)
    places = e.op("add", e.unsqueeze(where.begins, (1,)), number)
    wanted = e.op("min", e.cast(call.tensor(5), dtypes.i64), where.lengths)
    is_wanted = e.op("less", number, e.unsqueeze(wanted, (1,)))
    rows = _at(e, _never_none(e, x), places)
    return e.op("where", e.unsqueeze(is_wanted, (2,)), rows, e.scalar(0, x.dtype))


# --- the state


@final
@record
class _Tokens:
    """Operands by token, f32: query and key `[tokens, heads, dk]`, value `[.., dv]`, gates `[.., 1 or dk]` and `[.., 1]`."""

    query: Tensor
    key: Tensor
    value: Tensor
    decay: Tensor | None
    beta: Tensor | None


def _lead(call: Call) -> Sequence[Dim]:
    """The axes that count tokens: before heads, which may be packed with their elements."""
    return call.tensor(0).shape[: -1 if call.optional(1) is None else -2]


def _tokens(call: Call, tokens: Dim) -> _Tokens:
    e, state = call.maker, call.optional(6)
    query = call.tensor(0)
    if call.optional(1) is not None:
        parts = [query, call.tensor(1), call.tensor(2)]
    elif state is None:
        raise ModelError("operand 'initial_state' is missing: heads are packed")
    else:
        _, heads, width, depth = state.shape
        values = heads * width
        keys = symbolic.floordiv(query.shape[-1] - values, 2)
        q, k, v = split(e, query, query.rank - 1, [keys, keys, values])
        shared = symbolic.floordiv(keys, depth)
        sizes = ((shared, depth), (shared, depth), (heads, width))
        parts = [
            e.reshape(x, (*query.shape[:-1], *size))
            for x, size in zip((q, k, v), sizes, strict=True)
        ]
    q, k, v = (e.cast(e.reshape(x, (tokens, *x.shape[-2:])), f32) for x in parts)
    if call.flag("qk_l2_norm"):
        q, k = (_unit(e, x) for x in (q, k))
    rule = call.choice("update_rule", "gated_delta", _RULES)
    heads = v.shape[1]
    decay = _decay(call, tokens, heads) if "gated" in rule else None
    beta = _beta(call, tokens, heads) if "delta" in rule else None
    return _Tokens(q, k, v, decay, beta)


def _unit(e: NodeMaker, x: Tensor) -> Tensor:
    """Heads of length one."""
    squares = e.op("reduce_sum", e.op("mul", x, x), axes=(2,), keepdims=True)
    root = e.op("sqrt", e.op("add", squares, e.scalar(1e-6, f32)))
    return e.op("div", x, root)


def _decay(call: Call, tokens: Dim, heads: Dim) -> Tensor:
    """The logarithm of what a state decays by, `[tokens, heads, 1 or dk]`."""
    e, raw = call.maker, _wide(call, 4)
    kind = call.choice("gate_activation", "none", _GATES)
    lower = call.float("gate_lower_bound", -5.0)
    width = symbolic.floordiv(element_count(raw.shape[len(_lead(call)) :]), heads)
    raw = e.reshape(raw, (tokens, heads, width))
    if kind == "none":
        return raw
    rate = e.op("exp", e.reshape(_wide(call, 7), (1, heads, 1)))
    bias = call.optional(8)
    if bias is not None:
        columns = symbolic.floordiv(element_count(bias.shape), heads)
        raw = e.op("add", raw, e.reshape(e.cast(bias, f32), (1, heads, columns)))
    if kind in ("softplus", "qwen"):
        return e.op("neg", e.op("mul", rate, e.op("softplus", raw)))
    return e.op("mul", e.scalar(lower, f32), e.op("sigmoid", e.op("mul", rate, raw)))


def _wide(call: Call, index: int) -> Tensor:
    """An operand in f32."""
    return call.maker.cast(call.tensor(index), f32)


def _beta(call: Call, tokens: Dim, heads: Dim) -> Tensor:
    e, kind = call.maker, call.choice("beta_activation", "none", ("none", "sigmoid"))
    rate = e.reshape(_wide(call, 5), (tokens, heads, 1))
    return e.op("sigmoid", rate) if kind == "sigmoid" else rate


def _shared(e: NodeMaker, x: Tensor, heads: Dim) -> Tensor:
    """Each head of `[tokens, heads, size]` for as many of the wanted ones as share it."""
    tokens, own, size = x.shape
    if own == heads:
        return x
    group = symbolic.floordiv(heads, own)
    wide = e.broadcast_to(e.unsqueeze(x, (2,)), (tokens, own, group, size))
    return e.reshape(wide, (tokens, heads, size))


def _gated_delta(call: Call) -> list[Tensor | None]:
    """All sequences side by side, from token to token; those that have ended keep their state."""
    e, query, past = call.maker, call.tensor(0), call.optional(6)
    call.integer("chunk_size", 64)  # how a GPU goes about it
    lead = _lead(call)
    tokens = element_count(lead)
    parts = _tokens(call, tokens)
    heads, width = parts.value.shape[1:]
    depth = parts.key.shape[2]
    where, longest = _sequences(call, lead, past)
    scale = scale_of(call, depth)
    if past is None:
        state = e.full(0, f32, (where.batch, heads, depth, width))
    else:
        state = e.transpose(e.cast(past, f32), (0, 1, 3, 2))
    step = e.iota((longest, 1), 0)
    places = e.op("add", e.unsqueeze(where.begins, (0,)), step)
    going = e.op("less", step, e.unsqueeze(where.lengths, (0,)))
    wide_key = _shared(e, parts.key, heads)
    columns = [
        e.unsqueeze(_shared(e, parts.query, heads), (3,)),
        e.unsqueeze(wide_key, (3,)),
        e.unsqueeze(parts.value, (2,)),
        *(e.unsqueeze(t, (3,)) for t in (parts.decay, parts.beta) if t is not None),
    ]
    inputs = [_at(e, x, places) for x in columns]
    (rows, deltas), (state,) = _walk(e, parts, [*inputs, going], state, scale)
    numbers = e.op(
        "sub", e.iota((tokens,), 0), e.op("gather", where.begins, where.owner, axis=0)
    )
    numbers = e.op("add", e.op("mul", numbers, e.dim(where.batch)), where.owner)
    flat = e.reshape(rows, (longest * where.batch, heads, width))
    output = e.reshape(_at(e, flat, numbers), (*lead, heads, width))
    update = _transitions(call, parts, deltas, where)
    final_state = e.transpose(state, (0, 1, 3, 2))
    return [e.cast(output, query.dtype), final_state, update]


def _sequences(call: Call, lead: Sequence[Dim], past: Tensor | None) -> tuple[_Ragged, Dim]:
    """Where sequences stand, and the length of the longest."""
    e, cumulative = call.maker, call.optional(3)
    tokens = element_count(lead)
    if cumulative is not None:
        where = _ragged(e, cumulative, tokens)
        most = e.op("reduce_max", where.lengths, axes=(0,), keepdims=True)
        (longest,) = control.read_sizes(e, most, "longest")
        return where, longest
    if len(lead) == 2:
        return _even(e, lead[0], lead[1]), lead[1]
    if past is None:
        raise ModelError("nothing says how many sequences there are")
    batch = past.shape[0]
    length = symbolic.floordiv(tokens, batch)
    return _even(e, batch, length), length


def _walk(
    e: NodeMaker, parts: _Tokens, inputs: Rows, state: Tensor, scale: float
) -> tuple[Rows, Rows]:
    """Outputs and differences of every step, `[steps, batch, heads, dv]`, and the last state."""
    batch, heads, _, width = state.shape
    made = TensorType(f32, (batch, heads, width))

    def step(_place: Tensor, now: Rows, held: Rows) -> tuple[Rows, Rows]:
        query, key, value, *gates, going = now
        before = held[0]
        if parts.decay is not None:
            before = e.op("mul", before, e.op("exp", gates.pop(0)))
        delta = value
        if parts.beta is not None:
            known = e.op("reduce_sum", e.op("mul", before, key), axes=(2,), keepdims=True)
            delta = e.op("mul", gates.pop(0), e.op("sub", value, known))
        after = e.op("add", before, e.op("mul", key, delta))
        seen = e.op("reduce_sum", e.op("mul", after, query), axes=(2,), keepdims=False)
        kept = e.op("where", e.unsqueeze(going, (1, 2, 3)), after, held[0])
        out = e.op("mul", seen, e.scalar(scale, f32))
        return [out, e.squeeze(delta, (2,))], [kept]

    return walked(e, inputs, [state], step, [made, made])


def _transitions(
    call: Call, parts: _Tokens, deltas: Tensor, where: _Ragged
) -> Tensor | None:
    """What the first steps did to the state, `[batch, capacity * ...]`: decays, then keys, then differences."""
    e, capacity = call.maker, call.integer("state_update_capacity", 0)
    if not capacity:
        return None
    call.tensor(9)  # how many of them count; the others are nothing that is specified
    batch, heads = where.batch, parts.value.shape[1]
    number = e.iota((1, capacity), 1)
    places = e.op("add", e.unsqueeze(where.begins, (1,)), number)
    decay = (
        e.full(0, f32, (parts.key.shape[0], heads, 1))
        if parts.decay is None
        else parts.decay
    )
    of_tokens = (e.op("exp", decay), parts.key)
    found = [_at(e, _never_none(e, x), places) for x in of_tokens]
    steps = _at(e, _never_none(e, deltas), e.iota((capacity,), 0))
    found.append(e.transpose(steps, (1, 0, 2, 3)))
    flat = [e.reshape(x, (batch, element_count(x.shape[1:]))) for x in found]
    update = e.concat(flat, 1)
    active = call.optional(10)
    if active is None:
        return update
    is_on = e.op("not_equal", e.reshape(active, (1, 1)), e.scalar(0, active.dtype))
    return e.op("where", is_on, update, e.scalar(0, f32))


ROWS: Final[tuple[Row, ...]] = (
    row("GatedDeltaNet", _gated_delta, domain=MICROSOFT),
    row("VarlenCausalConvWithState", _ragged_conv, domain=MICROSOFT),
)
