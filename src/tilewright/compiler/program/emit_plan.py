"""Emit a program as a plan: indices instead of identities, nothing else changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import final

from tilewright.base.outcome import Outcome
from tilewright.base.symbolic import Symbol
from tilewright.compiler.program.ir import (
    Allocate,
    Branch,
    Copy,
    Dispatch,
    Entry,
    ExpectSizes,
    FlowStep,
    HostCall,
    Jump,
    Label,
    ModuleCall,
    PickRow,
    Program,
    ReadSizes,
    Rebind,
    Step,
    Storage,
    operands_of,
    place_of,
    results_of,
)
from tilewright.formats import plan as form


def emit_plan(program: Program) -> form.Plan:
    """The plan of a program whose memory is assigned."""
    storages = {storage: index for index, storage in enumerate(program.storages)}
    table = _Entries(storages)
    inputs = tuple((name, table.number(entry)) for name, entry in program.inputs)
    labels = {step: i for i, step in enumerate(program.steps) if isinstance(step, Label)}
    steps = tuple(_step(program, step, table, labels) for step in program.steps)
    outputs = tuple((name, table.number(entry)) for name, entry in program.outputs)
    return form.Plan(
        name=program.name,
        inputs=inputs,
        outputs=outputs,
        dims=program.dims,
        storages=tuple(_storage(s) for s in program.storages),
        entries=tuple(table.entries),
        steps=steps,
        arena_bytes=program.arena_bytes,
        equalities=program.equalities,
        checks=program.checks,
        check_storage=-1
        if program.check_storage is None
        else storages[program.check_storage],
    )


@final
class _Entries:
    """Numbers entries in the order they are met; equal views of a storage are one."""

    def __init__(self, storages: Mapping[Storage, int]) -> None:
        self._storages: Mapping[Storage, int] = storages
        self.entries: dict[form.Entry, int] = {}

    def number(self, entry: Entry) -> int:
        """The index of an entry in the plan."""
        key = form.Entry(
            self._storages[entry.storage],
            entry.type.dtype,
            entry.type.shape,
            entry.offset_bytes,
        )
        return self.entries.setdefault(key, len(self.entries))


def _storage(storage: Storage) -> form.Storage:
    return form.Storage(
        storage.kind,
        storage.size_bytes,
        max(storage.first, 0),
        max(storage.last, 0),
        storage.offset_bytes,
        storage.name,
    )


def _step(
    program: Program, step: Step, table: _Entries, labels: Mapping[Label, int]
) -> form.Step:
    def numbers(items: tuple[Entry, ...]) -> tuple[int, ...]:
        return tuple(table.number(e) for e in items)

    match step:
        case Dispatch():
            return form.Step(
                kind="dispatch",
                name=step.name,
                target=program.kernels[step.kernel].name,
                arguments=numbers(step.arguments),
                result_count=step.result_count,
                grid=step.grid,
                dims=step.dims,
                flops=step.flops,
                bytes_moved=step.bytes_moved,
                nodes=step.nodes,
                outcome=program.kernels[step.kernel].verdict.outcome,
                barrier=step.barrier,
            )
        case Copy():
            return form.Step("copy", "copy", "", numbers((step.source, step.target)), 1)
        case PickRow():
            arguments = numbers((step.place, step.table, step.row))
            return form.Step("row", "row", "", arguments, 1)
        case ModuleCall():
            return form.Step(
                kind="call",
                name=step.name,
                target=step.symbol,
                arguments=numbers((*step.operands, *step.results)),
                result_count=len(step.results),
                nodes=step.nodes,
                outcome=Outcome.CALL,
            )
        case HostCall():
            present = tuple(i for i, e in enumerate(step.operands) if e is not None)
            return form.Step(
                kind="host",
                name=step.name,
                target=step.op,
                arguments=numbers((*operands_of(step), *step.results)),
                result_count=len(step.results),
                host=form.HostCall(
                    len(step.operands), present, step.attributes, place_of(step)
                ),
                nodes=step.nodes,
                outcome=Outcome.HOST,
            )
        case ExpectSizes():
            return form.Step(
                "expect", "expect_sizes", place_of(step), (), 0,
                dims=tuple(size for pair in step.pairs for size in pair),
            )  # fmt: skip
        case Label() | Branch() | Jump() | ReadSizes() | Allocate() | Rebind():
            return _flow_step(step, table, labels)


def _flow_step(step: FlowStep, table: _Entries, labels: Mapping[Label, int]) -> form.Step:
    match step:
        case Label():
            return form.Step("label", step.name, "", (), 0)
        case Branch():
            source = (table.number(step.condition),)
            return form.Step("branch", "branch", "", source, 0, goto=labels[step.otherwise])
        case Jump():
            return form.Step("jump", "jump", "", (), 0, goto=labels[step.target])
        case ReadSizes():
            return form.Step(
                kind="read",
                name="read_sizes",
                target=place_of(step),
                arguments=(table.number(step.source),),
                result_count=0,
                sizes=_ranges(step.sizes),
            )
        case Allocate():
            return form.Step("allocate", "allocate", "", (table.number(step.target),), 1)
        case Rebind():
            return form.Step(
                kind="rebind",
                name="rebind",
                target=place_of(step),
                arguments=tuple(
                    table.number(e) for e in (*operands_of(step), *results_of(step))
                ),
                result_count=len(step.moves),
                dims=step.values,
                sizes=_ranges(step.sizes),
            )


def _ranges(sizes: Iterable[Symbol]) -> tuple[form.SizeRange, ...]:
    return tuple(form.SizeRange(s.name, max(s.lower or 0, 0), s.upper) for s in sizes)
