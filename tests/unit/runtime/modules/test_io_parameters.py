"""Programs load, gather and scatter parameters; IREE's compiled ones among them."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from fakes import parameter_files
from tilewright.base.errors import ArchiveError, DeviceError, UserError
from tilewright.formats.parameters import SplatEntry, scope_and_path
from tilewright.runtime.bytecode_machine import BytecodeMachine
from tilewright.runtime.drivers import registry
from tilewright.runtime.hal.buffer import READ, BufferUsage, MemoryType
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.modules.io_parameters import (
    Scopes,
    create_parameters_module,
    open_parameters,
    parameters_of,
)
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.list import VmList

ARCHIVES = Path(__file__).parents[3] / "golden" / "archives"
RNG = np.random.default_rng(3)
W0 = RNG.standard_normal((7, 5)).astype(np.float32)
W2 = np.arange(21, dtype=np.int16)
TYPE, USAGE = int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT)
IMMUTABLE = USAGE | int(BufferUsage.SHARING_IMMUTABLE)


@pytest.fixture
def device() -> Device:
    return registry.create_device("local-task", threads=2)


def tables(*spans: tuple[str, int, int, int]) -> tuple[VmBuffer, VmBuffer, VmBuffer]:
    """Key table, key data and spans of (key, offset, buffer offset, length)."""
    text, keys, ranges = b"", b"", b""
    for key, *numbers in spans:
        keys += struct.pack("<II", len(text), len(key.encode()))
        text += key.encode()
        ranges += struct.pack("<QQQ", *numbers)
    return VmBuffer(keys), VmBuffer(text), VmBuffer(ranges)


def call(scopes: Scopes, name: str, *arguments: object) -> object:
    module = create_parameters_module(scopes)
    function = module.create_state().lookup(name, None)
    assert function is not None
    return function(*arguments)


def load(
    scopes: Scopes, device: Device, usage: int, *spans: tuple[str, int, int, int]
) -> list[bytes]:
    signal = Fence.at(device.create_semaphore(), 1)
    scope = VmBuffer(b"model")
    found = call(
        scopes, "load", device, -1, None, signal, scope, -1, TYPE, usage, *tables(*spans)
    )
    signal.wait()
    assert isinstance(found, VmList)
    return [bytes(buffer.read()) for buffer in found.items]


# --- compiled by IREE


@pytest.fixture
def archive(tmp_path: Path) -> str:
    path = tmp_path / "weights.irpa"
    splat = SplatEntry("w1", 20, np.float32(2).tobytes())
    path.write_bytes(parameter_files.irpa({"w0": W0, "w2": W2}, [splat]))
    return f"model={path}"


@pytest.mark.parametrize("uri", ["local-sync", "local-task"])
def test_a_compiled_program_finds_its_weights(archive: str, uri: str) -> None:
    machine = BytecodeMachine(
        uri, modules=[create_parameters_module(open_parameters([archive]))]
    )
    machine.load((ARCHIVES / "iree-3.13.0-parameters_cpu.vmfb").read_bytes())
    x = RNG.standard_normal((3, 7)).astype(np.float32)
    y, w2 = machine.invoke("main", x)
    np.testing.assert_allclose(y, x @ W0 + 2, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(w2, W2.reshape(3, 7))


def test_weights_that_a_program_changes_are_its_own(archive: str) -> None:
    module = create_parameters_module(open_parameters([archive]))
    for _ in range(2):
        machine = BytecodeMachine("local-task", modules=[module])
        machine.load((ARCHIVES / "iree-3.13.0-mutable_parameters_cpu.vmfb").read_bytes())
        np.testing.assert_array_equal(machine.invoke("bump")[0], 2 * W0)
        np.testing.assert_array_equal(machine.invoke("bump")[0], 4 * W0)


def test_a_missing_module_or_scope_says_what_to_do() -> None:
    data = (ARCHIVES / "iree-3.13.0-parameters_cpu.vmfb").read_bytes()
    with pytest.raises(DeviceError, match="'io_parameters' is missing"):
        BytecodeMachine("local-sync").load(data)
    modules = [create_parameters_module({"other": {}})]
    with pytest.raises(DeviceError, match="no parameters of the scope 'model'") as caught:
        BytecodeMachine("local-sync", modules=modules).load(data)
    assert "--parameters=model=" in str(caught.value)


# --- by hand


def test_loading_in_place_copies_nothing(device: Device) -> None:
    array = np.arange(64, dtype=np.uint8)
    aligned = device.allocator.allocate(TYPE, USAGE, 64)
    aligned.write(memoryview(array))
    scopes = {"model": {"a": aligned.map_range(READ)}}
    signal = Fence.at(device.create_semaphore(), 1)
    args = (device, -1, None, signal, VmBuffer(b"model"), -1, TYPE)
    found = call(scopes, "load", *args, IMMUTABLE, *tables(("a", 0, 0, 64)))
    assert isinstance(found, VmList)
    (buffer,) = found.items
    aligned.write(memoryview(bytes(64)))
    assert bytes(buffer.read()) == bytes(64)


@pytest.mark.parametrize("usage", [USAGE, IMMUTABLE])
def test_ranges_of_parameters_are_loaded(device: Device, usage: int) -> None:
    a = RNG.bytes(100)
    pattern = bytes(range(1, 17))
    scopes = {
        "model": {
            "a": memoryview(a),
            "s": SplatEntry("s", 64, pattern),
            "t": SplatEntry("t", 8, b"ab"),
        }
    }
    assert load(
        scopes, device, usage,
        ("a", 3, 0, 90), ("s", 5, 0, 40), ("t", 1, 0, 6), ("a", 100, 0, 0), ("t", 1, 0, 3),
    ) == [a[3:93], (pattern * 4)[5:45], b"bababa", b"", b"bab"]  # fmt: skip


def test_gathering_fills_one_buffer(device: Device) -> None:
    a, b = RNG.bytes(33), RNG.bytes(5)
    scopes = {
        "": {"a": memoryview(a), "b": memoryview(b), "s": SplatEntry("s", 8, b"\x07\x08")}
    }
    target = device.allocator.allocate(TYPE, USAGE, 64)
    target.write(memoryview(b"." * 64))
    wait = Fence.at(device.create_semaphore(), 1)
    signal = Fence.at(device.create_semaphore(), 1)
    spans = tables(("b", 1, 0, 3), ("a", 2, 7, 31), ("s", 0, 40, 8), ("s", 1, 49, 3))
    call(scopes, "gather", device, -1, wait, signal, None, target, *spans)
    assert bytes(target.read()) == b"." * 64, "it has to wait"
    wait.signal()
    signal.wait()
    expected = bytearray(b"." * 64)
    expected[0:3], expected[7:38] = b[1:4], a[2:33]
    expected[40:48], expected[49:52] = b"\x07\x08" * 4, b"\x08\x07\x08"
    assert bytes(target.read()) == expected


def test_scattering_writes_back(device: Device) -> None:
    a = np.zeros(10, np.uint8)
    scopes: Scopes = {"model": parameters_of({"a": a})}
    source = device.allocator.allocate(TYPE, USAGE, 16)
    source.write(memoryview(bytes(range(16))))
    spans = tables(("a", 2, 4, 5))
    call(scopes, "scatter", device, -1, None, None, source, VmBuffer(b"model"), *spans)
    assert a.tolist() == [0, 0, 4, 5, 6, 7, 8, 0, 0, 0]


def test_what_does_not_fit_is_refused(device: Device) -> None:
    scopes: Scopes = {"model": {"weight": memoryview(b"12345678")}}
    with pytest.raises(DeviceError, match="no such parameter") as caught:
        load(scopes, device, USAGE, ("weights", 0, 0, 1))
    assert "model::weights" in str(caught.value)
    assert "weight" in str(caught.value.hint)
    with pytest.raises(DeviceError, match="6 bytes at 3, the parameter has 8"):
        load(scopes, device, USAGE, ("weight", 3, 0, 6))
    with pytest.raises(DeviceError, match="OUT_OF_RANGE"):
        load(scopes, device, USAGE, ("weight", 2**64 - 1, 0, 1))
    source = device.allocator.allocate(TYPE, USAGE, 16)
    spans = tables(("weight", 0, 0, 1))
    with pytest.raises(DeviceError, match="cannot be written"):
        call(scopes, "scatter", device, -1, None, None, source, VmBuffer(b"model"), *spans)
    keys, text, ranges = spans
    arguments = (device, -1, None, None, VmBuffer(b"model"), -1, TYPE, USAGE)
    with pytest.raises(DeviceError, match="do not fit"):
        call(scopes, "load", *arguments, VmBuffer(b""), text, ranges)
    with pytest.raises(DeviceError, match="OUT_OF_RANGE"):
        call(scopes, "load", *arguments, keys, VmBuffer(b"we"), ranges)


def test_files_of_a_scope_are_merged_and_the_first_wins(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(parameter_files.irpa({"a": b"first"}))
    (tmp_path / "two").write_bytes(parameter_files.irpa({"a": b"second", "b": b"third"}))
    scopes = open_parameters([str(tmp_path / "one"), f"={tmp_path / 'two'}"])
    assert {key: bytes(view) for key, view in scopes[""].items()} == {
        "a": b"first",
        "b": b"third",
    }


@pytest.mark.parametrize(
    ("spec", "scope", "path"),
    [
        ("w.irpa", "", "w.irpa"),
        ("model=w.irpa", "model", "w.irpa"),
        ("model=/lr=0.1/w.irpa", "model", "/lr=0.1/w.irpa"),
        ("/lr=0.1/w.irpa", "", "/lr=0.1/w.irpa"),
        ("=lr=0.1/w.irpa", "", "lr=0.1/w.irpa"),
    ],
)
def test_a_scope_ends_at_an_equals_sign_before_any_folder(
    spec: str, scope: str, path: str
) -> None:
    assert scope_and_path(spec) == (scope, path)


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="nowhere"):
        open_parameters([f"m={tmp_path / 'nowhere.irpa'}"])
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(ArchiveError, match="empty"):
        open_parameters([str(tmp_path / "empty")])
    with pytest.raises(UserError, match="contiguous"):
        parameters_of({"a": np.zeros((4, 4))[:, ::2]})


def test_a_pattern_of_a_petabyte_is_refused_before_it_is_laid_out(device: Device) -> None:
    scopes = {"": {"s": SplatEntry("s", 1 << 50, bytes(range(16)))}}
    target = device.allocator.allocate(TYPE, USAGE, 64)
    with pytest.raises(DeviceError, match="parameter 's' at byte 0 of length"):
        call(
            scopes,
            "gather",
            device,
            -1,
            None,
            None,
            None,
            target,
            *tables(("s", 0, 0, 1 << 50)),
        )
