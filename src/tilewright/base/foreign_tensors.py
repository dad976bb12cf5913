"""Tensors of other libraries before their memory is shared: marks that DLPack does not carry.

A tensor of torch may say that its gradient is wanted, which DLPack refuses, or that its elements are
those of its memory negated (the imaginary part of a conjugate), which torch forgets to say when it
hands the memory over.  Called where values of users come in.
"""

from __future__ import annotations

from typing import Any, cast


def without_marks(value: object) -> object:
    """The same elements, as its memory holds them: `value` itself where it has no such mark."""
    detach = getattr(value, "detach", None)
    plain = cast("Any", detach() if callable(detach) else value)
    is_negated = getattr(plain, "is_neg", None)
    if callable(is_negated) and is_negated():
        return plain.resolve_neg()
    return plain
