"""Arrays of callers that take outputs: of no two is one written over the other.

Not here: whether an array fits its output, which is looked at first.  Called by executors, and by bindings of
inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tilewright.base.errors import InputError

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


def check_apart(names: Sequence[str], places: Sequence[Array | None]) -> None:
    """Refuse arrays of which one would be written over another.  Raises: InputError naming both outputs."""
    given = [
        (name, array)
        for name, array in zip(names, places, strict=True)
        if array is not None and array.nbytes
    ]
    if len(given) < 2:
        return
    dense = sorted(
        (array.__array_interface__["data"][0], array.nbytes, name)
        for name, array in given
        if array.flags.c_contiguous
    )
    for (start, size, name), (behind, _, other) in pairwise(dense):
        if behind < start + size:
            raise _taken(name, other)
    for other, array in given:
        if not array.flags.c_contiguous:
            for name, place in given:
                if name != other and np.shares_memory(place, array):
                    raise _taken(name, other)


def _taken(name: str, other: str) -> InputError:
    return InputError(
        f"got memory that output '{name}' is written to, too, expected another",
        location=f"output '{other}'",
    )
