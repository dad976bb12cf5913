"""What is done, step by step, told to Python's `logging` under the logger `tilewright`.

For people who ask (`tilewright -v`, `logging.basicConfig(level="INFO")`): what was loaded, which code was
chosen, what a cache gave, which sizes a plan was recorded for.  Nothing is said per call.  Not for
warnings (`diagnostics`) and not for progress.

`logging` takes longer to import than a small artifact to load, so nothing here imports it: as long as
nobody has, nobody listens.  Called by the pipeline and by sessions.
"""

from __future__ import annotations

import sys
from typing import Any, final

from tilewright.base.record import record

ROOT = "tilewright"


@final
@record
class Log:
    """The logger of one room, `tilewright.<room>`.  Thread-safety: that of `logging`."""

    room: str

    def info(self, text: str, *values: object) -> None:
        """A step that was done; `values` are put in for `%s` only if somebody listens."""
        logger = self._logger
        if logger is not None:
            logger.info(text, *values)

    def debug(self, text: str, *values: object) -> None:
        """A detail of a step."""
        logger = self._logger
        if logger is not None:
            logger.debug(text, *values)

    def warning(self, text: str, *values: object) -> None:
        """A step that was left out, which costs nobody more than time."""
        logger = self._logger
        if logger is not None:
            logger.warning(text, *values)

    @property
    def _logger(self) -> Any:
        logging = sys.modules.get("logging")
        # A module that is being imported by another thread is there, too, but not whole.
        make = getattr(logging, "getLogger", None)
        return None if make is None else make(f"{ROOT}.{self.room}")
