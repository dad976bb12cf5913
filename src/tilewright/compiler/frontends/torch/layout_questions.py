"""`Tensor.is_contiguous` while a program is traced, where sizes of a call decide the answer.

Torch's own asks in C++ how elements lie, as operators do by themselves, and takes for granted that a size which a call
decides is neither 0 nor 1; a call that has such a one would take the branch of the example.  Here the question is put in
sizes, so that calls keep its answer.  Not for sizes that data decides: there torch answers what holds where nobody knows.
Called by `traceable`, and by `reader` and `calling`, which ask in which order axes lie.

Source: `c10::_compute_contiguous`, `c10::_compute_channels_last_contiguous_2d` and `3d`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border

# Torch's tensors and truth values of sizes have no types that we see.
Held = Any


def is_contiguous(input: Held, *, memory_format: Held = None) -> Held:  # noqa: A002 - torch's name
    """Whether elements lie one behind the other, along axes in the order of a memory format."""
    torch, shapes = border.load(), border.load("torch.fx.experimental.symbolic_shapes")
    sizes, steps = input.shape, input.stride()
    order = _order(len(sizes), memory_format or torch.contiguous_format)
    open_ones = [n for n in (*sizes, *steps) if not isinstance(n, int)]
    if order is None or not open_ones or any(map(shapes.free_unbacked_symbols, open_ones)):
        return NotImplemented
    distance: Held = 1
    dense: list[Held] = []
    for axis in order:
        if not shapes.statically_known_true(steps[axis] == distance):
            dense.append(shapes.sym_or(sizes[axis] == 1, steps[axis] == distance))
        distance = distance * sizes[axis]
    if not dense:
        return True
    found = shapes.sym_and(*dense)
    if order == _descending(len(sizes)):
        found = shapes.sym_or(found, *(size == 0 for size in sizes))
    return bool(found)


def order_in_memory(value: Held) -> tuple[int, ...] | None:
    """The axes of a tensor, that of neighbours last; None if its elements are not all that its memory begins with."""
    if value.storage_offset() != 0:
        return None
    axes = tuple(range(value.ndim))
    if value.is_contiguous():
        return axes
    steps = value.stride()
    order = tuple(sorted(axes, key=lambda axis: steps[axis], reverse=True))
    return order if value.permute(order).is_contiguous() else None


def orders_that_matter(exported: Held) -> dict[str, tuple[int, ...]]:
    """In which order axes of arguments lie in memory, by their names, where what is made of them is read by strides.

    Operators keep the order of their operands, so that strides of what they make hang on it, too.
    """
    found: dict[str, tuple[int, ...]] = {}
    waiting = [
        node.args[0] for node in exported.graph.nodes if "as_strided" in str(node.target)
    ]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if node.op == "placeholder" and hasattr(node.meta.get("val"), "stride"):
            order = order_in_memory(node.meta["val"])
            if order is not None:
                found[node.name] = order
        new = [operand for operand in node.all_input_nodes if operand not in seen]
        seen.update(new)
        waiting += new
    return found


def _order(rank: int, memory_format: Held) -> Sequence[int] | None:
    """The axes, that of neighbours first; None for a format without such an order."""
    if str(memory_format) == "torch.contiguous_format":
        return _descending(rank)
    return _LAST.get(rank) if str(memory_format) == _NAMES.get(rank) else None


def _descending(rank: int) -> Sequence[int]:
    return tuple(range(rank - 1, -1, -1))


_LAST: Final = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}
_NAMES: Final = {4: "torch.channels_last", 5: "torch.channels_last_3d"}
"""Formats whose channels are neighbours, by rank."""
