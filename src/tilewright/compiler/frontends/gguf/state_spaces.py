"""Layers that sum up all tokens before each one in a state of one size, instead of keys of every token: selective state spaces.

A prompt is read in chunks: within a chunk tokens see each other by products, as in attention; from chunk to chunk a loop
carries the state (`mamba2`).  Where each column has decays of its own (`mamba`) a loop goes from token to token.

The states of a step are those behind its last token, and no earlier ones come back.  Called by `transformer`.

Source: Gu and Dao, Mamba, 2023; Dao and Gu, Transformers are SSMs, 2024, section 6 (chunks); transformers,
`GraniteMoeHybridMambaLayer`, `FalconMambaMixer`; `build_mamba_layer` and `build_mamba2_layer` of llama.cpp for the order of
rows and columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.compiler.frontends.gguf.chunks import left, left_of_all, running, walked
from tilewright.compiler.frontends.gguf.delta_nets import DeltaNet
from tilewright.compiler.frontends.gguf.layer_parts import StateSpace
from tilewright.compiler.frontends.gguf.parts import Parts
from tilewright.compiler.frontends.gguf.weights import Projection
from tilewright.compiler.frontends.kit import recurrence
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.graph.schema import TensorType

_EPSILON: Final = 1e-6
"""Of norms inside of `mamba`, whatever a file says of the others."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Summed:
    """What is kept of a text: the rows that the convolution still reads, and the state."""

    rows: Tensor
    state: Tensor


def kept_shapes(
    space: StateSpace, kind: str
) -> tuple[tuple[int, int, int], tuple[int, ...]]:
    """Shapes of `Summed.rows` and `Summed.state`."""
    before = space.taps - 1
    if kind == "mamba":
        return (1, before, space.inner), (1, space.size, space.inner)
    columns = space.columns
    sizes = (space.size, columns) if kind == "delta" else (columns, space.size)
    channels = space.inner + 2 * space.groups * space.size
    return (1, before, channels), (1, space.heads, *sizes)


def state_space(
    parts: Parts, kind: str, x: Tensor, kept: Summed, block: str
) -> tuple[Tensor, Summed]:
    """What a layer makes of `x: f32[1, n, width]`, of the same shape, and what is kept behind it.

    Args:
        parts: writes the model.
        kind: as `Architecture.states`.
        x: what it reads.
        kept: of the text before it.
        block: the name of the layer.
    """
    mix = {"mamba": _of_columns, "mamba2": _of_heads, "delta": _of_differences}[kind]
    mixed, kept = mix(parts, x, kept, block)
    return parts.product(mixed, [Projection(f"{block}.ssm_out", parts.form.width)]), kept


def _sizes(parts: Parts) -> StateSpace:
    space = parts.form.space
    assert space is not None, "only asked of architectures that have one"
    return space


def _convolved(
    parts: Parts, rows: Tensor, before: Tensor, block: str
) -> tuple[Tensor, Tensor]:
    """`rows: [1, n, columns]` mixed with a few before each, and the last of all, which the next step reads."""
    e, name = parts.maker, f"{block}.ssm_conv1d"
    count, columns = rows.shape[1:]
    assert isinstance(columns, int)
    taps = parts.weights.matrix(f"{name}.weight", (columns, _sizes(parts).taps))
    with parts.part("ShortConvolution", name):
        read = e.concat([before, rows], 1)
        total = None
        if parts.weights.has(f"{name}.bias"):
            total = parts.weights.vector(f"{name}.bias", columns)
        for place in range(taps.shape[1]):
            tap = e.constant(np.ascontiguousarray(taps[:, place]))
            own = e.op("mul", e.slice(read, 1, place, count), tap)
            total = own if total is None else e.op("add", total, own)
        assert total is not None, "there are two taps at least"
        return e.op("silu", total), e.slice(read, 1, count, taps.shape[1] - 1)


# --- a decay for each head ----------------------------------------------------------------------


def _of_heads(parts: Parts, x: Tensor, kept: Summed, block: str) -> tuple[Tensor, Summed]:
    e, space = parts.maker, _sizes(parts)
    channels = kept.rows.shape[2]
    assert isinstance(channels, int)
    rows = space.inner + channels + space.heads
    packed = parts.product(x, [Projection(f"{block}.ssm_in", rows)])
    with parts.part("TimeSteps", f"{block}.ssm_dt"):
        gate = e.slice(packed, 2, 0, space.inner)
        read = e.slice(packed, 2, space.inner, channels)
        steps = e.slice(packed, 2, space.inner + channels, space.heads)
        bias = parts.weights.vector(f"{block}.ssm_dt.bias", space.heads)
        steps = e.op("softplus", e.op("add", steps, bias))
    read, later = _convolved(parts, read, kept.rows, block)
    decays = parts.weights.numbers(f"{block}.ssm_a", (space.heads, 1)).reshape(-1)
    through = parts.weights.numbers(f"{block}.ssm_d", (space.heads, 1)).reshape(-1)
    with parts.part("StateSpace", f"{block}.ssm_scan"):
        heads = _Heads(e, space, decays)
        mixed, state = heads.scanned(read, steps, kept.state)
        own = e.slice(read, 2, 0, space.inner)
        past = np.repeat(through, space.columns)
        mixed = e.op("add", mixed, e.op("mul", own, e.constant(past)))
        mixed = e.op("mul", mixed, e.op("silu", gate))
    return _normalised(parts, mixed, block), Summed(later, state)


def _normalised(parts: Parts, x: Tensor, block: str) -> Tensor:
    """The columns of each group normalised, where a file has weights for that."""
    e, space, name = parts.maker, _sizes(parts), f"{block}.ssm_norm"
    if not parts.weights.has(f"{name}.weight"):
        return x
    shape = (space.groups, space.inner // space.groups)
    with parts.part("GroupedNorm", name):
        weights = e.constant(parts.weights.numbers(f"{name}.weight", shape))
        apart = e.reshape(x, (1, x.shape[1], *shape))
        return e.reshape(e.op("mul", parts.normalised(apart), weights), x.shape)


@final
@dataclass(frozen=True, slots=True)
class _Heads:
    """Sums up a text, head by head; `decays` are negative, f32[heads].

    Heads stand as `[groups, heads of a group, ..]`, for those of a group share what is read and written.
    """

    maker: NodeMaker
    space: StateSpace
    decays: np.ndarray

    def scanned(self, read: Tensor, steps: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """What each token reads from the state behind it, `[1, n, inner]`, and the last state.

        Args:
            read: columns, what writes them and what reads them, `[1, n, inner + 2 * groups * size]`.
            steps: how much of each token counts, `[1, n, heads]`.
            state: before the first token, `[1, heads, columns, size]`.
        """
        e, count = self.maker, read.shape[1]
        held = e.reshape(state, (*self.space.grid, self.space.columns, self.space.size))
        if count == 1:
            mixed, held = self._single(read, steps, held)
        else:
            # Steps of 0 write nothing and let nothing decay.
            inner = self.space.inner
            mixed, held = walked(e, (read, steps), held, self._chunk, inner)
        return mixed, e.reshape(held, state.shape)

    def _single(self, read: Tensor, steps: Tensor, held: Tensor) -> tuple[Tensor, Tensor]:
        e, (groups, own) = self.maker, self.space.grid
        x, write, ask = self._apart(e.reshape(read, (1, read.shape[2])))
        steps = e.reshape(steps, (groups, own, 1, 1))
        decay = e.op("exp", e.op("mul", steps, self._constant((groups, own, 1, 1))))
        x = e.reshape(x, (groups, own, self.space.columns, 1))
        write, ask = (e.reshape(t, (groups, 1, 1, self.space.size)) for t in (write, ask))
        new = e.op("mul", e.op("mul", steps, x), write)
        held = e.op("add", e.op("mul", held, decay), new)
        mixed = e.op("reduce_sum", e.op("mul", held, ask), axes=(3,), keepdims=False)
        return e.reshape(mixed, (1, 1, self.space.inner)), held

    def _constant(self, shape: tuple[int, ...]) -> Tensor:
        return self.maker.constant(np.ascontiguousarray(self.decays.reshape(shape)))

    def _apart(self, read: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Columns, what writes them and what reads them, of `[n, all of them]`."""
        e, space = self.maker, self.space
        shared = space.groups * space.size
        x = e.slice(read, 1, 0, space.inner)
        write, ask = (
            e.slice(read, 1, space.inner + at * shared, shared) for at in range(2)
        )
        return x, write, ask

    def _chunk(self, rows: list[Tensor], held: Tensor) -> tuple[Tensor, Tensor]:
        """What tokens of a chunk read, `[n, inner]`, and the state behind it; of `[n, columns]` and `[n, heads]`."""
        e, space, (groups, own) = self.maker, self.space, self.space.grid
        (read, steps), columns = rows, self.space.columns
        count = read.shape[0]
        x, write, ask = self._apart(read)
        x = e.transpose(e.reshape(x, (count, groups, own, columns)), (1, 2, 0, 3))
        write, ask = (
            e.transpose(e.reshape(t, (count, groups, space.size)), (1, 0, 2))
            for t in (write, ask)
        )
        steps = e.reshape(e.transpose(steps, (1, 0)), (groups, own, count))
        total = running(e, e.op("mul", steps, self._constant((groups, own, 1))))
        before, rest, whole = left_of_all(e, total)
        x = e.op("mul", x, e.unsqueeze(steps, (3,)))
        # What tokens of the chunk have written, and what stood in the state before.
        seen = e.unsqueeze(e.op("matmul", ask, e.transpose(write, (0, 2, 1))), (1,))
        mixed = e.op("matmul", e.op("mul", seen, left(e, total)), x)
        old = e.reshape(held, (groups, own * columns, space.size))
        past = e.op("matmul", ask, e.transpose(old, (0, 2, 1)))
        past = e.transpose(e.reshape(past, (groups, count, own, columns)), (0, 2, 1, 3))
        mixed = e.op("add", mixed, e.op("mul", past, before))
        mixed = e.reshape(e.transpose(mixed, (2, 0, 1, 3)), (count, space.inner))
        # What the next chunk finds.
        given = e.transpose(e.op("mul", x, rest), (0, 1, 3, 2))
        given = e.reshape(given, (groups, own * columns, count))
        new = e.reshape(e.op("matmul", given, write), held.shape)
        return mixed, e.op("add", e.op("mul", held, whole), new)


# --- differences --------------------------------------------------------------------------------


def _of_differences(
    parts: Parts, x: Tensor, kept: Summed, block: str
) -> tuple[Tensor, Summed]:
    e, space = parts.maker, _sizes(parts)
    channels = kept.rows.shape[2]
    assert isinstance(channels, int)
    packed = parts.product(
        x,
        [
            Projection(f"{block}.attn_qkv", channels),
            Projection(f"{block}.attn_gate", space.inner),
        ],
    )
    # Shares and decays stand group by group.
    order = (
        np.arange(2 * space.heads).reshape(space.groups, 2, -1).swapaxes(0, 1).reshape(-1)
    )
    both = parts.product(x, [Projection(f"{block}.ssm_ba", 2 * space.heads, order)])
    with parts.part("TimeSteps", f"{block}.ssm_dt"):
        share = e.op("sigmoid", e.slice(both, 2, 0, space.heads))
        bias = parts.weights.vector(f"{block}.ssm_dt.bias", space.heads)
        steps = e.op("add", e.slice(both, 2, space.heads, space.heads), bias)
        decays = parts.weights.vector(f"{block}.ssm_a", space.heads)
        decays = e.op("mul", e.op("softplus", steps), decays)
    read, later = _convolved(parts, e.slice(packed, 2, 0, channels), kept.rows, block)
    with parts.part("DeltaNet", f"{block}.ssm_scan"):
        mixed, state = DeltaNet(e, space).scanned(read, decays, share, kept.state)
        apart = (1, x.shape[1], space.heads, space.columns)
        scale = parts.weights.vector(f"{block}.ssm_norm.weight", apart[3])
        mixed = parts.normalised(e.reshape(mixed, apart), scale)
        gate = e.slice(packed, 2, channels, space.inner)
        mixed = e.op("mul", e.reshape(mixed, gate.shape), e.op("silu", gate))
    return mixed, Summed(later, state)


# --- decays of each column ----------------------------------------------------------------------


def _of_columns(parts: Parts, x: Tensor, kept: Summed, block: str) -> tuple[Tensor, Summed]:
    e, space = parts.maker, _sizes(parts)
    packed = parts.product(x, [Projection(f"{block}.ssm_in", 2 * space.inner)])
    read, later = _convolved(parts, e.slice(packed, 2, 0, space.inner), kept.rows, block)
    found = space.heads + 2 * space.size
    made = parts.product(read, [Projection(f"{block}.ssm_x", found)])
    ends = (0, space.heads, space.heads + space.size)
    sizes = (space.heads, space.size, space.size)
    with parts.part("TimeSteps", f"{block}.ssm_dt_b_c"):
        steps, write, ask = (
            e.slice(made, 2, at, size) for at, size in zip(ends, sizes, strict=True)
        )
        if space.normalises:
            steps, write, ask = (
                parts.normalised(t, epsilon=_EPSILON) for t in (steps, write, ask)
            )
    steps = parts.product(steps, [Projection(f"{block}.ssm_dt", space.inner)])
    name = f"{block}.ssm_a"
    decays = parts.weights.numbers(name, (space.inner, space.size)).T
    through = parts.weights.vector(f"{block}.ssm_d", space.inner)
    with parts.part("StateSpace", f"{block}.ssm_scan"):
        steps = e.op("softplus", steps)
        columns = _Columns(e, e.constant(np.ascontiguousarray(decays)))
        mixed, state = columns.scanned([read, steps, write, ask], kept.state)
        mixed = e.op("add", mixed, e.op("mul", read, through))
        gate = e.slice(packed, 2, space.inner, space.inner)
        return e.op("mul", mixed, e.op("silu", gate)), Summed(later, state)


@final
@dataclass(frozen=True, slots=True)
class _Columns:
    """Sums up a text, column by column; `decays` are negative, f32[size, columns]."""

    maker: NodeMaker
    decays: Tensor

    def scanned(self, rows: list[Tensor], state: Tensor) -> tuple[Tensor, Tensor]:
        """What each token reads from the state behind it, `[1, n, columns]`, and the last state.

        Args:
            rows: columns, how much of each counts, what writes them and what reads them, `[1, n, ..]` each.
            state: before the first token, `[1, size, columns]`.
        """
        e = self.maker
        count, columns = rows[0].shape[1:]
        held = e.squeeze(state, (0,))
        rows = [e.reshape(row, row.shape[1:]) for row in rows]
        if count == 1:
            mixed, held = self._single([e.squeeze(row, (0,)) for row in rows], held)
        else:
            made = TensorType(dtypes.f32, (columns,))

            def step(
                _: Tensor, own: list[Tensor], state: list[Tensor]
            ) -> tuple[list[Tensor], list[Tensor]]:
                mixed, later = self._single(own, state[0])
                return [mixed], [later]

            found, ended = recurrence.walked(e, rows, [held], step, [made], is_certain=True)
            mixed, held = found[0], ended[0]
        return e.reshape(mixed, (1, count, columns)), e.unsqueeze(held, (0,))

    def _single(self, rows: list[Tensor], held: Tensor) -> tuple[Tensor, Tensor]:
        e = self.maker
        x, steps, write, ask = rows
        write, ask = (e.unsqueeze(t, (1,)) for t in (write, ask))
        decay = e.op("exp", e.op("mul", self.decays, steps))
        new = e.op("mul", e.op("mul", steps, x), write)
        held = e.op("add", e.op("mul", held, decay), new)
        return e.op("reduce_sum", e.op("mul", held, ask), axes=(0,), keepdims=False), held
