"""What a recording knows of itself."""

from __future__ import annotations

from tilewright.runtime.hal.buffer import BufferUsage
from tilewright.runtime.hal.event import Event
from tilewright.runtime.hal.recording_log import RecordingLog, flag_names


def test_a_wait_takes_a_barrier_only_where_none_stands_since_the_signal() -> None:
    log, first, second = RecordingLog(), Event(), Event()
    log.signal_event(first)
    assert not log.wait_events([first])  # nothing was recorded before the signal
    log.begin_command("fill_buffer")
    log.signal_event(first)
    log.begin_command("fill_buffer")
    assert log.wait_events([first])
    log.barrier()
    assert not log.wait_events([first])
    log.begin_command("fill_buffer")
    log.signal_event(second)
    assert log.wait_events([first, second])
    assert not log.wait_events([first])


def test_places_are_told_with_their_groups() -> None:
    log = RecordingLog()
    log.begin_command("fill_buffer")
    assert log.place == "command 0 (fill_buffer)"
    log.groups += ["a", "b"]
    log.begin_command("dispatch")
    assert log.place == "command 1 (dispatch) in 'a/b'"


def test_flags_are_named_one_by_one() -> None:
    assert flag_names(BufferUsage, 0) == "nothing"
    assert flag_names(BufferUsage, int(BufferUsage.TRANSFER)) == (
        "transfer_source|transfer_target"
    )
