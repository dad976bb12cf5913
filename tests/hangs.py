"""Shows where every thread is when a test never ends.

pytest's `faulthandler_timeout` starts a thread for each test and waits for its end: milliseconds where all processors
are busy, for each of seventeen thousand tests.  Here one watch serves all tests of a minute.  `conftest.py` calls this.
"""

from __future__ import annotations

import faulthandler
import math
from typing import Final, final

# The dump reads the frames of running threads and can itself end in a segfault (CPython 3.11), so no test
# may be slow enough to meet it, not even on a busy or paused machine.
HANG_S: Final = 1800
RENEWED_S: Final = 60


@final
class HangWatch:
    """Dumps the stacks of all threads when no test has begun for about `HANG_S` seconds."""

    def __init__(self, file: int) -> None:
        self._file = file  # a descriptor that pytest does not capture
        self._begun = -math.inf

    def test_begins(self, now: float) -> None:
        """Watch from here on; `now` in seconds, of a clock that never goes back."""
        if now - self._begun < RENEWED_S:
            return
        self._begun = now
        faulthandler.dump_traceback_later(HANG_S, file=self._file)

    def end(self) -> None:
        """Watch no longer."""
        faulthandler.cancel_dump_traceback_later()
