"""A driver registry: names to drivers, each made when it is first asked for.

Not here: which drivers exist (`drivers.registry`).

Source: IREE `hal/driver_registry.h`.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Final, final

from tilewright.base.errors import UserError
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.registry import Registry
from tilewright.runtime.hal.channel import ChannelProvider
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.driver import Driver, parse_device_uri

DriverFactory = Callable[[], Driver]
ProviderFactory = Callable[[str | None], ChannelProvider]
CHANNEL_OPTION: Final = "collectives"


@final
class DriverRegistry:
    """Drivers by name.

    Args:
        create_provider: makes the provider of channels that the option `collectives` of a device names,
            or the one without it.
    Thread-safety: may be used from any thread.
    """

    def __init__(self, create_provider: ProviderFactory) -> None:
        self._create_provider: ProviderFactory = create_provider
        self._factories: Registry[DriverFactory] = Registry("driver", error=UserError)
        self._drivers: dict[str, Driver] = {}
        self._lock: threading.RLock = fork_lock(Rank.DRIVERS)

    def register(self, name: str, factory: DriverFactory, *, owner: str) -> None:
        """Enter a driver.  Raises: InternalError when the name is taken."""
        self._factories.register(name, factory, owner=owner)

    def register_module(self, name: str, module: str, factory: str, *, owner: str) -> None:
        """Enter a driver whose module is imported when the driver is first asked for."""

        def create() -> Driver:
            return getattr(importlib.import_module(module), factory)()

        self.register(name, create, owner=owner)

    def names(self) -> tuple[str, ...]:
        """The names of all drivers, sorted."""
        return self._factories.names()

    def driver(self, name: str) -> Driver:
        """The driver of that name, made now if it was not.

        Raises: UserError for an unknown name, with the closest ones.
        """
        with self._lock:
            if name not in self._drivers:
                self._drivers[name] = self._factories.lookup(name)()
            return self._drivers[name]

    def drivers(self) -> tuple[Driver, ...]:
        """All drivers."""
        return tuple(self.driver(name) for name in self.names())

    def create_device(self, uri: str, **options: object) -> Device:
        """Make the device that a URI names.

        Args:
            uri: `local-task`, `local-sync://`, `local-task://0?threads=2`.
            options: more options; those of the URI win.  Every device takes `collectives`
                (see `runtime.collectives`).
        Raises: UserError for a malformed URI, an unknown driver or option; DeviceError.
        """
        parsed = parse_device_uri(uri)
        merged = {k: str(v) for k, v in options.items() if v is not None}
        merged.update(parsed.options)
        provider = self._create_provider(merged.pop(CHANNEL_OPTION, None))
        device = self.driver(parsed.driver).create_device_by_path(parsed.path, merged)
        device.replace_channel_provider(provider)
        return device
