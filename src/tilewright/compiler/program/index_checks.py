"""Checks of indices beside other work: a step that is too small to be waited for.

A check reads what the step that indexes reads and writes a record that no step reads, so the two
need no barrier between them.  Called by `memory.assign` while lifetimes are known and places are not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import final

from tilewright.compiler.program import ir


def overlap_checks(program: ir.Program) -> None:
    """Take barriers away: between a check and what is before it, or behind checks alone.

    What such a check reads then lives one step longer than the step beside it, so that nobody
    writes there meanwhile.
    """
    if program.check_storage is None:
        return
    walk = _Walk(program.check_storage)
    program.steps = tuple(walk.visit(i, step) for i, step in enumerate(program.steps))


@final
class _Walk:
    """The steps since the last barrier, in a walk over all steps."""

    def __init__(self, check_storage: ir.Storage) -> None:
        self.check_storage: ir.Storage = check_storage
        self.written: set[ir.Storage] = set()
        self.read_by_checks: set[ir.Storage] = set()
        self.has_others: bool = True  # the first step starts anew

    def visit(self, index: int, step: ir.Step) -> ir.Step:
        """The step with its barrier, or without."""
        is_check = self._is_check(step)
        reads = {entry.storage for entry in ir.operands_of(step)}
        if not isinstance(step, ir.Dispatch):
            joins = False
        elif is_check:
            joins = index > 0 and not reads & self.written
        else:
            joins = index > 0 and not self.has_others
        if not joins:
            self.written, self.read_by_checks, self.has_others = set(), set(), False
        self.has_others = self.has_others or not is_check
        self.written |= {entry.storage for entry in ir.results_of(step)} - {
            self.check_storage
        }
        if is_check:
            self.read_by_checks |= reads
        for storage in self.read_by_checks:
            storage.last = max(storage.last, index + 1)
        return replace(step, barrier=not joins) if isinstance(step, ir.Dispatch) else step

    def _is_check(self, step: ir.Step) -> bool:
        """Whether the step writes a record and nothing else."""
        results = ir.results_of(step)
        return (
            isinstance(step, ir.Dispatch)
            and len(results) == 1
            and results[0].storage is self.check_storage
        )
