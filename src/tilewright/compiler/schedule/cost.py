"""What code costs on a machine: one formula for every rule.

Code asks for instructions, ports and time to wait for itself; it takes as long as what it asks most of, for a core
does all of them at once.  The model ranks choices and sizes workgroups; it does not predict times to better than a factor of
two.  Called by the spaces of the rules and by the verdict.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final, final

from tilewright.base.record import record
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.rewrite import stores, subexpressions
from tilewright.compiler.schedule.machine_model import SLOW_OPERATIONS, MachineModel

_KNOWN_VALUES: Final = 2048
"""Values whose costs are remembered: rules and the verdict ask for those of stores that nothing changed."""


@final
@record(kw_only=True)
class Demand:
    """What one run of some code asks of a core.

    Attributes:
        operations: instructions of any kind.
        multiply_adds: vectors through the ports that multiply and add, and what takes as long as so many.
        loads, stores: between registers and the first level cache.
        waits: cycles in which nothing happens but that a value is waited for.
    """

    operations: float = 0.0
    multiply_adds: float = 0.0
    loads: float = 0.0
    stores: float = 0.0
    waits: float = 0.0

    def cycles(self, machine: MachineModel) -> float:
        """Cycles of a core whose operands are near."""
        core = machine.core
        return max(
            self.operations / core.issue,
            self.multiply_adds / machine.multiply_adds_per_cycle,
            self.loads / core.loads,
            self.stores / core.stores,
            self.waits,
        )


@functools.lru_cache(maxsize=_KNOWN_VALUES)
def cost(value: ir.Expression) -> int:
    """Multiply-adds that take as long as a value does, computed once; loads are free."""
    total = 0
    for part in subexpressions(value):
        if isinstance(part, (ir.Binary, ir.Unary)):
            total += SLOW_OPERATIONS.get(part.op, 1)
        elif isinstance(part, (ir.Fma, ir.Intrinsic)):
            total += 1
    return total


def element_ns(machine: MachineModel, reached: float, effort: int) -> float:
    """Time for one element, from its being reached (a field of `machine.elements`) and its operations."""
    return reached + effort * machine.elements.operation


def body_cost(body: Iterable[ir.Statement]) -> int:
    """The costs of every store's value."""
    return sum(cost(s.value) for s in stores(tuple(body)))
