"""Makes devices that run all work on the thread that submits it, or that reaches its last wait.

The simplest device that computes: no threads, so the easiest to debug.  Options of a device URI:
`memory`, `pool` and `machine`, as for `local-task`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from tilewright.base.host import describe
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.driver import DeviceInfo, Driver, check_options
from tilewright.runtime.hal.local.cpu_features import MACHINE_OPTION, parse_machine
from tilewright.runtime.hal.local.heap_options import HEAP_OPTIONS, create_heap
from tilewright.runtime.hal.local.local_device import LocalDevice
from tilewright.runtime.loaders.local import create_local_loaders


@final
class LocalSyncDriver(Driver):
    """The driver."""

    @property
    def name(self) -> str:
        return "local-sync"

    @property
    def summary(self) -> str:
        return "host CPU, one thread"

    def query_available_devices(self) -> tuple[DeviceInfo, ...]:
        cpu = describe()
        return (
            DeviceInfo(
                device_id=0,
                path="default",
                name=f"{cpu.arch} {cpu.cpu}".strip(),
                uri="local-sync://default",
                summary=self.summary,
            ),
        )

    def create_device_by_id(self, device_id: int, options: Mapping[str, str]) -> Device:
        check_options(options, ("threads", *HEAP_OPTIONS, MACHINE_OPTION), self.name)
        self._info(device_id)
        return LocalDevice(
            self.name,
            None,
            create_local_loaders(),
            has_thread=False,
            allocator=create_heap(options),
            machine=parse_machine(options),
        )
