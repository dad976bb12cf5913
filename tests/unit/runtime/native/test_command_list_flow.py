"""Commands that decide which comes next, and of which row; the same expectations for both implementations."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tilewright.runtime.native import records
from tilewright.runtime.recorder import Recorder

Kernels = Mapping[str, int]


def countdown(core: ModuleType, kernels: Kernels) -> Any:
    """Marks a cell, and counts trips in a byte, until a host call says that it is enough."""
    recorder = Recorder()
    cells = recorder.slot(16, writable=True)
    flag = recorder.slot(8, writable=True)

    def count(view: memoryview) -> None:
        view[0] -= 1

    head = recorder.goto(unless=(flag, 0, 1))
    recorder.dispatch(kernels["mark"], [(cells, 0, 16)], (4, 1, 1))
    recorder.host_call(count, [(flag, 0, 1)], writable=(True,))
    recorder.goto(head)
    recorder.lead(head, recorder.command_count)
    return recorder.build(core.CommandList)


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("trips", [0, 1, 200])
def test_a_loop_makes_its_trips(
    core: ModuleType, kernels: Kernels, trips: int, threads: int
) -> None:
    commands = countdown(core, kernels)
    pool = core.Pool(threads) if threads else None
    for _ in range(2):
        cells, flag = np.zeros(4, np.uint32), np.array([trips], np.uint64)
        commands.run(pool, (cells, flag))
        assert cells.tolist() == [trips] * 4


def test_the_span_of_a_command_in_a_loop_is_that_of_all_trips(
    core: ModuleType, kernels: Kernels
) -> None:
    commands = countdown(core, kernels)

    def spans(trips: int) -> list[int]:
        buffers = (np.zeros(4, np.uint32), np.array([trips], np.uint64))
        times = commands.run_timed(None, buffers)
        assert len(times) == commands.command_count
        assert all(
            len(rows) == (index == 1) for index, (_, _, rows) in enumerate(times) if trips
        )
        return [end - begin for begin, end, _ in times]

    none, many = spans(0), spans(200)
    assert none[1:] == [0, 0, 0]
    assert many[1] > 200


def test_a_branch_leads_past_what_is_not_wanted(core: ModuleType) -> None:
    recorder = Recorder()
    flag, out = recorder.slot(1), recorder.slot(8, writable=True)
    branch = recorder.goto(unless=(flag, 0, 1))
    recorder.fill((out, 0, 8), b"\1", barrier=False)
    over = recorder.goto()
    recorder.lead(branch, recorder.command_count)
    recorder.fill((out, 0, 8), b"\2", barrier=False)
    recorder.lead(over, recorder.command_count)
    recorder.fill((out, 0, 1), b"\3")
    commands = recorder.build(core.CommandList)
    for given, wanted in ((0, 2), (1, 1), (255, 1)):
        memory = bytearray(8)
        commands.run(core.Pool(2), (bytes([given]), memory))
        assert memory == b"\3" + bytes([wanted]) * 7


ROWS = np.arange(15, dtype=np.float32).reshape(5, 3)


def picking(core: ModuleType, offset: int = 0) -> Any:
    recorder = Recorder()
    place, table = recorder.slot(8), recorder.slot(offset + 60)
    out, row = recorder.slot(12, writable=True), recorder.row_slot(12)
    recorder.row(row, (table, offset, 60), (place, 0, 8))
    recorder.copy((out, 0, 12), (row, 0, 12))
    return recorder.build(core.CommandList)


@pytest.mark.parametrize(
    ("place", "row"), [(0, 0), (4, 4), (-1, 4), (-5, 0), (5, 4), (-6, 0), (1 << 62, 4)]
)
@pytest.mark.parametrize("threads", [0, 2])
def test_a_slot_is_the_row_at_a_place(
    core: ModuleType, place: int, row: int, threads: int
) -> None:
    out = np.zeros(3, np.float32)
    pool = core.Pool(threads) if threads else None
    table = np.concatenate([np.zeros(1, np.float32), ROWS.reshape(-1)])
    picking(core, 4).run(pool, (np.array([place]), table, out, None))
    np.testing.assert_array_equal(out, ROWS[row])


def test_before_it_is_bound_a_row_is_the_first_of_its_table(core: ModuleType) -> None:
    recorder = Recorder()
    place, table = recorder.slot(8), recorder.slot(60)
    out, row = recorder.slot(12, writable=True), recorder.row_slot(12)
    recorder.copy((out, 0, 12), (row, 0, 12))
    recorder.row(row, (table, 0, 60), (place, 0, 8))
    commands = recorder.build(core.CommandList)
    for scale in (1, 2):
        out = np.zeros(3, np.float32)
        commands.run(None, (np.array([3]), ROWS * scale, out, None))
        np.testing.assert_array_equal(out, ROWS[0] * scale)


def test_what_only_commands_bind_is_none_of_a_run(core: ModuleType) -> None:
    out = np.zeros(3, np.float32)
    with pytest.raises(ValueError, match=r"slot 3: got .*, expected None for a row"):
        picking(core).run(None, (np.array([0]), ROWS, out, bytes(12)))


def test_a_call_has_rows_beside_its_scratch(core: ModuleType) -> None:
    recorder = Recorder()
    place = recorder.slot(8)
    out = recorder.slot(12, writable=True)
    table = recorder.slot(60)
    row, scratch = recorder.row_slot(12), recorder.slot(12, writable=True)
    recorder.row(row, (table, 0, 60), (place, 0, 8))
    recorder.copy((scratch, 0, 12), (row, 0, 12))
    recorder.copy((out, 0, 12), (scratch, 0, 12))
    commands = recorder.build(core.CommandList)
    call = core.RecordedCall(
        commands, None, [("i", "l", (1,))], [lambda: np.zeros(3, np.float32)], [ROWS]
    )
    for index in range(5):
        np.testing.assert_array_equal(call(np.array([index])), ROWS[index])


def test_a_row_is_none_of_what_a_call_takes(core: ModuleType) -> None:
    recorder = Recorder()
    place, row, table = recorder.slot(8), recorder.row_slot(12), recorder.slot(60)
    recorder.row(row, (table, 0, 60), (place, 0, 8))
    commands = recorder.build(core.CommandList)
    with pytest.raises(ValueError, match="slot 1 is a row of another"):
        core.RecordedCall(commands, None, [("i", "l", (1,))], [], [ROWS])


def broken(**changes: object) -> bytes:
    fields: dict[str, int] = {"kind": 4, "flags": 1, "first": 0, "count": 0, "target": 0}
    fields |= {name: int(str(value)) for name, value in changes.items()}
    head = [fields[name] for name in ("kind", "flags", "first", "count")]
    return records.COMMAND.pack(*head, *([0] * 10), fields["target"], 0)


@pytest.mark.parametrize(
    ("command", "bindings", "message"),
    [
        (broken(target=2), [], "goes to command 2, expected at most 1"),
        (broken(count=1), [(0, 0, 0)], "at most one binding, of a byte"),
        (broken(count=2), [(0, 0, 8), (0, 0, 8)], "at most one binding, of a byte"),
        (
            broken(kind=5, target=1, count=1),
            [(0, 0, 8)],
            "two bindings: an int64, and a table",
        ),
        (broken(kind=5, target=1, count=2), [(0, 0, 4), (0, 0, 12)], "two bindings"),
        (
            broken(kind=5, target=0, count=2),
            [(0, 0, 8), (0, 0, 12)],
            "slot 0 is not for rows",
        ),
        (
            broken(kind=5, target=9, count=2),
            [(0, 0, 8), (0, 0, 12)],
            "slot 9 is not for rows",
        ),
        (broken(kind=5, target=1, count=2), [(0, 0, 8), (0, 0, 13)], "rows of 12 bytes"),
        (broken(kind=5, target=1, count=2), [(0, 0, 8), (0, 0, 0)], "rows of 12 bytes"),
        (
            broken(kind=5, target=1, count=2),
            [(0, 0, 8), (1, 0, 12)],
            "in a slot of its own",
        ),
        (broken(), [], "slot 1: no command says which row it is"),
    ],
)
def test_what_a_run_could_not_do_safely_is_refused(
    core: ModuleType, command: bytes, bindings: list[tuple[int, int, int]], message: str
) -> None:
    table = b"".join(records.BINDING.pack(slot, 0, at, size) for slot, at, size in bindings)
    slots = records.SLOT.pack(60, 0, 1) + records.SLOT.pack(12, records.SLOT_ROW, 1)
    with pytest.raises(ValueError, match=message):
        core.CommandList(command, table, slots, b"")


@pytest.mark.parametrize("slot", [(12, 3), (0, 2)])
def test_a_row_has_bytes_and_is_read_only(core: ModuleType, slot: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="slot 0: a row has bytes and is read-only"):
        core.CommandList(b"", b"", records.SLOT.pack(*slot, 1), b"")


@pytest.mark.thinned(4)
@pytest.mark.parametrize("units", [None, 1, 3])
def test_a_loop_that_never_ends_hears_signals(
    core: ModuleType, kernels: Kernels, units: int | None
) -> None:
    """The handler runs while the loop does; what it raises ends the run."""
    recorder = Recorder()
    if units is not None:
        recorder.dispatch(kernels["linger"], [], (units, 1, 1), constants=[0])
    recorder.goto(0)
    commands = recorder.build(core.CommandList)

    def enough(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, enough)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(TimeoutError):
            commands.run(None, ())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("threads", [None, 2])
def test_slow_commands_behind_many_fast_ones_hear_signals(
    core: ModuleType, kernels: Kernels, threads: int | None
) -> None:
    """What fast commands let go of looks at the clock is not let go by those whose tensors are large.

    Behind so many fast ones about sixty more chances would be let go, half of them by slow commands.
    """
    recorder = Recorder()
    counts = recorder.slot(8, writable=True)
    tensor = recorder.slot(1 << 17, writable=True)
    for _ in range(262):
        recorder.dispatch(kernels["mark"], [(counts, 0, 4)], (1, 1, 1))
    for _ in range(60):
        recorder.dispatch(
            kernels["linger"], [(tensor, 0, 1 << 17)], (1, 1, 1), constants=[10]
        )
        recorder.dispatch(kernels["mark"], [(counts, 4, 4)], (1, 1, 1))
    commands = recorder.build(core.CommandList)
    pool = None if threads is None else core.Pool(threads)
    found = np.zeros(2, np.uint32)

    def enough(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, enough)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(TimeoutError):
            commands.run(pool, [found, np.zeros(1 << 17, np.uint8)])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert found[0] == 262
    assert found[1] < 30


@pytest.mark.parametrize("threads", [None, 1, 2])
def test_a_kernel_of_one_unit_that_fails_ends_its_loop(
    core: ModuleType, kernels: Kernels, threads: int | None
) -> None:
    recorder = Recorder()
    cells = recorder.slot(4, writable=True)
    recorder.dispatch(kernels["mark"], [(cells, 0, 4)], (1, 1, 1))
    recorder.dispatch(kernels["fail"], [], (1, 1, 1), constants=[0, 5])
    recorder.dispatch(kernels["mark"], [(cells, 0, 4)], (1, 1, 1))
    recorder.goto(0)
    commands = recorder.build(core.CommandList)
    pool = None if threads is None else core.Pool(threads)
    found = np.zeros(1, np.uint32)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"^command 1: the kernel returned 5$"):
            commands.run(pool, [found])
    assert found[0] == 2  # once in each run, before the failure
