"""What the verbs share on a terminal: the consoles, a progress line, tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

out: Final = Console(highlight=False, soft_wrap=True)
err: Final = Console(stderr=True, highlight=False)


@final
class PhaseBar:
    """Shows the phases of a compilation; a `pipeline.Progress`."""

    def __init__(self, progress: Progress) -> None:
        self._progress: Progress = progress
        self._task = progress.add_task("start", total=None)

    def phase(self, name: str) -> None:
        """A phase begins."""
        self._progress.update(self._task, description=name, completed=0, total=None)

    def advance(self, done: int, total: int) -> None:
        """`done` of `total` units of the phase are finished."""
        self._progress.update(self._task, completed=done, total=total)


@contextmanager
def phase_bar(*, quiet: bool = False) -> Iterator[PhaseBar]:
    """A progress line on standard error while a model compiles; gone when done."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    disable = quiet or not err.is_terminal
    with Progress(*columns, console=err, transient=True, disable=disable) as progress:
        yield PhaseBar(progress)


def table(title: str, columns: Sequence[tuple[str, str]]) -> Table:
    """An empty table; each column is (heading, justification)."""
    made = Table(
        title=title, title_justify="left", title_style="bold", box=None, pad_edge=False
    )
    for heading, justify in columns:
        made.add_column(
            heading, justify="right" if justify == "right" else "left", no_wrap=True
        )
    return made


def thousands(value: float) -> str:
    """A count with separators."""
    return f"{value:,.0f}"
