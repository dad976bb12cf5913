"""Memory planning: lifetimes, in-place reuse, one arena.

Requires: a built program.  Ensures: every storage is listed in `program.storages`; transients
carry their lifetime and, in a static program, their arena offset; constants carry their offset in
the weights.  Two storages alive at once never overlap.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import final

from tilewright.base.arena import Block, align, pack, peak_bytes
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, proves_equal
from tilewright.compiler.program import ir
from tilewright.compiler.program.index_checks import overlap_checks


def assign(program: ir.Program) -> ir.Program:
    """Give every storage its lifetime and place."""
    _set_lifetimes(program)
    overlap_checks(program)
    merged = _InPlace(program).merge()
    steps = tuple(_redirect(step, merged) for step in program.steps)
    program = replace(program, steps=steps)
    program.storages = tuple(dict.fromkeys(entry.storage for entry in program.entries))
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


def _extend_over_loops(program: ir.Program) -> None:
    """What a loop reads from before it, or from its trip before, lives to its end."""
    places = {step: i for i, step in enumerate(program.steps) if isinstance(step, ir.Label)}
    loops = [
        (places[step.target], index)
        for index, step in enumerate(program.steps)
        if isinstance(step, ir.Jump) and places[step.target] < index
    ]
    storages = {entry.storage for step in program.steps for entry in ir.entries_of(step)}
    # Inner loops end first, so one walk is enough.
    for start, end in loops:
        for storage in storages:
            if storage.first < start <= storage.last:
                storage.last = max(storage.last, end)


def _set_lifetimes(program: ir.Program) -> None:
    for index, step in enumerate(program.steps):
        for entry in ir.entries_of(step):
            storage = entry.storage
            storage.first = index if storage.first < 0 else storage.first
            storage.last = index
    for step in program.steps:
        if isinstance(step, ir.PickRow):  # whoever reads the row reads the table
            table = step.table.storage
            table.last = max(table.last, step.row.storage.last)
    _extend_over_loops(program)
    if program.check_storage is not None:  # the host reads it behind the last step
        program.check_storage.first = 0
        program.check_storage.last = len(program.steps) - 1


@final
class _InPlace:
    """Walks the steps and lets results take over operands; `merged` always maps to the root."""

    def __init__(self, program: ir.Program) -> None:
        self.program: ir.Program = program
        self.merged: dict[ir.Storage, ir.Storage] = {}

    def merge(self) -> dict[ir.Storage, ir.Storage]:
        """Result storages, and the dying operand storage whose bytes they take over."""
        for index, step in enumerate(self.program.steps):
            if isinstance(step, ir.Dispatch):
                self._visit(index, step)
        return self.merged

    def _visit(self, index: int, step: ir.Dispatch) -> None:
        """At most one result per step: two could pick the same operand."""
        for position in range(len(ir.operands_of(step)), len(step.arguments)):
            result = step.arguments[position].storage
            if result.kind != "transient" or result.first != index:
                continue
            if result is self.program.check_storage:
                continue
            donor = self._find_donor(index, step, position)
            if donor is not None:
                donor.last = max(donor.last, result.last)
                self.merged[result] = donor
                return

    def _find_donor(
        self, index: int, step: ir.Dispatch, position: int
    ) -> ir.Storage | None:
        result = step.arguments[position].storage
        storages = [entry.storage for entry in ir.operands_of(step)]
        roots = [self.merged.get(storage, storage) for storage in storages]
        for place, storage in enumerate(roots):
            dies = storage.kind == "transient" and storage.last == index
            if (
                dies
                and roots.count(storage) == 1
                and step.arguments[place].offset_bytes == 0
                and proves_equal(storage.size_bytes, result.size_bytes)
                and (place, position) in self.program.kernels[step.kernel].overwrites
            ):
                return storage
        return None


def _redirect(step: ir.Step, merged: dict[ir.Storage, ir.Storage]) -> ir.Step:
    """The step with the entries of its fields in the storages that theirs became; rows and blocks stay what they are."""

    def moved(held: object) -> object:
        if isinstance(held, ir.Entry):
            storage = merged.get(held.storage, held.storage)
            return held if storage is held.storage else replace(held, storage=storage)
        if isinstance(held, tuple) and any(isinstance(x, ir.Entry) for x in held):
            return tuple(map(moved, held))
        return held

    held = {field.name: getattr(step, field.name) for field in fields(step)}
    changed = {name: new for name, old in held.items() if (new := moved(old)) is not old}
    return replace(step, **changed) if changed else step


def _place_constants(storages: tuple[ir.Storage, ...]) -> int:
    offset = 0
    for storage in storages:
        if storage.is_constant:
            storage.offset_bytes = offset
            offset += align(_known(storage.size_bytes))
    return offset


@final
@record
class MemoryNeeds:
    """What a run needs, in bytes; None where it depends on the dimensions of a call.

    Attributes:
        weights_bytes: constants of the artifact.
        arena_bytes: the one block in which all tensors of a call lie.
        lower_bound_bytes: no plan needs less.
        unshared_bytes: what the tensors would take if none shared memory with another.
        rows: every tensor, largest first: name, kind, size, first and last step, offset.
    """

    weights_bytes: int
    arena_bytes: int | None
    lower_bound_bytes: int | None
    unshared_bytes: int | None
    rows: tuple[tuple[str, str, Dim, int, int, int], ...]


def needs_of(program: ir.Program) -> MemoryNeeds:
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
    return MemoryNeeds(
        weights_bytes=program.weights_bytes,
        arena_bytes=program.arena_bytes if static else None,
        lower_bound_bytes=peak_bytes(blocks) if static else None,
        unshared_bytes=sum(align(b.size_bytes) for b in blocks) if static else None,
        rows=tuple(rows),
    )
