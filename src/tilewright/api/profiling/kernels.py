"""Where the time goes: every kernel with its arithmetic, its bytes and the limit it runs into.

Bytes are what a kernel reads and writes at least, once each: of an operand that it only looks things
up in, the rows it takes.  Called by `bench`, `profile` and reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, final

import numpy as np

from tilewright.base.outcome import Outcome
from tilewright.base.record import record
from tilewright.base.symbolic import evaluate
from tilewright.formats.plan import Plan, Step, operands_of, results_of
from tilewright.formats.tensor_text import Array
from tilewright.runtime.native import Timing

if TYPE_CHECKING:
    from tilewright.api.profiling.roofline import Roofline
    from tilewright.runtime.session import Session

CALLS: Final = 5
"""How many calls are timed where nobody says: profiles and reports have their medians."""

_RUNS: Final = 7
START_NS: Final = 5_000
"""Below this a run of a kernel is mostly starting it and waiting for its end."""


class Sample(NamedTuple):
    """A step and its times in one call."""

    step: Step
    timing: Timing


@final
@record
class KernelRow:
    """All calls of one kernel together; `outcome` None if unknown.  Units: bytes, nanoseconds.

    `nodes` are those of the model that it computes, over all its calls.
    """

    name: str
    calls: int
    flops: int
    size_bytes: int
    time_ns: int
    outcome: Outcome | None = None
    nodes: tuple[str, ...] = ()

    @property
    def flops_rate(self) -> float:
        """FLOP/s."""
        return 1e9 * self.flops / self.time_ns if self.time_ns else 0.0

    @property
    def bytes_rate(self) -> float:
        """byte/s."""
        return 1e9 * self.size_bytes / self.time_ns if self.time_ns else 0.0

    def limit(self, limits: Roofline) -> tuple[str, float]:
        """What bounds it and how close it comes (1 = there).

        Returns: `compute`; the level of memory (`memory`, `L3`, `L2`, `L1`) that its bytes came from
        at the least, which is the farthest one that delivers that fast; or `start`.
        """
        compute = self.flops_rate / limits.flops
        level, rate = limits.level_of(self.bytes_rate)
        share = max(compute, rate)
        if share < 0.5 and self.time_ns < START_NS * self.calls:
            return "start", min(share, 1.0)
        name, share = ("compute", compute) if compute >= rate else (level, rate)
        return name, min(share, 1.0)


def profile(
    session: Session, arrays: Sequence[Array], runs: int = _RUNS
) -> tuple[KernelRow, ...]:
    """The kernels of a call, slowest first; medians of several runs."""
    return rows_of(session, arrays, [sample(session, arrays) for _ in range(runs)])


def sample(session: Session, arrays: Sequence[Array]) -> list[Sample]:
    """One call, step after step."""
    return [Sample(*row) for row in session.profile(*arrays)]


def rows_of(
    session: Session, arrays: Sequence[Array], samples: Sequence[Sequence[Sample]]
) -> tuple[KernelRow, ...]:
    """The kernels of calls that were profiled, slowest first, by the medians of the calls."""
    env = session.executor.dimensions_of(arrays)
    plan = None if session.variant is None else session.variant.plan
    totals: dict[str, list[int]] = {}
    nodes: dict[str, dict[str, None]] = {}
    for position, (step, _) in enumerate(samples[0]):
        name = step.target or step.kind
        row = totals.setdefault(name, [0, 0, 0, 0])
        row[0] += 1
        row[1] += evaluate(step.flops, env)
        row[2] += bytes_of(plan, step, env)
        row[3] += int(np.median([calls[position].timing.duration_ns for calls in samples]))
        nodes.setdefault(name, {}).update(dict.fromkeys(step.nodes))
    known = {} if plan is None else plan.outcomes
    rows = [
        KernelRow(
            name, calls, flops, size_bytes, time_ns, known.get(name), tuple(nodes[name])
        )
        for name, (calls, flops, size_bytes, time_ns) in totals.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.time_ns))


def bytes_of(plan: Plan | None, step: Step, env: Mapping[str, int]) -> int:
    """What a step reads and writes; 0 where there is no plan to tell."""
    if step.bytes_moved is not None:
        return evaluate(step.bytes_moved, env)
    return 0 if plan is None else bytes_moved(plan, step, env)


def bytes_moved(plan: Plan, step: Step, env: Mapping[str, int]) -> int:
    """The bytes of every operand and result, once each; scratch memory is not counted."""
    results = [e for e in results_of(step) if not _is_scratch(plan, e)]
    entries = (*dict.fromkeys(operands_of(step)), *results)
    return sum(evaluate(plan.entries[e].size_bytes, env) for e in entries)


def constant_bytes(plan: Plan | None, step: Step, env: Mapping[str, int]) -> int:
    """What a step reads of constants; of a table that it looks things up in, not more than it takes."""
    if plan is None:
        return 0
    constants = (
        plan.entries[e].size_bytes
        for e in dict.fromkeys(operands_of(step))
        if plan.storages[plan.entries[e].storage].kind == "constant"
    )
    return min(sum(evaluate(size, env) for size in constants), bytes_of(plan, step, env))


def _is_scratch(plan: Plan, entry: int) -> bool:
    """Whether the tensor lives within one step."""
    storage = plan.storages[plan.entries[entry].storage]
    return storage.kind == "transient" and storage.first == storage.last
