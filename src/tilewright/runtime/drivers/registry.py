"""All drivers of this installation, by name.

The process-wide registry and short forms of its functions.  The module of a driver is imported when
the driver is asked for.  Called by sessions, the virtual machine's front end and the command line.
"""

from __future__ import annotations

from typing import Final

from tilewright.runtime.collectives.options import create_provider
from tilewright.runtime.drivers import DEFAULT_DEVICE
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.driver import Driver
from tilewright.runtime.hal.driver_registry import DriverRegistry

# Name → (folder, class).
_DRIVERS: Final = {
    "cuda": ("cuda", "CudaDriver"),
    "local-sync": ("local_sync", "LocalSyncDriver"),
    "local-task": ("local_task", "LocalTaskDriver"),
    "null": ("null", "NullDriver"),
}

REGISTRY: Final = DriverRegistry(create_provider)
for _name, (_folder, _class) in _DRIVERS.items():
    REGISTRY.register_module(
        _name, f"{__package__}.{_folder}.driver", _class, owner=__name__
    )


def drivers() -> tuple[Driver, ...]:
    """All drivers, by name."""
    return REGISTRY.drivers()


def create_device(uri: str = DEFAULT_DEVICE, **options: object) -> Device:
    """Make the device that a URI names; see `DriverRegistry.create_device`."""
    return REGISTRY.create_device(uri, **options)
