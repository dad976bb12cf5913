"""Diagnostics: what is not an error but should be known.

A *warning* is for the user (an op runs on the host, a file is from an older version); a *remark*
explains a decision (why a kernel was tiled so) and is shown on request only.  Each carries a
location in the input's terms and, where there is one, a cost.  A `Diagnostics` collects them in
order and merges repeats; `show` sends the warnings through Python's `warnings`.  Not logging, and
not for failures (see `errors`).  Made by the API or the CLI, filled by every room.
"""

from __future__ import annotations

import contextlib
import enum
import inspect
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Final, TextIO, cast, final

from tilewright.base.html import html_table
from tilewright.base.record import record
from tilewright.base.text import plural


def say(text: str) -> None:
    """Write to standard error; nothing where the process was started without (`2>&-`)."""
    stream = cast("TextIO | None", sys.stderr)
    if stream is not None:
        stream.write(text)


class TilewrightWarning(UserWarning):
    """The category of everything Tilewright warns about; filter it with `warnings`."""


def _house() -> str:
    """The package's folder with a separator, spelled as code says it: `sys.path` may have `//` or `/./` in it."""
    file = _house.__code__.co_filename
    return os.path.dirname(os.path.dirname(file)) + os.sep  # noqa: PTH120 - a `Path` spells it anew


# Between two of our frames stand those of decorators, too.
_PASSED: Final = (_house(), contextlib.contextmanager.__code__.co_filename)


def warn(
    text: str,
    category: type[Warning] = TilewrightWarning,
    passed: Sequence[str] = (),
) -> None:
    """Warn of something at the line that called Tilewright, however far that is from here.

    Args:
        text: the warning.
        category: its class.
        passed: folders of others whose lines are not meant either, with a separator at the end.
    """
    inner = frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith((*_PASSED, *passed)):
        inner, frame = frame, frame.f_back
    found = frame or inner
    if found is None:  # an interpreter without frames
        warnings.warn(text, category, stacklevel=2)
        return
    names = found.f_globals
    warnings.warn_explicit(
        text,
        category,
        found.f_code.co_filename,
        found.f_lineno or 0,  # of code without lines it is None
        names.get("__name__") or "<unknown>",
        names.setdefault("__warningregistry__", {}),
    )


class Severity(enum.Enum):
    """How much a reader should care."""

    WARNING = "warning"
    REMARK = "remark"


@final
@record
class Diagnostic:
    """One observation.  `str` prints `location: message (cost)` and the hint on its own line.

    `cost` says in words what it takes (`about 1.2 MFLOP on the host`).
    """

    severity: Severity
    message: str
    location: str = ""
    cost: str = ""
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.location}: {self.message}" if self.location else self.message
        text = f"{text} ({self.cost})" if self.cost else text
        return f"{text}\nhint: {self.hint}" if self.hint else text


@final
class Diagnostics:
    """Collects diagnostics in order; equal ones count once with a repeat count.

    Thread-safety: one writer at a time.
    """

    __slots__ = ("_counts", "_shown")

    def __init__(self) -> None:
        self._counts: dict[Diagnostic, int] = {}
        self._shown: set[Diagnostic] = set()

    def add(self, diagnostic: Diagnostic) -> None:
        """Record one observation."""
        self._counts[diagnostic] = self._counts.get(diagnostic, 0) + 1

    def warn(
        self, message: str, *, location: object = "", cost: str = "", hint: str = ""
    ) -> None:
        """Record something the user should know."""
        self.add(Diagnostic(Severity.WARNING, message, str(location), cost, hint))

    def remark(
        self, message: str, *, location: object = "", cost: str = "", hint: str = ""
    ) -> None:
        """Record why something was decided."""
        self.add(Diagnostic(Severity.REMARK, message, str(location), cost, hint))

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """The warnings in the order they were first recorded."""
        return tuple(d for d in self._counts if d.severity is Severity.WARNING)

    @property
    def remarks(self) -> tuple[Diagnostic, ...]:
        """The remarks in the order they were first recorded."""
        return tuple(d for d in self._counts if d.severity is Severity.REMARK)

    def __repr__(self) -> str:
        warned, remarked = plural(len(self.warnings), "warning"), len(self.remarks)
        return f"<diagnostics: {warned}, {plural(remarked, 'remark')}>"

    def _repr_html_(self) -> str:  # pyright: ignore[reportUnusedFunction] - notebooks call it
        rows = [
            (d.severity.value, d.location, d.message, d.cost, d.hint, self.count(d))
            for d in self
        ]
        headings = ("severity", "location", "message", "cost", "hint", "times")
        return html_table("diagnostics", headings, rows)

    def count(self, diagnostic: Diagnostic) -> int:
        """How often `diagnostic` was recorded."""
        return self._counts.get(diagnostic, 0)

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self._counts)

    def __len__(self) -> int:
        return len(self._counts)

    def render(self, *, remarks: bool = False) -> str:
        """One paragraph per diagnostic, `warning: …` or `remark: …`, repeats counted."""
        shown = self if remarks else self.warnings
        return "\n".join(f"{d.severity.value}: {self._text(d)}" for d in shown)

    def show(self) -> None:
        """Send every warning that was not sent yet through `warnings.warn`."""
        pending = [d for d in self.warnings if d not in self._shown]
        self._shown.update(pending)
        for diagnostic in pending:
            warn(self._text(diagnostic))

    def _text(self, diagnostic: Diagnostic) -> str:
        count = self._counts[diagnostic]
        again = f" [{plural(count, 'time')}]" if count > 1 else ""
        first, newline, rest = str(diagnostic).partition("\n")
        return first + again + newline + rest
