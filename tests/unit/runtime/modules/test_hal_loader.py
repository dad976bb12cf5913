"""The `hal_loader` module: kernels of any loader, called at once."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from fakes import vmvx_kernels
from fakes.kernel_image import FORMAT, kernel_image
from tilewright.base.errors import DeviceError
from tilewright.runtime.drivers import registry
from tilewright.runtime.hal.device import Device
from tilewright.runtime.modules.executable_policy import ExecutablePolicy
from tilewright.runtime.modules.hal_loader import create_hal_loader_module
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.module import ModuleState

EXPORTS = {
    ("executable.dispatch", "0rIiiiCiDCrIID_v"),
    ("executable.dispatch", "0riiiiCiDCrIID_v"),
    ("executable.load", "0rrr_r"),
    ("executable.lookup.function", "0rr_I"),
    ("executable.query_support", "0r_i"),
}


def state_of(device: Device, policy: ExecutablePolicy | None = None) -> ModuleState:
    return create_hal_loader_module(device, policy or ExecutablePolicy()).create_state()


def call(state: ModuleState, name: str, *arguments: object) -> object:
    function = state.lookup(name, None)
    assert function is not None
    return function(*arguments)


def text(value: str) -> VmBuffer:
    return VmBuffer(value.encode())


@pytest.fixture
def device() -> Device:
    return registry.create_device("local-sync")


def test_every_release_finds_its_functions(device: Device) -> None:
    module = create_hal_loader_module(device)
    assert {(f.name, f.calling_convention) for f in module.functions} == EXPORTS
    assert module.version == 1


def test_support_is_that_of_the_devices_loaders(device: Device) -> None:
    state = state_of(device)
    assert call(state, "executable.query_support", text(FORMAT)) == 1
    assert call(state, "executable.query_support", text(vmvx_kernels.FORMAT)) == 1
    assert call(state, "executable.query_support", text("cuda-nvptx-fb")) == 0


@pytest.mark.parametrize("signature", ["0rIiiiCiDCrIID_v", "0riiiiCiDCrIID_v"])
def test_a_kernel_in_bytecode_is_called(device: Device, signature: str) -> None:
    state = state_of(device)
    data = VmBuffer(vmvx_kernels.executable(specialised=True))
    loaded = call(
        state,
        "executable.load",
        text(vmvx_kernels.FORMAT),
        data,
        VmBuffer(struct.pack("<I", 2)),
    )
    ordinal = call(state, "executable.lookup.function", loaded, text("number"))
    out = np.zeros(9, np.int32)
    dispatch = state.lookup("executable.dispatch", signature)
    assert dispatch is not None
    dispatch(loaded, ordinal, 2, 3, 1, [40], [(VmBuffer(out), 8, 24)])
    assert out.tolist() == [0, 0, *(2040 + i for i in range(6)), 0]


@pytest.mark.parametrize("shift", [0, 4, 32])
def test_machine_code_gets_memory_that_is_aligned(device: Device, shift: int) -> None:
    state = state_of(device)
    loaded = call(state, "executable.load", text(FORMAT), VmBuffer(kernel_image()), None)
    ordinal = call(state, "executable.lookup.function", loaded, text("scale"))
    room = bytearray(256)
    for _ in range(3):
        source = VmBuffer(
            memoryview(bytearray(shift) + np.arange(4, dtype="<i4").tobytes())
        )
        call(
            state, "executable.dispatch", loaded, ordinal, 4, 1, 1, [3],
            [(source, shift, 16), (VmBuffer(room), shift, 16)],
        )  # fmt: skip
    assert np.frombuffer(room, "<i4", 5, shift).tolist() == [0, 3, 6, 9, 0]


def test_what_a_dispatch_brings_is_checked(device: Device) -> None:
    state = state_of(device)
    data = VmBuffer(vmvx_kernels.executable())
    loaded = call(state, "executable.load", text(vmvx_kernels.FORMAT), data, None)
    out = VmBuffer.allocate(16)
    with pytest.raises(DeviceError, match="OUT_OF_RANGE"):
        call(state, "executable.dispatch", loaded, 99, 1, 1, 1, [1], [(out, 0, 16)])
    with pytest.raises(DeviceError, match="got 0 constants and 1 bindings"):
        call(state, "executable.dispatch", loaded, 0, 1, 1, 1, [], [(out, 0, 16)])
    with pytest.raises(DeviceError, match="17 bytes at 0 of a buffer with 16"):
        call(state, "executable.dispatch", loaded, 0, 1, 1, 1, [1], [(out, 0, 17)])
    with pytest.raises(DeviceError, match="is null, expected VmBuffer"):
        call(state, "executable.dispatch", loaded, 0, 1, 1, 1, [1], [(None, 0, 16)])
    with pytest.raises(DeviceError, match="NOT_FOUND"):
        call(state, "executable.lookup.function", loaded, text("nothing"))


def test_constants_are_whole_words(device: Device) -> None:
    data = VmBuffer(vmvx_kernels.executable())
    with pytest.raises(DeviceError, match="3 bytes of constants, expected words"):
        call(
            state_of(device),
            "executable.load",
            text(vmvx_kernels.FORMAT),
            data,
            VmBuffer(b"123"),
        )


def test_a_program_that_is_not_trusted_gets_no_machine_code(device: Device) -> None:
    policy = ExecutablePolicy(is_trusted=False)
    state = state_of(device, policy)
    assert call(state, "executable.query_support", text(vmvx_kernels.FORMAT)) == 1
    assert not policy.refused
    assert call(state, "executable.query_support", text(FORMAT)) == 0
    assert policy.refused == {FORMAT}
    with pytest.raises(DeviceError, match=r"machine code \(.*PERMISSION_DENIED"):
        call(state, "executable.load", text(FORMAT), VmBuffer(kernel_image()), None)
