"""Drawing tokens from logits and probabilities, and penalties on them: built-ins that language models call.

Sums are taken one by one in f32, as TVM takes them, so that draws near a border agree.

Source: behaviour of TVM 0.27's functions of these names (`src/runtime/vm/lm_support.cc`), with types and indices
looked at that TVM trusts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.relax_machine.errors import (
    ArgumentTypeError,
    ArgumentValueError,
)
from tilewright.runtime.relax_machine.storage import aligned_array

_COLDEST: Final = 1e-6
_CANDIDATES: Final = 1024
Floats = npt.NDArray[np.float32]


def _array(value: object, dtype: type[np.generic]) -> npt.NDArray[Any]:
    """A dense tensor of the host, in place."""
    if not isinstance(value, tvm_ffi.core.Tensor):
        raise ArgumentTypeError(f"expected a tensor, got '{type(value).__name__}'")
    name = np.dtype(dtype).name
    if str(value.dtype) != name or not value.is_contiguous() or value.ndim == 0:
        raise ArgumentValueError(
            f"expected a dense tensor of {name} with at least one axis, got {value.dtype} of shape "
            f"{list(value.shape)}"
        )
    return np.from_dlpack(value)


def _writable(value: object) -> Floats:
    array = _array(value, np.float32)
    if not array.flags.writeable:
        raise ArgumentValueError("expected logits that may be written")
    return array.reshape(-1)


def _row(value: object) -> Floats:
    array = _array(value, np.float32)
    if array.size != array.shape[-1] or array.size == 0:
        raise ArgumentValueError(f"expected one row, got shape {list(array.shape)}")
    return array.reshape(-1)


def _pick(
    order: npt.NDArray[np.intp], sums: Floats, total: float, uniform: float
) -> int | None:
    """The first token whose share of the sum goes beyond the draw."""
    with np.errstate(divide="ignore", invalid="ignore"):
        beyond = np.flatnonzero(uniform < sums / np.float32(total))
    return int(order[beyond[0]]) if beyond.size else None


def sample_top_p_from_logits(
    logits: object, temperature: float, top_p: float, uniform: float
) -> int:
    """A token of a row: the likeliest ones, whose probabilities make up `top_p`, at a draw from 0 to 1."""
    row = _row(logits)
    order = np.argsort(-row, kind="stable")
    if temperature < _COLDEST:
        return int(order[0])
    ordered = row[order]
    weights = np.exp((ordered - ordered[0]) * np.float32(1.0 / temperature))
    shares = weights / np.cumsum(weights, dtype=np.float32)[-1]
    sums = np.cumsum(shares, dtype=np.float32)
    before = np.concatenate([np.zeros(1, np.float32), sums[:-1]])
    counted = shares[before < top_p]
    total = np.cumsum(counted, dtype=np.float32)[-1] if counted.size else 0.0
    found = _pick(order, sums, float(total), uniform)
    if found is None:
        raise ArgumentValueError(f"no token for a draw of {uniform} with top_p {top_p}")
    return found


def sample_top_p_from_prob(prob: object, top_p: float, uniform: float) -> int:
    """The same from probabilities."""
    row = _row(prob)
    found = None
    if top_p < 1:  # few tokens make up so much
        found = _draw(row, np.float32(top_p / _CANDIDATES), top_p, uniform)
    if found is None:
        found = _draw(row, np.float32(0), top_p, uniform)
    if found is None:
        raise ArgumentValueError("no token has a probability")
    return found


def _draw(row: Floats, least: np.float32, top_p: float, uniform: float) -> int | None:
    """A draw among tokens of at least some probability; None where these do not make up enough."""
    tokens = np.flatnonzero(row >= least)
    if tokens.size == 0:
        return None
    order = tokens[np.argsort(-row[tokens], kind="stable")]
    shares = row[order]
    if top_p <= 0 or uniform < float(shares[0]) / top_p:
        return int(order[0])
    sums = np.cumsum(shares, dtype=np.float32)
    before = np.concatenate([np.zeros(1, np.float32), sums[:-1]])
    count = int(np.count_nonzero(before < top_p))
    if count == 0 or (sums[count - 1] < top_p and least != 0):
        return None
    # What lies behind the cut is compared as it is.
    compared = np.concatenate([sums[:count], shares[count:]])
    found = _pick(order, compared, float(sums[count - 1]), uniform)
    return int(order[-1]) if found is None else found


def multinomial_from_uniform(prob: object, uniform: object) -> tvm_ffi.Tensor:
    """A token per row.

    Shapes: prob: [B, N] f32; uniform: [B, 1] f32, draws from 0 to 1; result: [B, 1] i64.
    """
    rows, draws = _array(prob, np.float32), _array(uniform, np.float32).reshape(-1)
    if rows.ndim != 2 or rows.shape[1] == 0 or draws.size < len(rows):
        raise ArgumentValueError(
            f"probabilities of shape {list(rows.shape)} and {draws.size} draws"
        )
    sums = np.cumsum(rows, axis=1, dtype=np.float32)
    beyond = sums > draws[: len(rows), None]
    found = aligned_array((len(rows), 1), np.dtype(np.int64))
    found[:, 0] = np.where(beyond.any(axis=1), beyond.argmax(axis=1), rows.shape[1] - 1)
    return tvm_ffi.from_dlpack(found)


def _tokens(value: object, count: int) -> npt.NDArray[np.int32]:
    ids = _array(value, np.int32)
    ids = ids.reshape(-1)[: ids.shape[-1]]
    if ids.size and not (ids.min() >= 0 and ids.max() < count):
        raise ArgumentValueError(
            f"tokens from {ids.min()} to {ids.max()}, there are {count}"
        )
    return ids


def apply_repetition_penalty(logits: object, token_ids: object, penalty: float) -> None:
    """Make tokens less likely, in place: as often as they are named."""
    row = _writable(logits)
    for token in _tokens(token_ids, row.size).tolist():
        value = float(row[token])
        row[token] = value * penalty if value <= 0 else value / penalty


def apply_presence_and_frequency_penalty(
    logits: object,
    token_ids: object,
    token_freqs: object,
    presence: float,
    frequency: float,
) -> None:
    """Make tokens less likely, in place, by a constant and by how often they were seen."""
    row = _writable(logits)
    ids, seen = _tokens(token_ids, row.size), _array(token_freqs, np.int32).reshape(-1)
    if seen.size < ids.size:
        raise ArgumentValueError(f"{seen.size} frequencies for {ids.size} tokens")
    for token, count in zip(ids.tolist(), seen.tolist(), strict=False):
        row[token] = float(row[token]) - (count * frequency + presence)


def apply_softmax_with_temperature(logits: object, temperature: float) -> None:
    """Probabilities from the first row of logits, in place."""
    count = _array(logits, np.float32).shape[-1]
    row = _writable(logits)[:count]
    if not temperature > 0:
        raise ArgumentValueError(f"a temperature of {temperature}, expected more than 0")
    if row.size == 0:
        return
    scaled = row * np.float32(1.0 / temperature)
    weights = np.exp(scaled - max(float(scaled.max()), float(np.finfo(np.float32).tiny)))
    row[...] = weights / weights.sum(dtype=np.float64)


_PREFIX: Final = "vm.builtin."
SAMPLING_BUILTINS: Final[Mapping[str, Callable[..., Any]]] = {
    _PREFIX + row.__name__: row
    for row in (
        apply_presence_and_frequency_penalty,
        apply_repetition_penalty,
        apply_softmax_with_temperature,
        multinomial_from_uniform,
        sample_top_p_from_logits,
        sample_top_p_from_prob,
    )
}
