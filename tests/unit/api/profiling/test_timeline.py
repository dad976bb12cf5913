"""Timelines: tracks for calls, commands and threads, at the times at which they were seen."""

from __future__ import annotations

from typing import Any

from tilewright.api.profiling import ProfiledCall, Sample, timeline
from tilewright.formats.plan import Step
from tilewright.runtime.native import ThreadSpan, Timing

KERNEL = Step("dispatch", "k", "k", (), 0, flops=3000, bytes_moved=6000, nodes=("conv1",))


def events(*timings: Timing) -> list[dict[str, Any]]:
    samples = [Sample(KERNEL, timing) for timing in timings]
    found = timeline("m", "local", None, [ProfiledCall(samples, {})])["traceEvents"]
    assert isinstance(found, list)
    return found


def test_tracks_have_names() -> None:
    spans = (ThreadSpan(0, 5000, 6000), ThreadSpan(3, 5500, 7000))
    names = [e["args"]["name"] for e in events(Timing(5000, 2000, spans)) if e["ph"] == "M"]
    assert names == ["tilewright m", "calls", "local", "thread 0 (the caller)", "thread 3"]


def test_times_count_from_the_first_command() -> None:
    spans = (ThreadSpan(0, 9_000, 9_500), ThreadSpan(1, 9_200, 10_000))
    found = [
        e for e in events(Timing(5000, 3000), Timing(9000, 1000, spans)) if e["ph"] == "X"
    ]
    assert [(e["ts"], e["dur"]) for e in found] == [
        (0.0, 5.0),
        (0.0, 3.0),
        (4.0, 1.0),
        (4.0, 0.5),
        (4.2, 0.8),
    ]
    assert found[0]["name"] == "call 0"
    assert found[2]["args"]["GFLOP/s"] == 3.0
    assert found[2]["args"]["GB/s"] == 6.0
    assert found[2]["args"]["nodes"] == ["conv1"]


def test_commands_without_a_beginning_lie_end_to_end() -> None:
    found = [e for e in events(Timing(0, 1000), Timing(0, 2000)) if e["ph"] == "X"]
    assert [(e["ts"], e["dur"]) for e in found] == [(0.0, 3.0), (0.0, 1.0), (1.0, 2.0)]


def test_a_call_without_commands_has_no_events() -> None:
    assert [e for e in events() if e["ph"] == "X"] == []
