"""What the verbs share on a terminal: the consoles, a progress line, tables."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column, Table
from rich.text import Text

if TYPE_CHECKING:
    from tilewright.compiler import pipeline

_UNLIMITED: Final = 4096
_REDRAW_SECONDS: Final = 0.2


@final
class _Output(Console):
    """Standard output; lines that go to a file or a pipe are never cut, wrapped or padded."""

    def print(self, *objects: Any, **options: Any) -> None:
        if self.is_terminal:
            super().print(*objects, **options)
            return
        with self.capture() as capture:
            super().print(*objects, **options)
        for line in capture.get().splitlines():
            self.file.write(f"{line.rstrip()}\n")


out: Final = _Output(highlight=False, width=None if sys.stdout.isatty() else _UNLIMITED)
err: Final = Console(
    stderr=True, highlight=False, width=None if sys.stderr.isatty() else _UNLIMITED
)


def phase_bar(*, quiet: bool = False) -> AbstractContextManager[pipeline.Progress]:
    """A progress line on standard error while a model compiles; gone when done."""
    from tilewright.api import progress

    return progress.phase_bar(err, quiet=quiet)


@contextmanager
def measuring_bar() -> Generator[Callable[[float], None]]:
    """A line on standard error while something is measured; drawn between calls, never in one."""
    columns = (TextColumn("measure"), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns,
        console=err,
        transient=True,
        disable=not err.is_terminal,
        auto_refresh=False,  # a thread that draws would take time from calls
    ) as progress:
        task = progress.add_task("measure", total=1.0)
        drawn = time.monotonic()

        def advance(part: float) -> None:
            nonlocal drawn
            if progress.disable or time.monotonic() - drawn < _REDRAW_SECONDS:
                return
            progress.update(task, completed=part, refresh=True)
            drawn = time.monotonic()

        yield advance


@final
class _TitledTable(Table):
    """A table below its title, which may be wider."""

    def __init__(self, heading: str) -> None:
        super().__init__(box=None, pad_edge=False)
        self._heading: str = heading

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._heading:
            yield Text(self._heading, style="bold", overflow="fold")
        whole = self.columns
        self.columns = self._that_fit(options.max_width)
        yield from super().__rich_console__(console, options)
        self.columns = whole

    def _that_fit(self, width: int) -> list[Column]:
        """The columns without those at the right that would take the room of the names."""
        fitting = list(self.columns)
        text = max(12, 2 * width // 5)  # cells of a text that folds
        while len(fitting) > 2:
            if sum(_least_width(c, text) for c in fitting) + 2 * len(fitting) <= width:
                break
            last = next((c for c in reversed(fitting) if c.no_wrap), None)
            if last is None:
                break
            fitting.remove(last)
        return fitting


def _least_width(column: Column, text: int) -> int:
    """What a column needs to be read: all of a number or a bar, the beginning of a text."""
    cells = (cell for cell in (column.header, *column.cells) if isinstance(cell, str))
    widest = max((Text.from_markup(cell).cell_len for cell in cells), default=0)
    return widest if column.no_wrap else min(widest, text)


def table(title: str, columns: Sequence[tuple[str, str]]) -> Table:
    """An empty table; each column is (heading, kind): `left`, `right` or `bar`.

    Where the terminal is too narrow, `left` columns fold over several lines; numbers and bars
    stay whole, and those at the right are left out where names would have no room.
    """
    made = _TitledTable(title)
    for heading, kind in columns:
        made.add_column(
            heading,
            justify="right" if kind == "right" else "left",
            no_wrap=kind != "left",
            overflow="fold",
        )
    return made


def example(*lines: str) -> str:
    """The end of a verb's `--help`: how it is called."""
    title = "Example:" if len(lines) == 1 else "Examples:"
    return "\b\n" + "\n".join((title, *(f"  {line}" for line in lines)))


def thousands(value: float) -> str:
    """A count with separators."""
    return f"{value:,.0f}"
