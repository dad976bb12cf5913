"""Hints for what cheap loops will write: a line is asked for before the first store to it.

A store to a line that is in no cache of the core waits until the line is there, and the stores behind it wait, too, as they
leave in order.  Lines that are asked for in time come side by side.  Called by `pointwise`, once loops are vectors.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tilewright.compiler.analysis.sizes import trip_count
from tilewright.compiler.analysis.strides import stride
from tilewright.compiler.kernel.ir import For, LoopKind
from tilewright.compiler.kernel.rewrite import loops, stores
from tilewright.compiler.schedule import primitives as do
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import enclosing_loops

_LEAST: Final = 2
"""Times the distance of the hints that a run of stores is long, at the least: hints go beyond its end."""


def ask_for_written_lines(
    s: Schedule, machine: MachineModel, known: Collection[str]
) -> None:
    """Hints in the serial loops that are not `known` where what they write runs on for long, and leaves the first level cache.

    Where only a call knows how long it runs on, that is for long.
    """
    if not machine.core.written_ahead:
        return
    turns = [x for x in loops(s.kernel.body) if x.kind is LoopKind.SERIAL]
    for turn in turns:
        if turn.var.name not in known:
            _ask_in(s, machine, turn)


def _ask_in(s: Schedule, machine: MachineModel, turn: For) -> None:
    name, ahead = turn.var.name, machine.core.written_ahead
    buffers = {store.buffer.name: store for store in stores(turn.body)}
    if any(x.kind is LoopKind.SERIAL for x in loops(turn.body)) or len(buffers) != 1:
        return
    ((buffer, store),) = buffers.items()
    size, moves = store.buffer.dtype.itemsize, stride(store, name)
    side_by_side = trip_count(
        x for x in loops(turn.body) if stride(store, x.var.name) not in (0, None)
    )
    if not isinstance(moves, int) or moves != side_by_side:
        return
    if isinstance(turn.extent, int):
        run = turn.extent * moves * size
        written = run * trip_count(enclosing_loops(s.kernel, turn))
        if run < _LEAST * ahead or written <= machine.l1.size_bytes:
            return
    line, count = machine.line_bytes // size, max(1, ahead // (moves * size))
    if s.attempt(do.prefetch_lines, buffer, name, name, line, 1, count):
        s.note(f"lines of '{buffer}' are asked for {count} turns of '{name}' ahead")
