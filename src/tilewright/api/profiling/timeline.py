"""Calls as a timeline that Perfetto and Chrome's tracing page show.

One track for the calls, one for the commands on the device, and one for each thread that ran
workgroups, all at the times at which they were seen.  Where a device says only how long its commands
took, they lie end to end.  Called by `tilewright profile` and by sessions that profile.

Source: "Trace Event Format", complete events (ph X), times in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, final

from tilewright.api.profiling.kernels import KernelRow, Sample, bytes_of
from tilewright.base.record import record
from tilewright.base.symbolic import evaluate
from tilewright.formats.plan import Plan
from tilewright.runtime.native import Timing

Events = list[dict[str, object]]
_PROCESS: Final = 1
_CALLS, _DEVICE, _FIRST_THREAD = 1, 2, 10
_CALLER: Final = 0


@final
@record
class ProfiledCall:
    """The commands of one call, and the sizes that its inputs gave to dynamic dimensions."""

    samples: Sequence[Sample]
    dims: Mapping[str, int]


def timeline(
    model: str, device: str, plan: Plan | None, calls: Sequence[ProfiledCall]
) -> dict[str, object]:
    """The JSON object of a trace; time 0 is where the first command begins."""
    placed = [_placed(call) for call in calls]
    begins = [s.timing.begin_ns for call in placed for s in call.samples]
    origin = min(begins, default=0)
    events: Events = [
        _name("process_name", 0, f"tilewright {model}"),
        _name("thread_name", _CALLS, "calls"),
        _name("thread_name", _DEVICE, device),
    ]
    threads = {t.thread for call in placed for s in call.samples for t in s.timing.threads}
    for thread in sorted(threads):
        title = "thread 0 (the caller)" if thread == _CALLER else f"thread {thread}"
        events.append(_name("thread_name", _FIRST_THREAD + thread, title))
    for number, call in enumerate(placed):
        events += _call_events(number, call, plan, origin)
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _placed(call: ProfiledCall) -> ProfiledCall:
    """The call with a beginning for every command: its own, or the end of the one before."""
    now = next((s.timing.begin_ns for s in call.samples if s.timing.begin_ns), 0)
    samples: list[Sample] = []
    for sample in call.samples:
        begin = sample.timing.begin_ns or now
        timing = Timing(begin, sample.timing.duration_ns, sample.timing.threads)
        samples.append(Sample(sample.step, timing))
        now = begin + timing.duration_ns
    return replace(call, samples=samples)


def _call_events(
    number: int, call: ProfiledCall, plan: Plan | None, origin: int
) -> Iterator[dict[str, object]]:
    if call.samples:
        first, last = call.samples[0].timing, call.samples[-1].timing
        took = last.begin_ns + last.duration_ns - first.begin_ns
        counts = {"commands": len(call.samples)}
        yield _event(
            f"call {number}", "call", _CALLS, (first.begin_ns - origin, took), counts
        )
    for sample in call.samples:
        step, timing = sample.step, sample.timing
        name = step.target or step.kind
        span = (timing.begin_ns - origin, timing.duration_ns)
        yield _event(name, step.kind, _DEVICE, span, _details(sample, plan, call.dims))
        for thread in timing.threads:
            part = (thread.begin_ns - origin, thread.end_ns - thread.begin_ns)
            yield _event(name, step.kind, _FIRST_THREAD + thread.thread, part, {})


def _details(
    sample: Sample, plan: Plan | None, dims: Mapping[str, int]
) -> dict[str, object]:
    """What a command is: the model's nodes, its grid, arithmetic, bytes and rates."""
    step = sample.step
    flops = evaluate(step.flops, dims)
    row = KernelRow(
        step.target, 1, flops, bytes_of(plan, step, dims), sample.timing.duration_ns
    )
    return {
        "nodes": list(step.nodes),
        "outcome": step.outcome,
        "grid": [evaluate(extent, dims) for extent in step.grid],
        "flops": flops,
        "bytes": row.size_bytes,
        "GFLOP/s": round(row.flops_rate / 1e9, 3),
        "GB/s": round(row.bytes_rate / 1e9, 3),
    }


def _event(
    name: str,
    category: str,
    track: int,
    span: tuple[int, int],
    details: Mapping[str, object],
) -> dict[str, object]:
    begin_ns, duration_ns = span
    return {
        "ph": "X",
        "pid": _PROCESS,
        "tid": track,
        "name": name,
        "cat": category,
        "ts": begin_ns / 1000,
        "dur": duration_ns / 1000,
        "args": dict(details),
    }


def _name(field: str, track: int, text: str) -> dict[str, object]:
    return {"ph": "M", "pid": _PROCESS, "tid": track, "name": field, "args": {"name": text}}
