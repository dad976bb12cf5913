"""The workers of a local-task device: how many threads, and where they run.

Apart from `driver`, because replaying a plan on the host needs workers and no device.  Called by
`driver` and by sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base import knobs
from tilewright.base.errors import UserError
from tilewright.base.host import usable_cores
from tilewright.base.options import count_option
from tilewright.runtime import native

_SPIN_LIMIT_US: Final = 1_000_000  # the pool itself stops far below


def create_pool(threads: int = 0, cpus: Sequence[int] | None = None) -> native.Pool | None:
    """A pool of workers; None where the calling thread does it alone.

    Args:
        threads: the caller included; 0: `TILEWRIGHT_THREADS`, else the cores this process may use.
        cpus: processor ids to pin workers to, one per thread.

    Raises: UserError for more threads than a pool may have, or processors that do not fit.
    """
    threads = threads or knobs.THREADS.get() or usable_cores()
    count_option("threads", threads, most=knobs.THREAD_LIMIT)
    if threads == 1:
        return None
    try:
        return native.Pool(threads, cpus, min(knobs.SPIN_US.get(), _SPIN_LIMIT_US))
    except ValueError as error:
        raise UserError(str(error), location="device option 'cpus'") from error
