"""Drivers find and make devices."""

from __future__ import annotations

import pytest

from tilewright.base.errors import DeviceError, UserError
from tilewright.runtime.drivers import registry
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.driver import Driver


def test_every_listed_device_can_be_made_by_id_path_and_uri(driver: Driver) -> None:
    infos = driver.query_available_devices()
    assert infos
    for info in infos:
        assert info.uri.startswith(f"{driver.name}://")
        made = [
            driver.create_device_by_id(info.device_id, {}),
            driver.create_device_by_path(info.path, {}),
            driver.create_device_by_path("", {}),
            registry.create_device(info.uri),
        ]
        assert all(isinstance(device, Device) for device in made)


def test_details_of_a_device_name_it(driver: Driver) -> None:
    info = driver.query_available_devices()[0]
    assert info.uri in driver.dump_device_info(info.device_id)


def test_an_unknown_device_is_not_found(driver: Driver) -> None:
    with pytest.raises(DeviceError, match="NOT_FOUND"):
        driver.create_device_by_path("no-such-device", {})
    with pytest.raises(DeviceError, match="NOT_FOUND"):
        driver.create_device_by_id(99, {})


def test_an_unknown_option_is_refused_by_name(driver: Driver) -> None:
    with pytest.raises(UserError, match="unknown device option 'no_such_option'"):
        registry.create_device(f"{driver.name}://?no_such_option=1")


def test_a_device_matches_its_own_id(device: Device) -> None:
    assert device.query_i64("hal.device.id", device.id) == 1
    assert device.query_i64("hal.device.id", "no-such-device") == 0
    assert device.query_i64("no.such.category", "key") is None
