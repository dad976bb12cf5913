"""Which tensors of a program are values of the model as it was imported.

A node's results never change, and a rewrite hands the name of what it replaces on to what is equal to it: where a
name is in the model once, a value of this name and type is that value, whatever the passes did.  A value with its
axes in another order has the order behind the name (`graph.editor`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, final

from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.program.ir import Entry, Program, results_of
from tilewright.formats.plan import ModelValue, Plan

_AXES: Final = re.compile(r"\((\d+(?:, \d+)+)\)\Z")


@final
class ModelValues:
    """The results of a model's nodes whose names are there once, in order.

    Args:
        graph: the model before any pass.
    """

    def __init__(self, graph: Graph) -> None:
        values = [v for node in graph.walk() for v in node.results if v.name]
        count = Counter(v.name for v in (*graph.inputs, *values))
        self._types: dict[str, TensorType] = {
            v.name: v.type for v in values if count[v.name] == 1
        }
        self._places: dict[str, int] = {name: i for i, name in enumerate(self._types)}

    def written_in(self, program: Program, plan: Plan) -> Plan:
        """The plan of a program of this model, which says what its tensors are in the model."""
        found = [
            ModelValue(name, step, result, axes)
            for step, own in enumerate(program.steps)
            for result, entry in enumerate(results_of(own))
            for name, axes in self._known(entry)
        ]
        found.sort(key=lambda value: self._places[value.name])
        return replace(plan, values=tuple(found))

    def _known(self, entry: Entry) -> Iterator[tuple[str, tuple[int, ...]]]:
        for name in entry.names:
            own, axes = name, ()
            if name not in self._types and (mark := _AXES.search(name)) is not None:
                own, axes = name[: mark.start()], tuple(map(int, mark[1].split(", ")))
            type_ = self._types.get(own)
            if type_ is not None and _is_all_of(entry.type, type_, axes):
                yield own, axes


def _is_all_of(type_: TensorType, wanted: TensorType, axes: tuple[int, ...]) -> bool:
    """Whether a tensor has the elements of another, in order; with `axes`, once they are put in this order."""
    if type_.dtype is not wanted.dtype or type_.element_count != wanted.element_count:
        return False
    if not axes:
        return True
    is_order = sorted(axes) == list(range(type_.rank))
    return is_order and wanted.shape == tuple(type_.shape[axis] for axis in axes)
