"""A product whose right operand is made on the way: panel by panel, near the core that multiplies it.

    for panels:                                                workgroups
        for panel, step, column: t[panel, step, column] = …    workgroup memory
        for row: for column: sum of left[row, step] * t[panel, step, column]

Weights that lie as integers become numbers once for all rows, one panel of them at a time, or as many as are worth a workgroup's start where a cache
holds them.  The two nests in a workgroup are those of other rules.  Called by `schedule` before any nest is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from tilewright.compiler.analysis.sizes import trip_count
from tilewright.compiler.kernel.ir import Buffer, For, Kernel, Load, Space, Store
from tilewright.compiler.kernel.rewrite import (
    as_symbol,
    buffers_read,
    buffers_written,
    dim_symbols,
    loads,
    stores,
)
from tilewright.compiler.schedule.cost import cost
from tilewright.compiler.schedule.decisions import Choice, Choices, ChoiceSpace
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.primitives import (
    reorder,
)
from tilewright.compiler.schedule.rules.prepare import INVARIANT_COST
from tilewright.compiler.schedule.rules.structure import (
    parallel_chain,
    sums_of_products,
    top_nests,
)
from tilewright.compiler.schedule.rules.workgroups import Cut, Grid, in_one_group
from tilewright.compiler.schedule.trace import Schedule
from tilewright.compiler.schedule.tree import find


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Panels(Choices):
    """What is chosen for a product of what is made on the way.

    Attributes:
        count: panels that one workgroup makes and multiplies.
    """

    rule: ClassVar[str] = "panels"
    count: int = 1


@final
@dataclass(frozen=True, slots=True)
class MadePanels:
    """A nest that makes a temporary, panel by panel, and the nest of sums that reads them again for every row.

    Attributes:
        maker: the loop over panels that makes them.
        panel: the loop over panels among those around the sums.
        others: the other loops around the sums, outermost first.
        between: the temporary.
        count: panels.
    """

    maker: str
    panel: str
    others: tuple[str, ...]
    between: Buffer
    count: int


def made_panels(kernel: Kernel) -> MadePanels | None:
    """What a kernel makes for its sums that is dear enough to be made once; None where it does not."""
    for maker, user, between in _pairs(kernel):
        if not between.shape:
            continue
        names = [loop.var.name for loop in parallel_chain(user)]
        panels = _first_indices(loads((user,)), between)
        made = _first_indices(stores((maker,)), between)
        if made != {maker.var.name} or len(panels) != 1 or not panels <= {*names}:
            continue
        (panel,) = panels
        sizes = [n for n in between.shape if isinstance(n, int)]
        others = tuple(name for name in names if name != panel)
        read = _names_in_indices(user, between)
        is_dear = max(cost(x.value) for x in stores((maker,))) >= INVARIANT_COST
        if len(sizes) == len(between.shape) and is_dear and not read.issuperset(others):
            return MadePanels(maker.var.name, panel, others, between, sizes[0])
    return None


def match_panels(s: Schedule, machine: MachineModel) -> PanelsSite | None:
    """The two nests, and panels for a workgroup: as many as are worth its start, if the second level cache holds them."""
    found = made_panels(s.kernel)
    if found is None:
        return None
    rows = trip_count(find(s.kernel, name) for name in found.others)
    size = math.prod(n for n in found.between.shape[1:] if isinstance(n, int))
    panel_ns = max(1, 2 * rows * size * machine.elements.flop)
    size_bytes = size * found.between.dtype.itemsize
    near = machine.l2.size_bytes // (2 * max(1, size_bytes)) or 1
    most = min(found.count, near) if machine.l2.size_bytes else found.count
    counts = [n for n in range(1, most + 1) if found.count % n == 0]
    worth = (n for n in counts if n * panel_ns >= machine.workgroup_ns)
    return PanelsSite(s, found, next(worth, counts[-1]))


@final
@dataclass(frozen=True, slots=True)
class PanelsSite:
    """Two nests, of which one makes what the other multiplies; `count`: panels of a workgroup, by the cost model."""

    s: Schedule
    found: MadePanels
    count: int

    def space(self) -> ChoiceSpace[Panels]:
        """One point: what may be chosen for the nests in a workgroup follows from its panels."""
        return ChoiceSpace(
            Panels(), (Choice("count", lambda _: (self.count,), lambda _: self.count),)
        )

    def apply(self, chosen: Panels, grid: Grid) -> list[str]:
        """Make panels in the workgroup that multiplies them.

        Returns: the outermost loops of both nests there, then the nests beside them.

        Raises: ScheduleError where it is not proven that a workgroup needs nothing of another.
        """
        s, found, count = self.s, self.found, chosen.count
        s.apply(reorder, [found.panel, *found.others])
        made = Cut(found.maker, count, "panels", "made")
        used = Cut(found.panel, count, "other_panels", "panel")
        names = in_one_group(s, grid, made, used, found.between.name)
        s.note(f"panels: {count} of '{found.between.name}' made where they are multiplied")
        return names


def _pairs(kernel: Kernel) -> Iterator[tuple[For, For, Buffer]]:
    """Nests without sums, the only one with a sum of products, and the temporary through which each serves it."""
    nests = top_nests(kernel)
    users = [nest for nest in nests if sums_of_products(nest)]
    if len(users) != 1:
        return
    read = buffers_read(users)
    for nest in nests:
        made = [b for b in buffers_written((nest,)) if b in read and b in kernel.locals]
        if nest is not users[0] and len(made) == 1 and made[0].space is Space.DEVICE:
            yield nest, users[0], made[0]


def _first_indices(accesses: Sequence[Load | Store], buffer: Buffer) -> set[str]:
    """The names that are the first index of a buffer's elements; "" for another index."""
    found: set[str] = set()
    for access in accesses:
        if access.buffer is buffer:
            symbol = as_symbol(access.indices[0])
            found.add("" if symbol is None else symbol.name)
    return found


def _names_in_indices(nest: For, buffer: Buffer) -> set[str]:
    """The names in the indices of a buffer's elements that are read."""
    places = (load.indices for load in loads((nest,)) if load.buffer is buffer)
    return {s.name for indices in places for index in indices for s in dim_symbols(index)}
