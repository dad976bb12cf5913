"""All drivers of this installation, by name.

The process-wide registry and short forms of its functions.  Called by sessions, the virtual
machine's front end and the command line.
"""

from __future__ import annotations

from typing import Final

from tilewright.runtime.drivers import DEFAULT_DEVICE
from tilewright.runtime.drivers.local_sync.driver import LocalSyncDriver
from tilewright.runtime.drivers.local_task.driver import LocalTaskDriver
from tilewright.runtime.drivers.null.driver import NullDriver
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.driver import Driver
from tilewright.runtime.hal.driver_registry import DriverRegistry

REGISTRY: Final = DriverRegistry()
REGISTRY.register("local-sync", LocalSyncDriver, owner=__name__)
REGISTRY.register("local-task", LocalTaskDriver, owner=__name__)
REGISTRY.register("null", NullDriver, owner=__name__)


def drivers() -> tuple[Driver, ...]:
    """All drivers, by name."""
    return REGISTRY.drivers()


def create_device(uri: str = DEFAULT_DEVICE, **options: object) -> Device:
    """Make the device that a URI names; see `DriverRegistry.create_device`."""
    return REGISTRY.create_device(uri, **options)
