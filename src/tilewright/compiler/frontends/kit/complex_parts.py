"""A complex tensor of a front end: two tensors of the graph, which has no complex numbers.

Made and read by the rows of front ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor


@final
@dataclass(frozen=True, slots=True, eq=False)
class Complex:
    """A complex tensor as its parts, which have one type."""

    real: Tensor
    imaginary: Tensor

    def map(self, function: Callable[[Tensor], Tensor]) -> Complex:
        """Both parts as `function`, which moves or rounds elements, makes them."""
        return Complex(function(self.real), function(self.imaginary))


def product(
    e: NodeMaker, x: Complex, y: Complex, times: Callable[[Tensor, Tensor], Tensor]
) -> Complex:
    """The product, by that of two parts."""
    real = e.op("sub", times(x.real, y.real), times(x.imaginary, y.imaginary))
    imaginary = e.op("add", times(x.real, y.imaginary), times(x.imaginary, y.real))
    return Complex(real, imaginary)
