"""Emit a program as a plan: indices instead of identities, nothing else changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import final

from tilewright.base.outcome import Outcome
from tilewright.base.symbolic import Symbol
from tilewright.compiler.program import ir
from tilewright.formats import plan as form


def emit_plan(program: ir.Program) -> form.Plan:
    """The plan of a program whose memory is assigned."""
    storages = {storage: index for index, storage in enumerate(program.storages)}
    table = _Entries(storages)
    inputs = tuple((name, table.number(entry)) for name, entry in program.inputs)
    labels = {step: i for i, step in enumerate(program.steps) if isinstance(step, ir.Label)}
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

    def __init__(self, storages: Mapping[ir.Storage, int]) -> None:
        self._storages: Mapping[ir.Storage, int] = storages
        self.entries: dict[form.Entry, int] = {}

    def number(self, entry: ir.Entry) -> int:
        """The index of an entry in the plan."""
        key = form.Entry(
            self._storages[entry.storage],
            entry.type.dtype,
            entry.type.shape,
            entry.offset_bytes,
        )
        return self.entries.setdefault(key, len(self.entries))


def _storage(storage: ir.Storage) -> form.Storage:
    return form.Storage(
        storage.kind,
        storage.size_bytes,
        max(storage.first, 0),
        max(storage.last, 0),
        storage.offset_bytes,
        storage.name,
    )


def _step(
    program: ir.Program, step: ir.Step, table: _Entries, labels: Mapping[ir.Label, int]
) -> form.Step:
    numbers = tuple(map(table.number, ir.entries_of(step)))
    match step:
        case ir.Dispatch():
            return form.Step(
                kind="dispatch",
                name=step.name,
                target=program.kernels[step.kernel].name,
                arguments=numbers,
                result_count=step.result_count,
                grid=step.grid,
                dims=step.dims,
                flops=step.flops,
                bytes_moved=step.bytes_moved,
                nodes=step.nodes,
                outcome=program.kernels[step.kernel].verdict.outcome,
                barrier=step.barrier,
            )
        case ir.Copy():
            return form.Step("copy", "copy", "", numbers, 1)
        case ir.PickRow():
            return form.Step("row", "row", "", numbers, 1)
        case ir.HostCall() | ir.ModuleCall():
            return _call_out(step, numbers)
        case ir.ExpectSizes():
            return form.Step(
                "expect", "expect_sizes", ir.place_of(step), (), 0,
                dims=tuple(size for pair in step.pairs for size in pair),
            )  # fmt: skip
        case _:
            return _flow_step(step, numbers, labels)


def _call_out(step: ir.HostCall | ir.ModuleCall, numbers: tuple[int, ...]) -> form.Step:
    host = None
    if isinstance(step, ir.HostCall):
        present = tuple(i for i, e in enumerate(step.operands) if e is not None)
        count, place = len(step.operands), ir.place_of(step)
        host = form.HostCall(count, present, step.attributes, place)
    return form.Step(
        kind="call" if host is None else "host",
        name=step.name,
        target=step.op if isinstance(step, ir.HostCall) else step.symbol,
        arguments=numbers,
        result_count=len(step.results),
        host=host,
        nodes=step.nodes,
        outcome=Outcome.CALL if host is None else Outcome.HOST,
    )


def _flow_step(
    step: ir.FlowStep, numbers: tuple[int, ...], labels: Mapping[ir.Label, int]
) -> form.Step:
    match step:
        case ir.Label():
            return form.Step("label", step.name, "", (), 0)
        case ir.Branch():
            return form.Step(
                "branch", "branch", "", numbers, 0, goto=labels[step.otherwise]
            )
        case ir.Jump():
            return form.Step("jump", "jump", "", (), 0, goto=labels[step.target])
        case ir.ReadSizes():
            place, sizes = ir.place_of(step), _ranges(step.sizes)
            return form.Step("read", "read_sizes", place, numbers, 0, sizes=sizes)
        case ir.Allocate():
            return form.Step("allocate", "allocate", "", numbers, 1)
        case ir.Rebind():
            place, sizes = ir.place_of(step), _ranges(step.sizes)
            return form.Step(
                "rebind", "rebind", place, numbers, len(step.moves),
                dims=step.values, sizes=sizes,
            )  # fmt: skip


def _ranges(sizes: Iterable[Symbol]) -> tuple[form.SizeRange, ...]:
    return tuple(form.SizeRange(s.name, max(s.lower or 0, 0), s.upper) for s in sizes)
