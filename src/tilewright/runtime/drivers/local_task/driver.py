"""Makes devices that spread workgroups over a pool of workers.

Options of a device URI: `threads` (the caller included; 0 or none: the cores this process may
use), `cpus` (processor ids to pin workers to, separated by commas), `queues` (1 to 64), `memory` and
`pool` (bounds in bytes: of all memory, and of what is kept for reuse), `machine` (the CPU that
programs are told of, such as `v2`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, final

from tilewright.base.errors import UserError
from tilewright.base.host import describe, usable_cores
from tilewright.base.target import Target
from tilewright.runtime import native
from tilewright.runtime.collectives.process_channels import PROCESS_CHANNELS
from tilewright.runtime.drivers.local_task.workers import create_pool
from tilewright.runtime.hal.allocator import Allocator
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.driver import DeviceInfo, Driver, check_options
from tilewright.runtime.hal.local.cpu_features import MACHINE_OPTION, parse_machine
from tilewright.runtime.hal.local.heap_options import HEAP_OPTIONS, create_heap
from tilewright.runtime.hal.local.local_device import LocalDevice
from tilewright.runtime.loaders.local import create_local_loaders

_QUEUE_LIMIT: Final = 64  # affinities are masks of so many bits


@final
class LocalTaskDriver(Driver):
    """The driver."""

    @property
    def name(self) -> str:
        return "local-task"

    @property
    def summary(self) -> str:
        return f"host CPU, up to {usable_cores()} threads"

    def query_available_devices(self) -> tuple[DeviceInfo, ...]:
        cpu = describe()
        return (
            DeviceInfo(
                device_id=0,
                path="default",
                name=f"{cpu.arch} {cpu.cpu}".strip(),
                uri="local-task://default",
                summary=self.summary,
            ),
        )

    def create_device_by_id(self, device_id: int, options: Mapping[str, str]) -> Device:
        known = ("threads", "cpus", "queues", *HEAP_OPTIONS, MACHINE_OPTION)
        check_options(options, known, self.name)
        self._info(device_id)
        threads = _number(options.get("threads", "0"), "threads")
        cpus = options.get("cpus", "")
        pinned = [_number(word, "cpus") for word in cpus.split(",")] if cpus else None
        queues = _number(options.get("queues", "1"), "queues")
        if not 1 <= queues <= _QUEUE_LIMIT:
            raise UserError(
                f"got {queues}, expected 1 to {_QUEUE_LIMIT}",
                location="device option 'queues'",
            )
        return create_device(
            create_pool(threads, pinned),
            queues=queues,
            allocator=create_heap(options),
            machine=parse_machine(options),
        )


def create_device(
    pool: native.Pool | None,
    *,
    queues: int = 1,
    allocator: Allocator | None = None,
    machine: Target | None = None,
) -> LocalDevice:
    """The device around a pool; None is one thread."""
    device = LocalDevice(
        "local-task",
        pool,
        create_local_loaders(),
        has_thread=True,
        queue_count=queues,
        allocator=allocator,
        machine=machine,
    )
    device.replace_channel_provider(PROCESS_CHANNELS)
    return device


def _number(text: str, option: str) -> int:
    if not re.fullmatch(r"\s*[0-9]{1,18}\s*", text):
        raise UserError(
            f"got '{text:.80}', expected a number", location=f"device option '{option}'"
        )
    return int(text)
