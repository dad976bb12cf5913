"""A complex tensor of a front end: two tensors of the graph, which has no complex numbers.

Made and read by the rows of front ends.
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
