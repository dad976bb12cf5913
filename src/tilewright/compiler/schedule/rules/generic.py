"""Nests that no other rule takes: the outermost loop is shared out if its iterations are independent; nothing else.

Called last by the rules.
"""

from __future__ import annotations

from typing import ClassVar, final

from tilewright.base.outcome import Outcome
from tilewright.base.record import record
from tilewright.compiler.schedule.decisions import ChoiceSpace, Decision, space_from
from tilewright.compiler.schedule.rules.structure import parallel_chain
from tilewright.compiler.schedule.rules.workgroups import Grid
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import find


@final
@record(kw_only=True)
class Sharing(Decision):
    """Nothing to choose."""

    rule: ClassVar[str] = "generic"


@final
@record
class GenericSite:
    """Any nest."""

    s: Schedule
    nest: str

    def space(self) -> ChoiceSpace[Sharing]:
        """One point."""
        return space_from(Sharing())

    def apply(self, _: Sharing, grid: Grid) -> Outcome:
        """Share out the outermost loop."""
        chain = parallel_chain(find(self.s.kernel, self.nest))
        self.s.note("generic: serial code")
        if chain:
            grid.commit([chain[0].var.name])
        return Outcome.GENERIC


def match_generic(s: Schedule, nest: str, *_: object) -> GenericSite:
    """Every nest."""
    return GenericSite(s, nest)
