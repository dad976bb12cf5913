"""Tensors of users before their memory is shared: marks and masks that DLPack and arrays do not carry.

A tensor of torch may say that its gradient is wanted, which DLPack refuses, or that its elements are
those of its memory negated (the imaginary part of a conjugate), which torch forgets to say when it
hands the memory over.  An array of numpy may say that some of its elements are not there; what they hold
then means nothing.  Called where values of users come in.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from tilewright.base.errors import InputError


def without_marks(value: object) -> object:
    """The same elements, as its memory holds them: `value` itself where it has no such mark."""
    detach = getattr(value, "detach", None)
    plain = cast("Any", detach() if callable(detach) else value)
    is_negated = getattr(plain, "is_neg", None)
    if callable(is_negated) and is_negated():
        return plain.resolve_neg()
    return plain


def refuse_mask(value: object) -> None:
    """Refuse an array of numpy of which elements are below its mask.  Raises: InputError."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise InputError(
            f"got {type(value).__name__} with elements below its mask, expected an array",
            hint="give them values with .filled(value)",
        )
