"""What a value of a module stands for while it is imported.

A complex tensor is two tensors: the graph has no complex numbers, and most of what is done to them
is done to each part.  Tuples and tokens exist at import time only.  Made by rows, bound to values by
the importer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from tilewright.compiler.frontends.kit.tensor import Tensor


@final
@dataclass(frozen=True, slots=True, eq=False)
class Complex:
    """A complex tensor as its parts, which have one type."""

    real: Tensor
    imaginary: Tensor


@final
@dataclass(frozen=True, slots=True, eq=False)
class Tuple:
    """Several values as one."""

    items: tuple[Held, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """An order of effects, of which a function of tensors has none."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Unknown:
    """A result of an operation with a problem; those that use it are skipped, not blamed."""


Held = Tensor | Complex | Tuple | Token
