"""How a step of a model runs: the one vocabulary for what scheduling came to.

Decided by `compiler.schedule.rules` from what a rule really did (never from an op's name), kept in
the plan, shown by every verb that lists kernels.
"""

from __future__ import annotations

import enum
from typing import Final, final

from tilewright.base.record import record

NOTICEABLE_NS: Final = 20_000
"""What one workgroup of cheap code is cut to: a loss below it hides in the start of a kernel."""


@final
class Outcome(enum.StrEnum):
    """What became of the loops that take longest in a kernel; `host` or `call` if there is no kernel."""

    TILED = "tiled"  # a product: sums in a tile of registers, the right operand in vectors
    ROWS = "rows"  # lanes along the axis that the inner loops walk
    COLUMNS = "columns"  # lanes along an axis outside of the inner loops
    POINTWISE = "pointwise"  # no inner loops; lanes along an axis that lies in order
    GENERIC = "generic"  # machine code without lanes: one element after the other
    USER = "user schedule"  # whatever a schedule of the user's made of them
    HOST = "host"  # no kernel: the reference implementation, in Python
    CALL = "call"  # no kernel of ours: a packed function of another module


@final
@record
class Verdict:
    """What scheduling a kernel came to, with its cost by the model of the machine.

    Attributes:
        outcome: how those loops run that take longest.
        expected_ns: what a run takes on one core.
        lanes_ns: what it would take if all of it ran in lanes, or at the rate of memory.
    """

    outcome: Outcome
    expected_ns: float = 0.0
    lanes_ns: float = 0.0

    @property
    def is_slow(self) -> bool:
        """Whether running without lanes costs a time that can be noticed."""
        without_lanes = self.outcome in (Outcome.GENERIC, Outcome.HOST)
        return without_lanes and self.expected_ns - self.lanes_ns > NOTICEABLE_NS
