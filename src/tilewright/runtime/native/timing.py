"""When commands ran, and on which threads.

Not here: the clock (`time.perf_counter_ns`) and who reads it (the core, devices).  Called by whatever
profiles: sessions, devices, the command line's timelines.
"""

from __future__ import annotations

from typing import final

from tilewright.base.record import record

CommandTimes = tuple[int, int, tuple[tuple[int, int, int], ...]]
"""How the core says it: (begin, end, ((thread, begin, end), ...))."""


@final
@record
class ThreadSpan:
    """What one thread did of a command: from its first to the end of its last workgroup.

    Units: nanoseconds on the clock of `time.perf_counter_ns`.  `thread` 0 is the caller.
    """

    thread: int
    begin_ns: int
    end_ns: int


@final
@record
class Timing:
    """When a command ran.

    Units: nanoseconds on the clock of `time.perf_counter_ns`; `begin_ns` is 0 where nobody looked.

    Attributes:
        duration_ns: from the first moment to the last, with what starting and joining threads takes.
        threads: the threads that ran some of it, where that is known.
    """

    begin_ns: int
    duration_ns: int
    threads: tuple[ThreadSpan, ...] = ()

    @staticmethod
    def of(times: CommandTimes) -> Timing:
        """What the core says of a command."""
        begin, end, threads = times
        return Timing(begin, end - begin, tuple(ThreadSpan(*span) for span in threads))
