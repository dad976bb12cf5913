"""Calls that repeat themselves are replayed, with the same results; all others run as before."""

from __future__ import annotations

import lzma
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes import small_models
from tilewright.base.budget import Limits
from tilewright.base.errors import DeviceError, InputError
from tilewright.base.host import describe
from tilewright.runtime.bytecode_machine import BytecodeMachine, VmFunction, recorded_calls
from tilewright.runtime.bytecode_machine.recorded_calls import (
    RECORDED_LIMIT,
    changes_globals,
    is_repeatable,
)
from tilewright.runtime.drivers import registry
from tilewright.runtime.hal.local.local_device import LocalDevice
from tilewright.runtime.vm.effects import Effects

ARCHIVES = Path(__file__).resolve().parents[3] / "golden" / "archives"
RNG = np.random.default_rng(5)
RELEASES = ("3.0.0", "3.4.0", "3.9.0", "3.10.0", "3.11.0", "3.13.0")
needs_x86 = pytest.mark.skipif(describe().arch != "x86_64", reason="x86-64 code")


def replays(function: VmFunction) -> int:
    """How many recordings a function has."""
    recorded = function.recorded
    return 0 if recorded is None else recorded.replay_count


def save(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.vmfb"
    tw.compile(model).save(path)
    return path


@pytest.mark.thinned(5)
@needs_x86
@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("device", ["local-sync", "local-task"])
def test_iree_modules_give_the_same_bits_recorded_or_not(release: str, device: str) -> None:
    data = lzma.decompress((ARCHIVES / f"iree-{release}-mlp_cpu.vmfb.xz").read_bytes())
    machine = BytecodeMachine(device)
    machine.load(data)
    function = machine.function("mlp")
    for _ in range(5):
        x = RNG.standard_normal((1, 784)).astype(np.float32)
        fresh = machine.function("mlp")
        np.testing.assert_array_equal(function(x)[0], fresh(x)[0])
        assert replays(fresh) == 0
    assert replays(function) == 1


def test_results_are_fresh_and_inputs_stay(tmp_path: Path) -> None:
    machine = BytecodeMachine.from_file(save(small_models.mlp(), tmp_path), "local-sync")
    function = machine.function("main")
    x = RNG.standard_normal((5, 20)).astype(np.float32)
    kept = x.copy()
    first, second, third = (function(x)[0] for _ in range(3))
    assert replays(function) == 1
    third[:] = 0
    np.testing.assert_array_equal(function(x)[0], first)
    np.testing.assert_array_equal(second, first)
    np.testing.assert_array_equal(x, kept)
    address = third.__array_interface__["data"][0]
    assert address % 64 == 0, "kernels of other compilers count on it"
    del function, machine
    assert third.sum() == 0  # results keep their memory


def test_every_shape_has_its_recording(tmp_path: Path) -> None:
    path = save(small_models.scale_and_shift(), tmp_path)
    function = BytecodeMachine.from_file(path, "local-task").function("main")
    scale = np.array([2, 3, 4], np.float32)
    for _ in range(3):
        for rows in range(1, RECORDED_LIMIT + 4):
            x = RNG.standard_normal((rows, 3)).astype(np.float32)
            y, z = function(x, scale)
            wanted = small_models.scale_and_shift_reference(x, scale)
            np.testing.assert_allclose(y, wanted[0], rtol=1e-6)
            np.testing.assert_array_equal(z, wanted[1])
    assert replays(function) <= RECORDED_LIMIT
    for _ in range(3):
        np.testing.assert_allclose(function(x, scale)[0], wanted[0], rtol=1e-6)
    assert replays(function) >= 1


def test_what_does_not_fit_a_recording_runs_as_before(tmp_path: Path) -> None:
    path = save(small_models.scale_and_shift(), tmp_path)
    function = BytecodeMachine.from_file(path, "local-sync").function("main")
    scale = np.ones(3, np.float32)
    wide = RNG.standard_normal((4, 6)).astype(np.float32)
    dense = np.ascontiguousarray(wide[:, ::2])
    expected = [function(dense, scale)[0] for _ in range(3)][-1]
    assert replays(function) == 1
    np.testing.assert_array_equal(function(wide[:, ::2], scale)[0], expected)
    np.testing.assert_array_equal(function(np.asfortranarray(dense), scale)[0], expected)
    odd = np.frombuffer(b"x" + dense.tobytes(), np.uint8)[1:].view(np.float32).reshape(4, 3)
    np.testing.assert_array_equal(function(odd, scale)[0], expected)
    locked = dense.copy()
    locked.flags.writeable = False
    np.testing.assert_array_equal(function(locked, scale)[0], expected)
    with pytest.raises(InputError):
        function(dense.astype(np.float64), scale)
    np.testing.assert_array_equal(function(dense, scale)[0], expected)


def test_threads_share_a_recording(tmp_path: Path) -> None:
    path = save(small_models.mlp(), tmp_path)
    function = BytecodeMachine.from_file(path, "local-task").function("main")
    inputs = [RNG.standard_normal((5, 20)).astype(np.float32) for _ in range(8)]
    expected = [function(x)[0] for x in inputs]
    assert replays(function) == 1
    start = threading.Barrier(4)

    def call(_: int) -> bool:
        start.wait()
        return all(
            np.array_equal(function(x)[0], wanted)
            for _ in range(50)
            for x, wanted in zip(inputs, expected, strict=True)
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, range(4)))


def test_many_first_calls_at_once(tmp_path: Path) -> None:
    """Only one thread is listened to at a time; the others just run."""
    path = save(small_models.mlp(), tmp_path)
    machine = BytecodeMachine.from_file(path, "local-task")
    x = RNG.standard_normal((5, 20)).astype(np.float32)
    expected = machine.function("main")(x)[0]
    functions = [machine.function("main") for _ in range(4)]
    start = threading.Barrier(4)

    def call(function: VmFunction) -> bool:
        start.wait()
        return all(np.array_equal(function(x)[0], expected) for _ in range(20))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(call, functions))


@needs_x86
def test_state_is_not_recorded() -> None:
    """A function that stores a global, and all others of its module, run every time."""
    machine = BytecodeMachine("local-sync")
    data = lzma.decompress((ARCHIVES / "iree-3.13.0-mlp_cpu.vmfb.xz").read_bytes())
    module = machine.load(data)
    (export,) = [e for e in module.definition.exports if e.name == "__init"]
    assert changes_globals(module.effects(export.function))
    vmvx = BytecodeMachine("local-sync")
    vmvx.load((ARCHIVES / "iree-3.13.0-ctrl_vmvx.vmfb").read_bytes())
    assert vmvx.function("ctrl").recorded is None, "it reads its data"


@pytest.mark.parametrize(
    ("opcodes", "imports", "repeats"),
    [
        ({"call", "br"}, {"hal.buffer_view.dim"}, True),
        ({"global.load.ref"}, set(), True),
        ({"global.store.i32"}, set(), False),
        ({"call", "br", "global.store.ref"}, set(), False),
        ({"call", "cond_break"}, {"hal.buffer_view.dim"}, False),
        ({"list.set.ref"}, set(), False),
        ({"buffer.store.i8"}, set(), False),
        ({"buffer.load.i32"}, {"hal.device.queue.execute.indirect"}, True),
        ({"trace"}, set(), False),
        ({"call"}, {"hal.buffer.load"}, True),  # one that happens is heard of
        ({"call"}, {"tilewright.host_call"}, False),
        ({"call"}, {"hal.device.queue.read"}, False),
        ({"call"}, {"io_parameters.load"}, False),
    ],
)
def test_what_counts_as_repeatable(
    opcodes: set[str], imports: set[str], *, repeats: bool
) -> None:
    assert is_repeatable(Effects(frozenset(opcodes), frozenset(imports))) is repeats


def test_kernels_in_bytecode_are_not_recorded() -> None:
    machine = BytecodeMachine("local-sync")
    machine.load((ARCHIVES / "iree-3.13.0-add_vmvx.vmfb").read_bytes())
    function = machine.function("add")
    a, b = (RNG.standard_normal(1024).astype(np.float32) for _ in range(2))
    for _ in range(4):
        np.testing.assert_array_equal(function(a, b)[0], a + b)
    assert replays(function) == 0


def test_watched_machines_do_not_record(tmp_path: Path) -> None:
    path = save(small_models.mlp(), tmp_path)
    x = RNG.standard_normal((5, 20)).astype(np.float32)
    options: list[Callable[[], BytecodeMachine]] = [
        lambda: BytecodeMachine("local-sync", limits=Limits(max_steps=10_000)),
        lambda: BytecodeMachine("local-sync", tracer=lambda *_: None),
    ]
    for make in options:
        machine = make()
        machine.load(path.read_bytes())
        function = machine.function("main")
        results = [function(x)[0] for _ in range(3)]
        np.testing.assert_array_equal(results[0], results[2])
        assert replays(function) == 0


def test_profiles_see_every_command_of_recorded_calls(tmp_path: Path) -> None:
    session = tw.load(save(small_models.mlp(), tmp_path), engine="vm")
    x = RNG.standard_normal((5, 20)).astype(np.float32)
    for _ in range(3):
        session(x)
    assert len(session.profile(x)) >= 2


def test_a_call_that_loads_from_a_buffer_is_not_replayed() -> None:
    device = registry.create_device("local-sync")
    assert isinstance(device, LocalDevice)
    with device.listen_to_call() as listener:
        assert listener is not None
        device.note_load()
    assert "reads" in listener.refusal


def test_checks_of_indices_are_part_of_what_is_replayed(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 18]>'
        "f (float[5,3] t, int64[2] i) => (float[2,3] y) { y = Gather (t, i) }"
    )
    function = BytecodeMachine.from_file(save(model, tmp_path), "local-sync").function(
        "main"
    )
    table = np.arange(15, dtype=np.float32).reshape(5, 3)
    for _ in range(4):
        np.testing.assert_array_equal(function(table, np.array([4, -5]))[0], table[[4, 0]])
    assert replays(function) == 1
    with pytest.raises(InputError, match="index 5 is out of range on axis 0 of size 5"):
        function(table, np.array([5, 0]))


@needs_x86
def test_a_failing_kernel_fails_the_replay() -> None:
    """The error of a replayed kernel is that of a device."""

    def broken(*inputs: object) -> object:
        raise RuntimeError("command 0: kernel returned 7")

    replay = recorded_calls._bind(
        broken, [0], [((1,), np.dtype(np.float32), 0)], is_single=True
    )  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="kernel returned 7"):
        replay()
