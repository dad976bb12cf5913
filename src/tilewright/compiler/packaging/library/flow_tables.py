"""What a library's tables say of sizes that data decides: who binds them, and what waits for them.

Steps that one list of commands can be made of are a stretch; transients and outputs that wait for the same sizes are
a group, the first of which the inputs decide.  Which these are says `formats.plan.flow_layout`.  Called by `tables`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, final

from tilewright.base.symbolic import Dim
from tilewright.compiler.packaging.library.names import string
from tilewright.formats.plan import Plan, SizeRange, Step
from tilewright.formats.plan.flow_layout import FROM_INPUTS, FlowLayout


@final
class FlowTables:
    """The rows of one plan.

    Attributes:
        is_needed: whether the plan has such sizes; without them it is one stretch, and one group.
        late_names: the sizes that steps bind, in the order of their first binders.
        groups: of each storage.
        group_count: how many there are.
        lists: what `stretches` and `groups` have several of, one after the other.
        stretch_count: how many stretches there are.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan: Final = plan
        self.is_needed: Final = plan.has_reads or plan.has_blocks
        self._layout: Final = FlowLayout(plan)
        self.late_names: Final = tuple(
            dict.fromkeys(size.name for step in plan.steps for size in step.sizes)
        )
        names = [dim.name for dim in plan.dims]
        self._places: Final = {
            name: place for place, name in enumerate((*names, *self.late_names))
        }
        binders = {
            group for name in self.late_names for group in self._layout.groups_of([name])
        }
        order = (FROM_INPUTS, *sorted(binders))
        self._ordinals: Final = {group: ordinal for ordinal, group in enumerate(order)}
        self.groups: Final = tuple(self._ordinals[g] for g in self._layout.groups)
        self.group_count: Final = len(order)
        self.lists: Final[list[int]] = []
        self._rows: Final = self._make_rows(order) if self.is_needed else ()
        self.stretch_count: Final = len(self._layout.runs)

    def group_of(self, sizes: Iterable[Dim]) -> int:
        """The group behind which some sizes are known."""
        return self._ordinals[self._layout.group_of(sizes)]

    def firsts(self) -> Iterator[int]:
        """Of each step the first of its rows: of late sizes, or of expectations."""
        sizes = pairs = 0
        for step in self.plan.steps:
            yield pairs if step.kind == "expect" else sizes
            sizes += len(step.sizes)
            pairs += len(step.pairs) if step.kind == "expect" else 0

    def tables(self) -> Sequence[tuple[str, str, Sequence[str]]]:
        """Names, types and rows; none where they are not needed."""
        return self._rows

    def _make_rows(self, order: Sequence[int]) -> Sequence[tuple[str, str, Sequence[str]]]:
        stretches = [
            f"{{{run.start}, {run.stop}, {self._listed(self._symbols(run.symbols))}, "
            f"{self._listed(run.storages)}}}"
            for run in sorted(self._layout.runs.values(), key=lambda run: run.start)
        ]
        waiting: dict[int, list[int]] = {}
        for index, storage in enumerate(self.plan.storages):
            if storage.kind in ("transient", "output"):
                waiting.setdefault(self._layout.groups[index], []).append(index)
        groups = [
            f"{{{self._listed(self._symbols(self._layout.group_symbols.get(group, ())))}, "
            f"{self._listed(waiting.get(group, ()))}}}"
            for group in order
        ]
        late = [
            self._late_size(step, size) for step in self.plan.steps for size in step.sizes
        ]
        return (
            ("late_sizes", "tw_late_size_t", late),
            ("stretches", "tw_stretch_t", stretches),
            ("groups", "tw_group_t", groups),
        )

    def _symbols(self, names: Iterable[str]) -> tuple[int, ...]:
        return tuple(self._places[name] for name in names)

    def _listed(self, numbers: Sequence[int]) -> str:
        """Where they are in `lists`: the first, and how many."""
        first = len(self.lists)
        self.lists.extend(numbers)
        return f"{first}, {len(numbers)}"

    def _late_size(self, step: Step, size: SizeRange) -> str:
        (group,) = self._layout.groups_of([size.name])
        limit = -1 if size.maximum is None else size.maximum
        return (
            f"{{{self._places[size.name]}, {self._ordinals[group]}, {size.minimum}, "
            f"{limit}, {string(step.target)}}}"
        )
