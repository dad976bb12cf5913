"""A plan whose sizes data decides, cut where they are read: runs of steps, and who binds which size.

Computed once per plan; knows no numbers.  Called by whoever runs such plans, and by those who write them as tables of C.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast, final

from tilewright.base.record import record
from tilewright.base.symbolic import Dim, Expr, bounds, names_in
from tilewright.formats.plan.steps import FLOW_KINDS, Plan, Step

FROM_INPUTS: Final = -1
"""The group of what the inputs alone decide; others have the first step that binds their last size."""
_HOST_KINDS: Final = (*FLOW_KINDS, "row")


@final
@record
class Run:
    """Steps `start .. stop - 1`, which the host replays as one list of commands; no way leads out or in between.

    Attributes:
        storages: what they use.
        symbols: names of the sizes that their commands depend on, in order.
    """

    start: int
    stop: int
    storages: tuple[int, ...]
    symbols: tuple[str, ...]


@final
@record
class SizeConditions:
    """What must hold of the sizes of a group.

    Attributes:
        equalities: sizes that must agree.
        extents: sizes that an image smaller than the windows over it makes negative.
    """

    equalities: tuple[tuple[Dim, Dim], ...] = ()
    extents: tuple[Dim, ...] = ()


@final
class FlowLayout:
    """Runs by their first step, groups of storages with the symbols that they depend on, blocks by such a symbol.

    Stepwise every step is a run of its own, and all else is the host's.

    A size that several steps bind, such as one that changes from trip to trip, belongs to the first of them.
    """

    def __init__(self, plan: Plan, *, is_stepwise: bool = False) -> None:
        self.plan: Plan = plan
        self._is_stepwise: bool = is_stepwise
        self._binders: dict[str, int] = {}
        for index, step in enumerate(plan.steps):
            for size in step.sizes:
                self._binders.setdefault(size.name, index)
        # Outputs are arrays of their shape; of other storages views may have shapes that are read later.
        shapes = {plan.entries[e].storage: plan.entries[e].shape for _, e in plan.outputs}
        self.groups: tuple[int, ...] = tuple(
            self.group_of((storage.size_bytes, *shapes.get(index, ())))
            for index, storage in enumerate(plan.storages)
        )
        names: dict[int, set[str]] = {}
        blocks: dict[str, list[int]] = {}
        for index, storage in enumerate(plan.storages):
            own = names_in((storage.size_bytes,))
            names.setdefault(self.groups[index], set()).update(own)
            for name in own if storage.kind == "block" else ():
                blocks.setdefault(name, []).append(index)
        self.group_symbols: dict[int, tuple[str, ...]] = {
            group: tuple(sorted(found)) for group, found in names.items()
        }
        self.blocks_of: dict[str, tuple[int, ...]] = {
            name: tuple(found) for name, found in blocks.items()
        }
        self.runs: Mapping[int, Run] = {run.start: run for run in self._find_runs()}
        self.conditions: Mapping[int, SizeConditions] = self._find_conditions()

    def groups_of(self, names: Iterable[str]) -> tuple[int, ...]:
        """The groups that steps which bind these sizes complete."""
        return tuple(sorted({self._binders[name] for name in names}))

    def group_of(self, sizes: Iterable[Dim]) -> int:
        """The first step that binds the last of some sizes, `FROM_INPUTS` where the inputs decide them all."""
        return max((self._binders.get(n, FROM_INPUTS) for n in names_in(sizes)), default=-1)

    def _find_conditions(self) -> dict[int, SizeConditions]:
        """What is to be looked at when the last size of a group is known."""
        pairs: dict[int, list[tuple[Dim, Dim]]] = {}
        extents: dict[int, list[Dim]] = {}
        for pair in self.plan.equalities:
            pairs.setdefault(self.group_of(pair), []).append(pair)
        for extent in open_extents(self.plan):
            extents.setdefault(self.group_of((extent,)), []).append(extent)
        return {
            group: SizeConditions(
                tuple(pairs.get(group, ())), tuple(extents.get(group, ()))
            )
            for group in {*pairs, *extents}
        }

    def _find_runs(self) -> Iterable[Run]:
        steps = self.plan.steps
        if self._is_stepwise:
            yield from (
                self._run(i, i + 1)
                for i, s in enumerate(steps)
                if s.kind not in _HOST_KINDS
            )
            return
        start, cuts = 0, find_cuts(steps)
        for index in range(len(steps)):
            if index in cuts:
                if start < index:
                    yield self._run(start, index)
                start = index + 1
        if start < len(steps):
            yield self._run(start, len(steps))

    def _run(self, start: int, stop: int) -> Run:
        plan, steps = self.plan, self.plan.steps[start:stop]
        entries = [plan.entries[e] for step in steps for e in step.arguments]
        storages = dict.fromkeys(e.storage for e in entries)
        names = names_in(d for e in entries for d in (*e.shape, e.offset_bytes))
        names |= names_in(d for step in steps for d in (*step.grid, *step.dims))
        for step in steps:
            names |= _attribute_names(step)
        for storage in storages:
            names |= names_in((plan.storages[storage].size_bytes,))
            if plan.storages[storage].kind == "transient":
                names = names.union(self.group_symbols[self.groups[storage]])
        return Run(start, stop, tuple(storages), tuple(sorted(names)))


def open_extents(plan: Plan) -> list[Dim]:
    """Sizes that may come out negative, in the order in which everybody looks at them: errors name the first."""
    extents = (d for e in plan.entries for d in e.shape if not isinstance(d, int))
    return [
        size
        for size in dict.fromkeys(extents)
        if (lowest := bounds(size)[0]) is None or lowest < 0
    ]


def find_cuts(steps: Sequence[Step]) -> frozenset[int]:
    """The steps that the host carries out itself: where sizes are read, and every way past such a step.

    Loops and branches in which no size is read stay whole.
    """
    gotos = {i: step.goto for i, step in enumerate(steps) if step.goto >= 0}
    cuts = {i for i, step in enumerate(steps) if step.sizes or step.kind == "allocate"}
    while True:
        ordered = sorted(cuts)
        crossing = {
            i
            for i, goto in gotos.items()
            if i not in cuts and _any_within(ordered, i, goto)
        }
        if not crossing:
            return frozenset(cuts)
        cuts |= crossing | {gotos[i] for i in crossing}


def _any_within(ordered: Sequence[int], one: int, other: int) -> bool:
    """Whether one of the places lies between two others, or is one of them."""
    low, high = min(one, other), max(one, other)
    at = bisect.bisect_left(ordered, low)
    return at < len(ordered) and ordered[at] <= high


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
