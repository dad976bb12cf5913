"""Calls as a timeline that Perfetto and Chrome's tracing page show.

One track for the calls and one for the commands on the device.  The commands of a profiled call
run one after the other, so their durations are measured and their beginnings follow from them.
Called by `profile`.

Source: "Trace Event Format", complete events (ph X), times in microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

_PROCESS: Final = 1
_CALLS, _DEVICE = 1, 2


@final
@dataclass(frozen=True, slots=True)
class Command:
    """One command of a call.  Units: nanoseconds."""

    name: str
    kind: str
    duration_ns: int
    details: Mapping[str, object]


def trace_events(
    model: str, device: str, calls: Sequence[Sequence[Command]]
) -> dict[str, object]:
    """The JSON object of a trace; calls lie end to end."""
    events: list[dict[str, object]] = [
        _name("process_name", 0, f"tilewright {model}"),
        _name("thread_name", _CALLS, "calls"),
        _name("thread_name", _DEVICE, device),
    ]
    now = 0
    for number, commands in enumerate(calls):
        begin = now
        for command in commands:
            events.append(_event(command, now))
            now += command.duration_ns
        call = Command(f"call {number}", "call", now - begin, {"commands": len(commands)})
        events.append(_event(call, begin, _CALLS))
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _event(command: Command, begin_ns: int, track: int = _DEVICE) -> dict[str, object]:
    return {
        "ph": "X",
        "pid": _PROCESS,
        "tid": track,
        "name": command.name,
        "cat": command.kind,
        "ts": begin_ns / 1000,
        "dur": command.duration_ns / 1000,
        "args": dict(command.details),
    }


def _name(what: str, track: int, text: str) -> dict[str, object]:
    return {"ph": "M", "pid": _PROCESS, "tid": track, "name": what, "args": {"name": text}}
