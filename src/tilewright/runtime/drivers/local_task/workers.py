"""The workers of a local-task device: how many threads, and where they run.

Apart from `driver`, because replaying a plan on the host needs workers and no device.  Called by
`driver` and by sessions.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from tilewright.base import knobs
from tilewright.base.errors import UserError, reason_of
from tilewright.base.host import usable_cores
from tilewright.base.options import count_option
from tilewright.runtime import native

_CPUS: Final = "device option 'cpus'"
_SPIN_LIMIT_US: Final = 1_000_000  # the pool itself stops far below


def create_pool(threads: int = 0, cpus: Sequence[int] | None = None) -> native.Pool | None:
    """A pool of workers; None where the calling thread does it alone.

    Args:
        threads: the caller included; 0: `TILEWRIGHT_THREADS`, else the cores this process may use.
        cpus: processor ids to pin workers to, one per thread.

    Raises: UserError for more threads than a pool may have, or processors that are not one for each or that the system
        does not let this process use: pinning fails without a word.
    """
    threads = threads or knobs.THREADS.get() or usable_cores()
    count_option("threads", threads, most=knobs.THREAD_LIMIT)
    if cpus is not None:
        _check_processors(cpus, threads)
    if threads == 1:
        return None
    return native.Pool(threads, cpus, min(knobs.SPIN_US.get(), _SPIN_LIMIT_US))


def _check_processors(cpus: Sequence[int], threads: int) -> None:
    if len(cpus) != threads:
        raise UserError(
            f"got {len(cpus)}, expected one for each of {threads} threads", location=_CPUS
        )
    if not hasattr(os, "sched_setaffinity"):
        return
    before = os.sched_getaffinity(0)
    try:
        wrong = next(filter(None, map(_why_not, cpus)), None)
    finally:
        os.sched_setaffinity(0, before)
    if wrong is not None:
        usable = " ".join(map(str, sorted(before)))
        raise UserError(wrong, location=_CPUS, hint=f"this thread may use {usable}")


def _why_not(cpu: int) -> str | None:
    """Run this thread on a processor, or why it cannot."""
    try:
        os.sched_setaffinity(0, {cpu})
    except (OSError, OverflowError) as error:
        return f"processor {cpu} cannot be used: {reason_of(error)}"
    return None
