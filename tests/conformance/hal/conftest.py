"""Runs every case on every driver, less what the driver's opt-out file names with a reason.

An opt-out is a strict expectation: once the case passes, the suite fails until the line is gone.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from fakes.kernel_image import FORMAT, kernel_image
from tilewright.base.errors import DeviceError
from tilewright.runtime.drivers import registry
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.driver import Driver
from tilewright.runtime.hal.executable import Executable, ExecutableParams

FOLDER = Path(__file__).parent
DEVICES = {
    "local-sync": "local-sync://",
    "local-task": "local-task://?threads=3",
    "local-task-1": "local-task://?threads=1",
    "null": "null",
}


def driver_name(device: str) -> str:
    return device.removesuffix("-1")


def reasons(driver: str) -> dict[str, str]:
    path = FOLDER / "opt_outs" / f"{driver.replace('-', '_')}.py"
    spec = importlib.util.spec_from_file_location(f"opt_outs_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.REASONS


REASONS = {driver_name(name): reasons(driver_name(name)) for name in DEVICES}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases that a driver opts out of."""
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        name = parameters.get("device_name")
        if name is None or FOLDER not in item.path.parents:
            continue
        reason = REASONS[driver_name(name)].get(getattr(item, "originalname", ""))
        if reason is not None:
            raises = (DeviceError, AssertionError)
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True, raises=raises))


@pytest.fixture(params=list(DEVICES))
def device_name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def device(device_name: str) -> Device:
    return registry.create_device(DEVICES[device_name])


@pytest.fixture
def driver(device_name: str) -> Driver:
    return registry.REGISTRY.driver(driver_name(device_name))


@pytest.fixture
def executable(device: Device) -> Executable:
    cache = device.create_executable_cache("test")
    return cache.prepare_executable(ExecutableParams(format=FORMAT, data=kernel_image()))
