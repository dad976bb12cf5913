"""A plan as the rows of the C core's tables (`tw_program.h`): every reference a place, every size still a `Dim`.

Knows no form that they are written in.  Called by `packaging.library`, which writes them as C, and by `plan_executor`, which
packs them as numbers.  Not here: what only one of them has, such as kernels and weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, final

from tilewright.base.symbolic import Dim
from tilewright.formats.plan.flow_layout import FROM_INPUTS, FlowLayout, open_extents
from tilewright.formats.plan.size_relations import Pair, relation_of
from tilewright.formats.plan.steps import Plan, SizeRange, Step


@final
class StorageKind(IntEnum):
    """MIRROR PROGRAM KINDS: `tw_storage_kind_t`."""

    INPUT = 0
    OUTPUT = 1
    CONSTANT = 2
    TRANSIENT = 3
    ROW = 4
    BLOCK = 5


@final
class StepKind(IntEnum):
    """MIRROR PROGRAM KINDS: `tw_step_kind_t`."""

    DISPATCH = 0
    COPY = 1
    CALL = 2
    LABEL = 3
    GOTO = 4
    ROW = 5
    READ = 6
    ALLOCATE = 7
    REBIND = 8
    EXPECT = 9


Item = int | Dim | str | IntEnum | tuple[Dim, ...]
Row = tuple[Item, ...]
"""Numbers and sizes, texts, kinds, and sizes that belong together, in the order of the members of the C struct."""

_GOTO_KINDS: Final = {"branch": StepKind.GOTO, "jump": StepKind.GOTO}


@final
class ProgramRows:
    """The rows of one plan.

    Args:
        plan: verified.
        layout: of the plan, where whoever asks has it.

    Steps that one list of commands can be made of are a stretch; transients and outputs that wait for the same sizes are
    a group, the first of which the inputs decide.  Which these are says `flow_layout`.

    Attributes:
        has_late_sizes: whether data decides sizes; without them the plan is one stretch, and one group.
        late_names: the sizes that steps bind, in the order of their first binders.
        kernels: the targets of dispatches, by the number that steps have for them.
        callees: the same for packed functions.
        groups: of each storage.
        lists: what `stretches` and `group_rows` have several of, one after the other.
    """

    def __init__(self, plan: Plan, layout: FlowLayout | None = None) -> None:
        self.plan: Final = plan
        self.has_late_sizes: Final = plan.has_reads or plan.has_blocks
        self._layout: Final = FlowLayout(plan) if layout is None else layout
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
        self.lists: Final[list[int]] = []
        self.stretches: Final = self._make_stretches()
        self.group_rows: Final = self._make_groups(order)
        self.kernels: Final = self._targets("dispatch")
        self.callees: Final = self._targets("call")

    def _targets(self, kind: str) -> dict[str, int]:
        used = dict.fromkeys(s.target for s in self.plan.steps if s.kind == kind)
        return {target: place for place, target in enumerate(used)}

    # --- what a call sees

    def dimensions(self) -> list[Row]:
        """Name, input, axis, minimum, maximum or -1, whether a size of 0 leaves nothing."""
        outputs = [self.plan.entries[e].shape for _, e in self.plan.outputs]
        return [
            (d.name, d.input, d.axis, d.minimum, _limit(d.maximum), int(d.leaves_nothing(outputs)))
            for d in self.plan.dims
        ]  # fmt: skip

    def equalities(self) -> list[Row]:
        """Relation, size, other, their texts (none of a number as the other), no location, group."""
        return [
            self._equality(pair, "", self.group_of(pair)) for pair in self.plan.equalities
        ]

    def expectations(self) -> list[Row]:
        """The same of steps, in their order, with the node that expects it."""
        return [
            self._equality(pair, step.target, 0)
            for step in self.plan.steps
            if step.kind == "expect"
            for pair in step.pairs
        ]

    @staticmethod
    def _equality(pair: Pair, location: str, group: int) -> Row:
        found = relation_of(pair)
        relation, size, other = found
        return (
            relation, size, other, found.size_text, found.other_text, location, group,
        )  # fmt: skip

    def guards(self) -> list[Row]:
        """A size that must not be negative, its text, group."""
        return [
            (extent, str(extent), self.group_of((extent,)))
            for extent in open_extents(self.plan)
        ]

    def checks(self) -> list[Row]:
        """Location, axis, size, low, high."""
        return [(c.location, c.axis, c.size, c.low, c.high) for c in self.plan.checks]

    def group_of(self, sizes: Iterable[Dim]) -> int:
        """The group behind which some sizes are known."""
        return self._ordinals[self._layout.group_of(sizes)]

    # --- memory

    def storages(self) -> list[Row]:
        """Kind, first and last step, place, size, group."""
        plan = self.plan
        places = {plan.entries[e].storage: i for i, (_, e) in enumerate(plan.inputs)}
        places |= {plan.entries[e].storage: i for i, (_, e) in enumerate(plan.outputs)}
        constants = (i for i, s in enumerate(plan.storages) if s.kind == "constant")
        places |= {storage: i for i, storage in enumerate(constants)}
        return [
            (StorageKind[s.kind.upper()], s.first, s.last, places.get(i, s.offset_bytes), s.size_bytes, self.groups[i])
            for i, s in enumerate(plan.storages)
        ]  # fmt: skip

    def entries(self) -> list[Row]:
        """Storage, offset, size."""
        return [(e.storage, e.offset_bytes, e.size_bytes) for e in self.plan.entries]

    # --- steps

    def steps(self) -> list[Row]:
        """Kind, target, first argument, how many, results among them, first constant, how many, barrier, grid."""
        rows: list[Row] = []
        arguments = constants = 0
        for step, first in zip(self.plan.steps, self._firsts(), strict=True):
            kind = _GOTO_KINDS.get(step.kind) or StepKind[step.kind.upper()]
            target, count = self._target(step, first)
            barrier = int(step.barrier or step.kind == "call")
            rows.append(
                (kind, target, arguments, len(step.arguments), step.result_count, constants, count, barrier, step.grid)
            )  # fmt: skip
            arguments += len(step.arguments)
            constants += len(_constants_of(step))
        return rows

    def _target(self, step: Step, first: int) -> tuple[int, int]:
        """What the step is about, and how many rows or constants of it."""
        if step.kind == "dispatch":
            return self.kernels[step.target], len(step.dims)
        if step.kind == "call":
            return self.callees[step.target], 0
        if step.kind == "expect":
            return first, len(step.pairs)
        if step.sizes:
            return first, len(step.sizes)
        return max(step.goto, 0), 0

    def arguments(self) -> list[int]:
        """The entries of all steps, one after the other."""
        return [entry for step in self.plan.steps for entry in step.arguments]

    def constants(self) -> list[Dim]:
        """Push constants of kernels and numbers of steps that bind sizes, of all steps, one after the other."""
        return [size for step in self.plan.steps for size in _constants_of(step)]

    def _firsts(self) -> Iterator[int]:
        """Of each step the first of its rows: of late sizes, or of expectations."""
        sizes = pairs = 0
        for step in self.plan.steps:
            yield pairs if step.kind == "expect" else sizes
            sizes += len(step.sizes)
            pairs += len(step.pairs) if step.kind == "expect" else 0

    # --- sizes that data decides

    def late_sizes(self) -> list[Row]:
        """Symbol, group, minimum, maximum or -1, the node that decides it."""
        return [
            self._late_size(step, size) for step in self.plan.steps for size in step.sizes
        ]

    def _late_size(self, step: Step, size: SizeRange) -> Row:
        (group,) = self._layout.groups_of([size.name])
        places = (self._places[size.name], self._ordinals[group])
        return (*places, size.minimum, _limit(size.maximum), step.target)

    def _make_stretches(self) -> list[Row]:
        """First step, the one behind the last, symbols and storages in `lists`."""
        runs = sorted(self._layout.runs.values(), key=lambda run: run.start)
        return [
            (r.start, r.stop, *self._listed(self._symbols(r.symbols)), *self._listed(r.storages))
            for r in runs
        ]  # fmt: skip

    def _make_groups(self, order: Sequence[int]) -> list[Row]:
        """Symbols and storages in `lists`."""
        waiting: dict[int, list[int]] = {}
        for index, storage in enumerate(self.plan.storages):
            if storage.kind in ("transient", "output"):
                waiting.setdefault(self._layout.groups[index], []).append(index)
        symbols = self._layout.group_symbols
        return [
            (*self._listed(self._symbols(symbols.get(group, ()))), *self._listed(waiting.get(group, ())))
            for group in order
        ]  # fmt: skip

    def _symbols(self, names: Iterable[str]) -> tuple[int, ...]:
        return tuple(self._places[name] for name in names)

    def _listed(self, numbers: Sequence[int]) -> tuple[int, int]:
        """Where they are in `lists`: the first, and how many."""
        first = len(self.lists)
        self.lists.extend(numbers)
        return first, len(numbers)


def _limit(maximum: int | None) -> int:
    return -1 if maximum is None else maximum


def _constants_of(step: Step) -> tuple[Dim, ...]:
    return step.dims if step.kind in ("dispatch", "rebind") else ()
