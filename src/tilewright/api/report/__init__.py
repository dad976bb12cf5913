"""A report: one self-contained page that shows a model's graph with times, roofline, memory and code.

`data` says what is known, the drawings and the page how it looks.  Everything that comes from a model is
text of strangers and is escaped.  Not here: how times are taken (`api.profiling`).  Called by `api.model`
and the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from html import escape
from pathlib import Path
from typing import Final, final

from tilewright.api.model_inputs import Inputs, model_inputs
from tilewright.api.profiling import Sample, sample
from tilewright.api.profiling.roofline import measure
from tilewright.api.report.page import render
from tilewright.api.report.report_data import ReportData, Subject, collect
from tilewright.base.errors import UserError
from tilewright.base.options import count_option, flag_option, path_option, sizes_option
from tilewright.base.output_file import check_output, is_regular_output, write_text_output
from tilewright.compiler.pipeline import Progress
from tilewright.runtime.session import Session

__all__ = ["Report", "ReportData", "Subject", "check_report_path", "make_report"]

_SUFFIXES: Final = (".html", ".htm")
_FRAME_PIXELS: Final = 900

Sources = Callable[[], Mapping[str, str]]


@final
class Report:
    """A page about a model; `str(report)` is its HTML, and a notebook shows it in a frame."""

    def __init__(self, data: ReportData) -> None:
        self.data: ReportData = data
        self._html: str = render(data)

    def save(self, path: str | Path) -> None:
        """Write the page.

        Raises: UserError for a name that does not end in .html, and when the file cannot be written;
            what was there stays as it was.
        """
        path = path_option("path", path)
        check_report_path(path)
        write_text_output(path, self._html)

    def __str__(self) -> str:
        return self._html

    def __repr__(self) -> str:
        return f"<report of '{self.data.name}', {len(self._html):,} characters>"

    def _repr_html_(self) -> str:  # pyright: ignore[reportUnusedFunction] - notebooks call it
        """A frame, so that neither page changes the looks of the other."""
        return (
            f'<iframe srcdoc="{escape(self._html)}" sandbox="allow-scripts" '
            f'style="width:100%;height:{_FRAME_PIXELS}px;border:0"></iframe>'
        )


def check_report_path(path: str | Path, *, inputs: Iterable[str | Path] = ()) -> None:
    """Say before the work what would go wrong after it.

    Raises: UserError for a regular file of another suffix, and as `base.output_file.check_output`.
    """
    if is_regular_output(path) and Path(path).suffix.lower() not in _SUFFIXES:
        raise UserError(
            "is no name of a page, expected one that ends in .html", location=path
        )
    check_output(path, inputs=inputs)


def make_report(
    session: Session,
    inputs: Inputs,
    *,
    dims: Mapping[str, int] | None,
    subject: Subject,
    sources: Sources,
    calls: int,
    limits: bool,
    watcher: AbstractContextManager[Progress],
) -> Report:
    """Call a session a few times, one command at a time, and say what was seen.

    Args:
        session: what is called.
        inputs: with what; None takes random values.
        dims: sizes of dynamic dimensions for random values.
        subject: what the page is about.
        sources: gives printed levels of its kernels, named as in an artifact.
        calls: how many; the report has the medians.
        limits: whether the limits of this machine are measured.
        watcher: gives who hears what is done.

    Raises: UserError for options that make no sense; InputError for inputs that do not fit.
    """
    calls = count_option("calls", calls)
    limits = flag_option("limits", limits)
    arrays = model_inputs(session.inputs, inputs, sizes_option("dims", dims or {}))
    with watcher as progress:
        progress.phase("call")
        session(*arrays)  # first calls allocate
        samples: list[list[Sample]] = []
        for number in range(calls):
            samples.append(sample(session, arrays))
            progress.advance(number + 1, calls)
        found = None
        if limits:
            progress.phase("measure the machine")
            found = measure(session.threads)
        progress.phase("print the kernels")
        texts = sources()
        progress.phase("draw")
        return Report(
            collect(session, arrays, samples, subject=subject, limits=found, sources=texts)
        )
