"""A driver: finds and makes the devices of one kind.

The interface, and the URIs that name devices: `local-task`, `local-task://0`,
`local-task://?threads=4`.

Source: IREE `hal/driver.h`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from tilewright.base.errors import UserError
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.device import Device


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """A device that could be made."""

    device_id: int
    path: str
    name: str
    uri: str
    summary: str


@final
@dataclass(frozen=True, slots=True)
class DeviceUri:
    """A parsed URI: which driver, which device, what options."""

    driver: str
    path: str
    options: Mapping[str, str]


def parse_device_uri(text: str) -> DeviceUri:
    """Take a device URI apart.

    Raises: UserError when it is none.
    """
    driver, _, rest = text.strip().partition("://")
    path, _, query = rest.partition("?")
    if not driver or "?" in driver:
        raise UserError(
            f"'{text}' names no device",
            hint="write local-task, local-task://0 or local-task://?threads=4",
        )
    options = {
        name: value
        for name, _, value in (word.partition("=") for word in query.split("&") if word)
    }
    return DeviceUri(driver, path.strip("/"), options)


class Driver(ABC):
    """Makes devices.

    Thread-safety: may be used from any thread.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """What URIs begin with."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """One line for lists."""

    @abstractmethod
    def query_available_devices(self) -> tuple[DeviceInfo, ...]:
        """The devices that could be made now.

        Raises: DeviceError (UNAVAILABLE) with a hint where the system lacks something.
        """

    def dump_device_info(self, device_id: int) -> str:
        """Everything known about a device, as lines of text."""
        info = self._info(device_id)
        return f"{info.uri}\n  {info.name}\n  {info.summary}"

    @abstractmethod
    def create_device_by_id(self, device_id: int, options: Mapping[str, str]) -> Device:
        """Make a device that `query_available_devices` listed.

        Raises: UserError for an unknown option, DeviceError (NOT_FOUND).
        """

    def create_device_by_path(self, path: str, options: Mapping[str, str]) -> Device:
        """Make a device by its path or its number; the first one for an empty path."""
        infos = self.query_available_devices()
        for info in infos:
            if path in ("", info.path, str(info.device_id)):
                return self.create_device_by_id(info.device_id, options)
        known = ", ".join(info.uri for info in infos) or "none"
        raise failure(
            StatusCode.NOT_FOUND,
            f"driver '{self.name}' has no device '{path}'; it has {known}",
        )

    def _info(self, device_id: int) -> DeviceInfo:
        for info in self.query_available_devices():
            if info.device_id == device_id:
                return info
        raise failure(
            StatusCode.NOT_FOUND, f"driver '{self.name}' has no device {device_id}"
        )


def check_options(options: Mapping[str, str], known: tuple[str, ...], driver: str) -> None:
    """Raise for an option that a driver does not have."""
    for option in options:
        if option not in known:
            raise UserError(
                f"unknown device option '{option}'",
                location=driver,
                hint=f"known: {' '.join(known) or 'none'}",
            )
