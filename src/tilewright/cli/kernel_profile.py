"""Where the time goes: every kernel with its arithmetic, its bytes and the limit it runs into.

Bytes are those of every operand and result, once each: what a kernel moves at least when nothing
is in a cache.  A kernel that moves more than memory can deliver got its data from a cache.
Called by `bench` and `profile`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from tilewright.base.outcome import Outcome
from tilewright.base.symbolic import Dim, evaluate
from tilewright.formats.plan import Plan, Step, operands_of, results_of
from tilewright.formats.tensor_text import Array

if TYPE_CHECKING:
    from tilewright.cli.roofline import Roofline
    from tilewright.runtime.session import Session

_RUNS: Final = 7
# Below this a kernel is mostly started and waited for.
_START_NS: Final = 5_000


@final
@dataclass(frozen=True, slots=True)
class KernelRow:
    """All calls of one kernel together; `outcome` None if unknown.  Units: bytes, nanoseconds."""

    name: str
    calls: int
    flops: int
    size_bytes: int
    time_ns: int
    outcome: Outcome | None = None

    @property
    def flops_rate(self) -> float:
        """FLOP/s."""
        return 1e9 * self.flops / self.time_ns if self.time_ns else 0.0

    @property
    def bytes_rate(self) -> float:
        """byte/s."""
        return 1e9 * self.size_bytes / self.time_ns if self.time_ns else 0.0

    def limit(self, limits: Roofline) -> tuple[str, float]:
        """What bounds it (`compute`, `memory`, `cache`, `start`) and how close it comes (1 = there)."""
        compute = self.flops_rate / limits.flops
        memory = self.bytes_rate / limits.read_bytes
        share = max(compute, memory)
        if share < 0.5 and self.time_ns < _START_NS * self.calls:
            return "start", share
        if compute >= memory:
            return "compute", compute
        return ("cache" if memory > 1 else "memory"), memory


def profile(
    session: Session, arrays: Sequence[Array], runs: int = _RUNS
) -> tuple[KernelRow, ...]:
    """The kernels of a call, slowest first; medians of several runs."""
    return rows_of(session, arrays, [session.profile(*arrays) for _ in range(runs)])


def rows_of(
    session: Session, arrays: Sequence[Array], samples: Sequence[Sequence[tuple[Step, int]]]
) -> tuple[KernelRow, ...]:
    """The kernels of calls that were profiled, slowest first, by the medians of the calls."""
    env = session.executor.dimensions_of(arrays)
    plan = None if session.variant is None else session.variant.plan
    totals: dict[str, list[int]] = {}
    for position, (step, _) in enumerate(samples[0]):
        row = totals.setdefault(step.target or step.kind, [0, 0, 0, 0])
        row[0] += 1
        row[1] += _number(step.flops, env)
        row[2] += 0 if plan is None else bytes_moved(plan, step, env)
        row[3] += int(np.median([sample[position][1] for sample in samples]))
    known = {} if plan is None else plan.outcomes
    rows = [
        KernelRow(name, calls, flops, size_bytes, time_ns, known.get(name))
        for name, (calls, flops, size_bytes, time_ns) in totals.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.time_ns))


def command_cost(
    session: Session, arrays: Sequence[Array], step: Step, time_ns: int
) -> dict[str, object]:
    """What a timeline says about a command: its grid, arithmetic, bytes and rates."""
    env = session.executor.dimensions_of(arrays)
    plan = None if session.variant is None else session.variant.plan
    flops = _number(step.flops, env)
    size_bytes = 0 if plan is None else bytes_moved(plan, step, env)
    row = KernelRow(step.target, 1, flops, size_bytes, time_ns)
    grid = [_number(extent, env) for extent in step.grid]
    return {
        "outcome": step.outcome,
        "grid": grid,
        "flops": flops,
        "bytes": size_bytes,
        "GFLOP/s": round(row.flops_rate / 1e9, 3),
        "GB/s": round(row.bytes_rate / 1e9, 3),
    }


def bytes_moved(plan: Plan, step: Step, env: Mapping[str, int]) -> int:
    """The bytes of every operand and result, once each; scratch memory is not counted."""
    results = [e for e in results_of(step) if not _is_scratch(plan, e)]
    entries = (*dict.fromkeys(operands_of(step)), *results)
    return sum(_number(plan.entries[e].size_bytes, env) for e in entries)


def _is_scratch(plan: Plan, entry: int) -> bool:
    """Whether the tensor lives within one step."""
    storage = plan.storages[plan.entries[entry].storage]
    return storage.kind == "transient" and storage.first == storage.last


def _number(dim: Dim, env: Mapping[str, int]) -> int:
    return dim if isinstance(dim, int) else evaluate(dim, env)
