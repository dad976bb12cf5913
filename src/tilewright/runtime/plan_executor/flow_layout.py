"""A plan with control flow, cut where the host decides: runs of steps, and who binds which size.

Computed once per plan; knows no numbers.  Called by `flow`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, cast, final

from tilewright.base.record import record
from tilewright.base.symbolic import Dim, Expr, symbols
from tilewright.formats.plan import FLOW_KINDS, Plan, Step

FROM_INPUTS: Final = -1
"""The group of what the inputs alone decide; others have the step that reads their last size."""


@final
@record
class Run:
    """Steps `start .. stop - 1`, which the host replays as one list of commands.

    Attributes:
        storages: what they use.
        symbols: names of the sizes that their commands depend on, in order.
        checks: the records of checks that they write.
    """

    start: int
    stop: int
    storages: tuple[int, ...]
    symbols: tuple[str, ...]
    checks: tuple[int, ...]


@final
class FlowLayout:
    """Runs by their first step, the group of each storage, the symbols that groups depend on."""

    def __init__(self, plan: Plan) -> None:
        self.plan: Plan = plan
        self._reads: dict[str, int] = {
            size.name: index for index, step in enumerate(plan.steps) for size in step.sizes
        }
        # Outputs are arrays of their shape; of other storages views may have shapes that are read later.
        shapes = {plan.entries[e].storage: plan.entries[e].shape for _, e in plan.outputs}
        self.groups: tuple[int, ...] = tuple(
            self._group((storage.size_bytes, *shapes.get(index, ())))
            for index, storage in enumerate(plan.storages)
        )
        self.group_symbols: dict[int, frozenset[str]] = {}
        for index, storage in enumerate(plan.storages):
            own = names_in((storage.size_bytes,))
            group = self.groups[index]
            self.group_symbols[group] = self.group_symbols.get(group, frozenset()) | own
        self.runs: Mapping[int, Run] = {run.start: run for run in self._find_runs()}

    def _group(self, sizes: Iterable[Dim]) -> int:
        return max((self._reads.get(n, FROM_INPUTS) for n in names_in(sizes)), default=-1)

    def _find_runs(self) -> Iterable[Run]:
        start = 0
        for index, step in enumerate(self.plan.steps):
            if step.kind in FLOW_KINDS:
                if start < index:
                    yield self._run(start, index)
                start = index + 1
        if start < len(self.plan.steps):
            yield self._run(start, len(self.plan.steps))

    def _run(self, start: int, stop: int) -> Run:
        plan, steps = self.plan, self.plan.steps[start:stop]
        entries = [plan.entries[e] for step in steps for e in step.arguments]
        storages = dict.fromkeys(e.storage for e in entries)
        names = names_in(d for e in entries for d in (*e.shape, e.offset_bytes))
        names |= names_in(d for step in steps for d in (*step.grid, *step.dims))
        for step in steps:
            names |= _attribute_names(step)
        for storage in storages:
            names |= self.group_symbols[self.groups[storage]]
        checks = sorted({
            cast("int", e.offset_bytes) for e in entries if e.storage == plan.check_storage
        })  # fmt: skip
        return Run(start, stop, tuple(storages), tuple(sorted(names)), tuple(checks))


def names_in(sizes: Iterable[Dim]) -> frozenset[str]:
    """The names of the symbols in some sizes."""
    return frozenset(s.name for size in sizes for s in symbols(size))


def _attribute_names(step: Step) -> frozenset[str]:
    """The symbols in the attributes of a step on the host."""
    if step.host is None:
        return frozenset()
    dims: list[Dim] = []
    for value in step.host.attributes.values():
        if isinstance(value, tuple):
            parts = cast("tuple[object, ...]", value)
            dims += [part for part in parts if isinstance(part, Expr)]
    return names_in(dims)
