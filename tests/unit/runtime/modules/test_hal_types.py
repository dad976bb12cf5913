"""The types that modules name are registered with an instance."""

from __future__ import annotations

from tilewright.runtime.modules.hal import register_hal_types
from tilewright.runtime.vm.ref import Instance

NAMES = (
    "vm.buffer",
    "vm.list",
    "hal.allocator",
    "hal.buffer",
    "hal.buffer_view",
    "hal.channel",
    "hal.command_buffer",
    "hal.descriptor_set_layout",
    "hal.device",
    "hal.event",
    "hal.executable",
    "hal.executable_cache",
    "hal.fence",
    "hal.file",
    "hal.pipeline_layout",
    "hal.semaphore",
)


def test_every_type_of_every_generation_is_registered() -> None:
    instance = Instance()
    register_hal_types(instance)
    assert sorted(instance.types) == sorted(NAMES)
    for name in NAMES:
        assert instance.resolve(f"!{name}") is instance.types[name]
    assert len(set(instance.types.values())) == len(NAMES)
    register_hal_types(instance)  # again does nothing
