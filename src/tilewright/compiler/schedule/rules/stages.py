"""Several nests in each iteration of a loop, of which one sums along an outer axis.

    for image:                                                 workgroups
        for channel: mean[channel], scale[channel] = …         workgroup memory
        for place: for channel: (x[place, channel] - mean[channel]) * scale[channel]

A norm of images whose channels come last: what sums finds its lanes among channels, what follows walks all of an image,
so the two are no nest of one kind.  Each becomes one for other rules.  Called by `schedule` before any nest is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, final

from tilewright.base.record import record
from tilewright.compiler.analysis.sizes import steps_in
from tilewright.compiler.kernel.ir import For
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.schedule.cost import body_cost, element_ns
from tilewright.compiler.schedule.decisions import (
    ChoiceSpace,
    Decision,
    plain,
    powers_around,
    space_from,
)
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules.columns import lane_across
from tilewright.compiler.schedule.rules.rows import (
    is_contiguous,
    keep_short_rows,
    passes_of,
)
from tilewright.compiler.schedule.rules.structure import (
    find_contraction,
    parallel_chain,
    top_nests,
)
from tilewright.compiler.schedule.rules.workgroups import Grid, block, fuse_all
from tilewright.compiler.schedule.trace import Schedule


@final
@record(kw_only=True)
class Stages(Decision):
    """What is chosen for several nests in each iteration of a loop.

    Attributes:
        block: iterations of one workgroup.
    """

    rule: ClassVar[str] = "stages"
    block: int = 1


def match_stages(s: Schedule, machine: MachineModel) -> StagesSite | None:
    """The only nest with several in it, of which one sums in the lanes of an outer axis, and none multiplies matrices."""
    nests = top_nests(s.kernel)
    found = [nest for nest in nests if len(_inside(nest)) > 1]
    if len(found) != 1:
        return None
    (nest,) = found
    inside = _inside(nest)
    chains = [parallel_chain(each) for each in inside]
    if any(map(find_contraction, chains)):
        return None
    if not any(_sums_across(chain, machine) for chain in chains):
        return None
    return StagesSite(
        s,
        machine,
        around=tuple(loop.var.name for loop in parallel_chain(nest)),
        inside=tuple(each.var.name for each in inside),
        beside=tuple(other.var.name for other in nests if other is not nest),
        each_ns=sum(_work_ns(each, machine) for each in inside),
    )


@final
@record
class StagesSite:
    """A nest around several.

    Attributes:
        around: the loops around them, outermost first.
        inside: the outermost loops of the nests in an iteration.
        beside: the outermost loops of the other nests of the kernel.
        each_ns: time of an iteration.
    """

    s: Schedule
    machine: MachineModel
    around: tuple[str, ...]
    inside: tuple[str, ...]
    beside: tuple[str, ...]
    each_ns: float

    def space(self) -> ChoiceSpace[Stages]:
        """Iterations that are worth the start of a workgroup."""
        size = max(1, int(self.machine.workgroup_ns / max(self.each_ns, 1.0)))
        return space_from(Stages(), plain("block", powers_around(size), size))

    def apply(self, chosen: Stages, grid: Grid) -> list[str]:
        """Share iterations out; the outermost loops of the nests in each, then of those beside."""
        s = self.s
        blocks, _ = block(s, fuse_all(s, self.around), chosen.block)
        grid.commit(blocks)
        keep_short_rows(s, self.machine)
        s.note(f"stages: {len(self.inside)} nests in each iteration")
        return [*self.inside, *self.beside]


def _inside(nest: For) -> list[For]:
    """The loops side by side in the innermost of a chain of loops that are no reductions."""
    chain = parallel_chain(nest)
    body = chain[-1].body if chain else ()
    return [x for x in body if isinstance(x, For) and not x.reduction]


def _sums_across(chain: Sequence[For], machine: MachineModel) -> bool:
    """Whether a nest reduces, in lanes of an outer axis and in no other."""
    sums = any(loop.reduction for loop in loops(chain[-1].body))
    if not sums or any(map(is_contiguous, passes_of(chain[-1].body))):
        return False
    return lane_across(chain, machine) is not None


def _work_ns(nest: For, machine: MachineModel) -> float:
    """Time of all of a nest."""
    each = element_ns(machine, machine.elements.row, body_cost(nest.body))
    return steps_in((nest,)) * each
