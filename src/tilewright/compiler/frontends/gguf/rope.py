"""Rotary embedding: by which angle columns of queries and keys are turned at a position, and the turning.

Models that turn none may have scores fall with distance instead (`linear_bias_slopes`).

Angles are made in the graph from positions, so no table grows with the context.  Scaled kinds change
the frequencies, once, here.

Source: Su et al., RoFormer, 2021, equation 34; Peng et al., YaRN, 2023, section 3; ggml `ggml_rope_ext`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.gguf.hyperparameters import Hyperparameters
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor

Floats = npt.NDArray[np.float32]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Frequencies:
    """Angle per position of each pair of columns, and what cosines and sines are multiplied with.

    `far` are the angles where there is room for more than `near` tokens; None: there, too, they are `angles`.
    """

    angles: Floats
    factor: float = 1.0
    far: Floats | None = None
    near: int = 0


def frequencies(
    form: Hyperparameters, divisors: Floats | None = None, *, local: bool = False
) -> Frequencies:
    """The frequencies of a layer's pairs of columns.

    Args:
        form: of the model.
        divisors: what the file says that frequencies are divided by.
        local: of a layer that sees a window, where those have a base of their own.

    Raises: ModelError where what the file says makes no numbers of them.
    """
    half = form.rope_size // 2
    base, scaling = form.rope_base, form.rope_scaling
    own = local and form.local_rope_base
    powers = np.arange(half, dtype=np.float64) / half
    angles = 1.0 / (own or base) ** powers
    if own:
        return Frequencies(angles.astype(np.float32))
    if divisors is not None:
        with np.errstate(all="ignore"):
            angles = angles / divisors.astype(np.float64)
    factor = scaling.attention_factor
    if scaling.type == "yarn":
        angles = _yarn(angles, form)
        grown = 0.1 * math.log(max(scaling.factor, 1.0))
        factor *= (1.0 + grown) / (1.0 + scaling.factor_rest * grown)
    else:
        with np.errstate(over="ignore"):
            angles = angles / scaling.factor
    with np.errstate(over="ignore"):
        found = angles.astype(np.float32)
    if not (np.isfinite(found).all() and math.isfinite(factor)):
        raise ModelError("the frequencies of rotary embedding are no finite numbers")
    return Frequencies(found, factor)


def _yarn(
    angles: npt.NDArray[np.float64], form: Hyperparameters
) -> npt.NDArray[np.float64]:
    """Columns that turn often stay, those that turn less than once are stretched, a ramp lies between."""
    scaling = form.rope_scaling
    context = scaling.original_context or form.context
    size, spread = form.rope_size, 2 * math.log(form.rope_base)

    def column(turns: float) -> float:
        return size * math.log(context / (turns * 2 * math.pi)) / spread

    first, last = column(scaling.fast_turns), column(scaling.slow_turns)
    if form.architecture.rounds_yarn:
        first, last = math.floor(first), math.ceil(last)
    low, high = max(0, first), min(size - 1, last)
    ramp = (np.arange(len(angles)) - low) / max(0.001, high - low)
    kept = 1 - np.clip(ramp, 0, 1)
    with np.errstate(all="ignore"):
        return angles / scaling.factor * (1 - kept) + angles * kept


def turning(
    e: NodeMaker, positions: Tensor, found: Frequencies, room: Dim
) -> tuple[Tensor, Tensor]:
    """Cosines and sines for `positions: [n]` in caches with room for so many: `[1, 1, n, half]` each."""
    place = e.cast(e.unsqueeze(positions, (0, 1, 3)), dtypes.f32)
    angle = e.op("mul", place, _angles(e, found, room))
    both = e.op("cos", angle), e.op("sin", angle)
    if found.factor == 1.0:
        return both
    factor = e.scalar(found.factor, dtypes.f32)
    return e.op("mul", both[0], factor), e.op("mul", both[1], factor)


def _angles(e: NodeMaker, found: Frequencies, room: Dim) -> Tensor:
    near = e.constant(found.angles.reshape(1, 1, 1, -1))
    if found.far is None:
        return near
    is_far = e.op("greater", e.dim(room), e.scalar(found.near, dtypes.i64))
    return e.op("where", is_far, e.constant(found.far.reshape(1, 1, 1, -1)), near)


def turned(e: NodeMaker, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Columns i and i + half of `x: [1, heads, n, size]` turned; columns behind them stay."""
    half = cos.shape[3]
    assert isinstance(half, int)
    a, b = e.slice(x, 3, 0, half), e.slice(x, 3, half, half)
    first = e.op("sub", e.op("mul", a, cos), e.op("mul", b, sin))
    second = e.op("add", e.op("mul", a, sin), e.op("mul", b, cos))
    rest = x.shape[3] - half * 2
    tail = [] if rest == 0 else [e.slice(x, 3, half * 2, rest)]
    return e.concat([first, second, *tail], 3)


def linear_bias_slopes(heads: int, power: float) -> Floats:
    """What scores of each head lose by one place of distance: `[heads]`.

    Where there is no power of two of heads, those beyond it get slopes between those of the first.

    Source: Press et al., Train Short, Test Long, 2022, section 3.
    """
    even = 1 << (heads.bit_length() - 1)
    first = power * (np.arange(min(heads, even)) + 1) / even
    between = power / 2 * (2 * np.arange(heads - even) + 1) / even
    return (2.0 ** -np.concatenate([first, between])).astype(np.float32)


def neighbours_apart(heads: int, size: int, turned_size: int) -> npt.NDArray[np.int64]:
    """The order of rows of a projection that puts columns 2i and 2i + 1 of every head at i and i + half.

    Scores do not change where queries and keys are put in one order.
    """
    columns = np.arange(size)
    columns[:turned_size] = columns[:turned_size].reshape(-1, 2).T.reshape(-1)
    return (np.arange(heads)[:, None] * size + columns).reshape(-1)
