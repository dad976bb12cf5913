"""The `hal_inline` module: device buffers seen as bytes."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import DeviceError, InputError
from tilewright.runtime.drivers import registry
from tilewright.runtime.hal.buffer import Buffer
from tilewright.runtime.hal.buffer_view import BufferView
from tilewright.runtime.modules.hal_inline import create_hal_inline_module
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.module import ModuleState

F32, DENSE = 0x21000020, 1
EXPORTS = {
    "buffer.allocate": "0iI_rr",
    "buffer.allocate.initialized": "0irII_rr",
    "buffer.length": "0r_I",
    "buffer.storage": "0r_r",
    "buffer.subspan": "0rII_r",
    "buffer.wrap": "0rII_r",
    "buffer_view.assert": "0rriiCID_v",
    "buffer_view.buffer": "0r_r",
    "buffer_view.create": "0rIIiiCID_r",
    "buffer_view.dim": "0ri_I",
    "buffer_view.element_type": "0r_i",
    "buffer_view.encoding_type": "0r_i",
    "buffer_view.rank": "0r_i",
    "buffer_view.trace": "0rCrD_v",
    "device.query.i64": "0rr_iI",
}
DEVICE = registry.create_device("local-sync")
TRACED: list[tuple[str, int]] = []
MODULE = create_hal_inline_module(
    DEVICE, lambda key, views: TRACED.append((key, len(views)))
)


@pytest.fixture
def state() -> ModuleState:
    return MODULE.create_state()


def call(state: ModuleState, name: str, *arguments: object) -> object:
    function = state.lookup(name, EXPORTS[name])
    assert function is not None
    return function(*arguments)


def allocated(state: ModuleState, size: int) -> tuple[Buffer, VmBuffer]:
    made = call(state, "buffer.allocate", 64, size)
    assert isinstance(made, tuple)
    buffer, storage = made
    assert isinstance(buffer, Buffer)
    assert isinstance(storage, VmBuffer)
    return buffer, storage


def test_every_release_finds_its_functions() -> None:
    assert {f.name: f.calling_convention for f in MODULE.functions} == EXPORTS
    assert MODULE.version == 0


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_buffer_and_its_bytes_are_the_same_memory(state: ModuleState, size: int) -> None:
    buffer, storage = allocated(state, size)
    assert call(state, "buffer.length", buffer) == len(storage) == size
    for place in range(size):
        storage.writable(place, 1)[0] = place
    assert buffer.read() == bytes(range(size))
    again = call(state, "buffer.storage", buffer)
    assert isinstance(again, VmBuffer)
    assert bytes(again.data) == bytes(range(size))


def test_bytes_outlive_the_buffer(state: ModuleState) -> None:
    storage = allocated(state, 4096)[1]
    storage.writable(0, 4096)[:] = b"x" * 4096
    for _ in range(4):
        allocated(state, 4096)[1].writable(0, 4096)[:] = b"y" * 4096
    assert bytes(storage.data) == b"x" * 4096


def test_initial_bytes_are_copied_from_a_range(state: ModuleState) -> None:
    source = VmBuffer(bytes(range(10)))
    made = call(state, "buffer.allocate.initialized", 16, source, 3, 4)
    assert isinstance(made, tuple)
    assert made[0].read() == bytes(made[1].data) == b"\3\4\5\6"
    nothing = call(state, "buffer.allocate.initialized", 16, source, 10, 0)
    assert isinstance(nothing, tuple)
    assert nothing[0].byte_length == 0
    with pytest.raises(DeviceError, match="OUT_OF_RANGE"):
        call(state, "buffer.allocate.initialized", 16, source, 8, 4)


def test_the_bytes_of_a_read_only_buffer_are_read_only(state: ModuleState) -> None:
    memory = np.zeros(64 + 16, np.uint8)
    start = -memory.__array_interface__["data"][0] % 64
    aligned = memory[start : start + 16]
    aligned.flags.writeable = False
    buffer = DEVICE.allocator.import_host(48, 0xC03, aligned)
    assert buffer is not None
    storage = call(state, "buffer.storage", buffer)
    assert isinstance(storage, VmBuffer)
    with pytest.raises(DeviceError, match="read-only"):
        storage.writable(0, 1)


def test_bytes_are_wrapped_in_place(state: ModuleState) -> None:
    memory = np.zeros(64 + 64, np.uint8)
    start = -memory.__array_interface__["data"][0] % 64
    source = VmBuffer(memory[start : start + 64])
    wrapped = call(state, "buffer.wrap", source, 0, 16)
    assert isinstance(wrapped, Buffer)
    wrapped.write(b"\7" * 16)
    assert bytes(source.range(0, 17)) == b"\7" * 16 + b"\0"
    with pytest.raises(DeviceError, match="cannot use these bytes in place"):
        call(state, "buffer.wrap", source, 4, 16)
    with pytest.raises(DeviceError, match="OUT_OF_RANGE"):
        call(state, "buffer.wrap", source, 0, 65)


def test_views_are_those_of_the_hal_module(state: ModuleState) -> None:
    buffer, _ = allocated(state, 32)
    view = call(state, "buffer_view.create", buffer, 8, 24, F32, DENSE, [2, 3])
    assert isinstance(view, BufferView)
    assert view.shape == (2, 3)
    assert call(state, "buffer_view.dim", view, 1) == 3
    assert call(state, "buffer_view.rank", view) == 2
    assert call(state, "buffer_view.element_type", view) == F32
    assert call(state, "buffer_view.encoding_type", view) == DENSE
    held = call(state, "buffer_view.buffer", view)
    assert isinstance(held, Buffer)
    assert held.byte_length == 24
    call(state, "buffer_view.assert", view, VmBuffer(b"input0"), F32, DENSE, [2, 3])
    with pytest.raises(InputError, match=r"input0: got f32\[2, 3\]"):
        call(state, "buffer_view.assert", view, VmBuffer(b"input0"), F32, DENSE, [3, 2])
    call(state, "buffer_view.trace", VmBuffer(b"here"), [view, view])
    assert TRACED[-1] == ("here", 2)


def test_queries_are_answered_by_the_device(state: ModuleState) -> None:
    category = VmBuffer(b"hal.dispatch")
    assert call(state, "device.query.i64", category, VmBuffer(b"concurrency")) == (1, 1)
    assert call(state, "device.query.i64", VmBuffer(b"no"), VmBuffer(b"thing")) == (0, 0)
