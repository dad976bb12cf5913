"""Recording and replaying commands; the same expectations for both implementations."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Mapping
from types import ModuleType

import numpy as np
import pytest

from tilewright.runtime import native
from tilewright.runtime.native import records
from tilewright.runtime.recorder import Recorder

Kernels = Mapping[str, int]


def test_a_dispatch_runs_every_workgroup_once(core: ModuleType, kernels: Kernels) -> None:
    for grid in [
        (1, 1, 1),
        (7, 1, 1),
        (3, 5, 2),
        (1, 1, 9),
        (65, 3, 1),
        (0, 4, 1),
        (4, 0, 2),
    ]:
        count = grid[0] * grid[1] * grid[2]
        recorder = Recorder()
        slot = recorder.slot(4 * count, writable=True)
        recorder.dispatch(kernels["mark"], [(slot, 0, 4 * count)], grid)
        commands = recorder.build(core.CommandList)
        cells = np.zeros(count + 1, np.uint32)
        commands.run(None, [cells])
        commands.run(None, [cells])
        assert cells.tolist() == [2] * count + [0], grid


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1001])
def test_bindings_reach_into_their_slots(
    core: ModuleType, kernels: Kernels, count: int
) -> None:
    size = 4 * count
    recorder = Recorder()
    inputs = recorder.slot(2 * size + 12)
    output = recorder.slot(size + 4, writable=True)
    bindings = [(inputs, 4, size), (inputs, size + 12, size), (output, 4, size)]
    recorder.dispatch(kernels["add"], bindings, (-(-count // 64), 1, 1), constants=[count])
    rng = np.random.default_rng(count)
    given = rng.standard_normal(2 * count + 3).astype(np.float32)
    given[1] = np.nan
    result = np.zeros(count + 1, np.float32)
    recorder.build(core.CommandList).run(None, (given, result))
    np.testing.assert_array_equal(result[1:], given[1 : count + 1] + given[count + 3 :])
    assert result[0] == 0


@pytest.mark.parametrize("flushes", [True, False])
def test_denormals_are_zero_where_asked(
    core: ModuleType, kernels: Kernels, *, flushes: bool
) -> None:
    """Operands and results, on every thread; the caller's own arithmetic stays as it is."""
    count = 64 * 40 + 1
    size = 4 * count
    recorder = Recorder()
    a, b, out = recorder.slot(size), recorder.slot(size), recorder.slot(size, writable=True)
    recorder.dispatch(
        kernels["add"],
        [(a, 0, size), (b, 0, size), (out, 0, size)],
        (41, 1, 1),
        constants=[count],
        flushes_denormals=flushes,
    )
    least = np.finfo(np.float32).smallest_normal
    given = np.full(count, least, np.float32)
    given[::2] = least / 2  # an operand; the others' result
    other = np.where(given == least, -1.25 * least, 0).astype(np.float32)
    expected = np.zeros(count, np.float32) if flushes else given + other
    result = np.ones(count, np.float32)
    commands = recorder.build(core.CommandList)
    for pool in (None, core.Pool(2)):
        commands.run(pool, (given, other, result))
        np.testing.assert_array_equal(result, expected)
        assert np.count_nonzero(given + other) == count


def test_a_kernel_is_told_its_dispatch(core: ModuleType, kernels: Kernels) -> None:
    recorder = Recorder()
    slot = recorder.slot(256, writable=True)
    environment = native.create_environment((77).to_bytes(4, "little"))
    recorder.keep(environment)
    recorder.dispatch(
        kernels["report"],
        [(slot, 0, 128), (slot, 128, 100)],
        (1, 1, 1),
        constants=[5, -1, 6],
        environment=environment.address,
        workgroup_size=(8, 4, 2),
        local_memory_bytes=5000,
    )
    out = np.zeros(32, np.uint64)
    recorder.build(core.CommandList).run(core.Pool(3), [out])
    assert out[:13].tolist() == [8, 4, 2, 3, 1, 1, 1, 3, 2, 0xFFFFFFFF, 128, 100, 77]
    assert out[13] == native.processor_data()[0]
    assert out[14:16].tolist() == [5000, 0]


def test_a_dispatch_without_environment_gets_the_default(
    core: ModuleType, kernels: Kernels
) -> None:
    recorder = Recorder()
    slot = recorder.slot(128, writable=True)
    recorder.dispatch(
        kernels["report"], [(slot, 0, 64), (slot, 64, 64)], (1, 1, 1), constants=[0, 0]
    )
    out = np.full(16, 99, np.uint64)
    recorder.build(core.CommandList).run(None, [out])
    assert out[12] == 0
    assert out[13] == core.processor_data()[0]
    assert out[14] == 0


def test_buffers_may_change_from_run_to_run(core: ModuleType, kernels: Kernels) -> None:
    recorder = Recorder()
    a, b, c = recorder.slot(40), recorder.slot(40), recorder.slot(40, writable=True)
    recorder.dispatch(
        kernels["add"], [(a, 0, 40), (b, 0, 40), (c, 0, 40)], (1, 1, 1), constants=[10]
    )
    commands = recorder.build(core.CommandList)
    one = np.ones(10, np.float32)
    for value in (1.0, 2.0, 2.0, -3.0):
        out = np.empty(10, np.float32)
        commands.run(None, [one * value, one, out])
        assert (out == value + 1).all()
        commands.run(None, [one, one.ctypes.data, out.ctypes.data])
        assert (out == 2).all()


@pytest.mark.parametrize("pattern", [b"\x07", b"\x01\x02", b"abcd", b"12345678"])
def test_fill_repeats_its_pattern(core: ModuleType, pattern: bytes) -> None:
    recorder = Recorder()
    slot = recorder.slot(300_011, writable=True)
    recorder.fill((slot, 3, 300_000), pattern)
    out = np.zeros(300_011, np.uint8)
    recorder.build(core.CommandList).run(core.Pool(2), [out])
    assert out[3:300_003].tobytes() == pattern * (300_000 // len(pattern))
    assert not out[:3].any()
    assert not out[300_003:].any()


@pytest.mark.parametrize("length", [0, 1, 1000, 600_001])
def test_copy_moves_a_range(core: ModuleType, length: int) -> None:
    recorder = Recorder()
    source, target = recorder.slot(length + 5), recorder.slot(length + 9, writable=True)
    recorder.copy((target, 2, length), (source, 5, length))
    given = np.random.default_rng(1).integers(0, 256, length + 5, np.uint8)
    out = np.zeros(length + 9, np.uint8)
    recorder.build(core.CommandList).run(core.Pool(2), [given, out])
    assert (out[2 : length + 2] == given[5:]).all()
    assert not out[length + 2 :].any()


def test_commands_run_in_order(core: ModuleType, kernels: Kernels) -> None:
    seen: list[list[float]] = []
    recorder = Recorder()
    x, y = recorder.slot(16), recorder.slot(16, writable=True)
    recorder.fill((y, 0, 16), np.float32(1).tobytes())
    recorder.dispatch(
        kernels["add"], [(x, 0, 16), (y, 0, 16), (y, 0, 16)], (1, 1, 1), constants=[4]
    )
    recorder.host_call(
        lambda view: seen.append(np.frombuffer(view, np.float32).tolist()), [(y, 0, 16)]
    )
    recorder.copy((y, 0, 8), (y, 8, 8))
    recorder.dispatch(
        kernels["add"], [(x, 0, 16), (y, 0, 16), (y, 0, 16)], (1, 1, 1), constants=[4]
    )
    commands = recorder.build(core.CommandList)
    assert commands.command_count == 5
    out = np.empty(4, np.float32)
    commands.run(core.Pool(4), [np.arange(4, dtype=np.float32), out])
    assert seen == [[1, 2, 3, 4]]
    assert out.tolist() == [3, 5, 5, 7]


def test_host_calls_see_and_change_their_ranges(core: ModuleType) -> None:
    def double(source: memoryview, target: memoryview) -> None:
        assert source.readonly
        assert not target.readonly
        assert (source.format, source.nbytes) == ("B", 12)
        np.frombuffer(target, np.float32)[:] = 2 * np.frombuffer(source, np.float32)

    recorder = Recorder()
    x, y = recorder.slot(24), recorder.slot(20, writable=True)
    recorder.host_call(double, [(x, 4, 12), (y, 8, 12)], writable=(False, True))
    out = np.zeros((5, 1), np.float32)
    recorder.build(core.CommandList).run(
        None, [np.arange(6, dtype=np.float32).reshape(2, 3), out]
    )
    assert out.ravel().tolist() == [0, 0, 2, 4, 6]


def test_host_calls_see_buffers_given_by_address(core: ModuleType) -> None:
    seen: list[bytes] = []
    recorder = Recorder()
    x = recorder.slot(6)
    recorder.host_call(lambda view: seen.append(bytes(view)), [(x, 2, 3)])
    held = np.frombuffer(b"abcdef", np.uint8).copy()
    recorder.build(core.CommandList).run(None, [held.ctypes.data])
    assert seen == [b"cde"]


def test_findings_call_the_host_only_where_there_is_one(core: ModuleType) -> None:
    seen: list[np.ndarray] = []
    recorder = Recorder()
    slot = recorder.slot(24 + 3 * 64)
    recorder.on_finding(
        lambda view: seen.append(np.frombuffer(view, np.int64)[::8].copy()), (slot, 24, 192)
    )
    commands = recorder.build(core.CommandList)
    records = np.zeros(27, np.int64)
    found = records[3::8]
    found[:] = nothing = np.iinfo(np.int64).min
    commands.run(None, [records])
    assert seen == []
    for place, value in ((0, 7), (2, 0), (1, -1), (2, nothing + 1)):
        found[:] = nothing
        found[place] = value
        commands.run(None, [records])
        assert seen.pop()[place] == value
    recorder = Recorder()
    recorder.on_finding(seen.append, (recorder.slot(100), 0, 100))
    with pytest.raises(ValueError, match="findings are one binding of whole records"):
        recorder.build(core.CommandList)


def test_a_view_kept_by_a_host_call_stays_valid(core: ModuleType) -> None:
    kept: list[memoryview] = []
    recorder = Recorder()
    x = recorder.slot(1 << 20)
    recorder.host_call(kept.append, [(x, 0, 1 << 20)])
    recorder.build(core.CommandList).run(None, [np.full(1 << 20, 3, np.uint8)])
    gc.collect()
    assert (np.frombuffer(kept[0], np.uint8) == 3).all()


def test_an_exception_in_a_host_call_comes_out(core: ModuleType, kernels: Kernels) -> None:
    def refuse() -> None:
        raise KeyError("not today")

    recorder = Recorder()
    slot = recorder.slot(4, writable=True)
    recorder.dispatch(kernels["mark"], [(slot, 0, 4)], (1, 1, 1))
    recorder.host_call(refuse, [])
    recorder.dispatch(kernels["mark"], [(slot, 0, 4)], (1, 1, 1))
    commands = recorder.build(core.CommandList)
    cells = np.zeros(1, np.uint32)
    for _ in range(2):
        with pytest.raises(KeyError, match="not today"):
            commands.run(core.Pool(2), [cells])
    assert cells[0] == 2  # what came before ran, what came after did not


@pytest.mark.parametrize("threads", [None, 1, 2, 4])
@pytest.mark.parametrize("code", [1, -3])
def test_a_failing_kernel_is_named(
    core: ModuleType, kernels: Kernels, threads: int | None, code: int
) -> None:
    recorder = Recorder()
    slot = recorder.slot(40, writable=True)
    recorder.dispatch(kernels["mark"], [(slot, 0, 40)], (10, 1, 1))
    recorder.dispatch(kernels["fail"], [], (10, 1, 1), constants=[7, code])
    recorder.dispatch(kernels["mark"], [(slot, 0, 40)], (10, 1, 1))
    commands = recorder.build(core.CommandList)
    pool = None if threads is None else core.Pool(threads)
    cells = np.zeros(10, np.uint32)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=f"^command 1: the kernel returned {code}$"):
            commands.run(pool, [cells])
    assert cells.tolist() == [2] * 10


def test_run_timed_measures_each_command(core: ModuleType, kernels: Kernels) -> None:
    recorder = Recorder()
    for milliseconds, barrier in ((0, True), (30, False), (0, False)):
        recorder.dispatch(
            kernels["linger"], [], (1, 1, 1), constants=[milliseconds], barrier=barrier
        )
    commands = recorder.build(core.CommandList)
    # The least of several runs: another process may take the processor during any one of them.
    runs = [commands.run_timed(None, []) for _ in range(5)]
    times = [min(end - begin for begin, end, _ in c) for c in zip(*runs, strict=True)]
    assert len(times) == 3
    assert times[1] >= 30_000_000 > times[0]
    assert times[2] < 30_000_000


@pytest.mark.thinned(4)
@pytest.mark.parametrize("threads", [None, 1, 3])
def test_run_timed_says_which_thread_ran_when(
    core: ModuleType, kernels: Kernels, threads: int | None
) -> None:
    recorder = Recorder()
    for count in (1, 12):
        recorder.dispatch(kernels["linger"], [], (count, 1, 1), constants=[3])
    recorder.host_call(lambda: None, [], ())
    commands = recorder.build(core.CommandList)
    pool = None if threads is None else core.Pool(threads)
    before = time.perf_counter_ns()
    timed = commands.run_timed(pool, [])
    assert before <= timed[0][0]
    end = before
    for begin, finish, spans in timed:
        assert end <= begin <= finish
        end = finish
        assert all(begin <= first <= last <= finish for _, first, last in spans)
        indices = [index for index, _, _ in spans]
        assert indices == sorted(set(indices))
        assert set(indices) <= set(range(threads or 1))
    assert len(timed[0][2]) == 1
    assert timed[1][2]
    assert timed[2][2] == ()


def test_an_empty_list_runs(core: ModuleType) -> None:
    commands = Recorder().build(core.CommandList)
    commands.run(None, [])
    assert commands.run_timed(None, []) == []
    assert (commands.command_count, commands.slot_count) == (0, 0)


# ------------------------------------------------------------------ what is refused


def build_slots(core: ModuleType) -> native.CommandList:
    recorder = Recorder()
    recorder.slot(16)
    recorder.slot(16, writable=True, alignment=64)
    recorder.slot(0)
    return recorder.build(core.CommandList)


def aligned(size_bytes: int) -> np.ndarray:
    return np.frombuffer(native.Memory(size_bytes), np.uint8)


@pytest.mark.parametrize(
    ("buffers", "message"),
    [
        (lambda: [b"x" * 16], "got 1 buffers, expected one per slot .3."),
        (
            lambda: [b"x" * 15, aligned(16), None],
            "slot 0: buffer of 15 bytes, expected at least 16",
        ),
        (lambda: [None, aligned(16), None], "slot 0: got .*NoneType.*C-contiguous buffer"),
        (
            lambda: ["text", aligned(16), None],
            "slot 0: got .*str.*, expected a C-contiguous buffer",
        ),
        (
            lambda: [np.zeros(32, np.uint8)[::2], aligned(16), None],
            "slot 0: .*C-contiguous",
        ),
        (
            lambda: [np.zeros((4, 4), np.uint8).T[:, :3], aligned(16), None],
            "slot 0: .*C-contig",
        ),
        (
            lambda: [b"x" * 16, b"x" * 16, None],
            "slot 1: .*expected a C-contiguous writable buffer",
        ),
        (
            lambda: [b"x" * 16, aligned(17)[1:], None],
            "slot 1: address .*expected a multiple of 64",
        ),
        (lambda: [b"x" * 16, 65, None], "slot 1: address .*expected a multiple of 64"),
    ],
)
def test_buffers_that_do_not_fit_are_refused(
    core: ModuleType, buffers: Callable[[], list[object]], message: str
) -> None:
    commands = build_slots(core)
    with pytest.raises(ValueError, match=message):
        commands.run(None, buffers())  # pyright: ignore[reportArgumentType]
    commands.run(None, [b"x" * 16, aligned(16), None])  # and the list still works


def record(kind: int, **fields: int) -> bytes:
    """A command record with two bindings, changed as asked."""
    names = [
        "kind",
        "flags",
        "binding_first",
        "binding_count",
        "constant_first",
        "constant_count",
    ]
    names += [
        "x",
        "y",
        "z",
        "size_x",
        "size_y",
        "size_z",
        "local",
        "reserved",
        "function",
        "environment",
    ]
    values = dict.fromkeys(names, 0) | {"kind": kind, "binding_count": 2, "z": 1} | fields
    return records.COMMAND.pack(*values.values())


SLOTS = records.SLOT.pack(64, records.SLOT_WRITABLE, 0) + records.SLOT.pack(32, 0, 0)
WRITES = records.BINDING_WRITABLE
BINDINGS = records.BINDING.pack(0, WRITES, 0, 32) + records.BINDING.pack(1, 0, 0, 32)
DISPATCH, COPY, FILL, HOST_CALL = range(4)


@pytest.mark.parametrize(
    ("command", "bindings", "message"),
    [
        (record(9), BINDINGS, "command 0: unknown kind 9"),
        (record(DISPATCH), BINDINGS, "command 0: the function address is 0"),
        (
            record(DISPATCH, function=8, binding_count=3),
            BINDINGS,
            "bindings end after the table",
        ),
        (
            record(DISPATCH, function=8, binding_first=4_000_000_000),
            BINDINGS,
            "bindings end after",
        ),
        (
            record(DISPATCH, function=8, constant_first=1, constant_count=2),
            BINDINGS,
            "constants end",
        ),
        (record(DISPATCH, function=8, z=65536), BINDINGS, "z above 65535"),
        (record(DISPATCH, function=8, size_z=65536), BINDINGS, "z above 65535"),
        (
            record(DISPATCH, function=8, binding_count=256),
            BINDINGS * 128,
            "too many bindings",
        ),
        (record(COPY, binding_count=1), BINDINGS, "a copy has two bindings"),
        (record(COPY, binding_first=1), BINDINGS * 2, "a copy needs a writable target"),
        (
            record(COPY),
            BINDINGS[:24] + records.BINDING.pack(1, 0, 0, 31),
            "got 32 and 31 bytes",
        ),
        (
            record(COPY),
            BINDINGS[:24] + records.BINDING.pack(0, 0, 31, 32),
            "ranges overlap",
        ),
        (record(FILL, constant_count=4), BINDINGS, "one writable binding"),
        (
            record(FILL, constant_count=3, binding_count=1),
            BINDINGS,
            "1, 2, 4 or 8 bytes, got 3",
        ),
        (
            record(FILL, constant_count=4, binding_first=1, binding_count=1),
            BINDINGS,
            "one writable",
        ),
        (
            record(FILL, constant_count=8, binding_count=1),
            records.BINDING.pack(0, WRITES, 0, 31),
            "whole patterns",
        ),
        (record(HOST_CALL, function=1), BINDINGS, "host call 1, expected less than 1"),
        (b"", records.BINDING.pack(2, 0, 0, 1), "binding 0: slot 2, expected less than 2"),
        (
            b"",
            records.BINDING.pack(1, 0, 1, 32),
            "binding 0: 32 bytes at 1 leave slot 1 of 32 bytes",
        ),
        (b"", records.BINDING.pack(1, 0, (1 << 64) - 1, 2), "leave slot 1 of 32 bytes"),
        (
            b"",
            records.BINDING.pack(1, WRITES, 0, 1),
            "binding 0: writes slot 1, which is read-only",
        ),
        (record(COPY)[:-1], BINDINGS, "commands: 71 bytes, expected whole records of 72"),
        (b"", BINDINGS[:-1], "bindings: 47 bytes, expected whole records of 24"),
    ],
)
def test_records_that_would_leave_memory_are_refused(
    core: ModuleType, command: bytes, bindings: bytes, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        core.CommandList(command, bindings, SLOTS, bytes(8), (print,))


def test_slots_and_constants_are_checked_too(core: ModuleType) -> None:
    with pytest.raises(ValueError, match="slot 0: alignment 3, expected a power of two"):
        core.CommandList(b"", b"", records.SLOT.pack(1, 0, 3), b"")
    with pytest.raises(ValueError, match="constants: 3 bytes, expected whole records of 4"):
        core.CommandList(b"", b"", b"", b"abc")


def test_random_records_are_refused_or_harmless(core: ModuleType) -> None:
    rng = np.random.default_rng(3)
    accepted = 0
    for _ in range(2000):
        fields = {
            "kind": int(rng.integers(1, 4)),
            "binding_first": int(rng.integers(0, 3)),
            "binding_count": int(rng.integers(0, 3)),
            "constant_count": int(rng.choice([1, 2, 3, 4, 8])),
        }
        table = b"".join(
            records.BINDING.pack(*(int(v) for v in rng.integers(0, [3, 2, 40, 40])))
            for _ in range(2)
        )
        try:
            commands = core.CommandList(
                record(**fields), table, SLOTS, bytes(8), (lambda *views: None,)
            )
        except ValueError:
            continue
        accepted += 1
        guarded = np.full(64 + 32, 5, np.uint8)
        commands.run(None, [guarded[:64], bytes(32)])
        assert (guarded[64:] == 5).all()
    assert accepted > 20


def test_a_pool_must_be_a_pool(core: ModuleType) -> None:
    with pytest.raises(TypeError, match="expected a Pool or None"):
        Recorder().build(core.CommandList).run(4, [])  # pyright: ignore[reportArgumentType]


# ------------------------------------------------------------------ lifetimes


class Owner:
    """Something a list keeps alive."""


def test_a_list_keeps_its_owners(core: ModuleType) -> None:
    owner = Owner()
    gone = weakref.ref(owner)
    recorder = Recorder()
    recorder.keep(owner)
    commands = recorder.build(core.CommandList)
    del owner, recorder
    gc.collect()
    assert gone() is not None
    del commands
    gc.collect()
    assert gone() is None


def test_a_cycle_through_a_host_call_is_collected(core: ModuleType) -> None:
    held: list[object] = [Owner()]
    gone = weakref.ref(held[0])
    recorder = Recorder()
    recorder.host_call(held.clear, [])
    held.append(recorder.build(core.CommandList))
    del held, recorder
    gc.collect()
    assert gone() is None


def test_a_run_lets_go_of_its_buffers(core: ModuleType) -> None:
    recorder = Recorder()
    recorder.slot(4)
    commands = recorder.build(core.CommandList)
    buffer = bytearray(4)
    commands.run(None, [buffer])
    buffer.extend(b"more")  # a held buffer could not grow
    with pytest.raises(ValueError, match="slot"):
        commands.run(None, [buffer[:1]])
    assert len(buffer) == 8
