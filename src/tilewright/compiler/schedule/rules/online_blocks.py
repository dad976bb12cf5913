"""Rows with sums of products one after the other, block by block: what every schedule of them shares.

Loops over rows go inside of the loop over blocks, so that a block is read while it is near, and each part
of a row's code gets rows of its own.  What happens to such a part is the caller's: `attention` has rows as lanes,
`attention_streams` has few rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, TypeGuard

from tilewright.base import symbolic
from tilewright.compiler.analysis.dependence import live_outside, private_buffers
from tilewright.compiler.kernel.ir import Body, For, If, Load, Store
from tilewright.compiler.kernel.rewrite import loads, loops
from tilewright.compiler.schedule import primitives as do
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules.structure import sums_of_products
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import find


def split_off_last_block(s: Schedule, rows: str) -> None:
    """Give a shorter last block of keys its own code, so that sizes in both are numbers."""
    for loop in find(s.kernel, rows).body:
        if not is_block(loop) or not isinstance(loop.extent, int):
            continue
        if all(isinstance(x.extent, int) for x in loops(loop.body)):
            continue
        for part in s.apply(do.partition, loop.var.name, loop.extent - 1):
            name = part[loop.var.name]
            if find(s.kernel, name).extent == 1:
                # A single block starts at 0, whatever the loop says.
                s.apply(do.split, name, 1)


def unguard(s: Schedule, rows: str) -> None:
    """Let rows that are not there be computed, too, where only they see it."""
    s.apply(do.sink_guards, rows)
    s.apply(do.drop_guards, rows)


def privatize_all(s: Schedule, name: str) -> None:
    """Keep the temporaries of one iteration of a loop in registers, where they are seen in it alone."""
    loop = find(s.kernel, name)
    for buffer in private_buffers(loop.body):
        if not live_outside(s.kernel.body, loop, buffer):
            s.attempt(do.privatize, buffer.name, name)
            loop = find(s.kernel, name)


def is_block(statement: object) -> TypeGuard[For]:
    """Whether a loop goes over blocks of keys."""
    return isinstance(statement, For) and len(sums_of_products(statement)) > 1


def from_memory(s: Schedule, store: Store) -> list[Load]:
    """What a sum reads of the kernel's operands."""
    operands = [x.buffer for x in s.kernel.parameters]
    return [x for x in loads(store.value) if any(x.buffer is b for b in operands)]


class BlockWalk(ABC):
    """The rows of a workgroup on their way inside of everything.

    Attributes:
        together: what of a row's temporaries lies side by side, as `fission` takes it.
    """

    together: ClassVar[str]

    def __init__(self, s: Schedule, machine: MachineModel) -> None:
        self.s: Schedule = s
        self.machine: MachineModel = machine

    @abstractmethod
    def inside(self, row: str, /) -> None:
        """Give every statement of the loop `row` rows of its own, and schedule each."""

    @abstractmethod
    def stage(self, around: str, /) -> None:
        """Copy what all iterations of the loop `around` read of a block, if that pays."""

    @abstractmethod
    def part(self, row: str, /) -> None:
        """Schedule the one statement of the loop `row`."""

    def run(self, nest: list[str]) -> None:
        """Move the loops over tiles and rows, of which the last is the innermost, into those over blocks."""
        s, row = self.s, nest[-1]
        blocks = [x for x in unguarded(find(s.kernel, row).body) if is_block(x)]
        if not blocks:
            self.stage(nest[0])
            self.inside(row)
            return
        if all(_has_own(x, nest) for x in blocks):
            nest = [row]  # tiles have blocks of their own
        parts = s.apply(do.fission, nest[0], len(nest), "workgroup", self.together)
        for part in parts:
            unguard(s, part[row])
        for part in parts:
            self._block([part[name] for name in nest])

    def _block(self, around: list[str]) -> None:
        """A loop over blocks goes outside of tiles and rows."""
        s, row = self.s, around[-1]
        block, *others = find(s.kernel, row).body
        if others or not is_block(block):
            self.part(row)
            return
        if _has_own(block, around):
            around = [row]
        s.apply(do.reorder, [block.var.name, *around])
        if is_block(find(s.kernel, row).body[0]):
            unguard(s, row)
            self._block(around)
            return
        if len(around) > 1:
            self.stage(around[0])
        self.inside(row)


def _has_own(block: For, nest: list[str]) -> bool:
    """Whether loops around one over blocks decide how many there are."""
    return not symbolic.names_in((block.extent,)).isdisjoint(nest)


def unguarded(body: Body) -> Body:
    """What is under the guard of a tile's rows."""
    return body[0].body if len(body) == 1 and isinstance(body[0], If) else body
