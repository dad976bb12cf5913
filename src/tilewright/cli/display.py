"""What the verbs share on a terminal: the consoles, a progress line, tables."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column, Table
from rich.text import Text

from tilewright.base.text import printable, printable_line

if TYPE_CHECKING:
    from rich.style import StyleType

    from tilewright.compiler import pipeline

_UNLIMITED: Final = 4096
_REDRAW_SECONDS: Final = 0.2


@final
class _Stream(Console):
    """Standard output or error.

    Text is text: brackets and colons of names mean nothing here, and what steers a terminal is shown
    in letters; styles come from `Text` and `style`.  Lines that go to a file or a pipe are never cut,
    wrapped or padded.
    """

    def __init__(self, *, stderr: bool) -> None:
        stream = sys.stderr if stderr else sys.stdout
        super().__init__(
            stderr=stderr,
            highlight=False,
            markup=False,
            emoji=False,
            width=None if stream.isatty() else _UNLIMITED,
        )

    def print(self, *objects: Any, **options: Any) -> None:
        shown = [printable(o) if isinstance(o, str) else o for o in objects]
        if self.is_terminal:
            super().print(*shown, **options)
            return
        with self.capture() as capture:
            super().print(*shown, **options)
        for line in capture.get().splitlines():
            self.file.write(f"{line.rstrip()}\n")


out: Final = _Stream(stderr=False)
err: Final = _Stream(stderr=True)


def labelled(label: str, colour: str, text: str) -> Text:
    """`label: text` with the label in a colour."""
    return Text.assemble((f"{label}: ", colour), printable(text))


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
    """A table below its title, which may be wider; cells are text without markup."""

    def __init__(self, heading: str) -> None:
        super().__init__(box=None, pad_edge=False)
        self._heading: str = printable(heading)

    def add_row(
        self,
        *renderables: RenderableType | None,
        style: StyleType | None = None,
        end_section: bool = False,
    ) -> None:
        cells = [Text(printable_line(c)) if isinstance(c, str) else c for c in renderables]
        super().add_row(*cells, style=style, end_section=end_section)

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
    cells = (cell for cell in column.cells if isinstance(cell, Text))
    widest = max((cell.cell_len for cell in cells), default=0)
    widest = max(widest, Text(str(column.header)).cell_len)
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
