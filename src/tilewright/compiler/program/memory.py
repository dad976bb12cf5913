"""Memory planning: lifetimes, in-place reuse, one arena.

Requires: a built program.  Ensures: every storage is listed in `program.storages`; transients
carry their lifetime and, in a static program, their arena offset; constants carry their offset in
the weights.  Two storages alive at once never overlap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from tilewright.base.arena import Block, align, pack, peak_bytes
from tilewright.base.symbolic import Dim, proves_equal
from tilewright.compiler.kernel.ir import Buffer, Kernel, Load, Store, walk
from tilewright.compiler.kernel.rewrite import loads
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


def assign(program: Program) -> Program:
    """Give every storage its lifetime and place."""
    _set_lifetimes(program)
    merged = _reuse_in_place(program)
    steps = tuple(_redirect(step, merged) for step in program.steps)
    program = Program(
        name=program.name,
        inputs=program.inputs,
        outputs=program.outputs,
        dims=program.dims,
        kernels=program.kernels,
        steps=steps,
        storages=_collect(program, steps),
    )
    program.weights_bytes = _place_constants(program.storages)
    transients = [s for s in program.storages if s.kind == "transient"]
    sizes = [s.size_bytes for s in transients]
    if all(isinstance(size, int) for size in sizes):
        packing = pack([Block(_known(s.size_bytes), s.first, s.last) for s in transients])
        for storage, offset in zip(transients, packing.offsets, strict=True):
            storage.offset_bytes = offset
        program.arena_bytes = packing.size_bytes
    return program


def _known(size: Dim) -> int:
    assert isinstance(size, int)
    return size


def _set_lifetimes(program: Program) -> None:
    for index, step in enumerate(program.steps):
        for entry in (*operands_of(step), *results_of(step)):
            storage = entry.storage
            storage.first = index if storage.first < 0 else storage.first
            storage.last = index


def _reuse_in_place(program: Program) -> dict[Storage, Storage]:
    """Map result storages to the dying operand storage whose bytes they may take over."""
    merged: dict[Storage, Storage] = {}
    for index, step in enumerate(program.steps):
        if not isinstance(step, Dispatch):
            continue
        kernel = program.kernels[step.kernel]
        count = len(step.arguments) - step.result_count
        for position, result in enumerate(step.arguments[count:], count):
            donor = _find_donor(step, kernel, position, index, merged)
            if donor is not None and result.storage.kind == "transient":
                donor.last = max(donor.last, result.storage.last)
                merged[result.storage] = donor
                break
    return merged


def _find_donor(
    step: Dispatch,
    kernel: Kernel,
    position: int,
    index: int,
    merged: dict[Storage, Storage],
) -> Storage | None:
    result = step.arguments[position]
    if result.storage.first != index:
        return None
    target = kernel.parameters[position].buffer
    operands = step.arguments[: len(step.arguments) - step.result_count]
    for place, operand in enumerate(operands):
        storage = merged.get(operand.storage, operand.storage)
        dies = storage.kind == "transient" and storage.last == index
        same_bytes = operand.offset_bytes == 0 and proves_equal(
            storage.size_bytes, result.storage.size_bytes
        )
        once = sum(merged.get(e.storage, e.storage) is storage for e in operands) == 1
        if dies and same_bytes and once:
            buffer = kernel.parameters[place].buffer
            if buffer.dtype is target.dtype and _reads_only_what_it_overwrites(
                kernel, buffer, target
            ):
                return storage
    return None


def _reads_only_what_it_overwrites(kernel: Kernel, source: Buffer, target: Buffer) -> bool:
    """Whether each load of `source` stands in a store to `target` at the same index.

    Then overwriting `source` with `target` cannot be seen by any other workgroup or iteration.
    """
    for statement in walk(kernel.body):
        if not isinstance(statement, Store):
            continue
        for load in loads([statement]):
            if load.buffer is source and not _same_place(load, statement, target):
                return False
    return True


def _same_place(load: Load, store: Store, target: Buffer) -> bool:
    return (
        store.buffer is target
        and load.indices == store.indices
        and len(load.buffer.shape) == len(target.shape)
        and load.buffer.shape == target.shape
    )


def _redirect(step: Step, merged: dict[Storage, Storage]) -> Step:
    def move(entry: Entry) -> Entry:
        storage = entry.storage
        while storage in merged:
            storage = merged[storage]
        return entry if storage is entry.storage else replace(entry, storage=storage)

    match step:
        case Dispatch():
            return replace(step, arguments=tuple(move(e) for e in step.arguments))
        case Copy():
            return Copy(move(step.source), move(step.target))
        case HostCall():
            operands = tuple(None if e is None else move(e) for e in step.operands)
            return replace(
                step, operands=operands, results=tuple(move(e) for e in step.results)
            )


def _collect(program: Program, steps: tuple[Step, ...]) -> tuple[Storage, ...]:
    found: dict[Storage, None] = {}
    for _, entry in (*program.inputs, *program.outputs):
        found[entry.storage] = None
    for step in steps:
        for entry in (*operands_of(step), *results_of(step)):
            found[entry.storage] = None
    return tuple(found)


def _place_constants(storages: tuple[Storage, ...]) -> int:
    offset = 0
    for storage in storages:
        if storage.kind == "constant":
            storage.offset_bytes = offset
            offset += align(_known(storage.size_bytes))
    return offset


@final
@dataclass(frozen=True, slots=True)
class MemoryReport:
    """What a run needs, in bytes; None where it depends on the dimensions of a call."""

    weights_bytes: int
    arena_bytes: int | None
    lower_bound_bytes: int | None
    unshared_bytes: int | None
    rows: tuple[
        tuple[str, str, Dim, int, int, int], ...
    ]  # name kind size first last offset


def report(program: Program) -> MemoryReport:
    """The memory table of a program, largest first."""
    transients = [s for s in program.storages if s.kind == "transient"]
    static = all(isinstance(s.size_bytes, int) for s in transients)
    blocks = (
        [Block(_known(s.size_bytes), s.first, s.last) for s in transients] if static else []
    )
    rows = [
        (s.name, s.kind, s.size_bytes, s.first, s.last, s.offset_bytes)
        for s in program.storages
    ]
    rows.sort(key=lambda row: -row[2] if isinstance(row[2], int) else 0)
    return MemoryReport(
        weights_bytes=program.weights_bytes,
        arena_bytes=program.arena_bytes if static else None,
        lower_bound_bytes=peak_bytes(blocks) if static else None,
        unshared_bytes=sum(align(b.size_bytes) for b in blocks) if static else None,
        rows=tuple(rows),
    )
