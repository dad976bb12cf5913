"""What onnxruntime sets for a whole process: how much is logged, whether anything is reported.

Called by programs before they make sessions; `is_quiet` asks for the level.
"""

from __future__ import annotations

from typing import Final

from tilewright.base.options import count_option
from tilewright.base.version import VERSION

_WARNING: Final = 2
_MOST: Final = 4
_level: int = _WARNING


def set_default_logger_severity(severity: int) -> None:
    """Set the level of sessions that have none of their own.

    Args:
        severity: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal; warnings are not shown from 3 on.

    Raises: UserError for any other value.
    """
    global _level  # noqa: PLW0603 (the process has one)
    _level = count_option("severity", severity, least=0, most=_MOST)


def default_logger_severity() -> int:
    """The level of sessions that have none of their own."""
    return _level


def set_default_logger_verbosity(verbosity: int) -> None:
    """Kept for programs that call it; there is nothing more to say.

    Raises: UserError for what is no count.
    """
    count_option("verbosity", verbosity, least=0)


def enable_telemetry_events() -> None:
    """Nothing is ever sent, enabled or not."""


def disable_telemetry_events() -> None:
    """Nothing is ever sent, enabled or not."""


def get_version_string() -> str:
    """The version of Tilewright."""
    return VERSION
