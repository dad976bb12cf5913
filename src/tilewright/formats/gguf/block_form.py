"""What blocks of every type come apart into: integers, a scale and perhaps a minimum of each group of them.

Here are the form and what readers of several types share.  Called by `blocks` and `lookup_blocks`.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias, final

import numpy as np
import numpy.typing as npt

from tilewright.base.record import record

Bytes: TypeAlias = npt.NDArray[np.uint8]
Floats: TypeAlias = npt.NDArray[np.float32]


@final
@record(eq=False)
class Blocks:
    """Rows of numbers as integers in groups: number = (integer - zero) * scale + minimum.

    Attributes:
        values: `[.., K]`, u8 of 4 bits around `zero`, or i8.
        scale: `[.., K / group] f32`.
        minimum: the same, what is added to every number of a group; None: nothing.
        zero: the integer that stands for the minimum.
        group: elements that share a scale.
    """

    values: npt.NDArray[Any]
    scale: Floats
    minimum: Floats | None
    zero: int
    group: int


def half(raw: Bytes, at: int) -> Floats:
    """The f16 at a byte of every block: `[.., 1]`."""
    found = np.ascontiguousarray(raw[..., at : at + 2]).view(np.float16)
    return found.astype(np.float32)


def nibbles(packed: Bytes) -> Bytes:
    """`[.., n]` bytes as `[.., 2, n]`: the lower halves, then the upper ones."""
    return np.stack([packed & np.uint8(0xF), packed >> np.uint8(4)], axis=-2)


def nibbles_in_turn(packed: Bytes) -> Bytes:
    """`[.., n]` bytes as `[.., 2 n]`: the lower half of each before its upper one."""
    return np.stack([packed & np.uint8(0xF), packed >> np.uint8(4)], -1).reshape(
        *packed.shape[:-1], 2 * packed.shape[-1]
    )


def rows(x: npt.NDArray[Any], lead: tuple[int, ...]) -> npt.NDArray[Any]:
    """Everything behind the leading axes as one axis."""
    return np.ascontiguousarray(x).reshape(*lead, math.prod(x.shape[len(lead) :]))
