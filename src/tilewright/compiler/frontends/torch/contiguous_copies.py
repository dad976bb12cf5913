"""`Tensor.contiguous` while a program is traced, where sizes of a call decide whether it copies.

Torch takes for granted that it does, as the example has it, and calls for which it does not would be refused: a picture
that needs no border, cut to the size that it had.  Where nothing is written in place a copy is as good as the tensor
itself.  A program that writes in place is for torch to trace.  Called by `export`.

Source: `torch.Tensor.contiguous`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any, final

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch.hoist import all_graphs
from tilewright.compiler.frontends.torch.substitutes import replaced_functions


@final
class Copies:
    """Whether a copy was made where torch would have asked sizes."""

    def __init__(self) -> None:
        self.were_made = False

    def contiguous(self, tensor: Any, *, memory_format: Any = None) -> Any:
        """The tensor where it surely has its elements one behind the other, else a copy that has."""
        torch = border.load()
        known = border.load("torch.fx.experimental.symbolic_shapes").statically_known_true
        are_open = not all(isinstance(n, int) for n in (*tensor.shape, *tensor.stride()))
        if not are_open or memory_format not in (None, torch.contiguous_format):
            return NotImplemented
        distance: Any = 1
        for size, step in zip(
            reversed(tensor.shape), reversed(tensor.stride()), strict=True
        ):
            if not (known(step == distance) or known(size == 1)):
                self.were_made = True
                return tensor.clone(memory_format=torch.contiguous_format)
            distance = distance * torch.sym_max(size, 1)
        return tensor


@contextlib.contextmanager
def contiguous_copies() -> Generator[Copies]:
    """While this thread traces in this context, tensors are copied where sizes would decide whether they are."""
    copies = Copies()
    with replaced_functions({border.load().Tensor.contiguous: copies.contiguous}):
        yield copies


def writes_in_place(exported: Any) -> bool:
    """Whether an operator of an exported program changes what it is given."""
    nodes = (n for part in all_graphs(exported.graph_module) for n in part.graph.nodes)
    schemas = (getattr(node.target, "_schema", None) for node in nodes)
    return any(schema is not None and schema.is_mutable for schema in schemas)
