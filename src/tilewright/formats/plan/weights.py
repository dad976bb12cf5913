"""The weights of a plan by the names that its file form gives them.

Called by whoever hands weights out, or keeps them in another file than the plan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.formats.plan.json_form import graph_form
from tilewright.formats.plan.steps import Plan

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


def weight_names(plan: Plan) -> tuple[str, ...]:
    """One name per constant storage of a plan, in order; those of the arguments in its file form."""
    graph = graph_form(plan)
    named = {
        graph.entries.storage_id[graph.node_row_ptr[node]]: graph.nodes[node].name
        for node in graph.arguments[len(plan.inputs) :]
    }
    return tuple(
        named.get(index, storage.name or f"p{index}")
        for index, storage in enumerate(plan.storages)
        if storage.kind == "constant"
    )


def weights_of(plan: Plan, constants: Sequence[Buffer]) -> Mapping[str, Array]:
    """The constants of a plan as arrays by name: views of the buffers, as its first entry sees each."""
    first = {entry.storage: entry for entry in reversed(plan.entries)}
    storages = [i for i, s in enumerate(plan.storages) if s.kind == "constant"]
    arrays: dict[str, Array] = {}
    names = weight_names(plan)
    for name, storage, data in zip(names, storages, constants, strict=True):
        view = view_bytes(data)
        entry = first.get(storage)
        if entry is None or entry.size_bytes != view.nbytes:  # several tensors are in it
            arrays[name] = np.frombuffer(view, np.uint8)
            continue
        shape = tuple(extent for extent in entry.shape if isinstance(extent, int))
        arrays[name] = np.frombuffer(view, entry.dtype.numpy).reshape(shape)
    return arrays
