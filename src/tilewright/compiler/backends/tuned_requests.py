"""Kernels that are wanted as tuning found them, and what becomes of decisions that do not fit.

Called by the pipeline; what is known comes from a store, or from whoever tries some out (`tuning_store`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tilewright.base.errors import ScheduleError
from tilewright.base.log import Log
from tilewright.compiler.backends.kernel_cache import KernelRecord, KernelRequest
from tilewright.compiler.backends.tuning_store import DecisionSource
from tilewright.compiler.kernel.ir import Kernel

_LOG: Final = Log("compiler")


def with_decisions(
    requests: Sequence[KernelRequest], source: DecisionSource | None
) -> tuple[KernelRequest, ...]:
    """The requests with what is known of their kernels; those with a schedule of the user's as they are."""
    if source is None:
        return tuple(requests)
    tuned = source.decisions([each.key for each in requests if each.by_user is None])
    return tuple(
        replace(request, decisions=tuned[request.key])
        if request.by_user is None and request.key in tuned
        else request
        for request in requests
    )


def tuned_decisions(
    kernels: Sequence[Sequence[KernelRecord]],
) -> list[dict[str, str]]:
    """What was not left to the cost model: per target the decisions by the names of kernels; empty if nothing was."""
    found = [
        {r.name: str(r.request.decisions) for r in records if r.is_tuned}
        for records in kernels
    ]
    return found if any(found) else []


def schedule_as_decided(request: KernelRequest) -> tuple[KernelRequest, Kernel]:
    """The scheduled kernel, and what it was made for: without decisions where they are none of its space.

    Raises: ScheduleError for a schedule of the user's that does not fit.
    """
    try:
        return request, request.schedule()
    except ScheduleError as error:
        if request.decisions is None:
            raise
        _LOG.warning(
            "kernel '%s': tuned decisions are not used: %s", request.naive.name, error
        )
    plain = replace(request, decisions=None)
    return plain, plain.schedule()
