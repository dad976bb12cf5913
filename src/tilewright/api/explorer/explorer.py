"""The page of some settings: compile, call, measure, and what was tried before beside it.

Called by `server`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Final, final

from tilewright.api.explorer.settings import LARGEST, Settings, SettingsForm
from tilewright.api.load import load
from tilewright.api.model import Model, compile, sources_of  # noqa: A004 - the verb
from tilewright.api.profiling import CALLS
from tilewright.api.report import Subject, make_report
from tilewright.api.report.markup import Markup, element
from tilewright.api.report.page import render, render_problem
from tilewright.api.report.report_data import ReportData
from tilewright.base.errors import TilewrightError, UserError
from tilewright.base.file_kinds import is_artifact_name
from tilewright.base.host import usable_cores
from tilewright.base.options import count_option
from tilewright.base.symbolic import symbols
from tilewright.base.text import did_you_mean, format_bytes, format_duration
from tilewright.compiler.pipeline import SILENT
from tilewright.runtime.session import Session

_MODELS: Final = 4  # compiled models that are kept
_PAGES: Final = 16
_COLUMNS: Final = (
    "what was tried",
    "steps of a call",
    "by the fastest",
    "kernels",
    "arena",
)


@final
class Explorer:
    """Pages about one model.

    Thread-safety: one page is made at a time, so that no measurement disturbs another.

    Args:
        path: of the model, or of a `.vmfb`.
        threads: of the first page.
        dims: sizes of dynamic dimensions on the first page, up to 2^20; others are 1.
        calls: calls that are timed for each page.

    Raises: UserError for a dimension that there is not, or of no such size; errors of compiling and loading.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        threads: int | None = None,
        dims: Mapping[str, int] | None = None,
        calls: int = CALLS,
    ) -> None:
        self._path: Final[str] = str(path)
        self._calls: Final[int] = calls
        self._turn: Final[threading.Lock] = threading.Lock()
        self._models: Final[OrderedDict[object, Model | Session]] = OrderedDict()
        self._pages: Final[OrderedDict[Settings, ReportData]] = OrderedDict()
        first = Settings(threads=threads or usable_cores())
        sizes = self._sizes(first, dims or {})
        first = Settings(threads=first.threads, dims=tuple(sizes.items()))
        self.settings: Final[SettingsForm] = SettingsForm(first, is_fixed=self._is_artifact)

    @property
    def _is_artifact(self) -> bool:
        return is_artifact_name(self._path)

    @property
    def name(self) -> str:
        """Of the model."""
        return Path(self._path).name

    def page(self, query: str) -> str:
        """The page that a query asks for.  Raises: UserError for a query that asks for something else."""
        settings = self.settings.read(query)
        with self._turn:
            try:
                data = self._data(settings)
            except TilewrightError as error:
                return render_problem(self.name, str(error), self._controls(settings))
            return render(data, controls=self._controls(settings))

    def _data(self, settings: Settings) -> ReportData:
        found = self._pages.pop(settings, None)
        if found is None:
            found = self._measured(settings)
        self._pages[settings] = found  # as the newest
        while len(self._pages) > _PAGES:
            self._pages.popitem(last=False)
        return found

    def _measured(self, settings: Settings) -> ReportData:
        model = self._model(settings)
        session = model.session if isinstance(model, Model) else model
        return make_report(
            session,
            None,
            dims=dict(settings.dims),
            subject=Subject.of_file(self._path),
            sources=sources_of(model),
            calls=self._calls,
            limits=True,
            watcher=nullcontext(SILENT),
        ).data

    def _model(self, settings: Settings) -> Model | Session:
        found = self._models.pop(settings.compiled, None)
        if found is None and self._is_artifact:
            found = load(self._path, threads=settings.threads)
        elif found is None:
            found = compile(
                self._path,
                target=settings.target
                if settings.target == "host"
                else f"x86_64-{settings.target}",
                opt_level=settings.opt_level,
                precision=settings.precision,
                threads=settings.threads,
            )
        self._models[settings.compiled] = found
        while len(self._models) > _MODELS:
            self._models.popitem(last=False)
        return found

    def _sizes(self, first: Settings, dims: Mapping[str, int]) -> dict[str, int]:
        """A size for each dynamic dimension of the inputs."""
        inputs = self._model(first).inputs
        found = {s.name: 1 for _, _, shape in inputs for d in shape for s in symbols(d)}
        unknown = next((name for name in dims if name not in found), None)
        if unknown is not None:
            raise UserError(
                f"no input has a dimension '{unknown}'",
                hint=did_you_mean(unknown, found)
                or f"dynamic dimensions: {', '.join(found) or 'none'}",
            )
        for name, size in dims.items():
            count_option(f"dims['{name}']", size, least=0, most=LARGEST)
        return {**found, **dims}

    def _controls(self, chosen: Settings) -> Markup:
        """The form, and what was tried."""
        return element(
            "section", self.settings.form(chosen), *self._tried(chosen), class_="explore"
        )

    def _tried(self, chosen: Settings) -> tuple[Markup, ...]:
        """A table of the settings whose pages were made, the fastest first."""
        if len(self._pages) < 2:
            return ()
        fastest = min(data.time_ns for data in self._pages.values()) or 1
        ordered = sorted(self._pages.items(), key=lambda item: item[1].time_ns)
        rows = (
            self._row(settings, data, fastest, settings == chosen)
            for settings, data in ordered
        )
        first, *others = _COLUMNS
        numbers = (element("th", title, class_="n") for title in others)
        head = element("thead", element("tr", element("th", first), *numbers))
        return (element("table", head, element("tbody", *rows)),)

    def _row(
        self, settings: Settings, data: ReportData, fastest_ns: int, is_chosen: bool
    ) -> Markup:
        memory = "" if data.memory is None else format_bytes(data.memory.arena_bytes)
        numbers = (
            format_duration(data.time_ns),
            f"{data.time_ns / fastest_ns:.2f} ×",
            str(len(data.kernels)),
            memory,
        )
        return element(
            "tr",
            element(
                "td",
                element(
                    "a",
                    self.settings.words(settings),
                    href=f"/?{self.settings.query(settings)}",
                ),
            ),
            *(element("td", text, class_="n") for text in numbers),
            class_="is-chosen" if is_chosen else "",
        )
