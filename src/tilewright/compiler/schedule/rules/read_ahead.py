"""Hints for what a product will read of its right operand: the next panel, its next steps, later blocks of words.

Which cache they bring it into, and how far ahead, is the machine model's.  Called by `contraction`, once tiles are in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from tilewright.base.dtypes import DType
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.analysis.sizes import trip_count
from tilewright.compiler.analysis.strides import stride
from tilewright.compiler.kernel.ir import Body, For, If, LoopKind
from tilewright.compiler.kernel.rewrite import loads
from tilewright.compiler.schedule import primitives as do
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules.tilings import Tiling
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import enclosing_loops, find, find_buffer

_LEAST_LINES: Final = 128
_LEAST_BLOCK_LINES: Final = 16
"""Lines of a block that take longer to use than memory takes to bring one."""
_MOST_HINTS: Final = 4
_MOST_HINTS_OF_WORDS: Final = 16
"""Of words, whose bytes are multiplied in as many instructions as lines of them are asked for."""


@final
@record
class ReadAhead:
    """The panels of one product.

    Attributes:
        s, machine: what is scheduled, and for what.
        right: the name of the operand in panels.
        panel: the loop inside of which one panel is read.
        sums: the type of sums.
        words_of_one_row: the operand has several numbers to a word, each of which is used once.
    """

    s: Schedule
    machine: MachineModel
    right: str
    panel: str
    sums: DType
    words_of_one_row: bool

    def fetch_panels(self, tiling: Tiling) -> None:
        """While one panel is multiplied, bring the next one into the second level cache.

        Weights come from main memory in every run of a model that is larger than the caches;
        one panel at a time they are too short a stream for the hardware to foresee.
        """
        s = self.s
        around = self._panel_loop()
        found = [] if around is None else _step_loops(around.body)
        paths = [path for path in found if _reads(path, self.right)]
        if around is None or not paths:
            return
        # Their first iterations: a block's variable is no size.
        outside: dict[str, Dim] = {
            loop.var.name: 0 for loop in enclosing_loops(s.kernel, around)
        }
        path = max(paths, key=lambda path: trip_count(path, outside))
        panel = self._panel_elements(around)
        if tiling.steps:
            panel = min(panel, tiling.steps * tiling.columns)
        line = self.machine.line_bytes // self.sums.itemsize
        if panel < line * _LEAST_LINES:
            return  # there as soon as it is missed
        words = self.words_of_one_row
        if words and self._fetch_blocks(around, path, line):
            return
        step = -(-panel // trip_count(path, outside))
        if step > line * (_MOST_HINTS_OF_WORDS if words else _MOST_HINTS):
            return  # hardly used, memory decides
        # Where a turn is worth less than a line, a hint in each costs more than some in a loop around it.
        depth = len(path)
        while step < line and depth > 1:
            longer = -(-panel // trip_count(path[: depth - 1], outside))
            if longer > line * _MOST_HINTS:
                break
            step, depth = longer, depth - 1
        most = 0
        if any(not isinstance(x.extent, int) for x in path[:depth]):
            # A call may have fewer rows than is likely: a line per turn costs no more than a part of one.
            step, most = max(step, line), panel
        loop = path[depth - 1].var.name
        if s.attempt(do.prefetch, self.right, loop, around.var.name, step, line, most=most):
            s.note(f"the next panel is fetched {step} elements per turn of '{loop}'")

    def fetch_steps(self, columns: int) -> None:
        """While some steps of the sum are multiplied, bring the panel's next ones into the first level cache."""
        s = self.s
        paths = [
            p for p in _step_loops(find(s.kernel, self.panel).body) if _reads(p, self.right)
        ]
        if not paths:
            return
        *_, turn = max(paths, key=trip_count)
        steps = next((x for x in turn.body if isinstance(x, For)), None)
        if steps is None or not steps.reduction or not isinstance(steps.extent, int):
            return
        name, ahead = steps.var.name, turn.var.name
        step = self._panel_elements(steps)
        if not 0 < step <= columns or self._panel_elements(turn) != steps.extent * step:
            return  # not in the order in which they are read
        line = self.machine.line_bytes // self.sums.itemsize
        if s.attempt(do.prefetch_lines, self.right, name, ahead, line, 1):
            s.note(
                f"steps of the next turn of '{ahead}' are fetched {columns} elements at a time"
            )

    def _fetch_blocks(self, around: For, path: Sequence[For], line: int) -> bool:
        """While one block of words is multiplied, bring a later one into the first level cache.

        Making numbers of words takes longer than reading them, so a line that is asked for in time is there when it is
        used, and nothing is waited for between the caches.
        """
        if len(path) < 2 and not self.machine.core.read_ahead:
            return False
        inner = path[-1]
        block = path[-2] if len(path) > 1 else inner
        size = self._panel_elements(block)
        step = size if inner is block else -(-size // trip_count((inner,)))
        size_bytes = max(1, size * find_buffer(self.s.kernel, self.right).dtype.itemsize)
        turns = max(1, -(-self.machine.core.read_ahead // size_bytes))
        most = _MOST_HINTS_OF_WORDS if inner is block else _MOST_HINTS
        if size * turns < line * _LEAST_BLOCK_LINES or step > line * most:
            return False
        name, ahead = inner.var.name, block.var.name
        if not self.s.attempt(
            do.prefetch, self.right, name, ahead, step, line, 1, 0, turns
        ):
            return False
        which = "the next block" if turns == 1 else f"the block {turns} turns ahead"
        self.s.note(f"{which} is fetched {step} elements per turn of '{name}'")
        if self.machine.core.read_ahead:
            self._fetch_scales(around, block, turns)
        return True

    def _fetch_scales(self, around: For, block: For, turns: int) -> None:
        """Bring what a later block has once for all of its words, such as scales, into the first level cache, too."""
        found = {
            load.buffer.name: load
            for load in loads(find(self.s.kernel, block.var.name).body)
        }
        for name, load in found.items():
            moves = [stride(load, x.var.name) for x in (around, block)]
            if name == self.right or 0 in moves or None in moves:
                continue
            line = self.machine.line_bytes // load.buffer.dtype.itemsize
            ahead = block.var.name
            if self.s.attempt(do.prefetch_lines, name, ahead, ahead, line, 1, turns):
                self.s.note(f"'{name}' is fetched {turns} turns of '{ahead}' ahead")

    def _panel_loop(self) -> For | None:
        """The loop that goes from panel to panel: in a workgroup, or from one to the next."""
        inside = find(self.s.kernel, self.panel)
        for loop in (inside, *reversed(enclosing_loops(self.s.kernel, inside))):
            if loop.extent != 1 and self._panel_elements(loop):
                return loop
        return None

    def _panel_elements(self, around: For) -> int:
        """How far apart iterations of `around` read the right operand; 0 where that is not regular."""
        for load in loads(around.body):
            if load.buffer.name == self.right:
                apart = stride(load, around.var.name)
                return apart if isinstance(apart, int) else 0
        return 0


def _reads(path: Sequence[For], name: str) -> bool:
    """Whether the innermost of nested loops reads a buffer of that name."""
    return any(load.buffer.name == name for load in loads(path[-1].body))


def _step_loops(body: Body, outer: tuple[For, ...] = ()) -> list[tuple[For, ...]]:
    """The loops that take the steps of a sum, each with the loops around it."""
    found: list[tuple[For, ...]] = []
    for statement in body:
        if isinstance(statement, If):
            found += _step_loops(statement.body, outer)
        elif isinstance(statement, For) and statement.kind is LoopKind.SERIAL:
            path = (*outer, statement)
            inner = _step_loops(statement.body, path)
            found += inner
            if statement.reduction and not inner:
                found.append(path)
    return found
