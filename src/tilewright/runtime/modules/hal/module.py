"""Puts the rows of the `hal` module together and names its types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from tilewright.base.budget import OBJECT_BYTES
from tilewright.runtime.hal.allocator import Allocator
from tilewright.runtime.hal.buffer import Buffer
from tilewright.runtime.hal.buffer_view import BufferView
from tilewright.runtime.hal.channel import Channel
from tilewright.runtime.hal.command_buffer import CommandBuffer
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.event import Event
from tilewright.runtime.hal.executable import Executable
from tilewright.runtime.hal.executable_loaders import ExecutableLoaders
from tilewright.runtime.hal.fence import Fence
from tilewright.runtime.hal.file import File
from tilewright.runtime.hal.pipeline_layout import DescriptorSetLayout, PipelineLayout
from tilewright.runtime.hal.semaphore import Semaphore
from tilewright.runtime.modules.executable_policy import TRUSTED, ExecutablePolicy
from tilewright.runtime.modules.hal.buffers import ROWS as BUFFER_ROWS
from tilewright.runtime.modules.hal.commands import ROWS as COMMAND_ROWS
from tilewright.runtime.modules.hal.devices import ROWS as DEVICE_ROWS
from tilewright.runtime.modules.hal.fences import ROWS as FENCE_ROWS
from tilewright.runtime.modules.hal.layouts import ROWS as LAYOUT_ROWS
from tilewright.runtime.modules.hal.state import HalState, ViewTracer
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.native_module import NativeFunction, NativeModule, metered
from tilewright.runtime.vm.ref import Instance

HAL_VERSION: Final = 7
_RECORDS: Final = "command_buffer."
_RECORDS_NOTHING: Final = ("command_buffer.create", "command_buffer.finalize")
_OPERAND_BYTES: Final = 256

_INSTANCE_TYPES: Final[Mapping[str, type]] = {
    "hal.allocator": Allocator,
    "hal.buffer": Buffer,
    "hal.buffer_view": BufferView,
    "hal.channel": Channel,
    "hal.command_buffer": CommandBuffer,
    "hal.descriptor_set_layout": DescriptorSetLayout,
    "hal.device": Device,
    "hal.event": Event,
    "hal.executable": Executable,
    "hal.executable_cache": ExecutableLoaders,
    "hal.fence": Fence,
    "hal.file": File,
    "hal.pipeline_layout": PipelineLayout,
    "hal.semaphore": Semaphore,
}
_ROW_TYPES: Final[Mapping[str, type]] = {
    "allocator": Allocator,
    "buffer": Buffer,
    "bytes": VmBuffer,
    "channel": Channel,
    "commands": CommandBuffer,
    "device": Device,
    "executable": Executable,
    "fence": Fence,
    "file": File,
    "layout": PipelineLayout,
    "set_layout": DescriptorSetLayout,
    "view": BufferView,
}


def register_hal_types(instance: Instance) -> None:
    """Let modules name the types of the HAL."""
    for name, type_ in _INSTANCE_TYPES.items():
        instance.register_type(name, type_)


def _recorded(row: NativeFunction) -> NativeFunction:
    """A row that records a command: the command buffer pays for it as long as it lives."""
    if not row.name.startswith(_RECORDS) or row.name in _RECORDS_NOTHING:
        return row
    function = row.function

    def record(state: HalState, commands: CommandBuffer, *arguments: object) -> object:
        budget = state.policy.budget
        if budget is not None:
            lists = sum(len(a) for a in arguments if isinstance(a, list))
            budget.keep(commands, OBJECT_BYTES + _OPERAND_BYTES * lists)
        return function(state, commands, *arguments)

    return replace(row, function=record)


def create_hal_module(
    devices_in_order: Sequence[Device],
    tracer: ViewTracer | None = None,
    policy: ExecutablePolicy = TRUSTED,
) -> NativeModule:
    """The module for these devices.

    Args:
        devices_in_order: in the order that programs number them.
        tracer: hears of `buffer_view.trace`; default: prints to the error stream.
        policy: which executables programs may bring, and whose budget pays.
    """
    rows: Sequence[NativeFunction] = (
        *BUFFER_ROWS,
        *COMMAND_ROWS,
        *DEVICE_ROWS,
        *FENCE_ROWS,
        *LAYOUT_ROWS,
    )
    if policy.budget is not None:
        rows = [metered(_recorded(row)) for row in rows]
    return NativeModule(
        "hal",
        rows,
        version=HAL_VERSION,
        types=_ROW_TYPES,
        create_state=lambda: HalState(devices_in_order, tracer, policy),
    )
