"""What a report knows of a model: its steps with times and tensors, kernels, memory, the machine.

Data without looks.  Made from a session, its calls that were profiled, and printed levels of the
kernels; read by the drawings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import numpy as np

from tilewright.api.profiling import KernelRow, Sample, rows_of
from tilewright.api.profiling.causes import KernelFinding, findings_of, observe
from tilewright.api.report.plan_reader import (
    Edge,
    Memory,
    PlanReader,
    Tensor,
    places_of,
)
from tilewright.base.target import Target
from tilewright.formats.tensor_text import Array

if TYPE_CHECKING:
    from tilewright.api.profiling.roofline import Roofline
    from tilewright.runtime.session import Session

LEVELS: Final[Mapping[str, str]] = {
    "kernel": "kernel IR",
    "naive": "loops before scheduling",
    "llvm": "LLVM IR",
    "asm": "assembly",
}
"""The levels of a kernel that are shown, by the prefix of their name among an artifact's sources."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class StepData:
    """A step of a call.  `row` counts this step alone, its time being the median of the calls.

    `constants` are the operands that every call shares; `kernel` is the place among the kernels.
    """

    row: KernelRow
    kernel: int
    kind: str
    grid: tuple[int, ...]
    operands: tuple[Tensor, ...] = ()
    constants: tuple[Tensor, ...] = ()
    results: tuple[Tensor, ...] = ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """All that a report shows.  Units: nanoseconds, bytes.

    `edges` is empty and `memory` None where there is no plan to tell: for modules of other compilers,
    and for those that ran as bytecode; `findings` where the limits of the machine were not measured.
    """

    name: str
    target: str
    machine: str
    threads: int
    calls: int
    dims: Mapping[str, int]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    steps: tuple[StepData, ...]
    kernels: tuple[KernelRow, ...]
    limits: Roofline | None
    code: Mapping[str, Mapping[str, str]]
    edges: tuple[Edge, ...] = ()
    memory: Memory | None = None
    findings: tuple[KernelFinding, ...] = ()

    @property
    def time_ns(self) -> int:
        """Of all steps of a call."""
        return sum(step.row.time_ns for step in self.steps)


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What a report is about: what it is called, and its file as the commands that are proposed name it."""

    title: str
    origin: str

    @classmethod
    def of_file(cls, path: str | Path) -> Subject:
        """A model that is called as its file is."""
        return cls(title=Path(path).name, origin=str(path))


def collect(
    session: Session,
    arrays: Sequence[Array],
    samples: Sequence[Sequence[Sample]],
    *,
    subject: Subject,
    limits: Roofline | None,
    sources: Mapping[str, str],
) -> ReportData:
    """The data of calls that were profiled, at least one.

    Args:
        session: what was called.
        arrays: with what.
        samples: the commands of each call, in order.
        subject: what the report is about.
        limits: of the machine, if they were measured.
        sources: printed levels by name, as an artifact has them: `kernel/<name>`, …
    """
    plan = None if session.variant is None else session.variant.plan
    dims = session.executor.dimensions_of(arrays)
    taken = [sample.step for sample in samples[0]]
    places = None if plan is None else places_of(plan, taken)
    reader = PlanReader(None if places is None else plan, dims)
    kernels = rows_of(session, arrays, samples)
    number_of = {row.name: place for place, row in enumerate(kernels)}
    steps: list[StepData] = []
    for place, step in enumerate(taken):
        times = [call[place].timing.duration_ns for call in samples]
        operands, constants, results = reader.tensors(step)
        row = reader.row(step, int(np.median(times)))
        steps.append(
            StepData(
                row=row,
                kernel=number_of[row.name],
                kind=step.kind,
                grid=reader.grid(step),
                operands=operands,
                constants=constants,
                results=results,
            )
        )
    return ReportData(
        name=subject.title,
        target="" if session.variant is None else session.variant.target,
        machine=str(Target.host()),
        threads=session.threads,
        calls=len(samples),
        dims=dims,
        inputs=tuple(map(str, session.inputs)),
        outputs=tuple(map(str, session.outputs)),
        steps=tuple(steps),
        kernels=kernels,
        limits=limits,
        code=_code(sources),
        edges=() if places is None else reader.edges(places),
        memory=None if places is None else reader.memory(places),
        findings=_findings(session, arrays, samples, limits, subject.origin),
    )


def _findings(
    session: Session,
    arrays: Sequence[Array],
    samples: Sequence[Sequence[Sample]],
    limits: Roofline | None,
    origin: str,
) -> tuple[KernelFinding, ...]:
    """What holds up each kernel; nothing where no limit was measured."""
    if limits is None:
        return ()
    dims = session.executor.dimensions_of(arrays)
    return findings_of(observe(session, arrays, samples), limits, model=origin, dims=dims)


def _code(sources: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Texts by kernel and level."""
    code: dict[str, dict[str, str]] = {}
    for level, title in LEVELS.items():
        for name, text in sources.items():
            prefix, _, kernel = name.partition("/")
            if prefix == level and kernel:
                code.setdefault(kernel, {})[title] = text
    return code
