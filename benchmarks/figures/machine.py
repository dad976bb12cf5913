"""How busy the machine is with other work, how much memory a process tree uses.

What it is: readings of ``/proc`` that tell a clean measurement from a disturbed one.
What it is not: portable; the figures are taken on Linux.
Who calls it: ``measure.py`` and ``processes.py``.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
PROC: Final = Path("/proc")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A reading of the clocks: all work on some cores, and our own."""

    wall_s: float
    busy_s: float
    own_s: float


def read_busy_seconds(cores: Iterable[int]) -> float:
    """Return how long the cores worked since boot, time stolen by the hypervisor included."""
    names = {f"cpu{core}" for core in cores}
    total = 0
    for line in (PROC / "stat").read_text().splitlines():
        name, *fields = line.split()
        if name in names:
            user, nice, system, _idle, _wait, irq, soft, steal = map(int, fields[:8])
            total += user + nice + system + irq + soft + steal
    return total / TICKS_PER_SECOND


def read_process_seconds(pid: int) -> float:
    """Return the processor time of a process and its ended children; 0 if it is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS_PER_SECOND


def read_load(cores: Iterable[int], pids: Iterable[int]) -> Load:
    """Return a reading; two of them give a share with ``foreign_share``."""
    return Load(
        wall_s=time.monotonic(),
        busy_s=read_busy_seconds(cores),
        own_s=sum(map(read_process_seconds, pids)),
    )


def foreign_share(before: Load, after: Load, core_count: int) -> float:
    """Return how much of the cores went to other processes between two readings, 0 to 1."""
    available = max(1e-3, (after.wall_s - before.wall_s) * core_count)
    foreign = (after.busy_s - before.busy_s) - (after.own_s - before.own_s)
    return min(1.0, max(0.0, foreign / available))


def process_tree(root: int) -> list[int]:
    """Return a process and all its descendants."""
    found, pending = [], [root]
    while pending:
        pid = pending.pop()
        found.append(pid)
        for children in PROC.glob(f"{pid}/task/*/children"):
            try:
                pending.extend(map(int, children.read_text().split()))
            except OSError:  # the thread ended between listing and reading
                continue
    return found


def tree_memory_bytes(root: int) -> int:
    """Return the memory of a process tree, pages shared between them counted once (PSS)."""
    total = 0
    for pid in process_tree(root):
        try:
            text = (PROC / str(pid) / "smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(
            int(ln.split()[1]) for ln in text.splitlines() if ln.startswith("Pss:")
        )
    return total * 1024


def describe_machine() -> dict[str, str | int]:
    """Return what a reader of the figures wants to know of the machine."""
    model = "unknown"
    for line in (PROC / "cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    cores = len(os.sched_getaffinity(0))
    return {"processor": model, "cores": cores, "python": platform.python_version()}


def vector_words() -> str:
    """Return the widest vectors of this machine, as x86 calls them, after a comma."""
    flags = (PROC / "cpuinfo").read_text(encoding="utf-8").partition("flags")[2]
    known = (("avx512f", "AVX-512"), ("avx2", "AVX2"))
    return next((f", {word}" for flag, word in known if flag in flags), "")
