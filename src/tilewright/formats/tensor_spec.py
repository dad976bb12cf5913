"""A tensor at the border of a program: what its caller must know of it.

Not a tensor type of the compiler (`graph`).  Made by sessions and virtual machines, read by users and the
command line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.base.dtypes import DType
from tilewright.base.html import html_table
from tilewright.base.symbolic import Dim


class TensorSpec(NamedTuple):
    """Name, element type and shape of an input or output; unpacks in that order.

    Attributes:
        name: of the tensor.
        dtype: its element type; `dtype.numpy` is numpy's.
        shape: sizes; what is known only in a call is a symbol, `str` gives its name.
    """

    name: str
    dtype: DType
    shape: tuple[Dim, ...]

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether an array has this rank, and these sizes where they are numbers."""
        return len(shape) == len(self.shape) and all(
            not isinstance(wanted, int) or wanted == size
            for wanted, size in zip(self.shape, shape, strict=True)
        )

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


def signature_text(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> str:
    """`(x: f32[N, 6]) -> (y: f32[N, 3])`."""
    taken, given = (", ".join(map(str, side)) for side in (inputs, outputs))
    return f"({taken}) -> ({given})"


def signature_html(
    caption: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> str:
    """A table with a row per tensor, for notebooks."""
    sides = (("input", inputs), ("output", outputs))
    rows = [
        (side, spec.name, spec.dtype, f"[{', '.join(map(str, spec.shape))}]")
        for side, specs in sides
        for spec in specs
    ]
    return html_table(caption, ("", "name", "type", "shape"), rows)
