"""The `hal` module offers what every release imports, and each export does what it says."""

from __future__ import annotations

import lzma
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fakes.kernel_image import FORMAT, kernel_image
from fakes.placed_arrays import placed
from tilewright.base.errors import DeviceError, InputError
from tilewright.base.status import StatusCode
from tilewright.formats.vmfb import read_archive
from tilewright.runtime.drivers import registry
from tilewright.runtime.hal.buffer_view import BufferView
from tilewright.runtime.modules.hal import create_hal_module
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.native_module import NativeModule

ARCHIVES = Path(__file__).resolve().parents[3] / "golden" / "archives"
F32, I32, SI32, DENSE = 0x21000020, 0x10000020, 0x11000020, 1
DEVICE_LOCAL, USAGE = 48, 0xC03

# Name: signatures, the newest first. Source: IREE releases 20240410 to 3.13.
EXPORTS = {
    "allocator.allocate": "rIiiI_r",
    "allocator.import": "riIiirII_r",
    "allocator.select": "iiICrID_rI",
    "buffer.allocation.discard": "r_i",
    "buffer.allocation.is_terminal": "r_i",
    "buffer.allocation.preserve": "r_v",
    "buffer.assert": "rrrIii_v",
    "buffer.length": "r_I",
    "buffer.load": "rIi_i",
    "buffer.store": "irIi_v",
    "buffer.subspan": "rII_r",
    "buffer_view.assert": "rriiCID_v",
    "buffer_view.buffer": "r_r",
    "buffer_view.create": "rIIiiCID_r",
    "buffer_view.dim": "ri_I",
    "buffer_view.element_type": "r_i",
    "buffer_view.encoding_type": "r_i",
    "buffer_view.rank": "r_i",
    "buffer_view.trace": "rCrD_v",
    "channel.create": "rIIrrii_r rIirrii_r",
    "channel.rank_and_count": "r_ii",
    "channel.split": "riiI_r riii_r",
    "command_buffer.advise_buffer": "rrIIIi_v",
    "command_buffer.begin_debug_group": "rr_v",
    "command_buffer.collective": "rriiiirrIIIII_v rriirIIrIII_v",
    "command_buffer.copy_buffer": "riirIrIII_v riirIrII_v rrIrII_v",
    "command_buffer.create": "riiIi_r riii_r",
    "command_buffer.dispatch": "rrIiiiICiDCiirIID_v rriiiiICiDCiirIID_v rriiii_v",
    "command_buffer.dispatch.indirect": "rrIirIICiDCiirIID_v rriirIICiDCiirIID_v rrirI_v",
    "command_buffer.end_debug_group": "r_v",
    "command_buffer.execution_barrier": "riiI_v riii_v",
    "command_buffer.fill_buffer": "rrIIiIiI_v rrIIiii_v rrIIii_v",
    "command_buffer.execute.commands": "rrCrIID_v",
    "command_buffer.finalize": "r_v",
    "command_buffer.flush_buffer": "rirII_v",
    "command_buffer.invalidate_buffer": "rirII_v",
    "command_buffer.push_constants": "rriCiD_v",
    "command_buffer.push_descriptor_set": "rriCiirIID_v",
    "command_buffer.update_buffer": "rrIrIIiI_v rrIrIIi_v",
    "descriptor_set_layout.create": "riCiiiD_r",
    "device.allocator": "r_r",
    "device.query.i64": "rrr_iI",
    "device.queue.alloca": "rIrrIiiII_r rIrriiiI_r",
    "device.queue.barrier": "rIrrI_v",
    "device.queue.copy": "rIrrrIrIII_v",
    "device.queue.dealloca": "rIrrrI_v rIrrr_v",
    "device.queue.execute": "rIrrrI_v rIrrCrD_v",
    "device.queue.execute.indirect": "rIrrrICrIID_v rIrrrCrIID_v",
    "device.queue.fill": "rIrrrIIIiI_v",
    "device.queue.flush": "rI_v",
    "device.queue.read": "rIrrrIrIII_v rIrrrIrIIi_v",
    "device.queue.update": "rIrrrIrIII_v",
    "device.queue.write": "rIrrrIrIII_v rIrrrIrIIi_v",
    "devices.count": "v_i",
    "devices.get": "i_r",
    "ex.file.from_memory": "rIirIIi_r",
    "executable.create": "rIrrr_r rrrr_r rrrrCrD_r",
    "executable.lookup.function": "rr_I",
    "fence.await": "iICrD_i iCrD_i",
    "fence.create": "rI_r ri_r",
    "fence.fail": "ri_v",
    "fence.join": "ICrD_r CrD_r",
    "fence.query": "r_i",
    "fence.signal": "r_v",
    "pipeline_layout.create": "riCrD_r",
}

Hal = Callable[..., object]


class Bound:
    """The module's functions on one device, by name and signature."""

    def __init__(self, uri: str = "local-sync") -> None:
        self.device = registry.create_device(uri)
        self.module: NativeModule = create_hal_module([self.device])
        self.state = self.module._create_state()

    def __call__(self, name: str, *arguments: object, generation: int = 0) -> object:
        signature = "0" + EXPORTS[name].split()[generation]
        callee = self.module.bind(self.state, name, signature)
        assert callee is not None, f"{name} {signature}"
        return callee(*arguments)

    def buffer(self, data: bytes) -> object:
        made = self(
            "allocator.allocate", self.device.allocator, -1, DEVICE_LOCAL, USAGE, len(data)
        )
        made.write(data)
        return made

    def fence(self) -> object:
        return self("fence.create", self.device, 0)


@pytest.fixture(params=["local-sync", "local-task://?threads=2"])
def hal(request: pytest.FixtureRequest) -> Bound:
    return Bound(request.param)


def text(value: str) -> VmBuffer:
    return VmBuffer(value.encode())


def test_all_exports_of_the_reference_are_there_with_all_signatures() -> None:
    module = create_hal_module([])
    offered: dict[str, set[str]] = {}
    for function in module.functions:
        offered.setdefault(function.name, set()).add(function.calling_convention)
    assert offered == {n: {f"0{s}" for s in t.split()} for n, t in EXPORTS.items()}
    assert len(EXPORTS) == 65
    assert sum(len(signatures) for signatures in offered.values()) == 90


WITH_QUEUES = [p for p in sorted(ARCHIVES.glob("*.vmfb*")) if "_inline_" not in p.name]


@pytest.mark.parametrize("path", WITH_QUEUES, ids=lambda p: p.name)
def test_every_import_of_other_compilers_modules_is_found(path: Path) -> None:
    data = path.read_bytes()
    module = read_archive(lzma.decompress(data) if path.suffix == ".xz" else data)
    bound = Bound()
    wanted = [i for i in module.imports if i.name.startswith("hal.")]
    assert wanted
    for item in wanted:
        name = item.name.removeprefix("hal.")
        signature = item.signature.calling_convention
        assert bound.module.bind(bound.state, name, signature) is not None, item


def test_devices_are_numbered_and_queried(hal: Bound) -> None:
    assert hal("devices.count") == 1
    assert hal("devices.get", 0) is hal.device
    assert hal("devices.get", 1) is None
    assert hal("devices.get", -1) is None
    assert hal("device.allocator", hal.device) is hal.device.allocator
    query = lambda c, k: hal("device.query.i64", hal.device, text(c), text(k))  # noqa: E731
    assert query("hal.device.id", "local*") == (1, 1)
    assert query("hal.device.id", "cuda") == (1, 0)
    assert query("hal.executable.format", FORMAT) == (1, 1)
    assert query("hal.device", "concurrency") == (1, 1)
    assert query("hal.unheard", "of") == (0, 0)


def test_buffers_are_allocated_cut_read_and_written(hal: Bound) -> None:
    buffer = hal.buffer(bytes(range(16)))
    assert hal("buffer.length", buffer) == 16
    part = hal("buffer.subspan", buffer, 4, 8)
    assert [hal("buffer.load", part, 0, n) for n in (1, 2, 4)] == [4, 0x0504, 0x07060504]
    hal("buffer.store", -1, part, 4, 4)
    assert hal("buffer.load", part, 4, 4) == -1
    hal("buffer.store", 0x1234, part, 0, 1)
    assert hal("buffer.load", part, 0, 1) == 0x34
    with pytest.raises(DeviceError, match="load of 3 bytes"):
        hal("buffer.load", part, 0, 3)
    hal("buffer.allocation.preserve", buffer)
    assert hal("buffer.allocation.is_terminal", buffer) == 0
    assert hal("buffer.allocation.discard", buffer) == 0
    assert hal("buffer.allocation.is_terminal", buffer) == 1
    assert hal("buffer.allocation.discard", buffer) == 1


def test_host_memory_is_imported_where_aligned(hal: Bound) -> None:
    allocator = hal.device.allocator
    source = VmBuffer(placed(np.zeros(256, np.uint8)))
    arguments = (-1, DEVICE_LOCAL, USAGE, source)
    assert hal("allocator.import", allocator, 1, *arguments, 0, 128).byte_length == 128
    assert hal("allocator.import", allocator, 1, *arguments, 4, 64) is None
    with pytest.raises(DeviceError, match="UNAVAILABLE"):
        hal("allocator.import", allocator, 0, *arguments, 4, 64)


def test_the_first_of_several_devices_is_selected(hal: Bound) -> None:
    assert hal("allocator.select", 48, 3, 0, [(hal.device, 7)]) == (hal.device, 7)
    with pytest.raises(DeviceError, match="no devices"):
        hal("allocator.select", 48, 3, 0, [])


def test_assertions_on_buffers_name_what_was_asked(hal: Bound) -> None:
    buffer = hal.buffer(bytes(8))
    allocator = hal.device.allocator
    hal("buffer.assert", buffer, text("x"), allocator, 8, 16, 3)
    with pytest.raises(InputError, match="input 'x': got 8 bytes, expected at least 9"):
        hal("buffer.assert", buffer, text("input 'x'"), allocator, 9, 16, 3)
    with pytest.raises(InputError, match="does not allow usage 0x1000"):
        hal("buffer.assert", buffer, text("x"), allocator, 8, 16, 0x1003)


def test_views_are_made_and_asked(hal: Bound) -> None:
    buffer = hal.buffer(np.arange(8, dtype=np.float32).tobytes())
    view = hal("buffer_view.create", buffer, 8, 16, F32, DENSE, [2, 2])
    assert isinstance(view, BufferView)
    assert hal("buffer_view.rank", view) == 2
    assert [hal("buffer_view.dim", view, i) for i in (0, 1)] == [2, 2]
    assert hal("buffer_view.element_type", view) == F32
    assert hal("buffer_view.encoding_type", view) == DENSE
    assert hal("buffer.length", hal("buffer_view.buffer", view)) == 16
    assert view.to_numpy().tolist() == [[2, 3], [4, 5]]
    with pytest.raises(DeviceError, match="dimension 2 of rank 2"):
        hal("buffer_view.dim", view, 2)
    with pytest.raises(DeviceError, match="a view of 36 bytes, the buffer has 32"):
        hal("buffer_view.create", buffer, 0, 32, F32, DENSE, [3, 3])


def test_assertions_on_views_show_both_types(hal: Bound) -> None:
    view = hal("buffer_view.create", hal.buffer(bytes(24)), 0, 24, SI32, DENSE, [2, 3])
    hal("buffer_view.assert", view, text("x"), I32, DENSE, [2, 3])
    with pytest.raises(InputError, match=r"x: got i32\[2, 3\], expected f32\[2, 3\]"):
        hal("buffer_view.assert", view, text("x"), F32, DENSE, [2, 3])
    with pytest.raises(InputError, match=r"expected i32\[3, 2\]"):
        hal("buffer_view.assert", view, text("x"), I32, DENSE, [3, 2])


def test_views_are_traced_to_whoever_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bound = Bound()
    view = BufferView(bound.buffer(b"\1\0\0\0"), (1,), I32)
    bound("buffer_view.trace", text("here"), [view])
    assert capsys.readouterr().err == "=== here ===\ni32[1]=[1]\n"
    bound("buffer_view.trace", text("\x1b[2J"), [])  # what would steer a terminal
    assert capsys.readouterr().err == "=== \\x1b[2J ===\n"
    bound("buffer_view.trace", text("a ===\n1x\r=2\n=== b"), [])  # nor is it two lines
    assert capsys.readouterr().err == "=== a ===\\n1x\\r=2\\n=== b ===\n"
    with monkeypatch.context() as changed:
        changed.setattr(sys, "stderr", None)
        bound("buffer_view.trace", text("here"), [view])
    seen: list[object] = []
    module = create_hal_module([bound.device], lambda key, views: seen.append((key, views)))
    state = module._create_state()
    module.bind(state, "buffer_view.trace", None)(text("key"), [view])
    assert seen == [("key", [view])]


@pytest.mark.parametrize("generation", [0, 1])
def test_commands_of_both_generations_record_the_same(hal: Bound, generation: int) -> None:
    flags = (0,) if generation == 0 else ()
    buffer, other = hal.buffer(bytes(16)), hal.buffer(bytes(16))
    executable = _executable(hal, generation)
    commands = hal("command_buffer.create", hal.device, 1, 3, -1, 0)
    hal("command_buffer.begin_debug_group", commands, text("group"))
    hal("command_buffer.advise_buffer", commands, buffer, 0, 0, 0, 0)
    fill = (commands, buffer, 0, 8, 0, 5, 4, *flags)
    hal("command_buffer.fill_buffer", *fill, generation=generation)
    data = VmBuffer(b"..\7\0\0\0\11\0\0\0")
    update = (commands, data, 2, buffer, 8, 8, 0, *flags)
    hal("command_buffer.update_buffer", *update, generation=generation)
    hal("command_buffer.execution_barrier", commands, 28, 13, 0, generation=generation)
    hal("command_buffer.flush_buffer", commands, 0, buffer, 0, 16)
    hal("command_buffer.invalidate_buffer", commands, 0, buffer, 0, 16)
    dispatch = (commands, executable, 0, 4, 1, 1, 0, [3])
    refs = [(0, 0, buffer, 0, 16), (0, 0, buffer, 0, 16)]
    hal("command_buffer.dispatch", *dispatch, refs, generation=generation)
    hal("command_buffer.execution_barrier", commands, 28, 13, 0, generation=generation)
    copy = (commands, 0, 0, buffer, 0, other, 0, 16, *flags)
    hal("command_buffer.copy_buffer", *copy, generation=generation)
    hal("command_buffer.end_debug_group", commands)
    hal("command_buffer.finalize", commands)
    done = hal.fence()
    if generation == 0:
        hal("device.queue.execute", hal.device, -1, None, done, commands, 0)
        assert hal("fence.await", -1, 0, [done]) == 0
    else:
        hal("device.queue.execute", hal.device, -1, None, done, [commands], generation=1)
        assert hal("fence.await", -1, [done], generation=1) == 0
    assert np.frombuffer(other.read(), np.int32).tolist() == [15, 15, 21, 27]


def _executable(hal: Bound, generation: int) -> object:
    rest = (text(FORMAT), VmBuffer(kernel_image()), None)
    affinity = (-1,) if generation == 0 else ()
    arguments = (hal.device, *affinity, *rest)
    made = hal("executable.create", *arguments, generation=generation)
    assert hal("executable.lookup.function", made, text("grid")) == 2
    return made


@pytest.mark.parametrize("generation", [0, 1])
def test_recorded_commands_run_with_a_binding_table(hal: Bound, generation: int) -> None:
    executable = _executable(hal, generation)
    commands = hal("command_buffer.create", hal.device, 0, 3, -1, 3)
    refs = [(0, 0, None, 0, 8), (0, 1, None, 0, 8)]
    indirect = (commands, executable, 0, 2, None, 0, 0, [7], refs)
    hal("command_buffer.dispatch.indirect", *indirect, generation=generation)
    hal("command_buffer.finalize", commands)
    source = hal.buffer(np.array([1, 2], np.int32).tobytes())
    target, grid = hal.buffer(bytes(8)), hal.buffer(np.array([2, 1, 1], np.int32).tobytes())
    done = hal.fence()
    table = [(source, 0, 8), (target, 0, 8), (grid, 0, 12)]
    flags = (0,) if generation == 0 else ()
    arguments = (hal.device, -1, None, done, commands, *flags, table)
    hal("device.queue.execute.indirect", *arguments, generation=generation)
    assert hal("fence.query", done) == 0
    assert np.frombuffer(target.read(), np.int32).tolist() == [7, 14]


def test_a_list_of_command_buffers_runs_in_order_and_an_empty_one_is_a_barrier(
    hal: Bound,
) -> None:
    buffer = hal.buffer(bytes(4))
    recorded = []
    for value in (1, 2):
        commands = hal("command_buffer.create", hal.device, 1, 3, -1, 0)
        hal("command_buffer.fill_buffer", commands, buffer, 0, 4, 0, value, 1, 0)
        hal("command_buffer.finalize", commands)
        recorded.append(commands)
    done = hal.fence()
    hal("device.queue.execute", hal.device, -1, None, done, recorded, generation=1)
    assert hal("fence.query", done) == 0
    assert buffer.read() == b"\2\2\2\2"
    empty = hal.fence()
    hal("device.queue.execute", hal.device, -1, done, empty, [], generation=1)
    assert hal("fence.query", empty) == 0


@pytest.mark.parametrize("generation", [0, 1])
def test_queues_allocate_and_transfer(hal: Bound, generation: int) -> None:
    device = hal.device
    ready, done = hal.fence(), hal.fence()
    flags = (0,) if generation == 0 else ()
    arguments = (device, -1, None, ready, 0, DEVICE_LOCAL, USAGE, 8, *flags)
    buffer = hal("device.queue.alloca", *arguments, generation=generation)
    file = hal("ex.file.from_memory", device, -1, 1, VmBuffer(b"0123456789"), 1, 8, 0)
    read = (device, -1, ready, done, file, 2, buffer, 4, 4, 0)
    buffer.fill(b"\0")
    hal("device.queue.read", *read, generation=generation)
    hal("fence.await", -1, 0, [done, None])
    assert buffer.read() == b"\0\0\0\0" + b"3456"
    memory = bytearray(8)
    target = hal("ex.file.from_memory", device, -1, 3, VmBuffer(memory), 0, 8, 0)
    written, gone = hal.fence(), hal.fence()
    write = (device, -1, None, written, buffer, 4, target, 1, 3, 0)
    hal("device.queue.write", *write, generation=generation)
    assert memory == b"\x00345\0\0\0\0"
    dealloca = (device, -1, written, gone, buffer, *flags)
    hal("device.queue.dealloca", *dealloca, generation=generation)
    assert hal("fence.query", gone) == 0


def test_single_transfers_run_on_queues(hal: Bound) -> None:
    device, buffer, other = hal.device, hal.buffer(bytes(8)), hal.buffer(bytes(8))
    fences = [hal.fence() for _ in range(4)]
    hal("device.queue.fill", device, -1, None, fences[0], buffer, 0, 4, 0x0201, 2, 0)
    hal(
        "device.queue.update",
        device,
        -1,
        fences[0],
        fences[1],
        VmBuffer(b"abcd"),
        1,
        buffer,
        4,
        2,
        0,
    )
    hal("device.queue.copy", device, -1, fences[1], fences[2], buffer, 2, other, 1, 5, 0)
    hal("device.queue.barrier", device, -1, fences[2], fences[3], 0)
    hal("device.queue.flush", device, -1)
    assert hal("fence.query", fences[3]) == 0
    assert other.read() == b"\0\1\2bc\0\0\0"


def test_fences_wait_fail_and_join(hal: Bound) -> None:
    first, second = hal.fence(), hal("fence.create", hal.device, 0, generation=1)
    joined = hal("fence.join", 0, [first, None, second])
    older = hal("fence.join", [first, second], generation=1)
    assert hal("fence.query", joined) == StatusCode.DEFERRED
    assert hal("fence.await", 0, 0, [joined]) == StatusCode.DEADLINE_EXCEEDED
    assert hal("fence.await", 1, [older], generation=1) == StatusCode.DEADLINE_EXCEEDED
    hal("fence.signal", first)
    hal("fence.fail", second, int(StatusCode.DATA_LOSS))
    assert hal("fence.query", joined) == StatusCode.DATA_LOSS
    with pytest.raises(DeviceError, match="DATA_LOSS"):
        hal("fence.await", -1, 0, [joined])
    assert hal("fence.await", -1, 0, [first]) == 0


def test_a_channel_has_one_participant(hal: Bound) -> None:
    channel = hal("channel.create", hal.device, -1, 0, None, None, -1, -1)
    assert hal("channel.rank_and_count", channel) == (0, 1)
    assert hal("channel.split", channel, 0, 0, 0) is channel
    commands = hal("command_buffer.create", hal.device, 0, 3, -1, 0)
    with pytest.raises(DeviceError, match=r"collective all_gather of i8\): send: slot 0"):
        hal(
            "command_buffer.collective",
            commands,
            channel,
            *[0] * 4,
            None,
            None,
            *[0] * 4,
            1,
        )
    buffer = hal.device.allocator.allocate(0, 0, 8)
    buffer.write(b"abcdefgh")
    ends = (buffer, buffer, 0, 3, 5, 3)
    hal("command_buffer.collective", commands, channel, *[0] * 4, *ends, 3)
    hal("command_buffer.finalize", commands)
    hal("device.queue.execute", hal.device, -1, None, None, commands, 0)
    assert buffer.read() == b"abcdeabc"


def test_a_writable_file_over_constants_is_refused(hal: Bound) -> None:
    with pytest.raises(DeviceError, match="PERMISSION_DENIED"):
        hal("ex.file.from_memory", hal.device, -1, 3, VmBuffer(b"constant"), 0, 8, 0)
