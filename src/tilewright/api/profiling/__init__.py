"""Where the time of a call goes: kernels beside the limits of the machine, and commands on a timeline.

`kernels` counts and rates, `roofline` measures the limits, `timeline` writes traces.  Not here: how
times are taken (`runtime.native`) and how they are printed (`cli`).
"""

from tilewright.api.profiling.kernels import (
    CALLS,
    KernelRow,
    Sample,
    bytes_moved,
    profile,
    rows_of,
    sample,
)
from tilewright.api.profiling.timeline import ProfiledCall, timeline

__all__ = [
    "CALLS",
    "KernelRow",
    "ProfiledCall",
    "Sample",
    "bytes_moved",
    "profile",
    "rows_of",
    "sample",
    "timeline",
]
