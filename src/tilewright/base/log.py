"""What is done, step by step, told to Python's `logging` under the logger `tilewright`.

For people who ask (`tilewright -v`, `logging.basicConfig(level="INFO")`): what was loaded, which code was
chosen, what a cache gave, which sizes a plan was recorded for.  Nothing is said per call, and nothing at all where
nobody has asked.  Not for warnings (`diagnostics`) and not for progress.  Called by the pipeline and by sessions.
"""

from __future__ import annotations

import logging
from typing import final

from tilewright.base.record import record

ROOT = "tilewright"
# Else Python shows warnings that no handler takes.
logging.getLogger(ROOT).addHandler(logging.NullHandler())


@final
@record
class Log:
    """The logger of one room, `tilewright.<room>`.  Thread-safety: that of `logging`."""

    room: str

    def info(self, text: str, *values: object) -> None:
        """A step that was done; `values` are put in for `%s` only if somebody listens."""
        self._logger.info(text, *values)

    def debug(self, text: str, *values: object) -> None:
        """A detail of a step."""
        self._logger.debug(text, *values)

    def warning(self, text: str, *values: object) -> None:
        """A step that was left out, which costs nobody more than time."""
        self._logger.warning(text, *values)

    @property
    def _logger(self) -> logging.Logger:
        return logging.getLogger(f"{ROOT}.{self.room}")
