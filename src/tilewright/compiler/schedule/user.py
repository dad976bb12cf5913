"""What a user says of schedules: for kernels by name or pattern, as functions or as traces.

What is kept of a function is its trace, so equal traces are one entry of the cache.  Not here: how it is carried out
(`by_user`), which is loaded where somebody has a schedule of his own.
Called by the pipeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, cast, final

from tilewright.base.errors import UserError
from tilewright.base.options import wrong
from tilewright.base.record import record
from tilewright.base.text import did_you_mean

if TYPE_CHECKING:
    from tilewright.compiler.schedule.trace import Step


@final
@record
class UserTrace:
    """What a user does with a kernel: the pattern that named it, the steps, and these as JSON, for keys of caches."""

    pattern: str
    steps: tuple[Step, ...]
    text: str


def check_schedules(schedules: object) -> None:
    """Raise UserError for what is no mapping from patterns to functions or traces."""
    expected = "a mapping from patterns of kernel names to functions or traces"
    if not isinstance(schedules, Mapping):
        raise wrong("schedules", schedules, expected, "schedules={'matmul_*': function}")
    for pattern, spec in cast("Mapping[object, object]", schedules).items():
        is_trace = isinstance(spec, str | Sequence)
        if not isinstance(pattern, str) or not (callable(spec) or is_trace):
            raise wrong(f"schedules: {pattern!r}", spec, "a function or a trace")


def check_patterns(schedules: Iterable[str], kernels: Sequence[str]) -> None:
    """Raise UserError for a pattern that names no kernel."""
    for pattern in schedules:
        if not any(fnmatchcase(name, pattern) for name in kernels):
            raise UserError(
                f"schedules: no kernel is called '{pattern}'",
                hint=did_you_mean(pattern, kernels)
                or f"kernels: {' '.join(kernels) or 'none'}",
            )
