"""Refuses kernels with indices that 64 bits do not hold: machine code computes with what is left of such a number.

Whatever a model says of steps, dilations, borders and sizes ends as factors and sums of indices, so one look at a naive
kernel is one at all places of elements; numbers that are values wrap as those of their type do.  Sizes that a call decides
count as 1 here; what they are is checked in the call.  Called where kernels are found.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final

from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Atom, Dim, Operation
from tilewright.compiler.graph.ir import Location
from tilewright.compiler.kernel.fields import dims_of
from tilewright.compiler.kernel.ir import For, Kernel, Load, Prefetch, Store, walk
from tilewright.compiler.kernel.rewrite import expressions

_MOST: Final = (1 << 63) - 1
_NUMBERS: Final = re.compile(r"[.\d]{6,}")


def check_index_numbers(kernel: Kernel, text: str, location: Location) -> None:
    """Raise ModelError, naming `location`, where an index may be a number that 64 bits do not hold.

    `text` is the kernel printed.  Where all its whole numbers are short, so are their products with the distances in any
    tensor that exists, and nothing is computed: nearly always.
    """
    if not any(map(str.isdecimal, _NUMBERS.findall(text))):
        return
    statements = walk(kernel.body)
    # Loop variables stay below the extents of their loops; names are unique in a kernel.
    limits: dict[str, int] = {}
    for statement in statements:
        if isinstance(statement, For):
            limits[statement.var.name] = max(_magnitude(statement.extent, limits) - 1, 1)
    for node in (*statements, *expressions(kernel.body)):
        if not isinstance(node, Load | Store | Prefetch):
            continue
        largest = max((_magnitude(dim, limits) for dim in dims_of(node)), default=0)
        largest = max(largest, _position(node, limits))
        if largest > _MOST:
            raise ModelError(
                f"places of elements are numbers of {largest.bit_length()} bits, at most 63 are computed with",
                location=location,
                hint="a step, a dilation, a border or a size of this node is larger than any memory",
            )


def _position(access: Load | Store | Prefetch, limits: Mapping[str, int]) -> int:
    """At most how far from the beginning of its buffer an access is, in elements."""
    position = 0
    shape = access.buffer.shape[-len(access.indices) :] if access.indices else ()
    for extent, index in zip(shape, access.indices, strict=True):
        position = position * _magnitude(extent, limits) + _magnitude(index, limits)
    return position


def _magnitude(dim: Dim, limits: Mapping[str, int]) -> int:
    """A number that no value of `dim` is farther from 0 than."""
    if isinstance(dim, int):
        return abs(dim)
    return abs(dim.constant) + sum(
        abs(factor) * math.prod(_atom_magnitude(atom, limits) for atom in monomial)
        for monomial, factor in dim.terms
    )


def _atom_magnitude(atom: Atom, limits: Mapping[str, int]) -> int:
    if not isinstance(atom, Operation):
        return limits.get(atom.key, 1)
    left, right = _magnitude(atom.left, limits), _magnitude(atom.right, limits)
    if atom.op == "mod":
        return max(right, 1)
    if atom.op == "floordiv":
        return (
            -(-left // atom.right)
            if isinstance(atom.right, int) and atom.right > 0
            else left
        )
    return max(left, right)
