"""Layers that sum up a text in a state which corrects itself: gated delta nets.

A state answers keys with values.  Each token lets it decay, asks it for its own key, and writes by how much its value differs
from the answer.  Within a chunk that is a triangular system of equations.  Called by `state_spaces`.

Source: Yang, Kautz and Hatamizadeh, Gated Delta Networks, 2024, section 3.3; Yang et al., Parallelizing Linear Transformers with
the Delta Rule over Sequence Length, 2024; transformers, `Qwen3NextGatedDeltaNet`; `qwen3next.cpp` of llama.cpp for the order of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, final

from tilewright.base import dtypes
from tilewright.compiler.frontends.gguf.chunks import left, left_of_all, running, walked
from tilewright.compiler.frontends.gguf.layer_parts import StateSpace
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor

_EPSILON: Final = 1e-6
"""Of keys and queries whose length is made 1, whatever a file says of norms."""


@final
@dataclass(frozen=True, slots=True)
class DeltaNet:
    """Sums up a text, head by head.

    Heads of values stand as `[groups, heads of a group, ..]`, for those of a group share a key.
    """

    maker: NodeMaker
    space: StateSpace

    def scanned(
        self, read: Tensor, decays: Tensor, shares: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What each token reads from the state behind it, `[1, n, inner]`, and the last state.

        Args:
            read: queries, keys and values, `[1, n, 2 * groups * size + inner]`.
            decays: logarithms of what each token leaves, `[1, n, heads]`.
            shares: how much of a difference a token writes, of the same shape.
            state: before the first token, `[1, heads, size, columns]`.
        """
        e = self.maker
        held = e.reshape(state, (*self.space.grid, self.space.size, self.space.columns))
        if read.shape[1] == 1:
            mixed, held = self._single(
                [e.squeeze(t, (0,)) for t in (read, decays, shares)], held
            )
        else:
            # Rows of zeros have no length, decay nothing and write nothing.
            rows = (read, decays, shares)
            mixed, held = walked(e, rows, held, self._chunk, self.space.inner)
        return mixed, e.reshape(held, state.shape)

    def _apart(self, read: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys, `[groups, n, size]`, and values, `[groups, heads, n, columns]`, of `[n, all of them]`."""
        e, space, count = self.maker, self.space, read.shape[0]
        groups, own = space.grid
        shared = groups * space.size
        query, key = (
            e.transpose(
                self._of_length_one(
                    e.reshape(
                        e.slice(read, 1, at * shared, shared), (count, groups, space.size)
                    )
                ),
                (1, 0, 2),
            )
            for at in range(2)
        )
        value = e.slice(read, 1, 2 * shared, space.inner)
        value = e.reshape(value, (count, groups, own, self.space.columns))
        scale = e.scalar(space.size**-0.5, dtypes.f32)
        return e.op("mul", query, scale), key, e.transpose(value, (1, 2, 0, 3))

    def _of_length_one(self, x: Tensor) -> Tensor:
        e = self.maker
        total = e.op("reduce_sum", e.op("mul", x, x), axes=(x.rank - 1,), keepdims=True)
        return e.op(
            "div", x, e.op("sqrt", e.op("add", total, e.scalar(_EPSILON, dtypes.f32)))
        )

    def _of_heads(self, x: Tensor) -> Tensor:
        """`[n, heads]` as `[groups, heads, n]`."""
        e = self.maker
        return e.reshape(e.transpose(x, (1, 0)), (*self.space.grid, x.shape[0]))

    def _single(self, rows: list[Tensor], held: Tensor) -> tuple[Tensor, Tensor]:
        e, groups = self.maker, self.space.groups
        query, key, value = self._apart(rows[0])
        decay, share = (e.unsqueeze(self._of_heads(t), (3,)) for t in rows[1:])
        query, key = (e.reshape(t, (groups, 1, self.space.size, 1)) for t in (query, key))
        held = e.op("mul", held, e.op("exp", decay))
        answer = e.op("reduce_sum", e.op("mul", held, key), axes=(2,), keepdims=True)
        differs = e.op("mul", e.op("sub", value, answer), share)
        held = e.op("add", held, e.op("mul", key, differs))
        mixed = e.op("reduce_sum", e.op("mul", held, query), axes=(2,), keepdims=False)
        return e.reshape(mixed, (1, 1, self.space.inner)), held

    def _chunk(self, rows: list[Tensor], held: Tensor) -> tuple[Tensor, Tensor]:
        """What tokens of a chunk read, `[n, inner]`, and the state behind it."""
        e, columns = self.maker, self.space.columns
        query, key, value = self._apart(rows[0])
        decays, share = (self._of_heads(t) for t in rows[1:])
        count, total = decays.shape[2], running(e, decays)
        before, rest, whole = left_of_all(e, total)
        between, share = left(e, total), e.unsqueeze(share, (3,))
        turned = e.transpose(key, (0, 2, 1))
        asked, met = (
            e.op("mul", e.unsqueeze(e.op("matmul", t, turned), (1,)), between)
            for t in (query, key)
        )
        query, key = (e.unsqueeze(t, (1,)) for t in (query, key))
        # What each token writes depends on what those before it have written: a triangle, with ones on its diagonal.
        wanted = e.concat(
            [e.op("mul", value, share), e.op("mul", key, e.op("mul", share, before))], 3
        )
        solved = e.op(
            "triangular_solve", e.op("mul", met, share), wanted, lower=True, unit=True
        )
        new = e.slice(solved, 3, 0, columns)
        known = e.op("matmul", e.slice(solved, 3, columns, self.space.size), held)
        new = e.op("sub", new, known)
        past = e.op("matmul", e.op("mul", query, before), held)
        mixed = e.op("add", past, e.op("matmul", asked, new))
        given = e.transpose(e.op("mul", key, rest), (0, 1, 3, 2))
        later = e.op("add", e.op("mul", held, whole), e.op("matmul", given, new))
        mixed = e.transpose(mixed, (2, 0, 1, 3))
        return e.reshape(mixed, (count, self.space.inner)), later
