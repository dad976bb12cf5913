"""Tensors of users before their memory is shared: marks and masks that DLPack and arrays do not carry.

A tensor of torch may say that its gradient is wanted, which DLPack refuses, or that its elements are
those of its memory negated (the imaginary part of a conjugate), which torch forgets to say when it
hands the memory over.  An array of numpy may say that some of its elements are not there; what they hold
then means nothing.  Called where values of users come in.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from tilewright.base.errors import InputError


def masked_arrays() -> tuple[type, ...]:
    """The kind of arrays with a mask; none where nobody has loaded it, as then nobody has such an array.

    Loading it for a question would cost every start 15 milliseconds.
    """
    kind = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    return () if kind is None else (kind,)


def without_marks(value: object) -> object:
    """The same elements, as its memory holds them: `value` itself where it has no such mark."""
    detach = getattr(value, "detach", None)
    plain = cast("Any", detach() if callable(detach) else value)
    is_negated = getattr(plain, "is_neg", None)
    if callable(is_negated) and is_negated():
        return plain.resolve_neg()
    return plain


def refuse_mask(value: object) -> None:
    """Refuse an array of numpy of which elements are below its mask, and a list that has such.  Raises: InputError."""
    masked = masked_arrays()
    if isinstance(value, masked) and np.ma.is_masked(value):
        raise InputError(
            f"got {type(value).__name__} with elements below its mask, expected an array",
            hint="give them values with .filled(value)",
        )
    if isinstance(value, list | tuple):
        members = cast("Sequence[object]", value)
        # By their types: of a long list of numbers no member is looked at.
        if any(
            issubclass(kind, (list, tuple, *masked)) for kind in set(map(type, members))
        ):
            for member in members:
                refuse_mask(member)


def unmasked(value: object) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """What numpy makes of it, where that has no elements below a mask.

    Raises: InputError for such elements; what numpy raises of what it makes no array of.
    """
    refuse_mask(value)
    array = np.asanyarray(value)  # an array of its own kind, whose mask is still there
    refuse_mask(array)
    return np.asarray(array)
