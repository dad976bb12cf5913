"""Rows for attention without a softmax, whose state is a matrix per head, and for the convolution in front of it.

A token after the other: a loop, or where they are few and known, written out.

Source: onnxruntime's contrib operators (LinearAttention, LinearAttentionGate, CausalConvWithState).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.dtypes import f32
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.recurrence import Rows, walked
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import FIXED_SIZE, Call
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row
from tilewright.compiler.graph.schema import TensorType

_RULES: Final = ("linear", "gated", "delta", "gated_delta")


@final
@record
class _Heads:
    """What every token has, f32, [tokens, batch, heads, ...]: query and key [dk, 1], value [1, dv], gates [.., 1]."""

    query: Tensor
    key: Tensor
    value: Tensor
    decay: Tensor | None
    beta: Tensor | None

    @property
    def parts(self) -> list[Tensor]:
        """Those that there are."""
        given = (self.query, self.key, self.value, self.decay, self.beta)
        return [t for t in given if t is not None]

    def of(self, parts: Sequence[Tensor]) -> _Heads:
        """The same parts of one token."""
        rest = iter(parts[3:])
        decay = None if self.decay is None else next(rest)
        beta = None if self.beta is None else next(rest)
        return _Heads(parts[0], parts[1], parts[2], decay, beta)


def _split(e: NodeMaker, x: Tensor, heads: int, *, column: bool) -> Tensor:
    """[batch, tokens, heads * size] as [tokens, batch, heads, size, 1] or [tokens, batch, heads, 1, size]."""
    batch, tokens, width = x.shape
    size = symbolic.floordiv(width, heads)
    last = (size, 1) if column else (1, size)
    wide = e.reshape(e.cast(x, f32), (batch, tokens, heads, *last))
    return e.transpose(wide, (1, 0, 2, 3, 4))


def _repeated(e: NodeMaker, x: Tensor, heads: int, wanted: int) -> Tensor:
    """Each of `heads` for as many of the `wanted` ones as share it."""
    if heads == wanted:
        return x
    tokens, batch, _, *last = x.shape
    wide = e.unsqueeze(x, (3,))
    wide = e.broadcast_to(wide, (tokens, batch, heads, wanted // heads, *last))
    return e.reshape(wide, (tokens, batch, wanted, *last))


def _heads(call: Call, rule: str) -> tuple[_Heads, int, int]:
    """The operands by head, and how many heads states and outputs have."""
    e = call.maker
    queries, keys = call.integer("q_num_heads"), call.integer("kv_num_heads")
    most = max(queries, keys)
    if min(queries, keys) < 1 or most % queries or most % keys:
        raise ModelError(f"{queries} heads of queries beside {keys} of keys")
    query = _repeated(e, _split(e, call.tensor(0), queries, column=True), queries, most)
    key = _split(e, call.tensor(1), keys, column=True)
    value = _split(e, call.tensor(2), keys, column=False)
    decay = beta = None
    if "gated" in rule:
        decay = _split(e, call.tensor(4), keys, column=True)
    if "delta" in rule:
        beta = call.tensor(5)
        beta = _split(e, beta, 1 if beta.shape[2] == 1 else keys, column=True)
    return _Heads(query, key, value, decay, beta), keys, most


def _updated(e: NodeMaker, state: Tensor, token: _Heads) -> Tensor:
    """The state [batch, heads, dk, dv] behind a token."""
    if token.decay is not None:
        state = e.op("mul", state, e.op("exp", token.decay))
    added = token.value
    if token.beta is not None:
        held = e.op("mul", state, token.key)
        held = e.op("reduce_sum", held, axes=(2,), keepdims=True)
        added = e.op("mul", token.beta, e.op("sub", added, held))
    return e.op("add", state, e.op("mul", token.key, added))


def _linear_attention(call: Call) -> list[Tensor]:
    e = call.maker
    rule = call.choice("update_rule", "gated_delta", _RULES)
    call.integer("chunk_size", 64)  # how a GPU goes about it
    if call.integer("state_window", 0):
        raise UnsupportedError(
            "states of several tokens ('state_window') are not supported"
        )
    heads, keys, most = _heads(call, rule)
    tokens, batch, _, depth, _ = heads.query.shape
    width = heads.value.shape[4]
    scale = call.float("scale", 0.0)
    if scale == 0.0:
        if not isinstance(depth, int):
            raise UnsupportedError(
                "heads of a dynamic size are not supported", hint=FIXED_SIZE
            )
        scale = 1 / math.sqrt(depth)
    past = call.optional(3)
    shape = (batch, keys, depth, width)
    state = e.full(0, f32, shape) if past is None else e.cast(past, f32)

    def token_of(_place: Tensor, parts: Rows, held: Rows) -> tuple[Rows, Rows]:
        token = heads.of(parts)
        state = _updated(e, held[0], token)
        seen = _repeated(e, e.unsqueeze(state, (0,)), keys, most)
        seen = e.op("mul", e.squeeze(seen, (0,)), token.query)
        row_ = e.op("reduce_sum", seen, axes=(2,), keepdims=False)
        return [e.op("mul", row_, e.scalar(scale, f32))], [state]

    made = [TensorType(f32, (batch, most, width))]
    (rows,), (state,) = walked(e, heads.parts, [state], token_of, made)
    rows = e.transpose(rows, (1, 0, 2, 3))
    output = e.reshape(rows, (batch, tokens, most * width))
    kept = call.tensor(0).dtype if past is None else past.dtype
    return [e.cast(output, call.tensor(0).dtype), e.cast(state, kept)]


def _gate(call: Call) -> list[Tensor | None]:
    """What a state decays by, and how much of it is replaced: both in f32 until they are rounded once."""
    e, a = call.maker, call.tensor(0)
    raw = e.op("add", e.cast(a, f32), call.tensor(1))
    decay = e.op("mul", call.tensor(2), e.op("softplus", raw))
    b = call.optional(3)
    beta = None if b is None else e.cast(e.op("sigmoid", e.cast(b, f32)), b.dtype)
    return [e.cast(decay, a.dtype), beta]


_GPU_ONLY: Final = (
    ("state_update_capacity", 0),
    ("state_channels_last", -1),
    ("state_length", 0),
    ("input_channel_offset", 0),
    ("input_channels", 0),
    ("state_window", 0),
)


def _causal_conv(call: Call) -> list[Tensor]:
    """A convolution of every channel alone that looks back; what it will look back at is carried."""
    e, x, weight, bias = call.maker, call.tensor(0), call.tensor(1), call.optional(2)
    for name, usual in _GPU_ONLY:
        if call.integer(name, usual) != usual:
            raise UnsupportedError(f"attribute '{name}' is not {usual}")
    activation = call.choice("activation", "none", ("none", "silu", "swish"))
    dilation, last = call.integer("dilation", 1), call.flag("channels_last")
    taps = weight.shape[-1]
    if call.integer("ndim", 1) != 1 or x.rank != 3 or not isinstance(taps, int):
        raise UnsupportedError(f"a causal convolution of {x.type} by {weight.type}")
    order = (0, 2, 1) if last else (0, 1, 2)
    x, past = e.transpose(x, order), call.optional(3)
    batch, channels, length = x.shape
    carried = (taps - 1) * dilation
    before = (
        e.full(0, x.dtype, (batch, channels, carried))
        if past is None
        else e.transpose(past, order)
    )
    whole = e.concat([before, x], 2) if carried else x
    present = e.slice(whole, 2, length, carried)
    result = e.op("conv", whole, weight, bias, groups=channels, dilations=(dilation,))
    if activation != "none":
        result = e.op("silu", result)
    return [e.transpose(result, order), e.transpose(present, order)]


ROWS: Final[tuple[Row, ...]] = (
    row("CausalConvWithState", _causal_conv, domain=MICROSOFT),
    row("LinearAttention", _linear_attention, domain=MICROSOFT),
    row("LinearAttentionGate", _gate, domain=MICROSOFT),
)
