"""The `hal_loader` module: kernels called at once, on the thread that asks.

Programs of `iree-compile --iree-execution-model=inline-dynamic` load executables with it and pass
bytes as `!vm.buffer`.  What can be loaded are the formats of the device's loaders.

Source: IREE `modules/hal/loader/exports.inl`; version 1 (from 3.12) names kernels by an i64.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, final

import numpy as np

from tilewright.base.status import StatusCode, failure
from tilewright.runtime import native
from tilewright.runtime.hal.command_buffer import check_dispatch
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.executable import Executable
from tilewright.runtime.hal.executable_loaders import ExecutableLoaders
from tilewright.runtime.hal.local.executable import LocalExecutable
from tilewright.runtime.hal.local.heap_storage import ALIGNMENT_BYTES
from tilewright.runtime.hal.local.host_executable import Grid, HostExecutable
from tilewright.runtime.hal.local.local_device import LocalDevice
from tilewright.runtime.modules.executable_policy import TRUSTED, ExecutablePolicy
from tilewright.runtime.recorder import Recorder, raise_failure
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.native_module import NativeFunction, NativeModule, metered

HAL_LOADER_VERSION: Final = 1
_U32: Final = 0xFFFF_FFFF
_LISTS_KEPT: Final = 256


def create_hal_loader_module(
    device: Device, policy: ExecutablePolicy = TRUSTED
) -> NativeModule:
    """The module for one local device.

    Args:
        device: a local one.
        policy: which executables programs may bring.
    """
    rows: Sequence[NativeFunction] = _ROWS
    if policy.budget is not None:
        rows = [metered(row) for row in rows]
    return NativeModule(
        "hal_loader",
        rows,
        version=HAL_LOADER_VERSION,
        types={"bytes": VmBuffer, "executable": Executable},
        create_state=lambda: _LoaderState(device, policy),
    )


@final
class _LoaderState:
    """Per context: the device's loaders, and command lists of calls that were made before."""

    def __init__(self, device: Device, policy: ExecutablePolicy) -> None:
        self.policy: ExecutablePolicy = policy
        self.loaders: ExecutableLoaders = device.executable_loaders
        self.commands = lru_cache(_LISTS_KEPT)(_record)
        self.heap: native.Heap | None = (
            device.heap if isinstance(device, LocalDevice) else None
        )


def _query_support(state: _LoaderState, format_name: VmBuffer) -> int:
    name = format_name.text
    return int(state.loaders.can_prepare_format(name) and state.policy.allows(name))


def _load(
    state: _LoaderState, format_name: VmBuffer, data: VmBuffer, constants: VmBuffer | None
) -> Executable:
    words = b"" if constants is None else bytes(constants.data)
    if len(words) % 4:
        raise failure(
            StatusCode.INVALID_ARGUMENT, f"{len(words)} bytes of constants, expected words"
        )
    values = struct.unpack(f"<{len(words) // 4}I", words)
    return state.loaders.prepare_executable(
        state.policy.params(format_name.text, data.data, values)
    )


def _lookup(state: _LoaderState, executable: Executable, name: VmBuffer) -> int:
    del state
    return executable.lookup_function_by_name(name.text)


def _dispatch(
    state: _LoaderState,
    executable: Executable,
    function: int,
    x: int,
    y: int,
    z: int,
    constants: Sequence[int],
    bindings: Sequence[tuple[VmBuffer, int, int]],
) -> None:
    check_dispatch(executable, function, len(constants), len(bindings))
    grid = x & _U32, y & _U32, z & _U32
    views = [buffer.range(offset, length) for buffer, offset, length in bindings]
    if isinstance(executable, HostExecutable):
        executable.run(function, grid, constants, views, 1, is_inline=True)
        return
    if not isinstance(executable, LocalExecutable):
        raise failure(StatusCode.INVALID_ARGUMENT, "an executable of another device")
    lengths = tuple(view.nbytes for view in views)
    commands = state.commands(executable, function, grid, tuple(constants), lengths)
    _run(commands, views, state.heap)


def _record(
    executable: LocalExecutable,
    function: int,
    grid: Grid,
    constants: tuple[int, ...],
    lengths: tuple[int, ...],
) -> native.CommandList:
    recorder = Recorder()
    slots = [recorder.slot(length) for length in lengths]
    ranges = [(slot, 0, length) for slot, length in zip(slots, lengths, strict=True)]
    export = executable.exports[function]
    recorder.kernel(executable, export, ranges, grid, constants, is_inline=True)
    return recorder.build()


def _run(
    commands: native.CommandList, views: Sequence[memoryview], heap: native.Heap | None
) -> None:
    """Call with memory that is aligned as kernels expect: what is not, is copied there and back."""
    placed = [_aligned(view) for view in views]
    try:
        commands.run(
            None, [copy or view for copy, view in zip(placed, views, strict=True)], heap
        )
    except RuntimeError as error:
        raise_failure(error)
    for copy, view in zip(placed, views, strict=True):
        if copy is not None and not view.readonly:
            view[:] = memoryview(copy)[: view.nbytes]


def _aligned(view: memoryview) -> native.Memory | None:
    """A copy, where the bytes do not begin at a multiple of the alignment."""
    if not view.nbytes:
        return None
    address = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    if address % ALIGNMENT_BYTES == 0:
        return None
    copy = native.Memory(view.nbytes)
    memoryview(copy)[: view.nbytes] = view
    return copy


_ROWS: Final = (
    NativeFunction("executable.query_support", ("0r_i",), _query_support, "bytes"),
    NativeFunction("executable.load", ("0rrr_r",), _load, "bytes bytes bytes?"),
    NativeFunction("executable.lookup.function", ("0rr_I",), _lookup, "executable bytes"),
    NativeFunction(
        "executable.dispatch",
        ("0rIiiiCiDCrIID_v", "0riiiiCiDCrIID_v"),
        _dispatch,
        "executable bytes",
    ),
)
