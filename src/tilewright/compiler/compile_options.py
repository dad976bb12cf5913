"""How to compile, and who watches: what the pipeline is told.  Made by the API and by tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, final

from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.host import usable_cores
from tilewright.base.knobs import THREAD_LIMIT
from tilewright.base.options import (
    choice_option,
    count_option,
    shapes_option,
    values_option,
)
from tilewright.base.record import field, record
from tilewright.base.target import Target
from tilewright.compiler.backends.tuning_store import DecisionSource
from tilewright.compiler.graph.schema import Array
from tilewright.compiler.packaging.provenance import digest_of_array
from tilewright.compiler.passes import PassContext, check_opt_level, instruments_of_knobs
from tilewright.compiler.schedule.user import check_schedules
from tilewright.compiler.transforms.external_codegen import ChosenCodegen, Codegen
from tilewright.compiler.transforms.round_contractions import PRECISIONS

if TYPE_CHECKING:
    from tilewright.compiler.schedule.by_user import ScheduleSpec


class Progress(Protocol):
    """Who watches a compilation.  Called from the compiling thread."""

    def phase(self, name: str) -> None:
        """A phase begins."""
        ...

    def advance(self, done: int, total: int) -> None:
        """`done` of `total` units of the phase are finished."""
        ...


class _Silent:
    def phase(self, name: str) -> None:
        del name

    def advance(self, done: int, total: int) -> None:
        del done, total


SILENT: Progress = _Silent()


@final
@record(kw_only=True)
class CompileOptions:
    """How to compile.

    targets: code is made for each; those of one back end share the graph and its packed weights.
    opt_level: the passes of that level and below run; None: the context's.
    context: which passes run and who watches; None: the one that is entered.
    byoc: code generators of the user that take part, first come first served.
    schedules: the user's own, by patterns of kernel names (`schedule.by_user`).
    threads: cores that kernels may count on (schedules only, results do not depend on it).
    jobs: processes that generate code.
    store: what tuning found; kernels of which it knows nothing are as the cost model likes them best.
    precision: what operands of f32 contractions are rounded to: `f32` (not at all), `bf16`, `f16`, or `i8` for rows that meet weights in blocks.
    check_indices: let calls check the indices in their data (see `docs/errors.md`).
    input_shapes, input_values: what is known of inputs (`frontends.door.Shaping`).
    """

    targets: tuple[Target, ...]
    opt_level: int | None = None
    threads: int = field(default_factory=usable_cores)
    jobs: int = field(default_factory=usable_cores)
    cache: CompilationCache | None = None
    store: DecisionSource | None = None
    input_shapes: Mapping[str, Sequence[int | str]] | None = None
    input_values: Mapping[str, Array] | None = None
    context: PassContext | None = None
    precision: str = "f32"
    check_indices: bool = True
    byoc: tuple[ChosenCodegen, ...] = ()
    schedules: Mapping[str, ScheduleSpec] = field(default_factory=dict[str, "ScheduleSpec"])

    def __post_init__(self) -> None:
        """Brings what is known of inputs to one form.  Raises: UserError for numbers out of range."""
        if self.opt_level is not None:
            check_opt_level(self.opt_level)
        check_schedules(self.schedules)
        choice_option("precision", self.precision, PRECISIONS)
        count_option("threads", self.threads, most=THREAD_LIMIT)
        count_option("jobs", self.jobs)
        if self.input_shapes is not None:
            shapes = shapes_option("input_shapes", self.input_shapes)
            object.__setattr__(self, "input_shapes", shapes)
        if self.input_values is not None:
            values = values_option("input_values", self.input_values)
            object.__setattr__(self, "input_values", values)
        for target in self.targets:
            target.checked()  # of which every back end knows every word from here on

    @property
    def pass_context(self) -> PassContext:
        """What surrounds the passes: the given or entered context, and the watchers of the knobs."""
        context = self.context or PassContext.current()
        level = context.opt_level if self.opt_level is None else self.opt_level
        watchers = (*context.instruments, *instruments_of_knobs())
        return replace(context, opt_level=level, instruments=watchers)

    @property
    def decisive(self) -> dict[str, object]:
        """What the artifact's bytes depend on beside the model, for its provenance."""
        context = self.pass_context
        given = self.input_values or {}
        said: dict[str, object] = {
            "targets": [str(target) for target in self.targets],
            "opt_level": context.opt_level,
            "threads": self.threads,
            "precision": [] if self.precision == "f32" else self.precision,
            "check_indices": self.check_indices,
            "input_shapes": {n: list(s) for n, s in (self.input_shapes or {}).items()},
            "input_values": {n: digest_of_array(v) for n, v in given.items()},
            "schedules": sorted(self.schedules),
            "byoc": {chosen.codegen.name: chosen.described for chosen in self.byoc},
            "required_pass": sorted(context.required_pass),
            "disabled_pass": sorted(context.disabled_pass),
            "config": {key: str(value) for key, value in sorted(context.config.items())},
        }
        return {name: value for name, value in said.items() if value not in ({}, [])}

    @property
    def codegens(self) -> tuple[Codegen, ...]:
        """Code generators of the user."""
        return tuple(chosen.codegen for chosen in self.byoc)
