"""Why a model takes as long as it does: the call as a whole, then kernel by kernel.

What holds a kernel up is decided by `causes`.  Not here: how it is printed.  Called by
`tilewright.explain` and `tilewright explain`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

import numpy as np

from tilewright.api.model_inputs import Inputs, model_inputs
from tilewright.api.profiling.causes import Cause, KernelFinding, findings_of, observe
from tilewright.api.profiling.kernels import Sample, sample
from tilewright.api.profiling.roofline import Roofline, measure
from tilewright.base.options import count_option, sizes_option
from tilewright.base.text import format_duration, plural, printable_line
from tilewright.compiler.pipeline import Progress

if TYPE_CHECKING:
    from tilewright.runtime.session import Session

MARKS: Final = {"reason": "   ", "try": "   → ", "cause": " "}
"""What stands before a line, by its kind."""
_RESTLESS: Final = 1.3  # the median beside the best
_OUTSIDE: Final = 1.5  # a call by its steps: what is around them counts
_SHOWN_SHARE: Final = 0.005  # of all steps: kernels below it are summed up


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a model takes as long as it does.  Units: nanoseconds.

    Attributes:
        call_ns: a call as a program makes it; `best_call_ns`: the shortest.
        steps_ns: its steps, one after the other, by their medians; `best_ns`: by the shortest of each.
        findings: one for each kernel, those that take longest first.
    """

    model: str
    threads: int
    calls: int
    dims: Mapping[str, int]
    limits: Roofline
    call_ns: int
    best_call_ns: int
    steps_ns: int
    best_ns: int
    findings: tuple[KernelFinding, ...]

    @property
    def at_limits_ns(self) -> int:
        """What its steps would take if every kernel were at the limit it is nearest to."""
        return self.steps_ns - sum(finding.could_save_ns for finding in self.findings)

    def lines(self, count: int = 0) -> Iterator[tuple[str, str]]:
        """What there is to say, as (what kind of line, text); at most `count` kernels, 0 = all.

        Kinds: `title`, `cause`, `kernel`, `reason`, `try`, `note`.
        """
        sizes = ", ".join(f"{name} = {value}" for name, value in sorted(self.dims.items()))
        title = f"{self.model}: {format_duration(self.call_ns)} a call on {plural(self.threads, 'thread')}"
        yield "title", f"{title}, {sizes}" if sizes else title
        yield from (("note", text) for text in self._notes())
        yield from self._causes()
        counting = [f for f in self.findings if f.share >= _SHOWN_SHARE]
        shown = (counting or self.findings)[: count or None]
        for number, finding in enumerate(shown, 1):
            yield "kernel", f"{number}. {finding.heading}"
            yield "reason", finding.reason
            for text in finding.advice:
                yield "try", text
        hidden = self.findings[len(shown) :]
        if hidden:
            share = 100 * sum(finding.share for finding in hidden)
            yield (
                "note",
                f"{plural(len(hidden), 'kernel')} more: {share:.1f} % of all steps",
            )

    def _notes(self) -> Iterator[str]:
        """The call as a whole, and whether to believe what was measured."""
        steps, least = format_duration(self.steps_ns), format_duration(self.at_limits_ns)
        peak, read = self.limits.flops / 1e9, self.limits.read_bytes / 1e9
        won = f", {least} if all were at their limits" if least != steps else ""
        yield f"its steps one by one take {steps}{won} (limits: {peak:.0f} GFLOP/s, {read:.1f} GB/s from memory)"
        if self.best_call_ns > _OUTSIDE * self.best_ns:
            outside = format_duration(self.best_call_ns - self.best_ns)
            yield f"{outside} of a call are around its steps: calling it, and waiting for threads"
        if self.steps_ns > _RESTLESS * self.best_ns:
            yield (
                f"steps took {self.steps_ns / self.best_ns:.1f} times as long as the shortest of each: "
                "the machine does other things, measure again when it does not"
            )

    def _causes(self) -> Iterator[tuple[str, str]]:
        """The share of the time behind each cause, the largest first."""
        found: dict[Cause, list[KernelFinding]] = {}
        for finding in self.findings:
            found.setdefault(finding.cause, []).append(finding)
        shares = {cause: sum(f.share for f in rows) for cause, rows in found.items()}
        for cause in sorted(found, key=lambda cause: -shares[cause]):
            saved = sum(finding.could_save_ns for finding in found[cause])
            win = f", {format_duration(saved)} to be won at most" if saved else ""
            kernels = plural(len(found[cause]), "kernel")
            yield "cause", f"{100 * shares[cause]:5.1f} %  {cause} ({kernels}{win})"

    def __str__(self) -> str:
        lines = (f"{MARKS.get(kind, '')}{text}" for kind, text in self.lines())
        return "\n".join(map(printable_line, lines))


def explain_session(
    session: Session,
    inputs: Inputs,
    *,
    dims: Mapping[str, int] | None,
    name: str,
    calls: int,
    watcher: AbstractContextManager[Progress],
) -> Explanation:
    """Call a session a few times, whole and one command at a time, and say what holds it up.

    Args:
        session: what is called.
        inputs: with what; None takes random values.
        dims: sizes of dynamic dimensions for random values.
        name: of the model, for the commands that are proposed.
        calls: how many; medians are shown.
        watcher: gives who hears what is done.

    Raises: UserError for options that make no sense; InputError for inputs that do not fit.
    """
    calls = count_option("calls", calls)
    arrays = model_inputs(session.inputs, inputs, sizes_option("dims", dims or {}))
    with watcher as progress:
        progress.phase("call")
        session(*arrays)  # first calls allocate
        times: list[int] = []
        samples: list[list[Sample]] = []
        for number in range(calls):
            begin = time.perf_counter_ns()
            session(*arrays)
            times.append(time.perf_counter_ns() - begin)
            samples.append(sample(session, arrays))
            progress.advance(number + 1, calls)
        progress.phase("measure the machine")
        limits = measure(session.threads)
    sizes = session.executor.dimensions_of(arrays)
    seen = observe(session, arrays, samples)
    return Explanation(
        model=name,
        threads=session.threads,
        calls=calls,
        dims=sizes,
        limits=limits,
        call_ns=int(np.median(times)),
        best_call_ns=min(times),
        steps_ns=sum(one.row.time_ns for one in seen),
        best_ns=sum(one.best_ns for one in seen),
        findings=findings_of(seen, limits, model=name, dims=sizes),
    )
