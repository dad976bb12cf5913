"""How an access moves through memory as a loop around it goes on.

Needs multi-dimensional indices.  Called by `footprints` and by the rules that choose lanes.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Expr, Operation
from tilewright.compiler.kernel.ir import Buffer, Load, Store
from tilewright.compiler.kernel.rewrite import dim_symbols

_KNOWN_ACCESSES: Final = 1024
"""Accesses whose positions are remembered: those of a kernel."""
_KNOWN_STRIDES: Final = 4 * _KNOWN_ACCESSES
"""Each is asked for along the few loops around it, by one rule after the other."""


def linear_index(buffer: Buffer, indices: Sequence[Dim]) -> Dim:
    """The row-major position of an element."""
    position: Dim = 0
    for extent, index in zip(buffer.shape, indices, strict=True):
        position = position * extent + index
    return position


@functools.lru_cache(maxsize=_KNOWN_ACCESSES)
def _place(access: Load | Store) -> Dim:
    """The position that an access touches; rules ask for every loop around it."""
    return linear_index(access.buffer, access.indices)


@functools.lru_cache(maxsize=_KNOWN_STRIDES)
def stride(access: Load | Store, name: str) -> Dim | None:
    """How far apart in memory successive iterations of a loop touch; None if not regular."""
    part = symbolic.linear(_place(access), name)
    return None if part is None else part[0]


def depends(access: Load | Store, name: str) -> bool:
    """Whether the element touched depends on a loop."""
    return any(s.name == name for index in access.indices for s in dim_symbols(index))


def is_folded(access: Load | Store, name: str) -> bool:
    """Whether a loop's variable is divided by a size that only a call knows, to tell which element is touched.

    Not so where memory tells that element.
    """
    return any(
        isinstance(atom.right, Expr) and name in symbolic.names_in((atom.left,))
        for index in access.indices
        if not symbolic.opaques(index)
        for atom in symbolic.atoms(index)
        if isinstance(atom, Operation) and atom.op in ("mod", "floordiv")
    )
