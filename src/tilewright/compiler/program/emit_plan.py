"""Emit a program as a plan: indices instead of identities, nothing else changes."""

from __future__ import annotations

from tilewright.compiler.program.ir import (
    Copy,
    Dispatch,
    Entry,
    HostCall,
    Program,
    Step,
    Storage,
    operands_of,
    results_of,
)
from tilewright.formats import plan as form


def emit_plan(program: Program) -> form.Plan:
    """The plan of a program whose memory is assigned."""
    storages = {storage: index for index, storage in enumerate(program.storages)}
    entries = _number_entries(program)
    return form.Plan(
        name=program.name,
        inputs=tuple((name, entries[e]) for name, e in program.inputs),
        outputs=tuple((name, entries[e]) for name, e in program.outputs),
        dims=program.dims,
        storages=tuple(_storage(s) for s in program.storages),
        entries=tuple(
            form.Entry(storages[e.storage], e.type.dtype, e.type.shape, e.offset_bytes)
            for e in entries
        ),
        steps=tuple(_step(program, step, entries) for step in program.steps),
        arena_bytes=program.arena_bytes,
    )


def _number_entries(program: Program) -> dict[Entry, int]:
    found: dict[Entry, int] = {}
    for _, entry in program.inputs:
        found.setdefault(entry, len(found))
    for step in program.steps:
        for entry in (*operands_of(step), *results_of(step)):
            found.setdefault(entry, len(found))
    for _, entry in program.outputs:
        found.setdefault(entry, len(found))
    return found


def _storage(storage: Storage) -> form.Storage:
    return form.Storage(
        storage.kind,
        storage.size_bytes,
        max(storage.first, 0),
        max(storage.last, 0),
        storage.offset_bytes,
        storage.name,
    )


def _step(program: Program, step: Step, entries: dict[Entry, int]) -> form.Step:
    def numbers(items: tuple[Entry, ...]) -> tuple[int, ...]:
        return tuple(entries[e] for e in items)

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
            )
        case Copy():
            return form.Step("copy", "copy", "", numbers((step.source, step.target)), 1)
        case HostCall():
            present = [index for index, e in enumerate(step.operands) if e is not None]
            attributes = {
                key: form.encode_attribute(value) for key, value in step.attributes.items()
            }
            return form.Step(
                kind="host",
                name=step.name,
                target=step.op,
                arguments=numbers((*operands_of(step), *step.results)),
                result_count=len(step.results),
                attributes={
                    "values": attributes,
                    "present": present,
                    "operand_count": len(step.operands),
                },
            )
