"""Invocations: the call path of a whole model, in both implementations."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import DeviceError
from tilewright.runtime.recorder import Recorder

Kernels = Mapping[str, int]
N = 101
SIZE = 4 * N
GRID = (2, 1, 1)


def empty(dtype: str = "f4", count: int = N) -> functools.partial[Any]:
    return functools.partial(np.empty, (count,), np.dtype(dtype))


def adding(
    core: ModuleType,
    kernels: Kernels,
    *,
    pool: Any = None,
    alignment: int = 1,
    outputs: int = 1,
) -> Any:
    """(x + weights) + y, through a scratch slot."""
    recorder = Recorder()
    x, y = (
        recorder.slot(SIZE, alignment=alignment),
        recorder.slot(SIZE, alignment=alignment),
    )
    out = [recorder.slot(SIZE, writable=True) for _ in range(outputs)]
    weights = recorder.slot(SIZE)
    scratch = recorder.slot(SIZE, writable=True, alignment=64)
    first = [(x, 0, SIZE), (weights, 0, SIZE), (scratch, 0, SIZE)]
    recorder.dispatch(kernels["add"], first, GRID, constants=[N])
    for slot in out:
        second = [(scratch, 0, SIZE), (y, 0, SIZE), (slot, 0, SIZE)]
        recorder.dispatch(kernels["add"], second, GRID, constants=[N])
    return core.RecordedCall(
        recorder.build(core.CommandList),
        pool,
        [("x", "f", (N,)), ("y", "f", (N,))],
        [empty() for _ in range(outputs)],
        [np.arange(N, dtype=np.float32)],
    )


def test_a_recorded_call_returns_fresh_outputs(core: ModuleType, kernels: Kernels) -> None:
    call = adding(core, kernels)
    x, y = np.ones(N, np.float32), np.full(N, 2, np.float32)
    first, second = call(x, y), call(y, y)
    np.testing.assert_array_equal(first, np.arange(N) + 3)
    np.testing.assert_array_equal(second, np.arange(N) + 4)


@pytest.mark.parametrize("outputs", [0, 1, 2, 3])
def test_one_output_comes_alone_and_others_as_a_tuple(
    core: ModuleType, kernels: Kernels, outputs: int
) -> None:
    x = np.ones(N, np.float32)
    result = adding(core, kernels, outputs=outputs)(x, x)
    if outputs == 1:
        assert isinstance(result, np.ndarray)
    else:
        assert isinstance(result, tuple)
        assert len(result) == outputs
        assert all((part == np.arange(N) + 2).all() for part in result)


def test_misaligned_inputs_are_copied_to_aligned_memory(
    core: ModuleType, kernels: Kernels
) -> None:
    call = adding(core, kernels, alignment=64)
    room = np.zeros(N + 17, np.float32)
    for start in range(17):
        x = room[start : start + N]
        x[:] = start
        np.testing.assert_array_equal(call(x, x), np.arange(N) + 2 * start)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (lambda x: (x,), TypeError, "got 1 inputs, expected 2"),
        (lambda x: (x, x, x), TypeError, "got 3 inputs, expected 2"),
        (
            lambda x: (x, x.astype("f8")),
            TypeError,
            "input 'y' has format 'd', expected 'f'",
        ),
        (
            lambda x: (x.astype("i4"), x),
            TypeError,
            "input 'x' has format 'i', expected 'f'",
        ),
        (
            lambda x: (x.astype(">f4"), x),
            TypeError,
            "input 'x' has format '>f', expected 'f'",
        ),
        (
            lambda x: (x[:-1], x),
            ValueError,
            r"input 'x' has shape \(100,\), expected \(101,\)",
        ),
        (
            lambda x: (x, x.reshape(1, N)),
            ValueError,
            r"'y' has shape \(1, 101\), expected \(101,\)",
        ),
        (
            lambda x: (x[0].reshape(()), x),
            ValueError,
            r"'x' has shape \(\), expected \(101,\)",
        ),
        (lambda x: (np.repeat(x, 2)[::2], x), ValueError, "input 'x' is not C-contiguous"),
        (lambda x: (x, None), TypeError, "input 'y' is a .*NoneType.*, expected an array"),
        (lambda x: (x, 5), TypeError, "input 'y' is a .*int.*, expected an array"),
    ],
)
def test_inputs_that_do_not_fit_are_named(
    core: ModuleType, kernels: Kernels, arguments: Any, error: type[Exception], message: str
) -> None:
    call = adding(core, kernels)
    x = np.ones(N, np.float32)
    with pytest.raises(error, match=message):
        call(*arguments(x))
    np.testing.assert_array_equal(call(x, x), np.arange(N) + 2)


@pytest.mark.skipif(
    sys.version_info < (3, 12), reason="Python gives buffers from 3.12 on (PEP 688)"
)
@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError, OSError])
def test_what_the_code_of_a_buffer_raises_is_not_taken_for_a_refusal(
    core: ModuleType, kernels: Kernels, raised: type[BaseException]
) -> None:
    class Giving:
        def __buffer__(self, flags: int) -> memoryview:
            raise raised("no buffer")

    call = adding(core, kernels)
    x = np.ones(N, np.float32)
    with pytest.raises(raised):
        call(Giving(), x)
    commands = Recorder()
    commands.slot(16)
    with pytest.raises(raised):
        commands.build(core.CommandList).run(None, [Giving()])
    np.testing.assert_array_equal(call(x, x), np.arange(N) + 2)


@pytest.mark.parametrize(
    ("formats", "dtype", "fits"),
    [
        ("l|q", "i8", True),
        ("q|l", np.longlong, True),
        ("?", "?", True),
        ("e", "f2", True),
        ("B", "u1", True),
        ("b", "u1", False),
        ("Zf", "c8", True),
        ("f", "c8", False),
        ("fd", "f4", False),
        ("d|f", "f4", True),
        ("", "f4", False),
    ],
)
def test_formats_are_alternatives(
    core: ModuleType, formats: str, dtype: Any, fits: bool
) -> None:
    recorder = Recorder()
    recorder.slot(0)
    call = core.RecordedCall(
        recorder.build(core.CommandList), None, [("x", formats, (3,))], []
    )
    if fits:
        assert call(np.zeros(3, dtype)) == ()
    else:
        with pytest.raises(TypeError, match="has format"):
            call(np.zeros(3, dtype))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (1, 1, 1, 1, 1)])
def test_odd_shapes_pass(core: ModuleType, shape: tuple[int, ...]) -> None:
    recorder = Recorder()
    size = int(4 * np.prod(shape))
    source, target = recorder.slot(size), recorder.slot(size, writable=True)
    recorder.copy((target, 0, size), (source, 0, size))
    call = core.RecordedCall(
        recorder.build(core.CommandList),
        None,
        [("x", "f", shape)],
        [lambda: np.empty(shape, np.float32)],
    )
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    result = call(np.asarray(x))
    assert result.shape == shape
    np.testing.assert_array_equal(result, x)


def test_an_output_that_is_too_small_is_refused(core: ModuleType, kernels: Kernels) -> None:
    recorder = Recorder()
    out = recorder.slot(SIZE, writable=True)
    recorder.dispatch(kernels["mark"], [(out, 0, SIZE)], (N, 1, 1))
    call = core.RecordedCall(
        recorder.build(core.CommandList), None, [], [empty(count=N - 1)]
    )
    with pytest.raises(
        ValueError, match="slot 0: buffer of 400 bytes, expected at least 404"
    ):
        call()


def test_an_input_smaller_than_the_list_reads_is_refused(core: ModuleType) -> None:
    recorder = Recorder()
    recorder.slot(8)
    call = core.RecordedCall(recorder.build(core.CommandList), None, [("x", "f", (1,))], [])
    with pytest.raises(ValueError, match="input 'x' has 4 bytes, but the list reads 8"):
        call(np.zeros(1, np.float32))


def test_exceptions_of_kernels_outputs_and_host_calls_come_out(
    core: ModuleType, kernels: Kernels
) -> None:
    def refuse(*views: object) -> None:
        raise LookupError("no")

    failing = Recorder()
    failing.dispatch(kernels["fail"], [], (1, 1, 1), constants=[0, 5])
    with pytest.raises(RuntimeError, match="command 0: the kernel returned 5"):
        core.RecordedCall(failing.build(core.CommandList), None, [], [])()
    calling = Recorder()
    calling.host_call(refuse, [])
    with pytest.raises(LookupError, match="no"):
        core.RecordedCall(calling.build(core.CommandList), None, [], [])()
    allocating = Recorder()
    allocating.slot(4, writable=True)
    with pytest.raises(LookupError, match="no"):
        core.RecordedCall(allocating.build(core.CommandList), None, [], [refuse])()


def test_a_recorded_call_is_checked_when_made(core: ModuleType) -> None:
    recorder = Recorder()
    recorder.slot(4, writable=True)
    recorder.slot(16)
    commands = recorder.build(core.CommandList)
    with pytest.raises(
        ValueError, match="3 inputs, outputs and constants, but the list has 2 slots"
    ):
        core.RecordedCall(commands, None, [], [empty(), empty()], [b""])
    with pytest.raises(ValueError, match="input 'x': the list writes to slot 0"):
        core.RecordedCall(commands, None, [("x", "f", (1,))], [])
    with pytest.raises(ValueError, match="slot 1: buffer of 3 bytes, expected at least 16"):
        core.RecordedCall(commands, None, [], [empty()], [b"abc"])
    with pytest.raises(TypeError):
        core.RecordedCall(3, None, [], [])
    with pytest.raises(TypeError):
        core.RecordedCall(commands, 3, [], [])
    with pytest.raises((TypeError, ValueError)):
        core.RecordedCall(commands, None, [("x", "f")], [])


def test_threads_may_make_one_recorded_call_at_once(
    core: ModuleType, kernels: Kernels
) -> None:
    with core.Pool(2) as pool:
        call = adding(core, kernels, pool=pool)
        wrong: list[int] = []

        def repeat(value: int) -> None:
            x = np.full(N, value, np.float32)
            rounds = 100 if core.__name__.endswith("_native") else 5
            results = [call(x, x) for _ in range(rounds)]
            wrong.extend(value for y in results if (y != np.arange(N) + 2 * value).any())

        threads = [threading.Thread(target=repeat, args=(i,)) for i in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    assert wrong == []


def test_a_call_inside_a_call_has_its_own_scratch(core: ModuleType) -> None:
    seen: list[int] = []

    def recurse(scratch: memoryview) -> None:
        seen.append(scratch[0])
        if len(seen) < 4:
            scratch[0] = len(seen)
            mine = scratch[0]
            call()
            seen.append(scratch[0] - mine)

    recorder = Recorder()
    slot = recorder.slot(8, writable=True)
    recorder.fill((slot, 0, 8), b"\0")
    recorder.host_call(recurse, [(slot, 0, 8)], writable=(True,))
    call = core.RecordedCall(recorder.build(core.CommandList), None, [], [])
    call()
    assert seen == [0] * 7  # 4 fresh starts, 3 values found unchanged after the inner call


@pytest.mark.parametrize("rest", [(), (64,)])
def test_an_arena_beyond_all_memory_is_refused(
    core: ModuleType, rest: tuple[int, ...]
) -> None:
    recorder = Recorder()
    for size in ((1 << 63) - 1, (1 << 63) - 1, *rest):
        recorder.fill((recorder.slot(size, writable=True), 0, 64), b"\1")
    call = core.RecordedCall(recorder.build(core.CommandList), None, [], [])
    with pytest.raises(DeviceError, match=r"no memory for \d+ bytes for intermediate"):
        call()


def test_a_closed_pool_ends_the_recorded_call(core: ModuleType, kernels: Kernels) -> None:
    pool = core.Pool(2)
    call = adding(core, kernels, pool=pool)
    pool.close()
    x = np.ones(N, np.float32)
    with pytest.raises(ValueError, match="the pool is closed"):
        call(x, x)


def test_a_call_keeps_nothing_of_its_arguments(core: ModuleType, kernels: Kernels) -> None:
    class Array(np.ndarray):
        """An array that weak references can point to."""

    call = adding(core, kernels)
    x = np.ones(N, np.float32).view(Array)
    result = call(x, x).view(Array)
    input_gone, output_gone = weakref.ref(x), weakref.ref(result)
    del x, result
    gc.collect()
    assert input_gone() is None
    assert output_gone() is None


def test_repeated_calls_do_not_grow_the_process(
    extension: ModuleType, kernels: Kernels
) -> None:
    call = adding(extension, kernels, alignment=64)
    room = np.ones(N + 1, np.float32)

    def resident_pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    def burst() -> None:
        for _ in range(5000):
            call(room[1:], room[:-1])
            with pytest.raises(TypeError):
                call(room[1:])

    burst()
    before = resident_pages()
    burst()
    assert resident_pages() - before < 100


def test_a_cycle_through_an_output_is_collected(core: ModuleType) -> None:
    class Model:
        """Holds its call, which holds it."""

        def allocate(self) -> np.ndarray:
            return np.empty(1, np.float32)

    model = Model()
    gone = weakref.ref(model)
    recorder = Recorder()
    recorder.slot(4, writable=True)
    model.call = core.RecordedCall(
        recorder.build(core.CommandList), None, [], [model.allocate]
    )  # pyright: ignore[reportAttributeAccessIssue]
    del model
    gc.collect()
    assert gone() is None


def over_tensors(core: ModuleType, kernels: Kernels, make: Any, alignment: int = 1) -> Any:
    """x + y of tensors of torch; `make` makes what takes the sum."""
    torch = pytest.importorskip("torch")
    recorder = Recorder()
    x, y = (recorder.slot(SIZE, alignment=alignment) for _ in range(2))
    out = recorder.slot(SIZE, writable=True)
    bindings = [(slot, 0, SIZE) for slot in (x, y, out)]
    recorder.dispatch(kernels["add"], bindings, GRID, constants=[N])
    return core.RecordedCall(
        recorder.build(core.CommandList),
        None,
        [("x", "f", (N,)), ("y", "f", (N,))],
        [make],
        tensors=torch.Tensor,
    )


@pytest.mark.needs_torch
def test_tensors_are_taken_and_made_where_the_core_can_look_at_them(
    core: ModuleType, kernels: Kernels
) -> None:
    torch = pytest.importorskip("torch")
    if core.__name__.endswith("fallback"):
        with pytest.raises(TypeError, match="takes buffers only"):
            over_tensors(core, kernels, lambda: None)
        return
    call = over_tensors(core, kernels, lambda: torch.empty(N), alignment=64)
    room = torch.arange(N + 20.0)
    for start in range(18):
        x = room[start : start + N]
        assert torch.equal(call(x, np.ones(N, np.float32)), x + 1)
    refused = [
        (room[:N].double(), TypeError, "input 'y' has format 'd', expected 'f'"),
        (room[:N].to(torch.complex64), TypeError, "input 'y' has format ''"),
        (room, ValueError, r"input 'y' has shape \(121,\), expected \(101,\)"),
        (room.repeat(2)[: 2 * N : 2], ValueError, "input 'y' is not C-contiguous"),
        (torch.empty(N, device="meta"), Exception, None),
        (torch.nn.Parameter(room[:N]), TypeError, "expected an array"),
    ]
    for given, error, message in refused:
        with pytest.raises(error, match=message):
            call(room[:N], given)
    assert torch.equal(call(room[:N], room[:N]), room[:N] * 2)


@pytest.mark.needs_torch
def test_tensors_that_do_not_take_an_output_are_refused(
    core: ModuleType, kernels: Kernels
) -> None:
    torch = pytest.importorskip("torch")
    if core.__name__.endswith("fallback"):
        pytest.skip("the Python core takes no tensors")
    x = torch.zeros(N)
    for made in (torch.empty(N - 1), torch.empty(2 * N)[::2], torch.empty(0), None):
        with pytest.raises(ValueError, match="slot 2"):
            over_tensors(core, kernels, lambda made=made: made)(x, x)


@pytest.mark.parametrize("type_", [int, np.ndarray, None.__class__])
def test_types_without_a_table_of_functions_are_refused(
    core: ModuleType, kernels: Kernels, type_: type
) -> None:
    del kernels
    commands = Recorder().build(core.CommandList)
    with pytest.raises((TypeError, AttributeError)):
        core.RecordedCall(commands, None, [], [], tensors=type_)
