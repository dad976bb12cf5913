"""A driver with one device that can do nothing.

The place to begin a new driver: copy the folder, rename, and replace one refusal after the other;
what is still refused goes into the driver's file of the conformance suite with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from tilewright.runtime.drivers.null.device import NullDevice
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.driver import DeviceInfo, Driver, check_options


@final
class NullDriver(Driver):
    """The driver.  A real one asks its system library which devices there are."""

    @property
    def name(self) -> str:
        return "null"

    @property
    def summary(self) -> str:
        return "computes nothing; the skeleton of a driver"

    def query_available_devices(self) -> tuple[DeviceInfo, ...]:
        return (
            DeviceInfo(
                device_id=0,
                path="default",
                name="null",
                uri="null://default",
                summary=self.summary,
            ),
        )

    def create_device_by_id(self, device_id: int, options: Mapping[str, str]) -> Device:
        check_options(options, (), self.name)
        self._info(device_id)
        return NullDevice()
