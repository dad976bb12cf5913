"""What producers share: slots that grow, ranges that are known late, commands that are recorded once more."""

from __future__ import annotations

import weakref

import pytest

from tilewright.runtime.recorder import Recorder


class Owner:
    """Something that commands need."""


def filling(recorder: Recorder, slot: int, length: int, value: int) -> None:
    recorder.fill((slot, 0, length), bytes([value]))


def test_a_slot_grows_to_what_later_commands_need() -> None:
    recorder = Recorder()
    slot = recorder.slot(4)
    recorder.widen(slot, 16, writable=True)
    recorder.widen(slot, 8, writable=False)
    filling(recorder, slot, 16, 7)
    assert recorder.sizes_bytes() == [16]
    assert recorder.is_writable(slot)
    with pytest.raises(ValueError, match="slot 0"):
        recorder.build().run(None, [bytearray(8)])


def test_a_range_may_end_where_its_slot_ends() -> None:
    recorder = Recorder()
    slot = recorder.slot(4, writable=True)
    recorder.fill((slot, 4, -1), b"\7")
    for size in (4, 8, 12):
        memory = bytearray(12)
        recorder.build(sizes_bytes=[size]).run(None, [memory])
        assert memory == bytes(4) + b"\7" * (size - 4) + bytes(12 - size)
    with pytest.raises(ValueError, match="does not fit its record"):
        recorder.build(sizes_bytes=[3])


def test_some_of_the_commands_make_a_list_of_their_own() -> None:
    recorder = Recorder()
    slot = recorder.slot(8, writable=True)
    for value in (1, 2, 3):
        filling(recorder, slot, value, value)
    memory = bytearray(8)
    recorder.build(commands=recorder.commands[1:2]).run(None, [memory])
    assert memory == b"\2\2" + bytes(6)


def test_commands_are_recorded_once_more_at_other_places() -> None:
    heard: list[bytes] = []
    first = Recorder()
    source, target = first.slot(4), first.slot(4, writable=True)
    first.copy((target, 0, 4), (source, 0, 4), barrier=False)
    first.host_call(lambda view: heard.append(bytes(view)), [(target, 1, -1)])
    both = Recorder()
    whole = both.slot(16, writable=True)
    filling(both, whole, 4, 9)
    both.append(first, [(whole, 0, 4), (whole, 8, 4)])
    memory = bytearray(16)
    both.build().run(None, [memory])
    assert memory == b"\x09" * 4 + bytes(4) + b"\x09" * 4 + bytes(4)
    assert heard == [b"\x09" * 3]


def test_the_first_of_the_commands_behind_others_waits_for_them() -> None:
    part = Recorder()
    slot = part.slot(4, writable=True)
    for _ in range(2):
        part.fill((slot, 0, 4), b"\1", barrier=False)
    both = Recorder()
    both.append(part, [(both.slot(4, writable=True), 0, 4)])
    assert [command.flags & 1 for command in both.commands] == [1, 0]


def test_numbers_that_fit_no_record_are_refused() -> None:
    for size in (-1, 1 << 64):
        recorder = Recorder()
        recorder.slot(size)
        with pytest.raises(ValueError, match="does not fit its record"):
            recorder.build()


def test_what_is_recorded_once_more_brings_its_owners() -> None:
    first = Recorder()
    owner = Owner()
    first.keep(owner)
    both = Recorder()
    both.append(first, [])
    built, alive = both.build(), weakref.ref(owner)
    del owner, first, both
    assert alive() is not None
    del built
    assert alive() is None


def test_gotos_and_rows_are_recorded_once_more_behind_others() -> None:
    first = Recorder()
    flag, table, place = first.slot(1), first.slot(6), first.slot(8)
    out, row = first.slot(2, writable=True), first.row_slot(2)
    first.row(row, (table, 0, 6), (place, 0, 8))
    branch = first.goto(unless=(flag, 0, 1))
    first.copy((out, 0, 2), (row, 0, 2))
    first.lead(branch, first.command_count)
    both = Recorder()
    memory, outer = both.slot(17, writable=True), both.row_slot(2)
    filling(both, memory, 2, 9)
    places = [(memory, 2, 1), (memory, 3, 6), (memory, 9, 8), (memory, 0, 2), (outer, 0, 2)]
    both.append(first, places)
    for flagged, wanted in ((0, b"\t\t"), (1, b"\5\6")):
        given = bytearray(
            b"\0\0" + bytes([flagged, 1, 2, 3, 4, 5, 6]) + (2).to_bytes(8, "little")
        )
        both.build().run(None, [given, None])
        assert given[:2] == wanted
