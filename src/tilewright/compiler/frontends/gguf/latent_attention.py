"""Multi-head latent attention: keys and values of all heads come from one short row, and caches hold that row.

What would make keys of it is multiplied into queries instead, so that all heads ask the same rows; what makes values
of it comes after the mixing.  Called by `transformer`.

Source: DeepSeek-AI, DeepSeek-V2, 2024, section 2.1 and appendix C; transformers, `DeepseekV3Attention`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tilewright.compiler.frontends.gguf.hyperparameters import Latent
from tilewright.compiler.frontends.gguf.parts import Parts
from tilewright.compiler.frontends.gguf.rope import neighbours_apart
from tilewright.compiler.frontends.gguf.weights import Projection
from tilewright.compiler.frontends.kit.tensor import Tensor

_EPSILON: Final = 1e-6
"""Of norms inside of attention, whatever a file says of the others."""

Floats = npt.NDArray[np.float32]


def latent_heads(
    parts: Parts, latent: Latent, keys: Floats, x: Tensor, block: str
) -> tuple[Tensor, Tensor]:
    """Queries of every head and the row that all of them ask, columns that are turned first.

    Args:
        parts: writes the model.
        latent: its sizes.
        keys: what queries are multiplied by, of `decompression`.
        x: f32[1, n, width].
        block: the name of the layer.

    Returns: f32[1, heads, n, turned + rank] and f32[1, 1, n, turned + rank].
    """
    e, form = parts.maker, parts.form
    still = latent.key_size - form.rope_size
    q = _queries(parts, latent, x, block)
    with parts.part("LatentQueries", f"{block}.attn_q_latent"):
        asked = e.op("matmul", e.slice(q, 3, 0, still), e.constant(keys[None]))
        q = e.concat([e.slice(q, 3, still, form.rope_size), asked], 3)
    order = np.concatenate(
        [
            neighbours_apart(1, form.rope_size, form.rope_size) + latent.rank,
            np.arange(latent.rank),
        ]
    )
    row = Projection(f"{block}.attn_kv_a_mqa", form.key_size, order)
    both = parts.product(x, [row])
    short = e.slice(both, 2, form.rope_size, latent.rank)
    short = parts.norm(short, f"{block}.attn_kv_a_norm", epsilon=_EPSILON)
    with parts.part("LatentRows", f"{block}.attn_kv_latent"):
        rows = e.concat([e.slice(both, 2, 0, form.rope_size), short], 2)
        return q, e.unsqueeze(rows, (1,))


def latent_values(parts: Parts, values: Floats, mixed: Tensor, block: str) -> Tensor:
    """Values of every head from mixed rows and `decompression`: `[1, heads, n, rank]` as `[1, heads, n, value size]`."""
    with parts.part("LatentValues", f"{block}.attn_v_latent"):
        return parts.maker.op("matmul", mixed, parts.maker.constant(values[None]))


def _queries(parts: Parts, latent: Latent, x: Tensor, block: str) -> Tensor:
    """`[1, heads, n, key size]`, of which the last columns are to be turned by halves."""
    e, form, name = parts.maker, parts.form, f"{block}.attn_q"
    first = f"{block}.attn_q_a"
    if parts.weights.has(f"{first}.weight"):
        rank, _ = parts.weights.tensor(f"{first}.weight", (None, form.width)).shape
        x = parts.product(x, [Projection(first, rank)])
        x = parts.norm(x, f"{first}_norm", epsilon=_EPSILON)
        name = f"{block}.attn_q_b"
    order = _apart(form.heads, latent.key_size, form.rope_size)
    q = parts.product(x, [Projection(name, form.heads * latent.key_size, order)])
    with parts.part("Heads", f"{block}.attn_q_heads"):
        q = e.reshape(q, (1, x.shape[1], form.heads, latent.key_size))
        return e.transpose(q, (0, 2, 1, 3))


def _apart(heads: int, size: int, turned: int) -> npt.NDArray[np.int64]:
    """The order of rows that puts the last columns of every head, which are turned two by two, at i and i + half."""
    last = neighbours_apart(1, turned, turned) + size - turned
    own = np.concatenate([np.arange(size - turned), last])
    return (np.arange(heads)[:, None] * size + own).reshape(-1)


def decompression(parts: Parts, latent: Latent, block: str) -> tuple[Floats, Floats]:
    """What queries are multiplied by, `[heads, still columns, rank]`, and mixed rows, `[heads, rank, value size]`.

    In older files both stand in one tensor, keys before values in every head.
    """
    heads, still = parts.form.heads, latent.key_size - parts.form.rope_size
    weights, whole = parts.weights, f"{block}.attn_kv_b.weight"
    if weights.has(whole):
        rows = heads * (still + latent.value_size)
        both = weights.numbers(whole, (rows, latent.rank)).reshape(heads, -1, latent.rank)
        keys, values = both[:, :still], both[:, still:]
    else:
        names = [f"{block}.attn_{letter}_b.weight" for letter in "kv"]
        keys = weights.numbers(names[0], (heads, latent.rank, still)).swapaxes(1, 2)
        values = weights.numbers(names[1], (heads, latent.value_size, latent.rank))
    return np.ascontiguousarray(keys), np.ascontiguousarray(values.swapaxes(1, 2))
