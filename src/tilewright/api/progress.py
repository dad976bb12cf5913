"""Ready-made progress for people: a line on a terminal or in a notebook, gone when the work is done.

What it shows are the phases that a `pipeline.Progress` hears.  Where nobody looks (a pipe, a log)
nothing is written.  Not the measuring of `bench`.  Called by `compile(progress=True)`, by reports,
and by the verbs.

Source: rich, "Progress Display"; IPython, `IPython.display.DisplayHandle`.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from html import escape
from typing import Any, Final, Protocol, final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from tilewright.compiler import pipeline

_REDRAW_SECONDS: Final = 0.1  # a notebook gets a message for each drawing


@final
class PhaseBar:
    """Shows the phases of a compilation on a terminal; a `pipeline.Progress`."""

    def __init__(self, progress: Progress) -> None:
        self._progress: Progress = progress
        self._task = progress.add_task("start", total=None)

    def phase(self, name: str) -> None:
        """A phase begins."""
        self._progress.update(self._task, description=name, completed=0, total=None)

    def advance(self, done: int, total: int) -> None:
        """`done` of `total` units of the phase are finished."""
        self._progress.update(self._task, completed=done, total=total)


class _Handle(Protocol):
    """What `IPython.display.display` gives for something that will change."""

    def update(self, obj: Any, /) -> None: ...


@final
class NotebookBar:
    """The same in a notebook, without widgets; a `pipeline.Progress`."""

    def __init__(self) -> None:
        # Imported here: only notebooks have it.
        from IPython.display import (  # noqa: PLC0415 # pyright: ignore[reportMissingImports]
            HTML,
            display,
        )

        self._html: Any = HTML
        self._handle: _Handle = display(HTML(""), display_id=True)
        self._started: float = time.monotonic()
        self._drawn: float = 0.0
        self._phase: str = ""

    def phase(self, name: str) -> None:
        """A phase begins."""
        self._phase = name
        self._draw("<progress></progress>", "")

    def advance(self, done: int, total: int) -> None:
        """`done` of `total` units of the phase are finished."""
        if done < total and time.monotonic() - self._drawn < _REDRAW_SECONDS:
            return
        bar = f'<progress value="{done}" max="{total}"></progress>'
        self._draw(bar, f"{done}/{total}")

    def close(self) -> None:
        """Take the line away."""
        self._handle.update(self._html(""))

    def _draw(self, bar: str, count: str) -> None:
        self._drawn = time.monotonic()
        seconds = self._drawn - self._started
        text = f"{bar} {escape(self._phase)} {count} ({seconds:.0f} s)"
        self._handle.update(self._html(f"<div>{text}</div>"))


@contextmanager
def phase_bar(
    console: Console | None = None, *, quiet: bool = False
) -> Generator[pipeline.Progress]:
    """Who watches a compilation and shows it; nothing is left when the block ends.

    Args:
        console: where a terminal is asked for; default: standard error.
        quiet: show nothing.
    """
    console = console or Console(stderr=True)
    if console.is_jupyter and not quiet:
        bar = NotebookBar()
        try:
            yield bar
        finally:
            bar.close()
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    disable = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disable) as progress:
        yield PhaseBar(progress)
