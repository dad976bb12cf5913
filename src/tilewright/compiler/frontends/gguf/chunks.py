"""Reading a text in chunks: within one tokens see each other by products, from one to the next a loop carries a state.

Called by `state_spaces` and `delta_nets`.

Source: Dao and Gu, Transformers are SSMs, 2024, section 6.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import recurrence
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.graph.schema import TensorType

_CHUNK: Final = 64
"""Tokens that see each other by products; a state is read and written once for as many."""

Chunk = Callable[[list[Tensor], Tensor], tuple[Tensor, Tensor]]
"""Of the rows of a chunk and the state before it: what its tokens make, and the state behind it."""


def walked(
    e: NodeMaker, rows: Sequence[Tensor], state: Tensor, chunk: Chunk, columns: int
) -> tuple[Tensor, Tensor]:
    """What all tokens make, `[1, n, columns]`, and the last state.

    Args:
        e: writes the nodes.
        rows: of every token, `[1, n, ..]` each; behind the last there are rows of zeros, which must leave a state as it is.
        state: before the first.
        chunk: from one to the next.
        columns: that a token makes.
    """
    count = rows[0].shape[1]
    size = min(count, _CHUNK) if isinstance(count, int) else _CHUNK
    chunks = symbolic.ceildiv(count, size)
    made = TensorType(dtypes.f32, (size, columns))

    def step(
        _: Tensor, own: list[Tensor], states: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        mixed, later = chunk(own, states[0])
        return [mixed], [later]

    parts = [_in_chunks(e, x, chunks, size) for x in rows]
    found, ended = recurrence.walked(e, parts, [state], step, [made], is_certain=True)
    mixed = e.reshape(found[0], (1, chunks * size, columns))
    return e.slice(mixed, 1, 0, count), ended[0]


def _in_chunks(e: NodeMaker, x: Tensor, chunks: Dim, size: int) -> Tensor:
    """`x: [1, n, columns]` as `[chunks, size, columns]`, with zeros behind it."""
    _, count, columns = x.shape
    more = chunks * size - count
    if more != 0:
        zero = e.scalar(0.0, dtypes.f32)
        x = e.op("pad", x, zero, pads=(0, 0, 0, 0, more, 0), mode="constant")
    return e.reshape(x, (chunks, size, columns))


def running(e: NodeMaker, decays: Tensor) -> Tensor:
    """Logarithms of what is left of the state before a chunk, `[groups, heads, n]`, of those of each token.

    In f64: what is left from token to token are differences of these sums, which may be large.
    """
    return e.op("cumsum", e.cast(decays, dtypes.f64), axis=2)


def left(e: NodeMaker, total: Tensor) -> Tensor:
    """What is left at each token of what each before it has written, `[groups, heads, n, n]`; 0 of later ones."""
    count = total.shape[2]
    assert isinstance(count, int), "chunks have one size"
    away = e.op("sub", e.unsqueeze(total, (3,)), e.unsqueeze(total, (2,)))
    later = e.constant(np.triu(np.ones((count, count), np.bool_), 1))
    none = e.scalar(-np.inf, dtypes.f32)
    return e.op("exp", e.op("where", later, none, e.cast(away, dtypes.f32)))


def left_of_all(e: NodeMaker, total: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What is left of the state before a chunk at each token, of each token behind the chunk, and of the state there.

    Returns: `[groups, heads, n, 1]` twice and `[groups, heads, 1, 1]`.
    """
    count = total.shape[2]
    last = e.slice(total, 2, count - 1, 1)
    logarithms = (total, e.op("sub", last, total), last)
    before, rest, whole = (
        e.unsqueeze(e.op("exp", e.cast(t, dtypes.f32)), (3,)) for t in logarithms
    )
    return before, rest, whole
